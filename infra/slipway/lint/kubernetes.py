"""Versions of Kubernetes against each other, and what the stack file tells its programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from slipway.lint import versions, views
from slipway.lint.figures import kubernetes as figures
from slipway.lint.figures import node_software
from slipway.lint.figures.etcd import ALONE
from slipway.lint.rules import Problem, rule
from slipway.release import Release
from slipway.spec import Cluster

_PATH = "components.kubernetes"
_NODE_PROGRAMS = ("kubelet", "kube-proxy")
_POLICY = "kubernetes.io, version skew policy"


def _version(release: Release) -> str | None:
    return release.version("kubernetes") if "kubernetes" in release.components else None


# -- versions ----------------------------------------------------------------------------------------------------------


def _node_versions(release: Release) -> Iterator[tuple[str, str, str, str]]:
    """(path, program, its version, kind of host) of what runs on nodes, on every kind of host of a release."""
    for host in views.hosts(release):
        for program in _NODE_PROGRAMS:
            component = release.provider("kubernetes", program)
            if version := host.version(component):
                yield f"components.{component}", program, version, str(host)


@rule("kubelet-newer", "error", source=_POLICY, fix="bring the API servers to that version first")
def kubelet_newer(release: Release) -> Iterator[Problem]:
    """Kubelet and kube-proxy are not newer than the API server."""
    server = _version(release)
    for path, program, version, on in _node_versions(release) if server else ():
        if server and versions.older(versions.minor(server), versions.minor(version)):
            yield Problem(path, f"{program} {version} is newer than the API server {server}", on=on)


@rule("kubelet-too-old", "error", source=_POLICY, fix="bring the nodes nearer to the API servers' version")
def kubelet_too_old(release: Release) -> Iterator[Problem]:
    """Kubelet and kube-proxy are at most three minor versions older than the API server."""
    server, most = _version(release), figures.KUBELET_OLDER.value
    for path, program, version, on in _node_versions(release) if server else ():
        if server and versions.minors_apart(version, server) > most:
            yield Problem(path, f"{program} {version} is more than {most} minors older than {server}", on=on)


@rule(
    "kubernetes-not-in-matrix",
    "warning",
    source=figures.GPU_MATRIX.source,
    fix="take a version of Kubernetes that NVIDIA lists",
)
def kubernetes_not_in_matrix(release: Release) -> Iterator[Problem]:
    """With GPUs, Kubernetes is of a version that NVIDIA's node software was tested with."""
    first, last = figures.GPU_MATRIX.value
    version = _version(release)
    if version and "nvidia-driver" in release.components:
        minor = versions.minor(version)
        if versions.older(minor, first) or versions.older(last, minor):
            yield Problem(_PATH, f"{version}: NVIDIA lists {first} to {last}")


@rule(
    "containerd-too-old",
    "error",
    source=node_software.CONTAINERD_1_GONE.source,
    fix="take containerd 2",
)
def containerd_too_old(release: Release) -> Iterator[Problem]:
    """The kubelet works with the containerd."""
    oldest, since = node_software.CONTAINERD_1_GONE.value
    version = _version(release)
    for host in views.hosts(release):
        containerd = host.version("containerd")
        if version and containerd and not versions.older(version, since) and versions.older(containerd, oldest):
            yield Problem("components.containerd", f"{containerd}: Kubernetes {version} needs {oldest}", on=str(host))


@rule(
    "kubernetes-minor-step",
    "error",
    source=figures.APISERVER_STEP.source,
    fix="go by the releases that `slipway release path` names",
)
def kubernetes_minor_step(before: Release, release: Release) -> Iterator[Problem]:
    """API servers go up by one minor version at a time."""
    old, new = _version(before), _version(release)
    if old and new and versions.minors_apart(old, new) > figures.APISERVER_STEP.value:
        yield Problem(_PATH, f"from {old} to {new} skips a minor version")


