"""What a cluster that is there must keep. Read from the plays in Pulumi's state: nothing is asked of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slipway.lint.rules import Problem, rule
from slipway.spec import Cluster

Deployed = Mapping[str, Mapping[str, Any]]
"""The inputs of each play that has converged a host; see `slipway.stack.deployed`."""

_KEPT: dict[str, tuple[str, Callable[[Cluster], object]]] = {
    "network.hosts": ("pod_network_hosts_cidr", lambda cluster: str(cluster.network.hosts)),
    "network.pods": ("controllers_pod_cidr", lambda cluster: str(cluster.network.pods)),
    "network.services": ("apiserver_service_cidr", lambda cluster: str(cluster.network.services)),
    "network.pod_prefix": ("controllers_node_mask", lambda cluster: cluster.network.pod_prefix),
    "network.domain": ("apiserver_domain", lambda cluster: cluster.network.domain),
}
"""Key of the stack file → the API servers' variable that it was deployed as, and what it would be now."""


@rule(
    "network-change",
    "error",
    source="kube-apiserver, kube-controller-manager: networks of a cluster are chosen once",
    fix="put it back, or destroy the cluster first",
    structural=True,
)
def network_change(cluster: Cluster, deployed: Deployed) -> Iterator[Problem]:
    """A cluster keeps its networks and its domain: addresses of Services, pods and hosts are all over it."""
    before = deployed.get("apiservers", {}).get("vars", {})
    for path, (variable, now) in _KEPT.items():
        if variable in before and before[variable] != now(cluster):
            yield Problem(
                path,
                f"the cluster that is there has {before[variable]} and cannot change to {now(cluster)}",
                fix=f"put it back, or first run: ./slipway destroy {cluster.name}",
            )
