"""Nodes that leave a cluster: drained first, as budgets allow, and gone without a trace afterwards."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.play.nodes import CORDONED_BY
from slipway.release import Release
from slipway.spec import CONFIG_KEY
from tools import ROOT, Stack, copy_checkout, eventually, run

pytestmark = pytest.mark.lab

APP = "leaving"
BUDGET = "allows-nothing"


class Checkout:
    """A copy of the checkout, in which the stack's first pool can be changed."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = copy_checkout(folder)
        self.stack = stack.name
        self.file = self.folder / f"stacks/Pulumi.{stack.name}.yaml"
        shutil.copy2(ROOT / self.file.relative_to(self.folder), self.file)  # Git may not know it
        self.pool: dict[str, Any] = yaml.safe_load(self.file.read_text())["config"][CONFIG_KEY]["pools"][0]

    def up(self, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Bring the stack up with some values of its first pool changed."""
        declared = yaml.safe_load(self.file.read_text())
        declared["config"][CONFIG_KEY]["pools"][0] = self.pool | changes
        self.file.write_text(yaml.safe_dump(declared))
        return run(str(self.folder / "slipway"), "up", self.stack, check=False, timeout=300)


@pytest.fixture
def checkout(lab: Stack, tmp_path: Path) -> Iterator[Checkout]:
    yield Checkout(tmp_path / "checkout", lab)
    lab.kubectl("delete", "deployment,pdb", APP, BUDGET, "--ignore-not-found", "--wait=false")
    lab.up()


def app(image: str, node: str) -> dict[str, Any]:
    """A pod that prefers a node, and a budget that never lets it go."""
    labels = {"app": APP}
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    affinity = {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    }
    spec = {
        "affinity": affinity,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": APP, "image": image, "imagePullPolicy": "Never"}],
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": APP},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": BUDGET},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": labels}},
    }
    return {"apiVersion": "v1", "kind": "List", "items": [deployment, budget]}


def nodes(lab: Stack) -> dict[str, Any]:
    return {node["metadata"]["name"]: node for node in lab.get("nodes")["items"]}


def running_on(lab: Stack) -> list[str]:
    pods = lab.get("pods", "-l", f"app={APP}")["items"]
    return [pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running"]


def test_a_node_leaves_once_its_budget_lets_it(lab: Stack, checkout: Checkout, release: Release) -> None:
    before = nodes(lab)
    count: int = checkout.pool["count"]
    leaving = f"{lab.name}-{checkout.pool['name']}-{count}"
    added = checkout.up(count=count + 1)
    assert added.returncode == 0, added.stdout[-3000:] + added.stderr
    assert nodes(lab).keys() - before.keys() == {leaving}
    lab.kubectl("apply", "-f", "-", input=json.dumps(app(release.image("pause"), leaving)))
    eventually("the pod runs on the node that is to leave", lambda: running_on(lab) == [leaving], deadline=30)

    refused = checkout.up(count=count, drain_seconds=4)
    assert refused.returncode == 1
    assert f"{leaving}: not drained: after 4 s default/{APP}-" in refused.stdout
    assert f"The disruption budget {BUDGET} needs 1 healthy pods and has 1 currently" in refused.stdout
    kept = nodes(lab)[leaving]
    assert kept["spec"]["unschedulable"]
    assert kept["metadata"]["annotations"][CORDONED_BY] == "slipway"
    assert running_on(lab) == [leaving]
    assert leaving in lab.lab("list")

    lab.kubectl("delete", "pdb", BUDGET)
    lab.up()
    assert nodes(lab).keys() == before.keys()
    assert leaving not in lab.lab("list")
    eventually("the pod runs elsewhere", lambda: running_on(lab) and leaving not in running_on(lab), deadline=30)


def test_a_node_that_cannot_be_drained_for_a_change_is_deferred(
    lab: Stack, checkout: Checkout, release: Release
) -> None:
    name = f"{lab.name}-{checkout.pool['name']}-0"
    lab.kubectl("apply", "-f", "-", input=json.dumps(app(release.image("pause"), name)))
    eventually("the pod runs on the node", lambda: running_on(lab) == [name], deadline=30)
    change = {"registryPullQPS": 7}

    deferred = checkout.up(kubelet=change, drain_seconds=4)
    assert deferred.returncode == 1
    assert f"{name}: deferred: not drained: after 4 s default/{APP}-" in deferred.stdout
    assert BUDGET in deferred.stdout
    assert not nodes(lab)[name]["spec"].get("unschedulable")
    assert running_on(lab) == [name]
    assert settings(lab, name).get("registryPullQPS") != 7

    lab.kubectl("delete", "pdb", BUDGET)
    done = checkout.up(kubelet=change, drain_seconds=60)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert settings(lab, name)["registryPullQPS"] == 7
    node = nodes(lab)[name]
    assert not node["spec"].get("unschedulable")
    assert CORDONED_BY not in node["metadata"]["annotations"]


def settings(lab: Stack, node: str) -> dict[str, Any]:
    """What a node's kubelet runs with, as it says itself."""
    configuration: dict[str, Any] = json.loads(
        lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz").stdout
    )["kubeletconfig"]
    return configuration