@rule(
    "kubernetes-downgrade",
    "error",
    source="kubernetes.io: API servers cannot read what a newer one stored",
    fix="restore a snapshot of etcd that the older version wrote",
)
def kubernetes_downgrade(before: Release, release: Release) -> Iterator[Problem]:
    """Kubernetes does not go back to an older minor version."""
    old, new = _version(before), _version(release)
    if old and new and versions.minors_apart(old, new) < 0:
        yield Problem(_PATH, f"from {old} to {new} goes back a minor version")


@rule(
    "kubelet-left-behind",
    "error",
    source=_POLICY,
    fix="bring the kubelets up in a step before",
)
def kubelet_left_behind(before: Release, release: Release) -> Iterator[Problem]:
    """While API servers are new and nodes still old, the nodes are not too old."""
    new, most = _version(release), figures.KUBELET_OLDER.value
    for path, program, version, on in _node_versions(before) if new else ():
        if new and versions.minors_apart(version, new) > most:
            message = f"{program} {version} of nodes not yet changed is more than {most} minors older than {new}"
            yield Problem(path, message, on=on)


# -- what the stack file tells the programs ----------------------------------------------------------------------------


def _gates(value: object) -> dict[str, bool]:
    """Read feature gates: a mapping, or the text `A=true,B=false` of a flag."""
    if isinstance(value, Mapping):
        return {str(name): on is True for name, on in value.items()}
    pairs = (one.partition("=") for one in str(value).split(",") if one)
    return {name.strip(): on.strip().lower() == "true" for name, _, on in pairs}


def _feature_gates(cluster: Cluster) -> Iterator[tuple[str, str, bool]]:
    """(path, gate, on) of every feature gate that the stack file sets."""
    for name, on in _gates(cluster.apiservers.flags.get("feature-gates", "")).items():
        yield "apiservers.flags.feature-gates", name, on
    for index, pool in enumerate(cluster.pools):
        for name, on in _gates(pool.kubelet.get("featureGates", {})).items():
            yield f"pools[{index}].kubelet.featureGates", name, on


