"""A cluster from a mirror alone: hosts with no other way, HTTPS with an authority that nobody else knows."""

from __future__ import annotations

import datetime as dt
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slipway.artifacts import arch
from slipway.fleet.lab import network
from tools import copy_checkout, environment, eventually, run

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "alone"
NETWORK = network.NetworkSpec(name=NAME, cidr=ipaddress.IPv4Network("10.213.97.0/24"), bridge="slipway-alone")
PORT = 8443
URL = f"https://{NETWORK.gateway}:{PORT}"

WALL = f"""
table inet slipway-test-{NAME} {{
    chain forward {{
        type filter hook forward priority -10
        iifname "{NETWORK.bridge}" oifname != "{NETWORK.bridge}" counter drop
    }}
    chain input {{
        type filter hook input priority -10
        iifname "{NETWORK.bridge}" ct state established,related accept
        iifname "{NETWORK.bridge}" tcp dport {PORT} counter accept
        iifname "{NETWORK.bridge}" meta l4proto {{ tcp, udp }} counter drop
    }}
}}
"""


def certificate(folder: Path) -> str:
    """Make an authority, and a certificate and key of the mirror in a folder; return the authority (PEM)."""
    now = dt.datetime.now(dt.UTC)

    def builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]),
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - dt.timedelta(hours=1),
            not_valid_after=now + dt.timedelta(days=1),
        )

    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    ours = x509.BasicConstraints(ca=True, path_length=0)
    usage = x509.KeyUsage(*[False] * 5, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False)
    signed = builder("a site", "a site", keys[0]).add_extension(ours, critical=True).add_extension(usage, critical=True)
    own = x509.SubjectKeyIdentifier.from_public_key(keys[0].public_key())
    authority = signed.add_extension(own, critical=False).sign(keys[0], hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.IPAddress(NETWORK.gateway)])
    # Newer Pythons refuse a certificate that does not say whose key signed it.
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key())
    leaf = builder("mirror", "a site", keys[1]).add_extension(names, critical=False)
    served = leaf.add_extension(signer, critical=False).sign(keys[0], hashes.SHA256())
    (folder / "mirror.crt").write_bytes(served.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "mirror.key").touch(mode=0o600)
    (folder / "mirror.key").write_bytes(keys[1].private_bytes(serialization.Encoding.PEM, *private))
    return authority.public_bytes(serialization.Encoding.PEM).decode()


def declared(fingerprint: str, authority: str) -> dict[str, Any]:
    one = {"count": 1}
    return {
        "name": NAME,
        "release": "lab",
        "fleet": {"kind": "lab", "bridge": NETWORK.bridge},
        "network": {"hosts": str(NETWORK.cidr), "pods": "10.212.0.0/16", "services": "10.211.0.0/16"},
        "etcd": one,
        "etcd_events": one,
        "apiservers": one,
        "pools": [{"name": "cpu", "count": 1}],
        "mirror": {"url": URL, "fingerprint": fingerprint},
        "upstream": {"authorities": [authority]},
    }


@contextmanager
def walled() -> Iterator[None]:
    """The network of the cluster, from which nothing but the mirror can be reached."""
    network.ensure(NETWORK)
    subprocess.run(["nft", "-f", "-"], input=WALL, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(["nft", "delete", "table", "inet", f"slipway-test-{NAME}"], check=True)
        network.destroy(NAME)


@contextmanager
def serving(checkout: Path, folder: Path, files: Path) -> Iterator[None]:
    command = [str(checkout / "slipway"), "mirror", "serve", str(folder), "--listen", f"{NETWORK.gateway}:{PORT}"]
    command += ["--certificate", str(files / "mirror.crt"), "--private-key", str(files / "mirror.key")]
    with subprocess.Popen(command) as server:
        try:
            yield
        finally:
            server.terminate()


def answers() -> bool:
    try:
        return httpx.get(f"{URL}/slipway-mirror.asc", verify=False).is_success  # noqa: S501 (whether it is up)
    except httpx.TransportError:
        return False


def on(slipway: str, group: str, command: str) -> str:
    """Run a command on the first host of a group."""
    return run(slipway, "lab", "shell", f"{NAME}-{group}-0", "sh", "-c", command).stdout


def test_a_cluster_comes_up_from_a_mirror_alone(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    slipway, folder = str(checkout / "slipway"), tmp_path / "mirror"
    authority = certificate(tmp_path)
    target = f"debian13/{arch()}"
    built = run(slipway, "mirror", "build", "lab", "--for", target, str(folder), timeout=600).stdout
    assert "are right" in run(slipway, "mirror", "verify", str(folder)).stdout
    told = yaml.safe_load(built.partition("in a stack file:")[2])["mirror"]
    stack = {"config": {"slipway:cluster": declared(told["fingerprint"], authority)}}
    (checkout / f"stacks/Pulumi.{NAME}.yaml").write_text(yaml.safe_dump(stack))
    with walled(), serving(checkout, folder, tmp_path):
        eventually("the mirror answers", answers, deadline=30)
        try:
            run(slipway, "up", NAME, timeout=600)
            hosts = run(slipway, "lab", "list").stdout
            assert hosts.count(f"{NAME}-") == 5
            for name in ("etcd", "cpu"):
                assert on(slipway, name, "timeout 3 bash -c '</dev/tcp/1.1.1.1/80' || echo closed") == "closed\n"
                stamps = on(slipway, name, "cat /opt/slipway/*/*/.slipway.json")
                assert f'"source": "{URL}/engines/' in stamps
                assert '"source": "file:' not in stamps
            assert f"{URL}/apt debian13-lab/main" in on(slipway, "lb", "apt-cache policy haproxy")
            again = run(slipway, "up", NAME, timeout=300).stdout
            assert "unchanged" in again
            # Without the mirror hosts are as others are; nothing has to be fetched for that.
            del stack["config"]["slipway:cluster"]["mirror"], stack["config"]["slipway:cluster"]["upstream"]
            (checkout / f"stacks/Pulumi.{NAME}.yaml").write_text(yaml.safe_dump(stack))
            run(slipway, "up", NAME, timeout=300)
            assert "slipway.sources.d" not in on(slipway, "etcd", "apt-config dump")
            left = "find /etc/apt /usr/local/share/ca-certificates -name 'mirror.sources' -o -name 'slipway-*.crt'"
            assert on(slipway, "etcd", left) == ""
        finally:
            run(slipway, "destroy", NAME, timeout=300)
            run("pulumi", "stack", "rm", NAME, "--yes", env=environment(), cwd=checkout)
