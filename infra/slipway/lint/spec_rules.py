"""Rules that a cluster declaration must keep by itself: functions (cluster) → problems. `check` runs them all."""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from slipway.fleet import addresses

if TYPE_CHECKING:
    from slipway.spec import Cluster


@dataclasses.dataclass(frozen=True)
class Problem:
    """`path` is the place in the stack file, `message` says what is wrong and what was expected."""

    path: str
    message: str


_SPECIAL = {
    "loopback": [ipaddress.IPv4Network("127.0.0.0/8")],
    "link-local": [ipaddress.IPv4Network("169.254.0.0/16")],
    "multicast or reserved": [ipaddress.IPv4Network("224.0.0.0/3"), ipaddress.IPv4Network("0.0.0.0/8")],
}
_KUBERNETES = ("kubernetes.io", "k8s.io")
_KUBELETS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS = ("slipway.dev/pool", "slipway.dev/platform", "slipway.dev/unit", "topology.kubernetes.io/zone")

Rule = Callable[["Cluster"], Iterator[Problem]]


def check(cluster: Cluster) -> list[Problem]:
    """All problems of all rules, in the order of the rules."""
    return [problem for rule in RULES for problem in rule(cluster)]


def odd_members(cluster: Cluster) -> Iterator[Problem]:
    """An even member adds a way to fail and no tolerance (etcd FAQ, "Why an odd number of cluster members?")."""
    for path, group in (("etcd", cluster.etcd), ("etcd_events", cluster.etcd_events)):
        if group.count % 2 == 0:
            yield Problem(
                f"{path}.count", f"{group.count} members tolerate no more than {group.count - 1}; use an odd number"
            )


def election_timeout(cluster: Cluster) -> Iterator[Problem]:
    """Etcd refuses an election timeout under five heartbeats (etcd configuration, `--election-timeout`)."""
    for path, group in (("etcd", cluster.etcd), ("etcd_events", cluster.etcd_events)):
        if group.election_ms < 5 * group.heartbeat_ms:
            yield Problem(
                f"{path}.election_ms", f"{group.election_ms} is under five heartbeats of {group.heartbeat_ms} ms"
            )


def networks_apart(cluster: Cluster) -> Iterator[Problem]:
    """Host, pod and service networks share no address."""
    named = [("hosts", cluster.network.hosts), ("pods", cluster.network.pods), ("services", cluster.network.services)]
    for (first, one), (second, other) in itertools.combinations(named, 2):
        if one.overlaps(other):
            yield Problem(
                f"network.{second}", f"{other} overlaps network.{first} {one}; choose networks that share no address"
            )


def networks_usable(cluster: Cluster) -> Iterator[Problem]:
    """No network has loopback, link-local or multicast addresses: they do not lead from one host to another."""
    for name in ("hosts", "pods", "services"):
        declared = getattr(cluster.network, name)
        for special, networks in _SPECIAL.items():
            if any(declared.overlaps(each) for each in networks):
                yield Problem(f"network.{name}", f"{declared} has {special} addresses; use a private network")


def networks_large_enough(cluster: Cluster) -> Iterator[Problem]:
    """Each network holds what is in it, and no component refuses its size."""
    network = cluster.network
    if network.hosts.prefixlen > addresses.LONGEST_PREFIX:
        yield Problem("network.hosts", f"{network.hosts} is too small; a /24 or larger holds the groups and the pools")
    if network.services.prefixlen > 26:
        yield Problem(
            "network.services",
            f"{network.services} is too small; a /26 or larger is needed (cluster DNS is its tenth address)",
        )
    if network.services.prefixlen < 12:
        # kube-apiserver: "--service-cluster-ip-range is too large; for 4-byte addresses, the mask must be >= 12"
        yield Problem("network.services", f"{network.services} is too large; the API server takes a /12 or smaller")
    if network.pod_prefix < network.pods.prefixlen:
        yield Problem(
            "network.pod_prefix", f"/{network.pod_prefix} is larger than the whole pod network {network.pods}"
        )
    elif network.pod_prefix - network.pods.prefixlen > 16:
        # kube-controller-manager refuses a difference of more than 16 bits (nodeipam, cidr_set.go)
        yield Problem(
            "network.pod_prefix", f"/{network.pod_prefix} is more than 16 bits longer than network.pods {network.pods}"
        )


