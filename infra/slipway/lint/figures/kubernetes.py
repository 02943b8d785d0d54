"""Kubernetes: version skew, feature gates, removed flags, scale."""

from __future__ import annotations

import dataclasses

from slipway.lint.figures import Figure

_SKEW = "kubernetes.io, version skew policy"

KUBELET_OLDER = Figure(3, _SKEW)
"""By how many minor versions a kubelet or kube-proxy may be older than the API server."""

APISERVER_STEP = Figure(1, f"{_SKEW}: API servers of one cluster are within one minor version")

GPU_MATRIX = Figure(("1.33", "1.36"), "cloud-native-docs gpu-operator/platform-support.rst")
"""First and last Kubernetes that NVIDIA lists for its node software."""


@dataclasses.dataclass(frozen=True)
class Gate:
    """A feature gate: the first version where it is alpha, beta and generally available."""

    name: str
    alpha: str | None
    beta: str | None
    stable: str | None
    etcd: str | None = None
    """The oldest etcd that it needs."""
    source: str = "kubernetes/enhancements kep.yaml"


GATES = {
    one.name: one
    for one in (
        Gate("ConsistentListFromCache", "1.28", "1.31", "1.34", source="KEP 2340"),
        Gate("WatchList", "1.27", "1.32", None, source="KEP 3157"),
        Gate("ListFromCacheSnapshot", "1.33", "1.34", None, source="KEP 4988"),
        Gate("DetectCacheInconsistency", "1.33", "1.34", None, source="KEP 4988"),
        Gate("ResilientWatchCacheInitialization", None, "1.31", "1.34", source="KEP 4568"),
        Gate("ShardedListAndWatch", "1.36", None, None, source="KEP 5866"),
        Gate("EtcdRangeStream", None, "1.37", None, etcd="3.7", source="KEP 5966"),
        Gate("NodeSwap", "1.22", "1.30", "1.34", source="KEP 2400"),
        Gate("NFTablesProxyMode", "1.29", "1.31", "1.33", source="KEP 3866"),
        Gate("GenericWorkload", "1.35", "1.37", None, source="KEP 4671"),
        Gate("SchedulerAsyncPreemption", "1.32", "1.33", None, source="KEP 4832"),
        Gate("DevicePluginCDIDevices", None, "1.29", None, source="kubernetes.io feature gates"),
    )
}


@dataclasses.dataclass(frozen=True)
class Removed:
    """A flag or field that a program refuses from a version on, and what there is instead."""

    program: str
    name: str
    since: str
    instead: str
    source: str


REMOVED = (
    Removed(
        "kubelet",
        "image-pull-progress-deadline",
        "1.24",
        "containerd's image_pull_progress_timeout",
        "Kubernetes 1.24: dockershim removed",
    ),
    Removed("kubelet", "container-runtime", "1.24", "nothing", "Kubernetes 1.24: dockershim removed"),
    Removed("kubelet", "network-plugin", "1.24", "nothing", "Kubernetes 1.24: dockershim removed"),
    Removed("kubelet", "pod-infra-container-image", "1.35", "containerd's pinned sandbox image", "CHANGELOG-1.35"),
    Removed("kubelet", "cgroup-driver", "1.38", "nothing: it is asked of the container runtime", "KEP 4033"),
    Removed(
        "kube-scheduler", "policy-config-file", "1.23", "NodeResourcesFit with a scoringStrategy", "Kubernetes 1.23"
    ),
)

CGROUP_V1 = Figure(("1.35", "1.38"), "KEP 5573: kubelet refuses cgroup v1 from 1.35, support is removed from 1.38")
"""From when `failCgroupV1` is true unless set, and from when it cannot be set."""

CGROUP_DRIVER_FROM_CRI = Figure(("1.34", "2.0"), "KEP 4033: from CRI since 1.34 with containerd 2.0")
"""Kubernetes and containerd from which nobody has to say the cgroup driver."""

STATUS_TRAP = Figure(
    ("nodeStatusUpdateFrequency", "nodeStatusReportFrequency"),
    "kubelet pkg/kubelet/apis/config/v1beta1/defaults.go: the second takes the value of the first, else 5 min",
)


@dataclasses.dataclass(frozen=True)
class DroppedApi:
    """An API that a version drops: its objects must be gone before. `gate` is the feature that has them."""

    gate: str
    api: str
    since: str
    source: str


DROPPED_APIS = (DroppedApi("GenericWorkload", "scheduling.k8s.io/v1alpha2", "1.37", "KEP 4671; CHANGELOG-1.37"),)

NOT_TO_BE_SET = (
    Figure("watch-cache-sizes", "kube-apiserver: sizes are dynamic since 1.19, only <resource>#0 has an effect"),
)

GOAWAY_MOST = Figure(0.02, "kube-apiserver --help: goaway-chance, maximum 0.02; not with a single server")

EVENT_TTL = Figure((5, 180), "OpenShift: event-ttl is allowed from 5 to 180 minutes")
"""Minutes."""

INFLIGHT = Figure((5_000, 640), "kOps tests/e2e/scenarios/scalability/run-test.sh, 5,000 nodes")
"""Nodes, and requests in flight at an API server that they need."""

INFLIGHT_DEFAULTS = Figure((400, 200), "kubernetes staging/src/k8s.io/apiserver/pkg/server/config.go")
"""max-requests-inflight and max-mutating-requests-inflight."""

DNS_NODES = Figure((1_000, 100), "cluster-proportional-autoscaler README; 100 to 200 nodes a replica at scale")
"""Nodes from which it matters, and the fewest nodes for one CoreDNS pod."""


@dataclasses.dataclass(frozen=True)
class AutoscalerLimit:
    """A default of cluster-autoscaler at which scaling up stops without an error."""

    flag: str
    limit: int
    unit: str
    source: str = "cluster-autoscaler FAQ, flags and defaults"


AUTOSCALER_TOTALS = {
    "cores": AutoscalerLimit("cores-total", 320_000, "cores"),
    "memory_gib": AutoscalerLimit("memory-total", 6_400_000, "GB of memory"),
}

AUTOSCALER_STEP = AutoscalerLimit("max-nodes-per-scaleup", 1_000, "nodes at once")
