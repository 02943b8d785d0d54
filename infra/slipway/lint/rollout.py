"""How changes come to hosts: waves, budgets, units, failure domains."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.lint import views
from slipway.lint.rules import Problem, rule
from slipway.spec import Cluster


@rule(
    "rollout-never-stops",
    "error",
    source="docs/stack.md, rollout",
    fix="a smaller canary or budget",
    structural=True,
)
def rollout_never_stops(cluster: Cluster) -> Iterator[Problem]:
    """A canary is no larger than the largest wave, and no pool may fail as a whole within its budget."""
    seen = set()
    for index, pool in enumerate(cluster.pools):
        rollout, own = cluster.rollout.of(pool), pool.rollout
        where = f"pools[{index}].rollout"
        path = f"{where}.canary" if own.canary else "rollout.canary"
        limit = f"{where}.hosts" if own.hosts else "rollout.hosts"
        if rollout.canary > rollout.hosts and path not in seen:
            seen.add(path)
            yield Problem(path, f"a canary of {rollout.canary} is larger than a wave may be ({limit}: {rollout.hosts})")
        path = f"{where}.budget" if rollout.budget is own.budget else "rollout.budget"
        if rollout.budget.percent == 100 and rollout.budget.hosts is None and path not in seen:
            seen.add(path)
            yield Problem(f"{path}.percent", "a budget of 100 percent never stops a rollout; use less, or add hosts")


@rule(
    "places-of-one",
    "error",
    source="docs/stack.md, pools[]",
    fix="leave it out",
    structural=True,
)
def places_of_one(cluster: Cluster) -> Iterator[Problem]:
    """A unit is of several hosts, and failure domains are several."""
    for index, pool in enumerate(cluster.pools):
        if pool.unit_size == 1:
            yield Problem(f"pools[{index}].unit_size", "a unit of 1 host is what a host is anyway")
        if pool.failure_domains == 1:
            yield Problem(f"pools[{index}].failure_domains", "1 failure domain tells no hosts apart")


@rule(
    "rack-not-a-unit",
    "error",
    source="NVIDIA/DCGM#313; docs.nvidia.com IMEX guide: all machines of a rack have one driver version",
    fix="set unit_size to the machines of a rack",
)
def rack_not_a_unit(cluster: Cluster) -> Iterator[Problem]:
    """Machines of an NVLink rack change together: between two drivers the whole rack is without memory exchange."""
    for path, pool, platform in views.declared(cluster):
        if platform.rack and pool.unit_size != platform.rack:
            message = f"{pool.unit_size or 'not set'}; machines of {pool.platform} change by racks of {platform.rack}"
            yield Problem(f"{path}.unit_size", message)
