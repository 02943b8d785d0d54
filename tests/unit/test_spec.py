"""The stack file: what is allowed, and how what is not is said."""

from __future__ import annotations

import copy
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway import paths, spec
from slipway.fleet import addresses

GOOD: dict[str, Any] = yaml.safe_load((paths.root() / "stacks/Pulumi.lab.yaml").read_text())["config"][spec.CONFIG_KEY]


def changed(**changes: Any) -> dict[str, Any]:
    """The lab's declaration with `a__b=value` put at a.b; a value of None takes the key away."""
    data = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for step in parents:
            place = place.setdefault(step, {})
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return data


def problems(data: object) -> list[str]:
    with pytest.raises(spec.SpecError) as caught:
        spec.parse(data, "stack.yaml")
    return caught.value.problems


@pytest.mark.parametrize("stack", ["lab", "tiny"])
def test_shipped_stacks_are_good(stack: str) -> None:
    cluster = spec.load(paths.root() / f"stacks/Pulumi.{stack}.yaml")
    assert cluster.name == stack
    assert len({host.address for host in addresses.everything(cluster)}) == len(addresses.everything(cluster))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"etcdd": {"count": 3}}, "etcdd: unknown key; did you mean etcd?"),
        ({"etcd__cuont": 3}, "etcd.cuont: unknown key; did you mean count?"),
        ({"release": 2026.1}, "release: should be text; put it in quotes (got 2026.1)"),
        ({"etcd__count": 4}, "etcd.count: 4 members tolerate no more than 3; use an odd number"),
        ({"etcd_events__count": 2}, "etcd_events.count: 2 members"),
        ({"etcd__count": None}, "etcd.count: is missing"),
        ({"etcd__count": "many"}, "etcd.count: "),
        ({"etcd__election_ms": 300}, "etcd.election_ms: 300 is under five heartbeats of 100 ms"),
        ({"network__pods": "10.98.0.0/20"}, "network.pods: 10.98.0.0/20 overlaps network.hosts 10.98.0.0/24"),
        ({"network__services": "10.244.3.0/24"}, "network.services: 10.244.3.0/24 overlaps network.pods"),
        ({"network__services": "10.97.0.0/28"}, "network.services: 10.97.0.0/28 is too small"),
        ({"network__services": "11.0.0.0/8"}, "network.services: 11.0.0.0/8 is too large"),
        ({"network__hosts": "10.98.0.1/24"}, "network.hosts: "),
        ({"network__hosts": "10.98.0.0/26"}, "network.hosts: 10.98.0.0/26 is too small"),
        (
            {"network__pod_prefix": 16, "network__pods": "10.244.0.0/20"},
            "network.pod_prefix: /16 is larger than the whole pod network",
        ),
        ({"network__pods": "10.244.0.0/24"}, "10.244.0.0/24 has room for 1 of /24"),
        (
            {"pools": [{"name": "a", "count": 1}, {"name": "a", "count": 1}]},
            "pools[1].name: a is the name of pools[0] too",
        ),
        ({"pools": [{"name": "etcd", "count": 1}]}, "pools[0].name: etcd names a group of fixed hosts"),
        ({"pools": [{"name": "A_b", "count": 1}]}, "pools[0].name: "),
        (
            {"pools": [{"name": "a", "count": 1, "max_pods": 250}], "network__pod_prefix": 26},
            "pools[0].max_pods: 250 pods do not fit into a /26",
        ),
        (
            {"pools": [{"name": "a", "count": 300}], "network__hosts": "10.0.0.0/16", "network__pods": "10.244.0.0/16"},
            "300 nodes in all pools",
        ),
        ({"pools": [{"name": "a", "count": 100}]}, "pools[0].count: 100 hosts, but its block"),
        ({"pools": [{"name": f"p{i}", "count": 0} for i in range(9)]}, "pools: 9 pools"),
        ({"apiservers__count": 0}, "apiservers.count: "),
        ({"fleet__kind": "cloud"}, "fleet.kind: "),
        (
            {"addons": {"coredns": {"min_replicas": 9, "max_replicas": 3}}},
            "addons.coredns.min_replicas: 9 is more than max_replicas 3",
        ),
        ({"name": "Lab"}, "name: "),
        ({"etcd__count": True}, "etcd.count: should be a valid integer (got True)"),
        ({"etcd__count": "3"}, "etcd.count: should be a valid integer (got '3')"),
        ({"etcd": [3]}, "etcd: should be a mapping of keys to values"),
        ({"network__pods": "127.1.0.0/16"}, "network.pods: 127.1.0.0/16 has loopback addresses"),
        ({"network__hosts": "169.254.0.0/16"}, "network.hosts: 169.254.0.0/16 has link-local addresses"),
        ({"apiservers__flags": {"--v": "4"}}, "apiservers.flags.--v"),
        ({"addons": {"coredns": {"forward_to": "1.1.1.1 }"}}}, "addons.coredns.forward_to: "),
        ({"pools": [{"name": "a", "count": 1, "labels": {"kubernetes.io/os": "x"}}]}, "may not set kubernetes.io/os"),
        (
            {"waivers": [{"rule": "x", "reason": "long enough", "until": "soon"}]},
            "waivers[0].until: expected a day such",
        ),
        (
            {"waivers": [{"rule": "X y", "reason": "long enough", "until": "2027-01-31"}]},
            "waivers[0].rule: expected the",
        ),
        ({"waivers": [{"rule": "x", "reason": "no", "until": "2027-01-31"}]}, "waivers[0].reason: "),
        ({"waivers": [{"rule": "x", "reason": "long enough", "until": "2027-01-31"}]}, "waivers[0].rule: no rule 'x'"),
        ({"pools": [{"name": "a", "count": 1, "labels": {"slipway.dev/pool": "x"}}]}, "Slipway sets slipway.dev/pool"),
        ({"pools": [{"name": "a", "count": 1, "unit_size": 1}]}, "pools[0].unit_size: a unit of 1 host"),
        ({"pools": [{"name": "a", "count": 1, "failure_domains": 1}]}, "pools[0].failure_domains: 1 failure domain"),
        ({"rollout__canary": 0}, "rollout.canary: "),
        ({"rollout__budget": {"percent": 101}}, "rollout.budget.percent: "),
        (
            {"rollout": {"canary": 9, "hosts": 4}},
            "rollout.canary: a canary of 9 is larger than a wave may be (rollout.hosts: 4)",
        ),
        (
            {"pools": [{"name": "a", "count": 1, "rollout": {"hosts": 1}}], "rollout__canary": 2},
            "rollout.canary: a canary of 2 is larger than a wave may be (pools[0].rollout.hosts: 1)",
        ),
        (
            {"pools": [{"name": "a", "count": 1, "rollout": {"budget": {"percent": 100}}}]},
            "pools[0].rollout.budget.percent: a budget of 100 percent never stops a rollout",
        ),
    ],
)
def test_bad_stack_is_one_line_with_its_path(changes: dict[str, Any], expected: str) -> None:
    found = problems(changed(**changes))
    assert any(expected in line for line in found), found
    assert all(line.startswith("stack.yaml: ") and "\n" not in line for line in found)


