"""kube-proxy on the nodes: unit, mode, whose certificate, a Service that answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slipway.release import Release
from slipway.spec import Cluster

Hosts = Callable[[str], list[Any]]


@pytest.fixture
def nodes(hosts: Hosts) -> list[Any]:
    return hosts("nodes")


def test_unit(nodes: list[Any]) -> None:
    for host in nodes:
        unit = host.service("kube-proxy")
        assert unit.is_running
        assert unit.is_enabled


def test_version(nodes: list[Any], release: Release) -> None:
    for host in nodes:
        assert host.check_output("kube-proxy --version") == f"Kubernetes v{release.version('kubernetes')}"


def test_mode_is_nftables(nodes: list[Any]) -> None:
    for host in nodes:
        shown = host.check_output(
            "python3 -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:10249/proxyMode').read().decode())\""
        )
        assert shown == "nftables"
        assert "table ip kube-proxy" in host.check_output("nft list tables").splitlines()


def test_metrics_only_for_the_host_itself(nodes: list[Any]) -> None:
    for host in nodes:
        listening = {line.split()[3] for line in host.check_output("ss -Hltnp").splitlines() if '"kube-proxy"' in line}
        assert "127.0.0.1:10249" in listening
        assert {address.rsplit(":", 1)[1] for address in listening} == {"10249", "10256"}


def test_uses_the_kubelets_certificate(nodes: list[Any]) -> None:
    for host in nodes:
        file = host.file("/etc/kubernetes/kube-proxy.kubeconfig")
        assert (file.user, file.mode) == ("root", 0o644)
        assert "kubelet-client-current.pem" in file.content_string
        assert "token" not in file.content_string
        assert "-data" not in file.content_string


def test_the_api_answers_at_its_service_address(nodes: list[Any], cluster: Cluster) -> None:
    address = cluster.network.kubernetes_service
    request = "printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n'"
    client = "timeout 10 openssl s_client -quiet -verify_return_error"
    checks = f"-CAfile /etc/slipway/pki/authorities/kubernetes.crt -verify_ip {address}"
    for host in nodes:
        assert "200 OK" in host.run(f"{request} | {client} {checks} -connect {address}:443 2>&1").stdout
