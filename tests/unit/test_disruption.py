"""What changes cost: reading the roles' data, and adding it up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from slipway import paths
from slipway.play import disruption
from slipway.play.disruption import Cost, DisruptionError, parse_cost, parse_role, total

ETCD = parse_role(
    {
        "disruption": {"unit": "restart:etcd", "files": "none", "etcd_root": "drain"},
        "tasks": {"Write the unit": "unit", "Write files": "files"},
    },
    "etcd",
)
NODE = parse_role(
    {"disruption": {"all": "restart:kubelet,containerd", "kernel": "reboot"}, "tasks": {"K": "kernel", "A": "all"}}, "n"
)
ROLES = {"etcd": ETCD, "node": NODE}


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
    assert str(total(ROLES, changed, variables)) == cost


@pytest.mark.parametrize("text", ["none", "restart:etcd", "restart:a,b", "drain", "reboot"])
def test_costs_read_back(text: str) -> None:
    assert str(parse_cost(text)) == text
    assert Cost() + parse_cost(text) == parse_cost(text)


@pytest.mark.parametrize("text", ["restart", "restart:", "drain:etcd", "explode", ""])
def test_what_is_no_cost_is_refused(text: str) -> None:
    with pytest.raises(DisruptionError, match=r"etcd.yml: .*expected none, restart:<unit>, drain or reboot"):
        parse_role({"disruption": {"part": text}}, "etcd.yml")


@pytest.mark.parametrize("data", [None, {}, {"disruption": ["a"]}, {"disruption": {"a": "none"}, "tasks": {"T": "b"}}])
def test_data_that_does_not_fit_is_refused(data: Any) -> None:
    with pytest.raises(DisruptionError, match=r"^etcd\.yml: "):
        parse_role(data, "etcd.yml")


def names(role: str, folder: str) -> Iterator[str]:
    for file in (paths.root() / "roles" / role / folder).glob("*.yml"):
        for task in yaml.safe_load(file.read_text()) or []:
            yield task["name"]


@pytest.mark.parametrize("role", sorted(path.name for path in (paths.root() / "roles").iterdir()))
def test_a_role_names_its_own_tasks_and_all_its_handlers(role: str) -> None:
    tasks = disruption.load(paths.root() / "roles")[role].tasks
    handlers = set(names(role, "handlers"))
    assert set(tasks) <= handlers | set(names(role, "tasks"))
    assert handlers <= set(tasks)
