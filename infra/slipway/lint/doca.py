"""RDMA: DOCA-OFED and what goes with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipway.lint import versions, views
from slipway.lint.figures import rdma as figures
from slipway.lint.rules import Problem, rule
from slipway.release import Release

_DOCA = "components.doca-ofed"


@rule(
    "doca-one-build",
    "error",
    source="azhpc-images components/install_doca.sh: kernel parts and libraries are of one DOCA build",
    fix="let the repository's address and the component say the same version",
)
def doca_one_build(release: Release) -> Iterator[Problem]:
    """Kernel parts and libraries come from the repository of the DOCA version that is pinned."""
    for host in views.hosts(release):
        pinned = host.pinned("doca-ofed")
        repository = release.repositories.get(pinned.repository or "") if pinned else None
        source = repository.source(host.target) if repository else None
        for uri in source.uris if source else ():
            named = re.search(r"/doca/([\d.]+)/", uri, re.IGNORECASE)
            if pinned and named and not versions.same(named[1], pinned.version):
                message = f"version {pinned.version}, but its repository has {named[1]}"
                yield Problem(_DOCA, message, on=str(host))


@rule(
    "mft-version",
    "error",
    source="DOCA-Host release notes: mft and kernel-mft are of one version",
    fix="pin both packages at one version",
)
def mft_version(release: Release) -> Iterator[Problem]:
    """The firmware tools and their kernel module are of one version."""
    for host in views.hosts(release):
        found: dict[str, str] = {}
        for component in ("mft", "doca-ofed"):
            pinned = host.pinned(component)
            for package, one in pinned.packages.items() if pinned else ():
                if package == "mft" or package.startswith("kernel-mft"):
                    found[package] = versions.upstream(one.version)
        if len(set(found.values())) > 1:
            listed = ", ".join(f"{package} {version}" for package, version in sorted(found.items()))
            yield Problem("components.mft", f"different versions: {listed}", on=str(host))


@rule("doca-os", "error", source=figures.FIRST_DOCA[0].source, fix="take a DOCA that is released for the system")
def doca_os(release: Release) -> Iterator[Problem]:
    """DOCA is released for the operating system."""
    for host in views.hosts(release):
        version = host.version("doca-ofed")
        for one in figures.FIRST_DOCA:
            if version and one.os == host.target.os and versions.older(version, one.version):
                message = f"{version} is not for {one.os}; the first that is: {one.version}"
                yield Problem(_DOCA, message, on=str(host))


@rule("doca-two-vendors", "error", source=figures.FLAVOURS.source, fix="pin NVIDIA's packages or Canonical's")
def doca_two_vendors(release: Release) -> Iterator[Problem]:
    """DOCA comes from NVIDIA or from Canonical, never from both."""
    for host in views.hosts(release):
        pinned = host.pinned("doca-ofed")
        names = set(pinned.packages) if pinned else set()
        canonical = sorted(name for name in names if re.match(figures.FLAVOURS.value, name))
        if canonical and "doca-ofed" in names:
            yield Problem(_DOCA, f"{canonical[0]} of Canonical beside doca-ofed of NVIDIA", on=str(host))
