"""The etcd clusters of a stack: members, where they are, sizes."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from slipway.lint.figures import etcd as figures
from slipway.lint.rules import Problem, rule
from slipway.spec import Cluster, EtcdGroup


def _groups(cluster: Cluster) -> tuple[tuple[str, EtcdGroup], ...]:
    return (("etcd", cluster.etcd), ("etcd_events", cluster.etcd_events))


@rule(
    "etcd-even",
    "error",
    source='etcd FAQ, "Why an odd number of cluster members?"',
    fix="use an odd number",
    structural=True,
)
def etcd_even(cluster: Cluster) -> Iterator[Problem]:
    """The number of members is odd: one more adds a way to fail and no tolerance."""
    for path, group in _groups(cluster):
        if group.count % 2 == 0:
            yield Problem(f"{path}.count", f"{group.count} members tolerate no more than {group.count - 1}")


@rule("etcd-alone", "warning", source=figures.ALONE.source, fix="three members, or five")
def etcd_alone(cluster: Cluster) -> Iterator[Problem]:
    """A cluster of some size outlives the loss of an etcd member."""
    if cluster.nodes > figures.ALONE.value and cluster.etcd.count == 1:
        yield Problem("etcd.count", f"one member for {cluster.nodes} nodes: its loss is the loss of the cluster")


@rule(
    "etcd-election",
    "error",
    source="etcd configuration, --election-timeout: at least five heartbeats",
    fix="a longer election_ms, or a shorter heartbeat_ms",
    structural=True,
)
def etcd_election(cluster: Cluster) -> Iterator[Problem]:
    """The election timeout is five heartbeats or more, or etcd does not start."""
    for path, group in _groups(cluster):
        if group.election_ms < 5 * group.heartbeat_ms:
            yield Problem(
                f"{path}.election_ms", f"{group.election_ms} is under five heartbeats of {group.heartbeat_ms} ms"
            )


@rule(
    "etcd-shared-domain",
    "error",
    source="etcd FAQ, failure tolerance: members that fail together count as one",
    fix="place each member in a failure domain of its own",
)
def etcd_shared_domain(cluster: Cluster) -> Iterator[Problem]:
    """No two members of an etcd cluster are in one failure domain."""
    for path, group in _groups(cluster):
        for domain, members in collections.Counter(group.failure_domains).items():
            if members > 1:
                yield Problem(f"{path}.failure_domains", f"{members} members are in {domain}")


@rule(
    "etcd-domain-count",
    "error",
    source="docs/stack.md, failure_domains: one for each member in order",
    fix="name one failure domain for each member",
)
def etcd_domain_count(cluster: Cluster) -> Iterator[Problem]:
    """Failure domains are given for every member or for none."""
    for path, group in _groups(cluster):
        if group.failure_domains and len(group.failure_domains) != group.count:
            message = f"{len(group.failure_domains)} failure domains for {group.count} members"
            yield Problem(f"{path}.failure_domains", message)


@rule("etcd-quota", "warning", source=figures.QUOTA.source, fix="leave quota_bytes at its default")
def etcd_quota(cluster: Cluster) -> Iterator[Problem]:
    """A large cluster has the largest database that etcd suggests: when it is full, nothing can be written."""
    nodes, quota = figures.QUOTA.value
    for path, group in _groups(cluster):
        if cluster.nodes >= nodes and group.quota_bytes < quota:
            message = f"{group.quota_bytes >> 20} MiB for {cluster.nodes} nodes; {quota >> 20} MiB are suggested"
            yield Problem(f"{path}.quota_bytes", message)