def unique_pools(cluster: Cluster) -> Iterator[Problem]:
    """Pool names are unique and differ from the groups', so that host names do."""
    seen: dict[str, int] = {}
    for index, pool in enumerate(cluster.pools):
        if pool.name in seen:
            yield Problem(
                f"pools[{index}].name",
                f"{pool.name} is the name of pools[{seen[pool.name]}] too; pool names are unique",
            )
        elif pool.name in addresses.RESERVED_NAMES:
            yield Problem(f"pools[{index}].name", f"{pool.name} names a group of fixed hosts; choose another")
        seen.setdefault(pool.name, index)


def kubelet_labels(cluster: Cluster) -> Iterator[Problem]:
    """Pools' labels are neither Slipway's nor Kubernetes' own, which no kubelet may set (kubelet, `--node-labels`)."""
    for index, pool in enumerate(cluster.pools):
        for key in pool.labels:
            domain = key.rpartition("/")[0]
            if key in _OWN_LABELS:
                yield Problem(f"pools[{index}].labels", f"Slipway sets {key} itself; choose another key")
            elif domain.endswith(_KUBERNETES) and not domain.endswith(_KUBELETS):
                yield Problem(
                    f"pools[{index}].labels", f"a kubelet may not set {key}; use a domain of yours, or kubectl label"
                )


def pods_fit(cluster: Cluster) -> Iterator[Problem]:
    """A node's pod network holds its pods (less three addresses), and the cluster's holds all nodes."""
    network = cluster.network
    room = 2 ** (32 - network.pod_prefix) - 3
    for index, pool in enumerate(cluster.pools):
        if pool.max_pods > room:
            yield Problem(
                f"pools[{index}].max_pods",
                f"{pool.max_pods} pods do not fit into a /{network.pod_prefix} ({room} addresses)",
            )
    nodes = 2 ** max(0, network.pod_prefix - network.pods.prefixlen)
    if cluster.nodes > nodes:
        largest = max(range(len(cluster.pools)), key=lambda index: cluster.pools[index].count)
        yield Problem(
            f"pools[{largest}].count",
            f"{cluster.nodes} nodes in all pools, "
            f"but network.pods {network.pods} has room for {nodes} of /{network.pod_prefix}",
        )


def hosts_fit(cluster: Cluster) -> Iterator[Problem]:
    """Each group and pool stays within its block of the host network."""
    if cluster.network.hosts.prefixlen > addresses.LONGEST_PREFIX:
        return  # told already
    for path, count, room in addresses.room(cluster):
        if count > room:
            yield Problem(
                path,
                f"{count} hosts, but its block of network.hosts {cluster.network.hosts} has {room} addresses; "
                "use a larger network",
            )


def pools_in_blocks(cluster: Cluster) -> Iterator[Problem]:
    """Each pool has a block of the host network."""
    if len(cluster.pools) > addresses.POOL_BLOCKS:
        yield Problem(
            "pools", f"{len(cluster.pools)} pools, but a host network has {addresses.POOL_BLOCKS} blocks for pools"
        )


def coredns_replicas(cluster: Cluster) -> Iterator[Problem]:
    """The limits of the number of CoreDNS pods do not cross."""
    coredns = cluster.addons.coredns
    if coredns.min_replicas > coredns.max_replicas:
        yield Problem(
            "addons.coredns.min_replicas", f"{coredns.min_replicas} is more than max_replicas {coredns.max_replicas}"
        )


def waves_make_sense(cluster: Cluster) -> Iterator[Problem]:
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


def places_tell_apart(cluster: Cluster) -> Iterator[Problem]:
    """A unit is of several hosts, and failure domains are several."""
    for index, pool in enumerate(cluster.pools):
        if pool.unit_size == 1:
            yield Problem(f"pools[{index}].unit_size", "a unit of 1 host is what a host is anyway; leave it out")
        if pool.failure_domains == 1:
            yield Problem(f"pools[{index}].failure_domains", "1 failure domain tells no hosts apart; leave it out")


RULES: tuple[Rule, ...] = (
    odd_members,
    election_timeout,
    networks_apart,
    networks_usable,
    networks_large_enough,
    unique_pools,
    kubelet_labels,
    pods_fit,
    hosts_fit,
    pools_in_blocks,
    coredns_replicas,
    waves_make_sense,
    places_tell_apart,
)
