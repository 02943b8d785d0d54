"""API servers as their role leaves them: unit, files, listening addresses, who gets in, what is encrypted."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipway.release import Release
from slipway.spec import Cluster
from tools import Stack

PKI = "/etc/slipway/pki"
CONFIG = "/etc/kubernetes/apiserver"

Hosts = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def servers(hosts: Hosts) -> list[Any]:
    return hosts("apiservers")


def get(host: Any, path: str, *openssl: str) -> str:
    """Status line of a GET to the host's own API server; the host has openssl, and needs nothing more for this."""
    request = f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n"
    extra = " ".join(map(shlex.quote, openssl))
    command = (
        f"printf '{request}' | timeout 20 openssl s_client -quiet -connect 127.0.0.1:6443 -verify_return_error "
        f"-CAfile {PKI}/authorities/kubernetes.crt {extra} 2>/dev/null | head -n 1"
    )
    return str(host.run(command).stdout).strip()


def etcdctl(host: Any, arguments: str, **files: str) -> Any:
    """etcdctl on a member, with the host's own client certificate unless `files` says otherwise."""
    used = {
        "cacert": f"{PKI}/authorities/{files.pop('authority', 'etcd')}.crt",
        "cert": f"{PKI}/etcd/client.crt",
        "key": f"{PKI}/etcd/client.key",
        **files,
    }
    flags = " ".join(f"--{name}={value}" for name, value in used.items())
    return host.run(f"etcdctl --endpoints=https://127.0.0.1:2379 {flags} {arguments}")


def test_unit_runs_under_its_own_user(servers: list[Any]) -> None:
    for host in servers:
        unit = host.service("kube-apiserver")
        assert unit.is_running
        assert unit.is_enabled
        assert [process.user for process in host.process.filter(comm="kube-apiserver")] == ["kube-apiserver"]


def test_version_is_the_release_s(servers: list[Any], release: Release) -> None:
    wanted = "v" + release.components["kubernetes"].version
    for host in servers:
        assert host.check_output("kube-apiserver --version").split()[-1] == wanted
        assert f"Client Version: {wanted}" in host.check_output("kubectl version --client")


def test_private_files(servers: list[Any]) -> None:
    names = ("serving", "etcd-client", "kubelet-client", "front-proxy-client")
    keys = [f"{PKI}/kube-apiserver/{name}.key" for name in names]
    keys += [f"{CONFIG}/service-account.key", f"{CONFIG}/encryption.yaml"]
    for host in servers:
        for path in keys:
            file = host.file(path)
            assert (file.user, file.mode) == ("kube-apiserver", 0o600), path


def test_configuration_belongs_to_root(servers: list[Any]) -> None:
    for host in servers:
        directory = host.file(CONFIG)
        assert (directory.user, directory.group, directory.mode) == ("root", "kube-apiserver", 0o750)
        for name in ("client-ca.crt", "etcd-ca.crt", "audit-policy.yaml", "authentication.yaml"):
            assert (host.file(f"{CONFIG}/{name}").user, host.file(f"{CONFIG}/{name}").mode) == ("root", 0o644)


def test_no_secret_in_the_command_line(servers: list[Any]) -> None:
    for host in servers:
        secret = host.file(f"{CONFIG}/encryption.yaml").content_string.split('"secret": "')[1].split('"')[0]
        for process in host.process.filter(comm="kube-apiserver"):
            assert secret not in process.args
            assert "PRIVATE KEY" not in process.args


def test_no_administrator_s_credential_is_left(servers: list[Any]) -> None:
    for host in servers:
        found = host.run(
            "grep -rlE 'system:masters|client-key-data' --include='*conf*' /etc/kubernetes /etc/slipway /root"
        )
        assert found.stdout == ""


def test_only_health_without_a_credential(servers: list[Any]) -> None:
    for host in servers:
        for path in ("/livez", "/readyz", "/healthz"):
            assert " 200 " in get(host, path), path
        for path in ("/api", "/api/v1/namespaces/default/secrets", "/version", "/metrics", "/openapi/v3"):
            assert " 401 " in get(host, path), path


