"""Which host has which name and address.

Blocks, not a running number: changing one count never moves another host. The first 64 addresses of the host network
hold the fixed groups; the rest is cut into `POOL_BLOCKS` blocks, one a pool in the order of the stack file (so new
pools go to the end). The first address is the gateway.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipway.spec import Cluster, Pool

POOL_BLOCKS = 8
LONGEST_PREFIX = 24
"""A host network smaller than this does not hold the blocks."""

_FIXED = 64
_FIRST = {"load_balancers": 4, "apiservers": 10, "etcd": 20, "etcd_events": 30}
_ROOM = {"load_balancers": 6, "apiservers": 10, "etcd": 10, "etcd_events": 10}
_PREFIX = {"load_balancers": "lb", "apiservers": "api", "etcd": "etcd", "etcd_events": "events"}

RESERVED_NAMES = frozenset(_PREFIX.values())


@dataclasses.dataclass(frozen=True)
class Host:
    """A host as declared: what it is called, where it is and what it is for.

    `group` is etcd, etcd_events, apiservers, load_balancers or nodes; `pool` is a node's pool, else "".
    `failure_domain` is what it shares its fate with, `unit` what it is changed together with; "" when none is declared.
    """

    name: str
    address: ipaddress.IPv4Address
    group: str
    pool: str
    index: int
    failure_domain: str = ""
    unit: str = ""


def gateway(cluster: Cluster) -> ipaddress.IPv4Address:
    """The hosts' way out: the first address of their network."""
    return cluster.network.hosts[1]


def api_endpoint(cluster: Cluster) -> ipaddress.IPv4Address:
    """Where the API is reached: the first load balancer."""
    return group(cluster, "load_balancers")[0].address


def group(cluster: Cluster, name: str) -> list[Host]:
    """The hosts of one fixed group, in order."""
    count: int = getattr(cluster, name).count
    return [
        Host(f"{cluster.name}-{_PREFIX[name]}-{index}", cluster.network.hosts[_FIRST[name] + index], name, "", index)
        for index in range(count)
    ]


def pool(cluster: Cluster, name: str) -> list[Host]:
    """The hosts of one node pool, in order."""
    block, declared = next((block, pool) for block, pool in enumerate(cluster.pools) if pool.name == name)
    first = _FIXED + block * _block_size(cluster)
    return [
        Host(
            f"{cluster.name}-{name}-{index}",
            cluster.network.hosts[first + index],
            "nodes",
            name,
            index,
            *_place(declared, index),
        )
        for index in range(declared.count)
    ]


def nodes(cluster: Cluster) -> list[Host]:
    """The hosts of all pools."""
    return [host for declared in cluster.pools for host in pool(cluster, declared.name)]


def everything(cluster: Cluster) -> list[Host]:
    """All hosts of a cluster, fixed groups first."""
    return [
        host for name in ("etcd", "etcd_events", "apiservers", "load_balancers") for host in group(cluster, name)
    ] + nodes(cluster)


def room(cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    """(path in the stack file, hosts declared, addresses in its block) for each group and pool."""
    for name, size in _ROOM.items():
        yield f"{name}.count", getattr(cluster, name).count, size
    for index, declared in enumerate(cluster.pools[:POOL_BLOCKS]):
        yield f"pools[{index}].count", declared.count, _block_size(cluster)


def direct(cluster: Cluster) -> list[str]:
    """Return what is reached without proxy: what the stack says, the cluster's own networks and its API."""
    network = cluster.network
    own = ["localhost", "127.0.0.1", f".{network.domain}", ".svc", str(network.hosts), str(network.pods)]
    own += [str(network.services), str(api_endpoint(cluster))]
    return list(dict.fromkeys([*cluster.upstream.no_proxy, *own]))


def _place(pool: Pool, index: int) -> tuple[str, str]:
    """Return failure domain and unit of a host of a pool, by its number alone: so none moves when the pool grows.

    A unit lies in one failure domain.
    """
    unit = index // pool.unit_size if pool.unit_size else index
    return (
        f"zone-{unit % pool.failure_domains}" if pool.failure_domains else "",
        f"{pool.name}-{unit}" if pool.unit_size else "",
    )


def _block_size(cluster: Cluster) -> int:
    # One less than there are: the last address is the broadcast address.
    return (cluster.network.hosts.num_addresses - _FIXED - 1) // POOL_BLOCKS
