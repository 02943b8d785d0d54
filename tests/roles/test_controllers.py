"""Controller manager, scheduler and approver as their role leaves them."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slipway.release import Release
from tools import Stack, eventually

CONFIG = "/etc/kubernetes/controllers"
PKI = "/etc/slipway/pki"
UNITS = ("kube-controller-manager", "kube-scheduler", "csr-approver")
LEASES = {"kube-controller-manager": UNITS[0], "kube-scheduler": UNITS[1], "slipway-csr-approver": UNITS[2]}

Hosts = Callable[[str], list[Any]]


@pytest.fixture(scope="module")
def servers(hosts: Hosts) -> list[Any]:
    return hosts("apiservers")


@pytest.mark.parametrize("unit", UNITS)
def test_unit_runs_under_its_own_user(servers: list[Any], unit: str) -> None:
    for host in servers:
        service = host.service(unit)
        assert service.is_running
        assert service.is_enabled
        pid = host.check_output(f"systemctl show --property=MainPID --value {unit}")
        assert host.check_output(f"ps -o user:32= -p {pid}").strip() == unit


@pytest.mark.parametrize("unit", UNITS[:2])
def test_version_is_the_release_s(servers: list[Any], release: Release, unit: str) -> None:
    for host in servers:
        assert host.check_output(f"{unit} --version").split()[-1] == "v" + release.components["kubernetes"].version


def test_private_files(servers: list[Any]) -> None:
    owners = {f"{CONFIG}/{name}.key": "kube-controller-manager" for name in ("kubelet-authority", "service-account")}
    owners |= {f"{PKI}/{unit}/client.key": unit for unit in UNITS}
    for host in servers:
        for path, owner in owners.items():
            file = host.file(path)
            assert (file.user, file.mode) == (owner, 0o600), path


@pytest.mark.parametrize("port", [10257, 10259, 10270])
def test_served_on_loopback_only(servers: list[Any], port: int) -> None:
    for host in servers:
        listening = host.check_output(f"ss -Hltn 'sport = :{port}'").split()[3::5]
        assert listening == [f"127.0.0.1:{port}"]


def test_local_api_server_is_used(servers: list[Any]) -> None:
    for host in servers:
        for unit in UNITS:
            assert "server: https://127.0.0.1:6443\n" in host.file(f"{CONFIG}/{unit}.kubeconfig").content_string


@pytest.mark.parametrize("lease", LEASES)
def test_one_leads(lab: Stack, servers: list[Any], lease: str) -> None:
    names = [host.check_output("hostname") for host in servers]
    holder = lab.get("lease", "--namespace", "kube-system", lease)["spec"]["holderIdentity"]
    assert holder.split("_")[0] in names


def test_only_kubelet_certificates_can_be_signed(servers: list[Any]) -> None:
    for host in servers:
        text = host.check_output("systemctl cat kube-controller-manager")
        signing = [line for line in text.splitlines() if "--cluster-signing-" in line and "-file=" in line]
        assert len(signing) == 4
        assert all("--cluster-signing-kubelet-" in line for line in signing)


def request(name: str, node: str, dns: str, usages: list[str]) -> str:
    """A CertificateSigningRequest for kubelet-serving, made by an administrator for a node that is not his."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(dns)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kubelet-serving",
            "usages": usages,
            "request": base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode(),
        },
    }
    return json.dumps(body)


def test_a_serving_certificate_for_somebody_else_is_denied(lab: Stack) -> None:
    name = f"test-{uuid.uuid4().hex[:8]}"
    node = lab.named("cpu")[0]
    lab.kubectl("create", "-f", "-", input=request(name, node, node, ["digital signature", "server auth"]))
    try:
        status = eventually("request is settled", lambda: lab.get("csr", name)["status"], deadline=30)
        assert [condition["type"] for condition in status["conditions"]] == ["Denied"]
        assert "is no node" in status["conditions"][0]["message"]
        assert "certificate" not in status
    finally:
        lab.kubectl("delete", "csr", name)


def test_every_node_has_a_serving_certificate(lab: Stack) -> None:
    """Approved by the approver, not by hand: the reason is its own."""
    requests = lab.get("csr")["items"]
    approved = {
        item["spec"]["username"]
        for item in requests
        if item["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
        and any(condition["reason"] == "SlipwayApproved" for condition in item["status"].get("conditions", []))
    }
    for node in lab.named("cpu") + lab.named("gpu"):
        assert f"system:node:{node}" in approved