def test_plain_http_is_refused(servers: list[Any]) -> None:
    ask = r"printf 'GET /readyz HTTP/1.0\r\n\r\n' | bash -c 'exec 3<>/dev/tcp/127.0.0.1/6443; cat >&3; head -n1 <&3'"
    for host in servers:
        assert " 400 " in host.run(ask).stdout


def test_old_tls_is_refused(servers: list[Any]) -> None:
    for host in servers:
        assert get(host, "/readyz", "-tls1_2") == ""


def test_a_client_of_another_authority_is_refused(servers: list[Any]) -> None:
    for host in servers:
        for name in ("etcd-client", "front-proxy-client"):
            stem = f"{PKI}/kube-apiserver/{name}"
            assert " 401 " in get(host, "/api", "-cert", f"{stem}.crt", "-key", f"{stem}.key"), name


def test_both_etcd_clusters_accept_the_api_servers_certificate(servers: list[Any], lab: Stack) -> None:
    """And no certificate of another authority."""
    stem = f"{PKI}/kube-apiserver/etcd-client"
    own = f"{PKI}/authorities"
    for group, authority in (("etcd", "etcd"), ("etcd_events", "etcd-events")):
        address = lab.host(lab.named(group)[0])["address"]
        for certificate, accepted in ((stem, True), (f"{PKI}/kube-apiserver/kubelet-client", False)):
            done = servers[0].run(
                f"(sleep 1) | timeout 10 openssl s_client -connect {address}:2379 -verify_return_error "
                f"-CAfile {own}/{authority}.crt -cert {certificate}.crt -key {certificate}.key"
            )
            # With TLS 1.3 a refused client certificate is reported after the handshake.
            assert ("alert" not in done.stdout + done.stderr) is accepted, (group, certificate)


@pytest.fixture
def secret(lab: Stack) -> Iterator[tuple[str, str]]:
    """A Secret in the cluster: its name and its value."""
    name, value = f"test-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    lab.kubectl("create", "secret", "generic", name, f"--from-literal=value={value}")
    yield name, value
    lab.kubectl("delete", "secret", name)


def test_secrets_are_encrypted_in_etcd(hosts: Hosts, secret: tuple[str, str]) -> None:
    name, value = secret
    read = f"get --print-value-only /registry/secrets/default/{name}"
    assert etcdctl(hosts("etcd")[0], f"{read} | head -c 21").stdout == "k8s:enc:secretbox:v1:"
    assert etcdctl(hosts("etcd")[0], f"{read} | grep -c {value}").stdout.strip() == "0"


def test_events_are_only_in_the_events_etcd(lab: Stack, hosts: Hosts) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "none", "namespace": "default"},
        "reason": "Test",
    }
    lab.kubectl("create", "-f", "-", input=json.dumps(event))
    listed = "get --prefix --keys-only /registry/events/"
    assert (
        f"/registry/events/default/{name}" in etcdctl(hosts("etcd_events")[0], listed, authority="etcd-events").stdout
    )
    assert etcdctl(hosts("etcd")[0], listed).stdout.strip() == ""


def test_audit_log_tells_who_without_bodies(servers: list[Any], secret: tuple[str, str]) -> None:
    del secret
    for host in servers:
        log = host.file("/var/log/kubernetes/audit.log")
        assert (log.user, log.mode) == ("kube-apiserver", 0o600)
        folder = host.file("/var/log/kubernetes")
        assert (folder.user, folder.mode) == ("kube-apiserver", 0o750)
        lines = host.check_output("tail -n 50 /var/log/kubernetes/audit.log").splitlines()
        entries = [json.loads(line) for line in lines]
        assert entries
        assert all("requestObject" not in entry and "responseObject" not in entry for entry in entries)
        assert not any(entry["requestURI"].startswith(("/readyz", "/livez")) for entry in entries)


def test_connections_move_between_api_servers(servers: list[Any], cluster: Cluster) -> None:
    several = cluster.apiservers.count > 1
    for host in servers:
        text = host.check_output("systemctl cat kube-apiserver")
        assert ('"--goaway-chance=0.001"' in text) is several
