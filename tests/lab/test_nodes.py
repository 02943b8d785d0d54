"""Nodes that leave a cluster: drained first, as budgets allow, and gone without a trace afterwards."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.play.nodes import CORDONED_BY, QUARANTINE, QUARANTINED
from slipway.release import Release
from slipway.spec import CONFIG_KEY
from tools import ROOT, Stack, copy_checkout, eventually, run

pytestmark = pytest.mark.lab

APP = "leaving"
BUDGET = "allows-nothing"
BLOCK = "/etc/in-the-way"
OPTIONS = "/etc/modprobe.d/slipway-test.conf"
MODULE_OPTIONS = f"""
- name: Set module options
  slipway_files:
    files:
      - path: {OPTIONS}
        content: "options dummy numdummies=0\\n"
"""


class Checkout:
    """A copy of the checkout, in which the stack's first pool can be changed."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder = copy_checkout(folder)
        self.stack = stack.name
        self.file = self.folder / f"stacks/Pulumi.{stack.name}.yaml"
        shutil.copy2(ROOT / self.file.relative_to(self.folder), self.file)  # Git may not know it
        self.pool: dict[str, Any] = yaml.safe_load(self.file.read_text())["config"][CONFIG_KEY]["pools"][0]

    def name(self, index: int) -> str:
        """The name of a node of the pool; -1 is the last."""
        return f"{self.stack}-{self.pool['name']}-{index % self.pool['count']}"

    def up(self, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Bring the stack up with some values of its first pool changed."""
        return self._run("up", changes)

    def preview(self, **changes: Any) -> str:
        """What a preview of such a change says."""
        shown = self._run("preview", changes)
        assert shown.returncode == 0, shown.stdout[-3000:] + shown.stderr
        return shown.stdout + shown.stderr

    def _run(self, verb: str, changes: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        declared = yaml.safe_load(self.file.read_text())
        declared["config"][CONFIG_KEY]["pools"][0] = self.pool | changes
        self.file.write_text(yaml.safe_dump(declared))
        return run(str(self.folder / "slipway"), verb, self.stack, check=False, timeout=300)


@pytest.fixture(scope="module")
def checkout(lab: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A checkout in which the first pool has one node more, which is there."""
    checkout = Checkout(tmp_path_factory.mktemp("nodes") / "checkout", lab)
    before = nodes(lab).keys()
    checkout.pool["count"] += 1
    added = checkout.up()
    assert added.returncode == 0, added.stdout[-3000:] + added.stderr
    assert nodes(lab).keys() - before == {checkout.name(-1)}
    lab.forget_hosts()
    yield checkout
    lab.up()


@pytest.fixture(autouse=True)
def tidy(lab: Stack) -> Iterator[None]:
    yield
    lab.kubectl("delete", "deployment,pdb", APP, BUDGET, "--ignore-not-found", "--wait=false")


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


def test_a_node_that_cannot_be_drained_for_a_change_is_deferred_and_the_others_go_on(
    lab: Stack, checkout: Checkout, release: Release
) -> None:
    kept, other = checkout.name(0), checkout.name(-1)
    lab.kubectl("apply", "-f", "-", input=json.dumps(app(release.image("pause"), kept)))
    eventually("the pod runs on the node", lambda: running_on(lab) == [kept], deadline=30)
    change = {"registryPullQPS": 7}

    deferred = checkout.up(kubelet=change, drain_seconds=20)  # CoreDNS takes some seconds to go
    assert deferred.returncode == 1
    assert f"* {kept}: deferred: not drained: after 20 s default/{APP}-" in deferred.stdout
    assert BUDGET in deferred.stdout
    assert f"{checkout.pool['count'] - 1} of {checkout.pool['count']} hosts done, 1 deferred" in deferred.stdout
    assert not nodes(lab)[kept]["spec"].get("unschedulable")
    assert running_on(lab) == [kept]
    assert settings(lab, kept).get("registryPullQPS") != 7
    assert settings(lab, other)["registryPullQPS"] == 7  # in the second wave
    assert not nodes(lab)[other]["spec"].get("unschedulable")

    lab.kubectl("delete", "pdb", BUDGET)
    done = checkout.up(kubelet=change, drain_seconds=60)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert settings(lab, kept)["registryPullQPS"] == 7
    node = nodes(lab)[kept]
    assert not node["spec"].get("unschedulable")
    assert CORDONED_BY not in node["metadata"]["annotations"]
    checkout.pool["kubelet"] = change


def test_a_change_that_needs_a_reboot_reboots_nodes_and_quarantines_one_that_is_not_proven(
    lab: Stack, checkout: Checkout
) -> None:
    """A role of nodes gets what an engineer would add: options of a kernel module, and a check."""
    role = checkout.folder / "roles/containerd"
    meta = yaml.safe_load((role / "meta/slipway.yml").read_text())
    meta["disruption"]["module_options"] = "reboot"
    meta["tasks"]["Set module options"] = "module_options"
    meta["proof"].append({"name": "it is free", "command": ["test", "!", "-e", BLOCK], "seconds": 1})
    (role / "meta/slipway.yml").write_text(yaml.safe_dump(meta))
    with (role / "tasks/main.yml").open("a") as tasks:
        tasks.write(MODULE_OPTIONS)
    first, others = checkout.name(0), [checkout.name(index) for index in range(1, checkout.pool["count"])]
    before = {name: boot(lab, name) for name in (first, *others)}
    shown = checkout.preview()
    for name in before:
        assert re.search(rf"{name} would change: .*\(disrupts: reboot\)", shown)
    lab.ssh(first, f"touch {BLOCK}")

    stopped = checkout.up()
    assert stopped.returncode == 1
    reason = "not proven: containerd : it is free: test ended with status 1: no output (for 1 s)"
    assert f"{first}: {reason}; its node is quarantined" in stopped.stdout
    node = nodes(lab)[first]
    assert node["spec"]["unschedulable"]
    taint = {"key": QUARANTINE, "value": "containerd-it-is-free", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]
    assert node["metadata"]["annotations"][QUARANTINED].endswith(f"Z {reason}")
    rebooted = boot(lab, first)
    assert rebooted != before[first]
    assert {name: boot(lab, name) for name in others} == {name: before[name] for name in others}  # the canary failed

    lab.ssh(first, f"rm {BLOCK}")
    done = checkout.up()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert boot(lab, first) == rebooted  # once is enough
    for name in others:
        assert boot(lab, name) != before[name]
        assert f"{name} reboots: containerd : Set module options" in done.stdout
    for name in before:
        node = nodes(lab)[name]
        assert not node["spec"].get("unschedulable")
        assert QUARANTINE not in [taint["key"] for taint in node["spec"].get("taints", ())]
        assert not {CORDONED_BY, QUARANTINED} & node["metadata"]["annotations"].keys()
        manifest = json.loads(lab.ssh(name, "cat /var/lib/slipway/manifest.json").stdout)["playbooks"]["node"]
        assert (manifest["step"], manifest["reboot"]) == ("returned", [])
        lab.ssh(name, f"rm {OPTIONS}")


def test_a_node_leaves_once_its_budget_lets_it(lab: Stack, checkout: Checkout, release: Release) -> None:
    leaving = checkout.name(-1)
    left = nodes(lab).keys() - {leaving}
    lab.kubectl("apply", "-f", "-", input=json.dumps(app(release.image("pause"), leaving)))
    eventually("the pod runs on the node that is to leave", lambda: running_on(lab) == [leaving], deadline=30)

    fewer = {"count": checkout.pool["count"] - 1, "drain_seconds": 4}
    told = f"{leaving} leaves: its node is drained (for at most 4 s) and removed"
    assert told in checkout.preview(**fewer)
    assert not nodes(lab)[leaving]["spec"].get("unschedulable")

    refused = checkout.up(**fewer)
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
    assert nodes(lab).keys() == left
    assert leaving not in lab.lab("list")
    eventually("the pod runs elsewhere", lambda: running_on(lab) and leaving not in running_on(lab), deadline=30)


def boot(lab: Stack, name: str) -> str:
    return lab.ssh(name, "cat /proc/sys/kernel/random/boot_id").stdout.strip()


def settings(lab: Stack, node: str) -> dict[str, Any]:
    """What a node's kubelet runs with, as it says itself."""
    configuration: dict[str, Any] = json.loads(
        lab.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/configz").stdout
    )["kubeletconfig"]
    return configuration
