"""The way to what is outside, as a stack says: proxies, private authorities, other addresses of publishers.

It is put into this process's environment, where everything that downloads looks: our own downloads, apt, Go and what
they start.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from pathlib import Path

from slipway import paths
from slipway.artifacts import download
from slipway.fleet import addresses
from slipway.spec import Cluster


def enter(cluster: Cluster) -> None:
    """Let this process and its children use the way out of a cluster; what the user's environment says comes first."""
    outside = cluster.upstream
    download.use_instead(outside.addresses)
    proxies = {"http_proxy": outside.http_proxy, "https_proxy": outside.https_proxy}
    for name, value in proxies.items():
        if value and not (os.environ.get(name) or os.environ.get(name.upper())):
            os.environ[name] = os.environ[name.upper()] = value
    if any(proxies.values()):
        before = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, [before, *addresses.direct(cluster)]))
    if outside.authorities:
        os.environ["SSL_CERT_FILE"] = str(_bundle("\n".join(outside.authorities)))
        download.tls.cache_clear()


def _bundle(authorities: str) -> Path:
    """Return a file with the authorities that the environment or the machine trusts, and more."""
    known = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    public = Path(known).read_text() if known and Path(known).is_file() else ""
    text = f"{public.rstrip()}\n{authorities.strip()}\n"
    made = paths.cache() / "authorities" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pem"
    if not made.is_file():
        made.parent.mkdir(parents=True, exist_ok=True)
        fresh = made.with_name(f".{made.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(made)
    return made
