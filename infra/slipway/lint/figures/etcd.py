"""etcd: faults of versions, the way from one minor version to the next, sizes."""

from __future__ import annotations

import dataclasses

from slipway.lint.figures import Figure


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of the versions of a minor version below `fixed`."""

    minor: str
    fixed: str
    what: str
    source: str


CORRUPTS = (
    Fault("3.5", "3.5.3", "can corrupt its data when it dies under load", "etcd-io/etcd#13908"),
    Fault("3.5", "3.5.6", "can lose revisions when it is defragmented", "etcd-io/etcd#14733"),
    Fault("3.5", "3.5.23", "can corrupt its data when a snapshot comes during defragmentation", "etcd CHANGELOG-3.5"),
    Fault("3.6", "3.6.5", "can corrupt its data when a snapshot comes during defragmentation", "etcd CHANGELOG-3.6"),
)

MEMBER_ADD = (
    Fault("3.5", "3.5.30", "refuses a new member while one is down", "etcd-io/etcd#21667"),
    Fault("3.6", "3.6.11", "refuses a new member while one is down", "etcd-io/etcd#21667"),
)

HANDSHAKES = (
    Fault("3.5", "3.5.33", "lets unfinished TLS handshakes pile up", "etcd.io blog, 2026-07-23"),
    Fault("3.6", "3.6.14", "lets unfinished TLS handshakes pile up", "etcd.io blog, 2026-07-23"),
    Fault("3.7", "3.7.1", "lets unfinished TLS handshakes pile up", "etcd.io blog, 2026-07-23"),
)

ENDED = (Figure("3.4", "etcd 3.4 ended in May 2026 with 3.4.45"),)


@dataclasses.dataclass(frozen=True)
class Step:
    """A step between minor versions, and the oldest version that may take it."""

    before: str
    after: str
    floor: str
    why: str
    source: str


STEPS = (
    Step("3.4", "3.5", "3.4.45", "only the last 3.4 was tested for it", "etcd 3.4 end-of-life notice"),
    Step(
        "3.5",
        "3.6",
        "3.5.32",
        "older ones lose learners' promotion, snapshot membership or removed members",
        "etcd.io upgrade_3_6; etcd-io/etcd#20793, #20967",
    ),
    Step("3.6", "3.7", "3.6.11", "3.7 starts from the v3 store alone", "etcd.io upgrade_3_7"),
)

DOWNGRADES_SINCE = Figure("3.6", "etcd.io downgrade: etcdctl downgrade from 3.6 on")

KUBERNETES_FLOORS = (Figure(("1.34", "3.5.8"), "KEP 2340: ConsistentListFromCache is always on from 1.34"),)
"""Kubernetes from, and the oldest etcd for it."""


@dataclasses.dataclass(frozen=True)
class Tested:
    """The minor version of etcd that a minor version of Kubernetes is built and tested with."""

    kubernetes: str
    etcd: str
    source: str


TESTED = (
    Tested("1.34", "3.5", "kubespray etcd_supported_versions"),
    Tested("1.36", "3.6", "kubespray etcd_supported_versions"),
    Tested("1.37", "3.7", "kubernetes CHANGELOG-1.37: built against 3.7"),
)

QUOTA = Figure((1_000, 8 * 1024**3), "etcd.io limits; OpenAI, scaling Kubernetes to 2,500 nodes")
"""Nodes from which the database outgrows less, and the quota that etcd suggests at most, bytes."""

ALONE = Figure(10, "etcd FAQ: one member tolerates no failure; small clusters may take that")
"""Nodes up to which a single member or API server is let pass."""
