"""The lab cluster does what a cluster is for: nodes, pods, names, logs, events in their own etcd."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from slipway import spec
from slipway.release import Release
from tools import SLIPWAY, Stack, environment, eventually, run

pytestmark = pytest.mark.lab

APP = "netprobe"


@pytest.fixture(scope="module")
def image(release: Release) -> str:
    return release.image("netprobe")


@pytest.fixture(scope="module")
def app(lab: Stack, image: str) -> Iterator[list[dict[str, Any]]]:
    """Two pods of a small server on two nodes, behind a Service; yields the pods."""
    labels = {"app": APP}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": APP},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "topologySpreadConstraints": [
                            {
                                "maxSkew": 1,
                                "topologyKey": "kubernetes.io/hostname",
                                "whenUnsatisfiable": "DoNotSchedule",
                                "labelSelector": {"matchLabels": labels},
                            }
                        ],
                        "containers": [
                            {
                                "name": APP,
                                "image": image,
                                "imagePullPolicy": "Never",
                                "args": ["serve", "--listen", ":8080"],
                                "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1},
                            }
                        ],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": APP},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
    ]
    lab.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    lab.kubectl("rollout", "status", f"deployment/{APP}", "--timeout=120s", timeout=150)
    yield [pod for pod in lab.get("pods", "-l", f"app={APP}")["items"] if not pod["metadata"].get("deletionTimestamp")]
    lab.kubectl("delete", "deployment,service", APP, "--wait=false")


def test_nodes_are_ready_with_their_labels(lab: Stack, cluster: spec.Cluster, release: Release) -> None:
    nodes = {node["metadata"]["name"]: node for node in lab.get("nodes")["items"]}
    assert sorted(nodes) == sorted(lab.named("nodes"))
    for name, node in nodes.items():
        ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
        assert ready["status"] == "True", (name, ready)
        assert node["status"]["nodeInfo"]["kubeletVersion"] == f"v{release.components['kubernetes'].version}"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].endswith(release.components["containerd"].version)
        assert node["metadata"]["labels"]["slipway.dev/pool"] == lab.host(name)["pool"]
    gpu = nodes[lab.named("gpu")[0]]
    assert gpu["metadata"]["labels"]["slipway.dev/accelerator"] == "gpu"
    assert cluster.nodes == len(nodes)


def test_two_pods_run_on_two_nodes(app: list[dict[str, Any]]) -> None:
    assert len({pod["spec"]["nodeName"] for pod in app}) == 2


def test_pods_reach_each_other_across_nodes(lab: Stack, app: list[dict[str, Any]]) -> None:
    first, second = app
    shown = lab.kubectl(
        "exec", first["metadata"]["name"], "--", "/netprobe", "get", f"http://{second['status']['podIP']}:8080/"
    )
    assert second["metadata"]["name"] in shown.stdout


def test_service_by_its_name_reaches_both(lab: Stack, app: list[dict[str, Any]], cluster: spec.Cluster) -> None:
    asking = app[0]["metadata"]["name"]
    url = f"http://{APP}.default.svc.{cluster.network.domain}/"

    def both() -> bool:
        seen = {lab.kubectl("exec", asking, "--", "/netprobe", "get", url).stdout for _ in range(8)}
        return all(any(pod["metadata"]["name"] in answer for answer in seen) for pod in app)

    eventually("both pods answer under the Service's name", both, deadline=30)
    short = lab.kubectl("exec", asking, "--", "/netprobe", "resolve", APP).stdout
    service = lab.get("service", APP)
    assert service["spec"]["clusterIP"] in short


def test_logs_and_exec(lab: Stack, app: list[dict[str, Any]]) -> None:
    for pod in app:
        name = pod["metadata"]["name"]
        lab.kubectl("exec", name, "--", "/netprobe", "get", "http://127.0.0.1:8080/")
        assert lab.kubectl("logs", name).stdout.strip()


def test_port_forward(lab: Stack, app: list[dict[str, Any]]) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = app[0]["metadata"]["name"]
    env = {**environment(), "KUBECONFIG": str(lab.kubeconfig)}
    with subprocess.Popen(
        ["kubectl", "port-forward", name, f"{port}:8080"], env=env, stdout=subprocess.DEVNULL
    ) as forward:
        try:

            def answers() -> bool:
                try:
                    return name in httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).text
                except httpx.TransportError:
                    return False

            eventually("the forwarded port answers", answers, deadline=20)
        finally:
            forward.terminate()


def test_events_live_in_their_own_etcd(lab: Stack, app: list[dict[str, Any]]) -> None:
    del app  # its pods made events
    count = "etcdctl get /registry/events/ --prefix --keys-only --limit 5 | grep -c ^/registry/events/ || true"
    assert int(lab.ssh(lab.named("etcd_events")[0], count).stdout) > 0
    assert int(lab.ssh(lab.named("etcd")[0], count).stdout) == 0
    everything = "etcdctl get / --prefix --keys-only | grep -v ^$ | grep -vc ^/registry/events/ || true"
    assert int(lab.ssh(lab.named("etcd_events")[0], everything).stdout) == 0


def test_secrets_are_encrypted_at_rest(lab: Stack) -> None:
    lab.kubectl("create", "secret", "generic", "at-rest", "--from-literal=word=plainly-visible")
    try:
        stored = lab.ssh(lab.named("etcd")[0], "etcdctl get /registry/secrets/default/at-rest | tr -dc '[:print:]'")
        assert "k8s:enc:" in stored.stdout
        assert "plainly-visible" not in stored.stdout
    finally:
        lab.kubectl("delete", "secret", "at-rest")


def test_anonymous_sees_health_and_nothing_else(lab: Stack) -> None:
    server = f"https://{lab.host(lab.named('load_balancers')[0])['address']}:6443"
    kubeconfig = lab.kubeconfig.read_text()
    assert server in kubeconfig
    with httpx.Client(verify=False, trust_env=False) as client:  # noqa: S501  (the anonymous stranger has no authority file)
        assert client.get(f"{server}/readyz").status_code == 200
        assert client.get(f"{server}/api/v1/nodes").status_code == 401
        assert client.get(f"{server}/version").status_code == 401


def test_dns_pods_are_on_different_nodes(lab: Stack) -> None:
    pods = lab.get("pods", "-n", "kube-system", "-l", "k8s-app=kube-dns")["items"]
    assert len(pods) == 2
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2


def test_every_serving_certificate_was_approved(lab: Stack) -> None:
    requests = [
        item for item in lab.get("csr")["items"] if item["spec"]["signerName"] == "kubernetes.io/kubelet-serving"
    ]
    assert {item["spec"]["username"] for item in requests} >= {f"system:node:{name}" for name in lab.named("nodes")}
    for item in requests:
        assert any(c["type"] == "Approved" for c in item["status"].get("conditions", [])), item["metadata"]["name"]


def test_hosts_and_nodes_say_their_release(lab: Stack, release: Release) -> None:
    digest = release.digest()
    for node in lab.get("nodes")["items"]:
        labels = node["metadata"]["labels"]
        assert labels["slipway.dev/release"] == release.id
        assert labels["slipway.dev/release-digest"] == digest[:12]
    shown = json.loads(run(SLIPWAY, "status", "lab", "--json", check=False).stdout)
    # A host that an earlier release made the same says that one.
    assert {host["release_digest"] for host in shown} == {digest} or not lab.ours