def test_all_problems_at_once() -> None:
    found = problems(changed(etcd__count=4, etcd_events__count=2, network__services="10.244.0.0/24"))
    assert len(found) == 3


def test_not_a_mapping() -> None:
    assert problems([1]) == ["stack.yaml: slipway:cluster: should be a mapping of keys to values"]


def test_the_cluster_is_called_like_its_stack(tmp_path: Path) -> None:
    copied = tmp_path / "Pulumi.copy.yaml"
    copied.write_text((paths.root() / "stacks/Pulumi.tiny.yaml").read_text())
    with pytest.raises(spec.SpecError, match="name: tiny is not the name of the stack"):
        spec.load(copied)


@pytest.mark.parametrize("day", [dt.date(2027, 1, 31), "2027-01-31", "2027-01-31 00:00:00 +0000 UTC"])
def test_a_day_is_read_as_yaml_and_as_pulumi_have_it(day: object) -> None:
    waiver = {"rule": "etcd-alone", "reason": "a test of days", "until": day}
    assert spec.parse(changed(waivers=[waiver]), "stack.yaml").waivers[0].until == dt.date(2027, 1, 31)


def test_missing_file_and_broken_yaml(tmp_path: Path) -> None:
    with pytest.raises(spec.SpecError, match="there is no such stack file"):
        spec.load(tmp_path / "Pulumi.none.yaml")
    broken = tmp_path / "Pulumi.broken.yaml"
    broken.write_text("config:\n  a: [1\n")
    with pytest.raises(spec.SpecError, match=r"Pulumi\.broken\.yaml:\d+: not YAML"):
        spec.load(broken)
    broken.write_text("config:\n  a: 1\n  a: 2\n")
    with pytest.raises(spec.SpecError, match=r"Pulumi\.broken\.yaml:3: not YAML: key 'a' is there twice"):
        spec.load(broken)
    for content in (b"config: \xff\n", b"config: \x01\n", b"? [a]\n: b\n"):
        broken.write_bytes(content)
        with pytest.raises(spec.SpecError, match="not YAML") as caught:
            spec.load(broken)
        assert len(str(caught.value).splitlines()) == 1
    broken.write_text("config: {}\n")
    with pytest.raises(spec.SpecError, match="is missing"):
        spec.load(broken)


