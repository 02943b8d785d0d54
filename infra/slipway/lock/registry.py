"""Images in OCI registries, by the registry's own protocol (OCI distribution specification)."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from pathlib import Path
from typing import Any

import httpx

from slipway.artifacts import download

MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


class RegistryError(Exception):
    """An image that cannot be had; one line."""


class Repository:
    """One repository of a registry.

    Args:
        reference: `<registry>/<repository>:<tag>`.
    """

    def __init__(self, reference: str) -> None:
        host, _, rest = reference.partition("/")
        self.reference = reference
        self.name, _, self.tag = rest.rpartition(":")
        host = "registry-1.docker.io" if host == "docker.io" else host
        self._base = f"{'http' if _is_loopback(host) else 'https'}://{host}/v2/{self.name}"
        self._token: str | None = None

    def manifest(self, wanted: str) -> tuple[str, str, bytes]:
        """Return (digest, media type, content) of a manifest by its tag or digest.

        Raises:
            RegistryError: it is not there, or not what its name says.
        """
        answer = self._get(f"manifests/{wanted}", ", ".join(MANIFESTS))
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        said = wanted if wanted.startswith("sha256:") else answer.headers.get("Docker-Content-Digest", digest)
        if said != digest:
            raise RegistryError(f"{answer.url}: wanted {said}, got {digest}")
        return digest, answer.headers.get("Content-Type", "").partition(";")[0], answer.content

    def blob(self, digest: str, folder: Path) -> Path:
        """Return the file of a blob, fetched into a folder if it is not there; what broke off goes on.

        Raises:
            RegistryError: it cannot be had, or is another one.
        """
        url, wanted = f"{self._base}/blobs/{digest}", digest.removeprefix("sha256:")
        try:
            try:
                return download.fetch(url, "sha256", wanted, folder, headers=self._headers())
            except download.WrongDigestError:
                raise
            except download.DownloadError:
                # A token is good for minutes, large images take longer.
                self._token = None
                self.manifest(self.tag)
                return download.fetch(url, "sha256", wanted, folder, headers=self._headers())
        except download.DownloadError as error:
            raise RegistryError(str(error)) from None

    def _get(self, path: str, accept: str) -> httpx.Response:
        url = f"{self._base}/{path}"
        try:
            answer = self._once(url, accept)
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                self._token = _token(answer)
                answer = self._once(url, accept)
        except httpx.HTTPError as error:
            raise RegistryError(f"{url}: {' '.join(str(error).split()) or type(error).__name__}") from None
        except download.DownloadError as error:
            raise RegistryError(str(error)) from None
        if not answer.is_success:
            raise RegistryError(f"{url}: answers {answer.status_code}")
        return answer

    def _once(self, url: str, accept: str) -> httpx.Response:
        headers = {"Accept": accept, **self._headers()}
        return httpx.get(url, headers=headers, follow_redirects=True, timeout=_TIMEOUT, verify=download.tls())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _token(refused: httpx.Response) -> str:
    """Return a token for anyone, from where the registry's refusal says."""
    said: dict[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', refused.headers.get("WWW-Authenticate", "")))
    if "realm" not in said:
        raise RegistryError(f"{refused.url}: answers 401 and names no place for a token")
    asked = "&".join(f"{key}={said[key]}" for key in ("service", "scope") if key in said)
    answer: dict[str, Any] = download.read(f"{said['realm']}?{asked}").json()
    return str(answer.get("token") or answer.get("access_token") or "")


def _is_loopback(host: str) -> bool:
    """Registries on this machine speak plain HTTP, as all tools have it."""
    name = host.partition(":")[0]
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
