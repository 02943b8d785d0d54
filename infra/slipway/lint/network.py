"""The address plan: networks that share nothing, hold what is in them, and lead somewhere."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator

from slipway.fleet import addresses
from slipway.lint import views
from slipway.lint.rules import Problem, rule
from slipway.spec import Cluster

_SPECIAL = {
    "loopback": [ipaddress.IPv4Network("127.0.0.0/8")],
    "link-local": [ipaddress.IPv4Network("169.254.0.0/16")],
    "multicast or reserved": [ipaddress.IPv4Network("224.0.0.0/3"), ipaddress.IPv4Network("0.0.0.0/8")],
}
_LARGEST_SERVICES = 12
_SMALLEST_SERVICES = 26
_NODE_MASK_BITS = 16
_NETWORKS = ("hosts", "pods", "services")


@rule(
    "networks-overlap",
    "error",
    source="Kubernetes documentation, cluster networking: ranges must not overlap",
    fix="choose networks that share no address",
    structural=True,
)
def networks_overlap(cluster: Cluster) -> Iterator[Problem]:
    """Host, pod and service networks share no address."""
    named = [(name, getattr(cluster.network, name)) for name in _NETWORKS]
    for (first, one), (second, other) in itertools.combinations(named, 2):
        if one.overlaps(other):
            yield Problem(f"network.{second}", f"{other} overlaps network.{first} {one}")


@rule(
    "network-special",
    "error",
    source="RFC 6890: special-purpose addresses",
    fix="use a private network",
    structural=True,
)
def network_special(cluster: Cluster) -> Iterator[Problem]:
    """No network has loopback, link-local or multicast addresses: they do not lead from one host to another."""
    for name in _NETWORKS:
        declared = getattr(cluster.network, name)
        for special, networks in _SPECIAL.items():
            if any(declared.overlaps(each) for each in networks):
                yield Problem(f"network.{name}", f"{declared} has {special} addresses")


@rule(
    "network-reserved",
    "error",
    source="the machine type's `reserved` networks, in infra/slipway/platforms/machines.yaml",
    fix="choose a network apart from it",
)
def network_reserved(cluster: Cluster) -> Iterator[Problem]:
    """No network has addresses that a machine type of the cluster takes for itself, such as for InfiniBand."""
    taken = {
        (ipaddress.IPv4Network(network), what, pool.platform)
        for _, pool, platform in views.declared(cluster)
        for network, what in platform.reserved.items()
    }
    for name in _NETWORKS:
        declared = getattr(cluster.network, name)
        for network, what, platform in sorted(taken):
            if declared.overlaps(network):
                yield Problem(f"network.{name}", f"{declared} overlaps {network}, {what}", on=platform)


@rule(
    "network-size",
    "error",
    source="kube-apiserver --service-cluster-ip-range; kube-controller-manager nodeipam cidr_set.go",
    fix="choose a network of a size that is taken",
    structural=True,
)
def network_size(cluster: Cluster) -> Iterator[Problem]:
    """Each network holds what is in it, and no component refuses its size."""
    network = cluster.network
    if network.hosts.prefixlen > addresses.LONGEST_PREFIX:
        yield Problem("network.hosts", f"{network.hosts} is too small; a /24 or larger holds the groups and the pools")
    if network.services.prefixlen > _SMALLEST_SERVICES:
        yield Problem(
            "network.services",
            f"{network.services} is too small; a /26 or larger is needed (cluster DNS is its tenth address)",
        )
    if network.services.prefixlen < _LARGEST_SERVICES:
        # kube-apiserver: "--service-cluster-ip-range is too large; for 4-byte addresses, the mask must be >= 12"
        yield Problem("network.services", f"{network.services} is too large; the API server takes a /12 or smaller")
    if network.pod_prefix < network.pods.prefixlen:
        yield Problem(
            "network.pod_prefix", f"/{network.pod_prefix} is larger than the whole pod network {network.pods}"
        )
    elif network.pod_prefix - network.pods.prefixlen > _NODE_MASK_BITS:
        # kube-controller-manager refuses a difference of more than 16 bits (nodeipam, cidr_set.go)
        yield Problem(
            "network.pod_prefix", f"/{network.pod_prefix} is more than 16 bits longer than network.pods {network.pods}"
        )


@rule(
    "pods-fit",
    "error",
    source="kube-controller-manager, node IPAM: one block of the pod network a node",
    fix="a larger network.pods, a shorter pod_prefix, fewer nodes or fewer max_pods",
    structural=True,
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


@rule(
    "hosts-fit",
    "error",
    source="infra/slipway/fleet/addresses.py: a block of the host network for each group and pool",
    fix="use a larger network.hosts, or fewer hosts",
    structural=True,
)
def hosts_fit(cluster: Cluster) -> Iterator[Problem]:
    """Each group and pool stays within its block of the host network."""
    if cluster.network.hosts.prefixlen > addresses.LONGEST_PREFIX:
        return  # told already
    for path, count, room in addresses.room(cluster):
        if count > room:
            yield Problem(
                path,
                f"{count} hosts, but its block of network.hosts {cluster.network.hosts} has {room} addresses",
            )