@settings(deadline=None)
@given(
    etcd=st.sampled_from([1, 3, 5, 7]),
    apiservers=st.integers(1, 9),
    counts=st.lists(st.integers(0, 23), max_size=8),
)
def test_addresses_are_unique_inside_and_stable(etcd: int, apiservers: int, counts: list[int]) -> None:
    pools = [{"name": f"pool{index}", "count": count} for index, count in enumerate(counts)]
    cluster = spec.parse(changed(etcd__count=etcd, apiservers__count=apiservers, pools=pools), "stack.yaml")
    hosts = addresses.everything(cluster)
    taken = {host.address for host in hosts} | {addresses.gateway(cluster)}
    assert len(taken) == len(hosts) + 1
    assert all(address in cluster.network.hosts for address in taken)
    assert cluster.network.hosts.broadcast_address not in taken
    assert len({host.name for host in hosts}) == len(hosts)
    # One more API server moves no other host.
    if apiservers < 9:
        more = spec.parse(changed(etcd__count=etcd, apiservers__count=apiservers + 1, pools=pools), "stack.yaml")
        before = {host.name: host.address for host in hosts}
        after = {host.name: host.address for host in addresses.everything(more)}
        assert before.items() <= after.items()


def test_a_pool_overrides_of_the_rollout_what_it_sets_itself() -> None:
    gpu = {"name": "gpu", "count": 1, "rollout": {"growth": 1, "budget": {"hosts": 0}}}
    data = changed(pools=[{"name": "cpu", "count": 1}, gpu], rollout={"canary": 3, "budget": {"percent": 5}})
    cluster = spec.parse(data, "stack.yaml")
    cpu, gpu_rollout = (cluster.rollout.of(pool) for pool in cluster.pools)
    assert cpu == cluster.rollout
    assert (gpu_rollout.canary, gpu_rollout.growth, gpu_rollout.hosts) == (3, 1, 50)
    assert gpu_rollout.budget == spec.Budget(hosts=0)


@settings(deadline=None)
@given(st.integers(0, 23), st.sampled_from([0, 2, 3, 8]), st.sampled_from([0, 2, 3]))
def test_no_host_changes_its_place_when_its_pool_grows(count: int, unit_size: int, domains: int) -> None:
    def places(hosts: int) -> dict[str, tuple[str, str]]:
        pool = {"name": "gpu", "count": hosts, "unit_size": unit_size, "failure_domains": domains}
        cluster = spec.parse(changed(pools=[pool]), "stack.yaml")
        return {host.name: (host.failure_domain, host.unit) for host in addresses.pool(cluster, "gpu")}

    before = places(count)
    assert before.items() <= places(23).items()
    assert len({domain for domain, _ in before.values()}) <= max(domains, 1)
    for unit in {unit for _, unit in before.values()} - {""}:
        members = [place for place in before.values() if place[1] == unit]
        assert len(members) <= unit_size
        assert len(set(members)) == 1  # a unit lies in one failure domain
