"""A node's own view of the API: reads its Node object with the kubelet's credentials. Standard library only.

Used by modules on the host and, installed beside it, by the pod network agent.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from typing import Any

TIMEOUT_SECONDS = 10


class ApiError(Exception):
    """The API gave no Node object; the text says why. `status` is the HTTP status, 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


def get_node(server: str, authority_file: str, client_certificate: str, name: str) -> dict[str, Any]:
    """Read the Node object `name` once.

    `server` is the API's URL (https), `client_certificate` a PEM file with certificate and key, read anew each time as
    the kubelet rotates it. Raises ApiError.
    """
    url = urllib.parse.urlsplit(server)
    try:
        context = ssl.create_default_context(cafile=authority_file)
        # As strict as the kubelet itself: an authority without a key usage extension is fine.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.load_cert_chain(client_certificate)
    except (OSError, ssl.SSLError) as error:
        raise ApiError(f"{client_certificate} or {authority_file} cannot be read: {error}") from None
    connection = http.client.HTTPSConnection(
        url.hostname or "", url.port or 443, context=context, timeout=TIMEOUT_SECONDS
    )
    try:
        connection.request("GET", f"/api/v1/nodes/{urllib.parse.quote(name)}", headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise ApiError(f"{server} does not answer: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if response.status == 404:
        raise ApiError(f"there is no Node {name} yet", 404)
    if response.status != 200:
        raise ApiError(f"{server} answered {response.status} {response.reason} for Node {name}", response.status)
    try:
        node: dict[str, Any] = json.loads(body)
    except ValueError:
        raise ApiError(f"{server} answered something that is not JSON") from None
    return node


def pod_networks(node: dict[str, Any]) -> list[str]:
    """The networks (CIDR) that the node may give to its pods; empty while the controller has given none."""
    spec = node.get("spec", {})
    networks: list[str] = list(spec.get("podCIDRs") or [])
    return networks or ([spec["podCIDR"]] if spec.get("podCIDR") else [])


def not_ready_reason(node: dict[str, Any]) -> str:
    """Empty when the node is Ready, else the reason the kubelet gives."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition.get("type") == "Ready":
            if condition.get("status") == "True":
                return ""
            return str(condition.get("message") or condition.get("reason") or "Ready is not True")
    return "the kubelet has not reported yet"
