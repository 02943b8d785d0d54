"""The program under mocks: what it declares, as plain dicts."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway import paths, spec
from slipway.provider.play_inputs import PlayInputs

LAB: dict[str, Any] = yaml.safe_load((paths.root() / "stacks/Pulumi.lab.yaml").read_text())["config"][spec.CONFIG_KEY]


def record(folder: Path, cluster: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    declared = folder / "cluster.json"
    declared.write_text(json.dumps(cluster))
    command = [sys.executable, str(Path(__file__).with_name("record.py")), "lab", str(declared)]
    env = {**os.environ, "PYTHONPATH": str(paths.root() / "infra"), "SLIPWAY_HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    done = record(tmp_path_factory.mktemp("graph"), LAB)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def inputs(graph: dict[str, Any], type_: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = graph["resources"][f"{type_}::{name}"]["inputs"]
    return found


def count(graph: dict[str, Any], type_: str) -> int:
    return sum(resource["type"] == type_ for resource in graph["resources"].values())


def test_hosts_are_those_declared(graph: dict[str, Any]) -> None:
    assert count(graph, "slipway:index:LabHost") == 3 + 3 + 2 + 1 + 1 + 1
    first = inputs(graph, "slipway:index:LabHost", "lab-etcd-0")
    assert first["address"] == "10.98.0.20"
    assert first["authorizedKey"] == "ssh-ed25519 BBBB"


def test_one_play_a_group_or_pool(graph: dict[str, Any]) -> None:
    assert count(graph, "slipway:index:Play") == len(spec.GROUPS) + len(LAB["pools"])
    hosts = [host["name"] for host in inputs(graph, "slipway:index:Play", "etcd")["hosts"]]
    assert hosts == ["lab-etcd-0", "lab-etcd-1", "lab-etcd-2"]
    assert {host["hostKey"] for host in inputs(graph, "slipway:index:Play", "etcd")["hosts"]} == {"ssh-ed25519 AAAA"}


def test_etcds_and_api_servers_can_leave(graph: dict[str, Any]) -> None:
    assert count(graph, "slipway:index:Membership") == 3
    leaving = inputs(graph, "slipway:index:Membership", "etcd")
    assert leaving["peers"]["lab-etcd-2"] == "https://10.98.0.22:2380"
    assert [host["name"] for host in inputs(graph, "slipway:index:Membership", "apiservers")["balancers"]] == [
        "lab-lb-0"
    ]


def test_a_play_signs_for_its_own_authorities_only(graph: dict[str, Any]) -> None:
    signs = {
        name: set(inputs(graph, "slipway:index:Play", name).get("authorities", {}))
        for name in ("etcd", "etcd_events", "apiservers", "load_balancers", "cpu", "gpu")
    }
    assert signs == {
        "etcd": {"etcd"},
        "etcd_events": {"etcd-events"},
        "apiservers": {"kubernetes", "front-proxy", "etcd-client"},
        "load_balancers": set(),
        "cpu": set(),
        "gpu": set(),
    }


def test_no_key_of_an_authority_goes_to_a_host_but_the_kubelets(graph: dict[str, Any]) -> None:
    for name, resource in graph["resources"].items():
        if resource["type"] == "slipway:index:Play":
            assert "<key>" not in json.dumps([resource["inputs"].get("vars"), resource["inputs"]["hosts"]]), name
            keys = [key for key, value in resource["inputs"].get("secrets", {}).items() if value == "<key>"]
            assert keys == (["controllers_kubelet_authority_key"] if name.endswith("::apiservers") else []), name


def test_the_cluster_is_never_replaced_for_its_kubeconfig(graph: dict[str, Any]) -> None:
    assert inputs(graph, "pulumi:providers:kubernetes", "cluster")["clusterIdentifier"] == "lab"


def test_api_servers_have_events_in_their_own_etcd(graph: dict[str, Any]) -> None:
    given = inputs(graph, "slipway:index:Play", "apiservers")["vars"]
    assert given["apiserver_etcd_servers"] == [f"https://10.98.0.{last}:2379" for last in (20, 21, 22)]
    assert given["apiserver_etcd_events_servers"] == [f"https://10.98.0.{last}:2379" for last in (30, 31, 32)]


def test_dns_pods_never_share_a_node(graph: dict[str, Any]) -> None:
    deployment = inputs(graph, "kubernetes:apps/v1:Deployment", "coredns")["spec"]
    rules = deployment["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert rules["requiredDuringSchedulingIgnoredDuringExecution"][0]["topologyKey"] == "kubernetes.io/hostname"
    assert deployment["replicas"] == 2


def test_outputs(graph: dict[str, Any]) -> None:
    assert set(graph["outputs"]) == {"kubeconfig", "sshPrivateKey", "hosts"}
    assert (
        yaml.safe_load(graph["outputs"]["kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://10.98.0.4:6443"
    )


def test_resources_grow_with_hosts_only_where_the_lab_makes_them(graph: dict[str, Any], tmp_path: Path) -> None:
    larger = copy.deepcopy(LAB)
    larger["pools"][0]["count"] += 10
    done = record(tmp_path, larger)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["resources"]) == len(graph["resources"]) + 10


def test_a_pool_goes_in_waves_of_its_own(tmp_path: Path) -> None:
    declared = copy.deepcopy(LAB)
    declared["rollout"] = {"canary": 2, "budget": {"percent": 5}}
    declared["pools"][0] |= {"count": 5, "failure_domains": 2, "unit_size": 2, "rollout": {"growth": 1}}
    done = record(tmp_path, declared)
    assert done.returncode == 0, done.stderr
    play = PlayInputs.model_validate(inputs(json.loads(done.stdout), "slipway:index:Play", "cpu"))
    names = [host.name for host in play.hosts]
    assert [(host.failure_domain, host.unit) for host in play.hosts[1:3]] == [("zone-0", "cpu-0"), ("zone-1", "cpu-1")]
    plan = play.plan(names, names)
    assert plan.waves == [["lab-cpu-0", "lab-cpu-1"], ["lab-cpu-4"], ["lab-cpu-2", "lab-cpu-3"]]
    assert play.rollout.budget.percent == 5


def test_a_bad_declaration_declares_nothing(tmp_path: Path) -> None:
    done = record(tmp_path, {**LAB, "etcd": {"count": 4}})
    assert done.returncode != 0
    assert "stacks/Pulumi.lab.yaml: etcd.count: 4 members tolerate no more than 3; use an odd number" in done.stderr
    assert done.stdout == ""


def test_an_error_of_a_rule_declares_nothing(tmp_path: Path) -> None:
    bad = {**LAB, "pools": [{"name": "gpu", "count": 1, "platform": "nd-h100-v6"}]}
    done = record(tmp_path, bad)
    assert done.returncode != 0
    assert "[platform-unknown]" in done.stderr
    assert done.stdout == ""


def test_a_waived_error_lets_it_go_on(tmp_path: Path) -> None:
    waiver = {"rule": "platform-unknown", "reason": "a new machine type", "until": "2999-01-01 00:00:00 +0000 UTC"}
    pools = [{"name": "gpu", "count": 1, "platform": "nd-h100-v6"}]
    done = record(tmp_path, {**LAB, "pools": pools, "waivers": [waiver]})
    assert done.returncode == 0, done.stderr


def test_a_warning_is_told_and_lets_it_go_on(tmp_path: Path) -> None:
    done = record(tmp_path, {**LAB, "apiservers": {"count": 2, "flags": {"event-ttl": "24h"}}})
    assert done.returncode == 0, done.stderr
    assert "[apiserver-event-ttl]" in done.stderr
