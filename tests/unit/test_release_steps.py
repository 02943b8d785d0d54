"""What changes between two releases, and the steps from one to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import lint_cases
from lint_cases import cluster, driver, engine, plain_driver, pool
from slipway import lint, paths, release
from slipway.node import role_meta
from slipway.node.host import costs
from slipway.release import Release, changes, known, steps

ROLES = role_meta.load(paths.root() / "roles")


def made(name: str, **versions: Any) -> Release:
    """The good release under another id, with versions or whole entries of components."""
    differs = {
        f"components.{component.replace('_', '-')}" + ("" if isinstance(value, dict) else ".version"): value
        for component, value in versions.items()
    }
    return lint_cases.release({**differs, "id": name})


def way(before: Release, after: Release, *there: Release) -> list[tuple[str, str, str]]:
    """Ids of the steps, with the versions of Kubernetes and etcd."""
    return [
        (step.release.id, step.release.version("kubernetes"), step.release.version("etcd"))
        for step in steps.find(before, after, there)
    ]


NEW = made("new")


def test_one_jump_where_it_is_allowed() -> None:
    assert way(made("old", kubernetes="1.35.8"), NEW) == [("new", "1.36.4", "3.6.14")]
    assert steps.find(NEW, NEW) == [steps.Step(NEW)]


def test_kubernetes_goes_by_minors() -> None:
    assert way(made("old", kubernetes="1.33.1"), NEW) == [
        ("old-to-new-1", "1.34.11", "3.6.14"),
        ("old-to-new-2", "1.35.8", "3.6.14"),
        ("new", "1.36.4", "3.6.14"),
    ]


def test_etcd_goes_by_floors() -> None:
    assert way(made("old", etcd="3.5.20"), NEW) == [("old-to-new-1", "1.36.4", "3.5.33"), ("new", "1.36.4", "3.6.14")]
    assert way(made("old", etcd="3.5.33"), NEW) == [("new", "1.36.4", "3.6.14")]
    assert way(made("old", etcd="3.6.5"), made("new", etcd="3.7.1")) == [
        ("old-to-new-1", "1.36.4", "3.6.14"),
        ("new", "1.36.4", "3.7.1"),
    ]
    assert [etcd for _, _, etcd in way(made("old", etcd="3.4.30"), NEW)] == ["3.4.45", "3.5.33", "3.6.14"]


def test_both_go_together_etcd_first() -> None:
    old = made("old", kubernetes="1.34.1", etcd="3.4.30")
    assert way(old, NEW) == [
        ("old-to-new-1", "1.34.1", "3.4.45"),
        ("old-to-new-2", "1.35.8", "3.5.33"),
        ("new", "1.36.4", "3.6.14"),
    ]


def test_modules_open_before_the_branch_that_has_no_others() -> None:
    old = made("old", nvidia_driver=driver("580.126.20", "proprietary"))
    new = made("new", nvidia_driver=plain_driver("620.10.01"))
    first, last = steps.find(old, new)
    opened = first.release.component("nvidia-driver")
    assert (opened.version, opened.modules) == ("580.126.20", "open")
    assert "nvidia-dkms-580-open" in opened.packages
    assert last.release is new


def test_releases_that_there_are_come_first() -> None:
    old, middle = made("old", kubernetes="1.34.1"), made("middle", kubernetes="1.35.4")
    assert [step.made_up for step in steps.find(old, NEW, [middle])] == [False, False]
    # One that is newer than the goal in something is no step to it.
    ahead = made("ahead", kubernetes="1.35.4", containerd="2.4.0")
    assert [step.made_up for step in steps.find(old, NEW, [ahead])] == [True, False]
    # One for other hosts neither.
    elsewhere = middle.model_copy(update={"targets": ("debian13/amd64",)})
    assert [step.made_up for step in steps.find(old, NEW, [elsewhere])] == [True, False]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (made("old", kubernetes="1.37.0"), NEW, "kubernetes-downgrade"),
        (made("old", etcd="3.7.1"), NEW, "etcd-downgrade"),
        (made("old", kubernetes="1.31.0"), NEW, "kubernetes-minor-step"),
    ],
)
def test_no_way_says_why(before: Release, after: Release, said: str) -> None:
    with pytest.raises(steps.NoWayError, match=said):
        steps.find(before, after)


def test_nodes_are_held_back_until_the_last_step(tmp_path: Path) -> None:
    kubernetes = engine("kubelet", "1.34.5")
    kubernetes["downloads"] += engine("kube-proxy", "")["downloads"]
    first, last = steps.find(made("old", kubernetes=kubernetes), NEW)
    for program in ("kubelet", "kube-proxy"):
        held = first.release.component(program)
        assert (held.version, held.files()) == ("1.34.5", (program,))
        assert program not in last.release.components
    found = changes.between(made("old", kubernetes=kubernetes), first.release, ROLES)
    assert [one.what for one in found] == ["kubernetes"]
    assert {one.group for one in changes.touched(found) if str(one.cost) != "none"} == {"apiservers"}
    found = changes.between(first.release, last.release, ROLES)
    assert [(one.what, one.before, one.after) for one in found] == [
        ("kubernetes", "1.35.8", "1.36.4"),
        ("kubelet", "1.34.5", "1.36.4"),
        ("kube-proxy", "1.34.5", "1.36.4"),
    ]
    # A file of it is a release like any other.
    (tmp_path / f"{first.release.id}.yaml").write_text(steps.text(first.release))
    assert release.load(first.release.id, tmp_path) == first.release


def test_waypoints_are_entries_of_releases() -> None:
    for name, entries in steps.waypoints().items():
        assert name in known.COMPONENTS
        for minor, entry in entries.items():
            assert entry.version.startswith(f"{minor}.")
            assert entry.downloads


# -- what changes ------------------------------------------------------------------------------------------------------


def test_changes_name_versions_hosts_and_cost() -> None:
    found = {one.what: one for one in changes.between(made("old", etcd="3.6.13", containerd="2.2.7"), NEW, ROLES)}
    assert set(found) == {"etcd", "containerd"}
    etcd = found["etcd"]
    assert (etcd.before, etcd.after, etcd.on) == ("3.6.13", "3.6.14", ())
    assert {group: str(cost) for group, cost in etcd.costs.items()} == {
        "etcd": "restart:etcd",
        "etcd_events": "restart:etcd",
    }
    assert not etcd.assumed


def test_other_files_of_the_same_version_are_a_change() -> None:
    differs = engine("runc", "1.4.3")
    differs["downloads"][0]["sha256"]["amd64"] = "9" * 64
    (one,) = changes.between(made("old", runc=differs), NEW, ROLES)
    assert (one.what, one.before, one.after) == ("runc", "1.4.3", "1.4.3, other files")


def test_a_change_on_one_architecture_says_so() -> None:
    arm = engine("etcd", "3.6.14") | {"install": {"debian13/arm64": engine("etcd", "3.6.13")}}
    (one,) = changes.between(made("old", etcd=arm), NEW, ROLES)
    assert (one.before, one.on) == ("3.6.13", ("debian13/arm64",))


def test_components_come_and_go() -> None:
    (one,) = changes.between(made("old", crictl=engine("crictl", "1.36.0")), NEW, ROLES)
    assert (one.what, one.before, one.after) == ("crictl", "1.36.0", "none")


def test_images_and_repositories_are_changes() -> None:
    image = {"reference": "nvcr.io/nvidia/k8s-device-plugin:v0.19.0", "digest": "sha256:" + "8" * 64}
    old = lint_cases.release({"id": "old", "registry_images.nvidia-device-plugin": image})
    (one,) = changes.between(old, NEW, ROLES)
    assert one.what == "image nvidia-device-plugin"
    assert one.before.endswith("8" * 64)
    old = lint_cases.release({"id": "old", "repositories.nvidia.owns": []})
    (one,) = changes.between(old, NEW, ROLES)
    assert (one.what, one.after) == ("repository nvidia", "changed")


def test_kubernetes_costs_each_group_its_own() -> None:
    found = changes.between(made("old", kubernetes="1.35.8"), NEW, ROLES)
    costs = {one.group: str(one.cost) for one in changes.touched(found)}
    assert costs == {
        "apiservers": "restart:kube-apiserver,kube-controller-manager,kube-scheduler",
        "pools": "restart:kube-proxy,kubelet",
    }


def test_hosts_of_a_stack_by_name_and_number() -> None:
    stack = cluster({"pools": [{"name": "cpu", "count": 7}, {"name": "gpu", "count": 2, "platform": "nd-h100-v5"}]})
    found = changes.between(made("old", runc="1.4.2", nvidia_driver=driver("580.105.08")), NEW, ROLES)
    told = {one.group: (one.hosts, str(one.cost)) for one in changes.touched(found, stack)}
    assert told == {"cpu": (7, "none"), "gpu": (2, "drain")}
    assert pool()["pools"][0]["platform"] == "nd-h100-v5"


def test_parts_of_components_are_those_of_the_roles() -> None:
    """A role that is there has the parts that components change, and is run on the hosts that the table says."""
    for name, one in known.COMPONENTS.items():
        assert costs.highest([one.cost]) == one.cost
        for role, part in one.parts:
            assert role in known.ROLES, f"{name}: {role}"
            if role in ROLES:
                assert part in ROLES[role].disruption, f"{name}: {role} has no part {part} in its meta/slipway.yml"
    playbooks = {"etcd": {"etcd", "etcd_events"}, "apiserver": {"apiservers"}, "node": {"pools"}}
    for role, groups in known.ROLES.items():
        if role not in ROLES:
            continue
        for playbook, hosts in playbooks.items():
            (play,) = yaml.safe_load((paths.root() / f"playbooks/{playbook}.yml").read_text())
            names = {entry if isinstance(entry, str) else entry["role"] for entry in play["roles"]}
            assert (role in names) == bool(hosts & set(groups)), f"{role} in playbooks/{playbook}.yml"


def test_steps_are_judged_by_the_rules_about_steps_alone() -> None:
    rules = {one.rule for one in steps.refusals(made("old", etcd="3.5.2", kubernetes="1.33.0"), NEW)}
    assert rules == {"etcd-minor-floor", "kubernetes-minor-step"}
    assert all(set(lint.RULES[one].needs) == {"before", "release"} for one in rules)
