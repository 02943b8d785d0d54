"""kubelets: unit, how they joined, settings in force, who gets in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from slipway.release import Release
from slipway.spec import Cluster

CLIENT = "/var/lib/kubelet/pki/kubelet-client-current.pem"
SERVING = "/var/lib/kubelet/pki/kubelet-server-current.pem"

Hosts = Callable[[str], list[Any]]


@pytest.fixture
def nodes(hosts: Hosts) -> list[Any]:
    return hosts("nodes")


def configz(stack: Any, host: Any) -> dict[str, Any]:
    """The configuration that the kubelet runs with."""
    name = host.check_output("hostname")
    loaded: dict[str, Any] = json.loads(stack.kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/configz").stdout)
    inner: dict[str, Any] = loaded["kubeletconfig"]
    return inner


def test_unit(nodes: list[Any]) -> None:
    for host in nodes:
        unit = host.service("kubelet")
        assert unit.is_running
        assert unit.is_enabled


def test_version(nodes: list[Any], release: Release) -> None:
    for host in nodes:
        assert host.check_output("kubelet --version") == f"Kubernetes v{release.version('kubernetes')}"
        running = host.check_output("readlink /proc/$(systemctl show kubelet -p MainPID --value)/exe")
        assert running == f"/opt/slipway/kubernetes/{release.version('kubernetes')}/kubelet"


def test_joined_by_a_token_that_is_gone(nodes: list[Any]) -> None:
    for host in nodes:
        assert not host.file("/etc/kubernetes/kubelet-bootstrap.kubeconfig").exists
        name = host.check_output("hostname")
        subject = host.check_output(f"openssl x509 -noout -subject -nameopt RFC2253 -in {CLIENT}")
        assert subject == f"subject=CN=system:node:{name},O=system:nodes"


def test_certificates_are_for_root_only(nodes: list[Any]) -> None:
    for host in nodes:
        for path in (CLIENT, SERVING):
            real = host.file(host.check_output(f"readlink -f {path}"))
            assert (real.user, real.mode) == ("root", 0o600), path
        assert host.file("/var/lib/kubelet/kubeconfig").mode == 0o600
        assert host.file("/etc/kubernetes/kubelet.yaml").mode == 0o644


def test_serving_certificate_is_signed_and_names_the_node(nodes: list[Any]) -> None:
    for host in nodes:
        names = host.check_output(f"openssl x509 -noout -ext subjectAltName -in {SERVING}")
        assert host.check_output("hostname") in names
        assert host.check_output("hostname -I").split()[0] in names


def test_settings_in_force(lab: Any, nodes: list[Any], cluster: Cluster) -> None:
    for host in nodes:
        running = configz(lab, host)
        # Both: with the first alone the second becomes ten seconds, too.
        assert running["nodeStatusUpdateFrequency"] == "10s"
        assert running["nodeStatusReportFrequency"] == "5m0s"
        assert running["serializeImagePulls"] is False
        assert running["maxParallelImagePulls"] >= 2
        assert running["rotateCertificates"] is True
        assert running["serverTLSBootstrap"] is True
        assert running["authentication"]["anonymous"]["enabled"] is False
        assert running["authorization"]["mode"] == "Webhook"
        assert running["clusterDNS"] == [str(cluster.network.cluster_dns)]
        assert running["kubeReserved"]
        assert running["systemReserved"]
        unified = host.file("/sys/fs/cgroup/cgroup.controllers").exists
        assert running["cgroupDriver"] == ("systemd" if unified else "cgroupfs")


def test_refuses_those_without_a_certificate(nodes: list[Any]) -> None:
    probe = (
        "import ssl,urllib.request,urllib.error\n"
        "c=ssl.create_default_context(); c.check_hostname=False; c.verify_mode=ssl.CERT_NONE\n"
        "try: print(urllib.request.urlopen('https://127.0.0.1:10250/pods',context=c).status)\n"
        "except urllib.error.HTTPError as e: print(e.code)"
    )
    for host in nodes:
        assert host.run(f"python3 - <<'EOF'\n{probe}\nEOF").stdout.strip() == "401"


def test_listening(nodes: list[Any]) -> None:
    for host in nodes:
        listening = {line.split()[3] for line in host.check_output("ss -Hltnp").splitlines() if '"kubelet"' in line}
        assert "127.0.0.1:10248" in listening
        assert not any(address.endswith(":10255") for address in listening)


def test_nodes_are_ready_with_their_labels(lab: Any, cluster: Cluster) -> None:
    listed = {node["metadata"]["name"]: node for node in lab.get("nodes")["items"]}
    assert len(listed) == cluster.nodes
    for node in listed.values():
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert conditions["Ready"] == "True"
        assert node["metadata"]["labels"]["slipway.dev/pool"] in {pool.name for pool in cluster.pools}
