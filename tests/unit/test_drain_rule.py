"""Which changes need a drain."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway import paths
from slipway.node import bundle
from slipway.play.drain_rule import draining_variables, needs_drain

DRAINING = frozenset({"kubelet_root_dir"})


def needs(before: dict[str, Any], after: dict[str, Any], *, is_at: str = "old") -> bool:
    return needs_drain(is_at=is_at, was_to_be="old", is_to_be="new", before=before, after=after, draining=DRAINING)


def test_of_the_roles_of_nodes():
    found = draining_variables(bundle.playbook_roles("node"), paths.root() / "roles")
    assert {"kubelet_root_dir", "kubelet_extra_config", "containerd_root", "pod_network_mode", "storage_mount"} <= found
    assert found.isdisjoint({"kubelet_artifact", "kubelet_max_pods", "containerd_artifact", "kubelet_labels"})


@pytest.mark.parametrize(
    ("before", "after", "drained"),
    [
        ({"kubelet_root_dir": "/a"}, {"kubelet_root_dir": "/b"}, True),
        ({"kubelet_root_dir": "/a"}, {}, True),
        ({}, {"kubelet_root_dir": "/a"}, True),
        ({"kubelet_root_dir": "/a", "kubelet_max_pods": 1}, {"kubelet_root_dir": "/a", "kubelet_max_pods": 2}, False),
        ({}, {}, False),  # a role's content: units restart, pods go on
    ],
)
def test_by_variables(before, after, drained):
    assert needs(before, after) is drained


def test_a_host_that_serves_nobody_yet_or_is_there_already():
    assert not needs({}, {"kubelet_root_dir": "/a"}, is_at="")
    assert not needs({}, {"kubelet_root_dir": "/a"}, is_at="new")


def test_a_host_at_something_else_is_drained_to_be_safe():
    assert needs({}, {}, is_at="half-way")


values = st.dictionaries(st.sampled_from(["kubelet_root_dir", "kubelet_max_pods", "x"]), st.integers(0, 2))


@given(before=values, after=values)
def test_the_way_back_costs_the_same(before, after):
    assert needs(before, after) == needs(after, before)
    assert needs(before, before) is False
