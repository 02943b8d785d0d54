"""Rules that a change of a cluster which is there must keep: functions (cluster, deployed) → problems.

They read what was deployed from the plays in Pulumi's state: nothing is asked of a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slipway.fleet import addresses
from slipway.lint.spec_rules import Problem
from slipway.spec import Cluster, SpecError

Deployed = Mapping[str, Mapping[str, Any]]
"""The inputs of each play that has converged a host; see `slipway.stack.deployed`."""

Rule = Callable[[Cluster, Deployed], Iterator[Problem]]

_KEPT: dict[str, tuple[str, Callable[[Cluster], object]]] = {
    "network.hosts": ("pod_network_hosts_cidr", lambda cluster: str(cluster.network.hosts)),
    "network.pods": ("controllers_pod_cidr", lambda cluster: str(cluster.network.pods)),
    "network.services": ("apiserver_service_cidr", lambda cluster: str(cluster.network.services)),
    "network.pod_prefix": ("controllers_node_mask", lambda cluster: cluster.network.pod_prefix),
    "network.domain": ("apiserver_domain", lambda cluster: cluster.network.domain),
}
"""Key of the stack file → the API servers' variable that it was deployed as, and what it would be now."""


def refuse(cluster: Cluster, deployed: Deployed, where: str) -> None:
    """Raise SpecError when what is there cannot become `cluster`. `where` names the stack file in messages."""
    problems = [f"{where}: {problem.path}: {problem.message}" for rule in RULES for problem in rule(cluster, deployed)]
    if problems:
        raise SpecError(problems)


def etcd_members(cluster: Cluster, deployed: Deployed) -> Iterator[Problem]:
    """A running etcd keeps its members: none is added to it or taken from it."""
    for group in ("etcd", "etcd_events"):
        before = {host["name"] for host in deployed.get(group, {}).get("hosts", ())}
        wanted = {host.name for host in addresses.group(cluster, group)}
        if before and before != wanted:
            yield Problem(
                f"{group}.count",
                f"a running etcd of {len(before)} cannot become one of {len(wanted)}, its members cannot be changed "
                f"yet; put {len(before)} back, or first run: ./slipway destroy {cluster.name}",
            )


def network_stays(cluster: Cluster, deployed: Deployed) -> Iterator[Problem]:
    """A cluster keeps its networks and its domain: addresses of Services, pods and hosts are all over it."""
    before = deployed.get("apiservers", {}).get("vars", {})
    for path, (variable, now) in _KEPT.items():
        if variable in before and before[variable] != now(cluster):
            yield Problem(
                path,
                f"the cluster that is there has {before[variable]} and cannot change to {now(cluster)}; "
                f"put it back, or first run: ./slipway destroy {cluster.name}",
            )


RULES: tuple[Rule, ...] = (etcd_members, network_stays)
