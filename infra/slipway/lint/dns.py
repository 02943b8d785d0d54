"""Cluster DNS and the autoscaler: numbers that grow with nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from slipway.lint import views
from slipway.lint.figures import kubernetes as figures
from slipway.lint.rules import Problem, rule
from slipway.release import Release
from slipway.spec import Cluster


@rule(
    "coredns-limits",
    "error",
    source="cluster-proportional-autoscaler README",
    fix="a max_replicas that is not below min_replicas",
    structural=True,
)
def coredns_limits(cluster: Cluster) -> Iterator[Problem]:
    """The limits of the number of CoreDNS pods do not cross."""
    coredns = cluster.addons.coredns
    if coredns.min_replicas > coredns.max_replicas:
        yield Problem(
            "addons.coredns.min_replicas", f"{coredns.min_replicas} is more than max_replicas {coredns.max_replicas}"
        )


@rule(
    "coredns-alone",
    "warning",
    source="cluster-proportional-autoscaler README, preventSinglePointFailure",
    fix="a min_replicas of 2 or more",
)
def coredns_alone(cluster: Cluster) -> Iterator[Problem]:
    """Where there are several nodes, cluster DNS outlives the loss of one."""
    coredns = cluster.addons.coredns
    wanted = max(coredns.min_replicas, math.ceil(cluster.nodes / coredns.nodes_per_replica))
    if cluster.nodes > 1 and min(wanted, coredns.max_replicas) < 2:
        yield Problem("addons.coredns.min_replicas", f"one CoreDNS pod for {cluster.nodes} nodes")


@rule("coredns-many", "warning", source=figures.DNS_NODES.source, fix="nodes_per_replica of 100 to 200")
def coredns_many(cluster: Cluster) -> Iterator[Problem]:
    """A large cluster does not run CoreDNS pods by the hundred."""
    nodes, fewest = figures.DNS_NODES.value
    per = cluster.addons.coredns.nodes_per_replica
    if cluster.nodes >= nodes and per < fewest:
        pods = math.ceil(cluster.nodes / per)
        yield Problem("addons.coredns.nodes_per_replica", f"{per} ask for {pods} pods at {cluster.nodes} nodes")


@rule(
    "coredns-capped",
    "warning",
    source=figures.DNS_NODES.source,
    fix="a larger max_replicas or nodes_per_replica",
)
def coredns_capped(cluster: Cluster) -> Iterator[Problem]:
    """The most CoreDNS pods are enough for the declared nodes."""
    coredns = cluster.addons.coredns
    wanted = math.ceil(cluster.nodes / coredns.nodes_per_replica)
    if coredns.min_replicas <= coredns.max_replicas < wanted:
        message = f"{coredns.max_replicas}, but {cluster.nodes} nodes ask for {wanted}"
        yield Problem("addons.coredns.max_replicas", message)


@rule(
    "autoscaler-totals",
    "warning",
    source=figures.AUTOSCALER_TOTALS["cores"].source,
    fix="give cluster-autoscaler --cores-total and --memory-total above what the pools have",
)
def autoscaler_totals(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The pools stay below cluster-autoscaler's default totals, at which it stops without an error."""
    if "cluster-autoscaler" not in release.components:
        return
    for field, one in figures.AUTOSCALER_TOTALS.items():
        total = sum(pool.count * (getattr(platform, field) or 0) for _, pool, platform in views.declared(cluster))
        if total > one.limit:
            message = f"{total} {one.unit} in all pools, the autoscaler's --{one.flag} is {one.limit} by default"
            yield Problem("pools", message)


@rule(
    "autoscaler-step",
    "warning",
    source=figures.AUTOSCALER_STEP.source,
    fix="give cluster-autoscaler a larger --max-nodes-per-scaleup",
)
def autoscaler_step(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """A pool can be scaled up at once: a request for more nodes than the autoscaler's limit is refused."""
    limit = figures.AUTOSCALER_STEP
    for index, pool in enumerate(cluster.pools if "cluster-autoscaler" in release.components else ()):
        if pool.count > limit.limit:
            message = f"{pool.count} {limit.unit} is more than --{limit.flag} {limit.limit}"
            yield Problem(f"pools[{index}].count", message)