@rule("feature-gate-too-early", "error", source="kubernetes/enhancements kep.yaml", fix="leave the gate out")
def feature_gate_too_early(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """A feature gate is there in the version of Kubernetes: a program does not start with one that it does not know."""
    version = _version(release)
    for path, name, _ in _feature_gates(cluster):
        gate = figures.GATES.get(name)
        first = gate and (gate.alpha or gate.beta or gate.stable)
        if version and first and versions.older(version, first):
            yield Problem(path, f"{name} begins with {first}, Kubernetes is {version}")


@rule("feature-gate-locked", "error", source="kubernetes/enhancements kep.yaml", fix="leave the gate out")
def feature_gate_locked(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """No feature is turned off that is generally available: its gate is locked."""
    version = _version(release)
    for path, name, on in _feature_gates(cluster):
        gate = figures.GATES.get(name)
        if version and gate and gate.stable and not on and not versions.older(version, gate.stable):
            yield Problem(path, f"{name} is always on since {gate.stable}, Kubernetes is {version}")


@rule("feature-gate-alpha", "warning", source="kubernetes/enhancements kep.yaml", fix="wait for its beta")
def feature_gate_alpha(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """No feature is turned on while it is alpha: it may go, or change its API."""
    version = _version(release)
    for path, name, on in _feature_gates(cluster):
        gate = figures.GATES.get(name)
        if not version or not gate or not on or not gate.alpha or versions.older(version, gate.alpha):
            continue
        later = gate.beta or gate.stable
        if later is None or versions.older(version, later):
            yield Problem(path, f"{name} is alpha in Kubernetes {version}")


@rule("feature-gate-etcd", "error", source=figures.GATES["EtcdRangeStream"].source, fix="take a newer etcd")
def feature_gate_etcd(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The etcd has what a feature needs."""
    etcd = release.version("etcd") if "etcd" in release.components else None
    for path, name, on in _feature_gates(cluster):
        gate = figures.GATES.get(name)
        if etcd and gate and gate.etcd and on and versions.older(etcd, gate.etcd):
            yield Problem(path, f"{name} needs etcd {gate.etcd}, the release has {etcd}")


@rule(
    "dropped-api",
    "warning",
    source=figures.DROPPED_APIS[0].source,
    fix="delete its objects before the upgrade, and make them anew after it",
)
def dropped_api(cluster: Cluster, before: Release, release: Release) -> Iterator[Problem]:
    """No feature is in use whose API the next version drops."""
    old, new = _version(before), _version(release)
    for path, name, on in _feature_gates(cluster):
        for one in figures.DROPPED_APIS:
            crosses = old and new and versions.older(old, one.since) and not versions.older(new, one.since)
            if crosses and on and name == one.gate:
                yield Problem(path, f"{one.api} of {name} is gone from {one.since} on")


@rule("removed-flag", "error", source=figures.REMOVED[0].source, fix="leave it out")
def removed_flag(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """No flag or field is set that its program no longer knows: it would not start."""
    version = _version(release)
    places = [("apiservers.flags", set(cluster.apiservers.flags))]
    places += [(f"pools[{index}].kubelet", set(pool.kubelet)) for index, pool in enumerate(cluster.pools)]
    for path, names in places:
        for one in figures.REMOVED:
            for name in sorted(names & {one.name, _field(one.name)}):
                if version and not versions.older(version, one.since):
                    message = f"{one.program} has no {name} since {one.since}; instead: {one.instead}"
                    yield Problem(f"{path}.{name}", message)


def _field(flag: str) -> str:
    """Return the field of a configuration that a flag became: cgroupDriver of cgroup-driver."""
    first, *rest = flag.split("-")
    return first + "".join(word.capitalize() for word in rest)


@rule(
    "kubelet-cgroup-driver",
    "warning",
    source=figures.CGROUP_DRIVER_FROM_CRI.source,
    fix="leave cgroupDriver out",
)
def kubelet_cgroup_driver(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The cgroup driver is asked of containerd: said twice, the two can differ, and no pod starts."""
    since, containerd_since = figures.CGROUP_DRIVER_FROM_CRI.value
    removed = next(one.since for one in figures.REMOVED if one.name == "cgroup-driver")
    version = _version(release)
    for machines in views.pools(cluster, release):
        containerd = machines.host.version("containerd")
        asked = version and containerd and not versions.older(version, since)
        asked = asked and containerd and not versions.older(containerd, containerd_since)
        if asked and version and versions.older(version, removed) and "cgroupDriver" in machines.pool.kubelet:
            said = machines.pool.kubelet["cgroupDriver"]
            yield Problem(f"{machines.path}.kubelet.cgroupDriver", f"{said} is set; containerd says it")


@rule("cgroup-v1", "error", source=figures.CGROUP_V1.source, fix="leave failCgroupV1 out; hosts need cgroup v2")
def cgroup_v1(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """No kubelet is made to run on cgroup v1, which Kubernetes gives up."""
    default_since, removed = figures.CGROUP_V1.value
    version = _version(release)
    for index, pool in enumerate(cluster.pools):
        if version and pool.kubelet.get("failCgroupV1") is False and not versions.older(version, default_since):
            message = f"false lets Kubernetes {version} run on cgroup v1, whose support ends with {removed}"
            yield Problem(f"pools[{index}].kubelet.failCgroupV1", message)


@rule(
    "kubelet-status-frequency",
    "warning",
    source=figures.STATUS_TRAP.source,
    fix="set both, or neither",
)
def kubelet_status_frequency(cluster: Cluster) -> Iterator[Problem]:
    """A kubelet told how often to look at its status is told how often to report it: else it reports each look."""
    update, report = figures.STATUS_TRAP.value
    for index, pool in enumerate(cluster.pools):
        if update in pool.kubelet and report not in pool.kubelet:
            message = f"without {report} every node reports every {pool.kubelet[update]} instead of every 5 minutes"
            yield Problem(f"pools[{index}].kubelet.{update}", message)


# -- flags of the API server -------------------------------------------------------------------------------------------


@rule("apiserver-alone", "warning", source="kubernetes.io, options for highly available topology", fix="two or more")
def apiserver_alone(cluster: Cluster) -> Iterator[Problem]:
    """A cluster of some size has more than one API server."""
    if cluster.nodes > ALONE.value and cluster.apiservers.count == 1:
        yield Problem("apiservers.count", f"one API server for {cluster.nodes} nodes")


@rule(
    "etcd-overrides-separator",
    "error",
    source="kube-apiserver --help: servers of one override are separated by semicolons, overrides by commas",
    fix="separate the servers by ;",
)
def etcd_overrides_separator(cluster: Cluster) -> Iterator[Problem]:
    """In etcd-servers-overrides the servers of one resource are separated by semicolons."""
    flag = "etcd-servers-overrides"
    for one in cluster.apiservers.flags.get(flag, "").split(","):
        if re.match(r"^https?://", one):
            yield Problem(f"apiservers.flags.{flag}", f"{one} after a comma is taken for another override")


@rule(
    "apiserver-flag-not-set",
    "warning",
    source=figures.NOT_TO_BE_SET[0].source,
    fix="leave the flag out",
)
def apiserver_flag_not_set(cluster: Cluster) -> Iterator[Problem]:
    """No flag is set that has no effect."""
    for one in figures.NOT_TO_BE_SET:
        sizes = cluster.apiservers.flags.get(one.value)
        if sizes and any(not size.endswith("#0") for size in sizes.split(",")):
            yield Problem(f"apiservers.flags.{one.value}", one.source)


@rule("apiserver-goaway", "error", source=figures.GOAWAY_MOST.source, fix="0.001, with two API servers or more")
def apiserver_goaway(cluster: Cluster) -> Iterator[Problem]:
    """Connections are closed to spread them only where there is another API server, and only a few."""
    flag = "goaway-chance"
    chance = _number(cluster.apiservers.flags.get(flag))
    if chance is not None and chance > figures.GOAWAY_MOST.value:
        yield Problem(f"apiservers.flags.{flag}", f"{chance} is more than {figures.GOAWAY_MOST.value}")
    elif chance and cluster.apiservers.count == 1:
        yield Problem(f"apiservers.flags.{flag}", "there is one API server: clients come back to it")


@rule("apiserver-event-ttl", "warning", source=figures.EVENT_TTL.source, fix="between 5m and 3h")
def apiserver_event_ttl(cluster: Cluster) -> Iterator[Problem]:
    """Events are kept neither so short that nobody sees them nor so long that they fill their etcd."""
    flag = "event-ttl"
    least, most = figures.EVENT_TTL.value
    minutes = _minutes(cluster.apiservers.flags.get(flag, ""))
    if minutes is not None and not least <= minutes <= most:
        yield Problem(f"apiservers.flags.{flag}", f"{minutes:g} minutes; {least} to {most} are usual")


@rule(
    "apiserver-inflight",
    "warning",
    source=f"{figures.INFLIGHT.source}; {figures.INFLIGHT_DEFAULTS.source}",
    fix="raise max-requests-inflight in apiservers.flags, by the cores and memory of the hosts",
)
def apiserver_inflight(cluster: Cluster) -> Iterator[Problem]:
    """API servers of a large cluster let enough requests in."""
    nodes, wanted = figures.INFLIGHT.value
    reads, writes = figures.INFLIGHT_DEFAULTS.value
    flags = cluster.apiservers.flags
    total = (_number(flags.get("max-requests-inflight")) or reads) + (
        _number(flags.get("max-mutating-requests-inflight", str(writes))) or 0
    )
    if cluster.nodes >= nodes and total < wanted:
        message = f"{total:g} requests in flight for {cluster.nodes} nodes; {wanted} were needed at {nodes}"
        yield Problem("apiservers.flags", message)


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _minutes(text: str) -> float | None:
    """Read Go's `1h30m0s` as minutes."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s)", text)
    per = {"h": 60.0, "m": 1.0, "s": 1 / 60, "ms": 1 / 60_000}
    return sum(float(number) * per[unit] for number, unit in parts) if parts else None
