"""Bootstrap tokens: what a new node shows once to get its first certificate."""

from __future__ import annotations

import base64
import datetime as dt
import secrets
import ssl
import string
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import tenacity
import yaml

from slipway.play.broker import BrokerError

GROUP = "system:bootstrappers:slipway"
"""Who a node is until it has its certificate. RBAC lets this group ask for one."""

_LIFETIME = dt.timedelta(hours=1)
_ALPHABET = string.ascii_lowercase + string.digits
_PATIENCE_SECONDS = 90
"""How long the API may take to come up, or back."""


class _NotYetError(Exception):
    """The API is not there or not ready: worth another try."""


@dataclass(frozen=True)
class Cluster:
    """An API and the right to use it, out of a kubeconfig.

    Args:
        server: the API's URL.
        tls: its authority, and the client's certificate and key.
    """

    server: str
    tls: ssl.SSLContext = field(repr=False)


def cluster(kubeconfig: str, scratch: Path) -> Cluster:
    """Return the cluster of a kubeconfig's current context.

    Args:
        kubeconfig: YAML with embedded certificate data.
        scratch: a folder in memory of the user's own: TLS libraries take a client's key only as a file.

    Raises:
        BrokerError: something is missing in it.
    """
    try:
        config = yaml.safe_load(kubeconfig)
        context = _named(config["contexts"], config["current-context"])["context"]
        server = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        authority = base64.b64decode(server["certificate-authority-data"]).decode()
        pair = base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"])
        url = str(server["server"])
    except (yaml.YAMLError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise BrokerError(
            f"the kubeconfig of this play has no usable {error}; expected embedded certificates"
        ) from None
    tls = ssl.create_default_context(cadata=authority)
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        file.write(pair)
        file.flush()
        tls.load_cert_chain(file.name)
    return Cluster(url, tls)


async def make_token(target: Cluster, host: str, transport: httpx.AsyncBaseTransport | None = None) -> str:
    """Create a token that is good for an hour, and return it.

    Args:
        target: the cluster to join.
        host: who it is for; told in the token's description.
        transport: for tests.

    Raises:
        BrokerError: the API refuses, or does not answer for a minute and a half.
    """
    token_id = "".join(secrets.choice(_ALPHABET) for _ in range(6))
    token_secret = "".join(secrets.choice(_ALPHABET) for _ in range(16))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
        "stringData": {
            "description": f"slipway: {host}",
            "token-id": token_id,
            "token-secret": token_secret,
            "expiration": (dt.datetime.now(dt.UTC) + _LIFETIME).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": GROUP,
        },
    }
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(_NotYetError),
        wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5),
        stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
        reraise=True,
    )
    async with httpx.AsyncClient(verify=target.tls, transport=transport, timeout=10, trust_env=False) as client:
        try:
            async for attempt in retrying:
                with attempt:
                    await _post(client, f"{target.server}/api/v1/namespaces/kube-system/secrets", secret)
        except _NotYetError as error:
            raise BrokerError(
                f"{target.server} gave no bootstrap token within {_PATIENCE_SECONDS} s: {error}"
            ) from None
    return f"{token_id}.{token_secret}"


async def _post(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> None:
    try:
        answer = await client.post(url, json=body)
    except httpx.TransportError as error:
        raise _NotYetError(str(error) or type(error).__name__) from None
    if answer.status_code == httpx.codes.CONFLICT:  # our own earlier try, whose answer got lost
        return
    # Not found: a new API server makes the kube-system namespace a moment after it says that it is ready.
    if answer.status_code in {404, 429} or answer.is_server_error:
        raise _NotYetError(f"HTTP {answer.status_code}")
    if not answer.is_success:
        raise BrokerError(f"{url} refused a bootstrap token: HTTP {answer.status_code} {_reason(answer)}")


def _reason(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)
