"""The version of etcd: its faults, and the way to it."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.lint import versions
from slipway.lint.figures import etcd as figures
from slipway.lint.rules import Problem, rule
from slipway.release import Release

_PATH = "components.etcd"


def _faults(release: Release, faults: tuple[figures.Fault, ...]) -> Iterator[Problem]:
    """Yield one problem when a release's etcd has some of the faults."""
    if "etcd" not in release.components:
        return
    version = release.version("etcd")
    found = [one for one in faults if versions.minor(version) == one.minor and versions.older(version, one.fixed)]
    if found:
        said = "; ".join(f"{one.what} (fixed in {one.fixed})" for one in found)
        yield Problem(_PATH, f"{version} {said}")


@rule("etcd-corrupts", "error", source="etcd-io/etcd#13908, #14733; CHANGELOG-3.5, 3.6", fix="take the newest patch")
def etcd_corrupts(release: Release) -> Iterator[Problem]:
    """The version of etcd has no known way to lose data."""
    yield from _faults(release, figures.CORRUPTS)


@rule("etcd-member-add", "warning", source=figures.MEMBER_ADD[0].source, fix="take the newest patch")
def etcd_member_add(release: Release) -> Iterator[Problem]:
    """A member can be replaced while it is down."""
    yield from _faults(release, figures.MEMBER_ADD)


@rule("etcd-handshakes", "warning", source=figures.HANDSHAKES[0].source, fix="take the newest patch")
def etcd_handshakes(release: Release) -> Iterator[Problem]:
    """Clients cannot exhaust etcd before they have shown a certificate."""
    yield from _faults(release, figures.HANDSHAKES)


@rule("etcd-ended", "error", source=figures.ENDED[0].source, fix="take a minor version that gets fixes")
def etcd_ended(release: Release) -> Iterator[Problem]:
    """The minor version of etcd still gets fixes."""
    if "etcd" in release.components:
        version = release.version("etcd")
        for one in figures.ENDED:
            if versions.minor(version) == one.value:
                yield Problem(_PATH, f"{version}: {one.source}")


@rule("etcd-for-kubernetes", "error", source=figures.KUBERNETES_FLOORS[0].source, fix="take a newer etcd")
def etcd_for_kubernetes(release: Release) -> Iterator[Problem]:
    """The etcd is one that the API server works with."""
    if not {"etcd", "kubernetes"} <= set(release.components):
        return
    etcd, kubernetes = release.version("etcd"), release.version("kubernetes")
    for one in figures.KUBERNETES_FLOORS:
        since, floor = one.value
        if not versions.older(kubernetes, since) and versions.older(etcd, floor):
            yield Problem(_PATH, f"{etcd}: Kubernetes {kubernetes} needs {floor} or later")


@rule(
    "etcd-not-tested", "note", source=figures.TESTED[0].source, fix="take the etcd that it is tested with, if you can"
)
def etcd_not_tested(release: Release) -> Iterator[Problem]:
    """The etcd is not older than the one that Kubernetes is tested with."""
    if not {"etcd", "kubernetes"} <= set(release.components):
        return
    etcd, kubernetes = release.version("etcd"), release.version("kubernetes")
    for one in figures.TESTED:
        if versions.minor(kubernetes) == one.kubernetes and versions.older(etcd, one.etcd):
            yield Problem(_PATH, f"{etcd}: Kubernetes {kubernetes} is tested with {one.etcd}")


# -- from one release to another ---------------------------------------------------------------------------------------


def _step(before: Release, release: Release) -> tuple[str, str] | None:
    if "etcd" in before.components and "etcd" in release.components:
        return before.version("etcd"), release.version("etcd")
    return None


@rule(
    "etcd-minor-step",
    "error",
    source="etcd.io, upgrade guides: one minor version at a time",
    fix="go by the releases that `slipway release path` names",
)
def etcd_minor_step(before: Release, release: Release) -> Iterator[Problem]:
    """Etcd goes up by one minor version at a time."""
    if (step := _step(before, release)) and versions.minors_apart(*step) > 1:
        yield Problem(_PATH, f"from {step[0]} to {step[1]} skips a minor version")


@rule(
    "etcd-minor-floor",
    "error",
    source="; ".join(one.source for one in figures.STEPS),
    fix="go by the releases that `slipway release path` names",
)
def etcd_minor_floor(before: Release, release: Release) -> Iterator[Problem]:
    """Etcd goes to the next minor version only from a patch that can."""
    if not (step := _step(before, release)):
        return
    old, new = step
    for one in figures.STEPS:
        leaves = versions.minor(old) == one.before and versions.minors_apart(old, new) >= 1
        if leaves and versions.older(old, one.floor):
            yield Problem(_PATH, f"{old} cannot go to {one.after}: from {one.floor} on it can; {one.why}")


@rule(
    "etcd-downgrade",
    "error",
    source=figures.DOWNGRADES_SINCE.source,
    fix="restore a snapshot, or by hand: etcdctl downgrade validate",
)
def etcd_downgrade(before: Release, release: Release) -> Iterator[Problem]:
    """Etcd does not go back to an older minor version."""
    if (step := _step(before, release)) and versions.minors_apart(*step) < 0:
        since = figures.DOWNGRADES_SINCE.value
        by_hand = not versions.older(step[1], since)
        how = "only by hand" if by_hand else f"not at all (only between versions from {since} on)"
        yield Problem(_PATH, f"from {step[0]} to {step[1]} goes back a minor version: {how}")
