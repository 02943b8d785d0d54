"""What roles say of themselves: read, refused, and what it adds up to on a host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from slipway import paths
from slipway.node import bundle, role_meta
from slipway.node.host import costs
from slipway.node.role_meta import RoleMetaError

ROLES = {
    "etcd": role_meta.parse(
        {
            "disruption": {"unit": "restart:etcd", "files": "none", "etcd_root": "drain"},
            "tasks": {"Write the unit": "unit", "Write files": "files"},
        },
        "etcd",
    ),
    "node": role_meta.parse(
        {
            "disruption": {"all": "restart:kubelet,containerd", "kernel": "reboot", "node_mode": "reboot"},
            "tasks": {"K": "kernel", "A": "all"},
        },
        "n",
    ),
}
COSTS = role_meta.index(ROLES)["costs"]


@pytest.mark.parametrize(
    ("changed", "variables", "cost"),
    [
        ([], set(), "none"),
        ([("etcd", "Write files")], set(), "none"),
        ([("etcd", "Start it"), ("nobody", "Does it")], set(), "none"),
        ([("etcd", "Write the unit")], set(), "restart:etcd"),
        ([("etcd", "Write the unit"), ("node", "A")], set(), "restart:containerd,etcd,kubelet"),
        ([("node", "K"), ("node", "A")], set(), "reboot"),
        ([("etcd", "Write files")], {"etcd_root"}, "drain"),
        ([], {"etcd_root"}, "none"),  # the variable changed, nothing on the host does
        ([("node", "A")], {"etcd_root"}, "restart:containerd,kubelet"),
    ],
)
def test_costs_add_up_to_the_highest(changed: Any, variables: set[str], cost: str) -> None:
    assert costs.total(COSTS, changed, variables) == cost


def test_what_needs_a_reboot_is_named() -> None:
    changed = [("node", "A"), ("node", "K"), ("node", "K"), ("etcd", "Write the unit")]
    assert costs.reboots(COSTS, changed) == ["node : K"]
    assert costs.reboots(COSTS, [("node", "A")], {"node_mode", "etcd_root"}) == ["node_mode changed"]


def test_only_variables_whose_change_costs_something_are_kept_and_only_as_digests() -> None:
    variables = {"node_mode": ["a"], "etcd_root": "/a", "all": 1, "other": 2}
    kept = costs.costly_variables(COSTS, variables)
    assert set(kept) == {"node_mode", "etcd_root"}
    assert kept == costs.costly_variables(COSTS, {**variables, "all": 2})
    assert kept["node_mode"] != costs.costly_variables(COSTS, {"node_mode": ["b"]})["node_mode"]


def test_of_the_roles_of_nodes() -> None:
    roles = role_meta.load(paths.root() / "roles")
    own = {name: roles[name] for name in bundle.playbook_roles("node")}
    variables = dict.fromkeys([*(part for role in own.values() for part in role.disruption), "x"], 1)
    kept = costs.costly_variables(role_meta.index(own)["costs"], variables)
    assert {"kubelet_root_dir", "kubelet_extra_config", "containerd_root", "pod_network_mode"} <= kept.keys()
    assert kept.keys().isdisjoint({"kubelet_artifact", "kubelet_max_pods", "containerd_artifact", "kubelet_labels"})


@pytest.mark.parametrize("text", ["none", "restart:etcd", "restart:a,b", "drain", "reboot"])
def test_costs_are_what_they_are(text: str) -> None:
    assert role_meta.parse({"disruption": {"part": text}}, "etcd.yml").disruption == {"part": text}
    assert costs.highest([text, "none"]) == text


@pytest.mark.parametrize("text", ["restart", "restart:", "drain:etcd", "explode", ""])
def test_what_is_no_cost_is_refused(text: str) -> None:
    with pytest.raises(RoleMetaError, match=r"etcd.yml: disruption.part: .*expected none, restart:<unit>"):
        role_meta.parse({"disruption": {"part": text}}, "etcd.yml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "valid dictionary"),
        ({}, "disruption: Field required"),
        ({"disruption": ["a"]}, "disruption: Input should be a valid dictionary"),
        ({"disruption": {"a": "none"}, "tasks": {"T": "b"}}, "tasks name b, which disruption does not have"),
        ({"disruption": {}, "prove": []}, "prove: Extra inputs"),
        ({"disruption": {}, "proof": [{"name": "x"}]}, "proof.0: x: expected one of unit, url, command"),
        ({"disruption": {}, "proof": [{"name": "x", "unit": "a", "expect": "b"}]}, "proof.0: x: expect goes with"),
        ({"disruption": {}, "proof": [{"name": "x", "url": "https://10.0.0.1/"}]}, "proof.0.url: .*loopback"),
        ({"disruption": {}, "proof": [{"name": "x", "command": ["a"], "expect": "("}]}, "no regular expression"),
    ],
)
def test_data_that_does_not_fit_is_refused(data: Any, message: str) -> None:
    with pytest.raises(RoleMetaError, match=rf"^etcd\.yml: .*{message}") as refused:
        role_meta.parse(data, "etcd.yml")
    assert "\n" not in str(refused.value)


def names(role: str, folder: str) -> Iterator[str]:
    for file in (paths.root() / "roles" / role / folder).glob("*.yml"):
        for task in yaml.safe_load(file.read_text()) or []:
            yield task["name"]


@pytest.mark.parametrize("role", sorted(path.name for path in (paths.root() / "roles").iterdir()))
def test_a_role_names_its_own_tasks_and_all_its_handlers(role: str) -> None:
    tasks = role_meta.load(paths.root() / "roles")[role].tasks
    handlers = set(names(role, "handlers"))
    assert set(tasks) <= handlers | set(names(role, "tasks"))
    assert handlers <= set(tasks)


@pytest.mark.parametrize("role", sorted(path.name for path in (paths.root() / "roles").iterdir()))
def test_a_role_proves_the_units_that_it_keeps(role: str) -> None:
    text = "".join(file.read_text() for file in (paths.root() / "roles" / role / "tasks").glob("*.yml"))
    units = {unit.removesuffix(".service") for unit in re.findall(r"unit: ([\w-]+(?:\.service)?)$", text, re.MULTILINE)}
    proven = {check.unit for check in role_meta.load(paths.root() / "roles")[role].proof}
    assert units <= proven
