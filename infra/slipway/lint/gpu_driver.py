"""The GPU driver of a release: branch, modules, package names, and what must be exactly of its version."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

from slipway.lint import versions, views
from slipway.lint.figures import driver as figures
from slipway.lint.rules import Problem, rule
from slipway.release import UBUNTU, Pinned, Release

_PATH = "components.nvidia-driver"


def _drivers(release: Release) -> Iterator[tuple[views.Host, Pinned, int]]:
    """Each kind of host with a driver, the driver, and its branch."""
    for host in views.hosts(release):
        if pinned := host.pinned("nvidia-driver"):
            yield host, pinned, versions.major(pinned.version)


def _companions(release: Release, rule_id: str) -> Iterator[Problem]:
    """Yield a problem for each companion that is not of the driver's version and is judged by one rule."""
    for host, pinned, _ in _drivers(release):
        for one in figures.COMPANIONS:
            version = host.version(one.component)
            if one.rule == rule_id and version and not versions.same(version, pinned.version):
                message = f"{version}, but the driver is {pinned.version}: it must be exactly of that version"
                yield Problem(f"components.{one.component}", message, on=str(host))


@rule(
    "driver-family-version",
    "error",
    source="gpu-driver-container install.sh: every companion is installed at exactly the driver's version",
    fix="pin it at the driver's version",
)
def driver_family_version(release: Release) -> Iterator[Problem]:
    """Firmware, modprobe, persistenced, NSCQ and NVSDM are exactly of the driver's version."""
    yield from _companions(release, "driver-family-version")


@rule(
    "fabric-manager-version",
    "error",
    source="docs.nvidia.com fabric-manager-user-guide; NVIDIA/gpu-operator#544",
    fix="pin nvidia-fabricmanager at the driver's version: one of the same branch is not enough",
)
def fabric_manager_version(release: Release) -> Iterator[Problem]:
    """The fabric manager is exactly of the driver's version."""
    yield from _companions(release, "fabric-manager-version")


@rule(
    "imex-version",
    "error",
    source="docs.nvidia.com IMEX guide; azhpc-images versions.json",
    fix="pin nvidia-imex at the driver's version",
)
def imex_version(release: Release) -> Iterator[Problem]:
    """IMEX is exactly of the driver's version."""
    yield from _companions(release, "imex-version")


@rule(
    "driver-branch-ended",
    "warning",
    source=f"{figures.BRANCHES[0].source}; {figures.DUMMIES.source}",
    fix="move to a branch with long-term support",
)
def driver_branch_ended(release: Release, today: dt.date) -> Iterator[Problem]:
    """The driver's branch still gets fixes."""
    for host, pinned, branch in _drivers(release):
        found = next((one for one in figures.BRANCHES if one.number == branch), None)
        if found and (found.ended or (found.ends and found.ends < today)):
            when = f" on {found.ends}" if found.ends else ""
            message = f"R{branch} got its last fixes{when}"
            if pinned.repository == UBUNTU:
                message += f"; {figures.DUMMIES.value}"
            yield Problem(_PATH, message, on=str(host))


@rule(
    "driver-branch-unknown",
    "warning",
    source=figures.BRANCHES[0].source,
    fix="choose a branch that NVIDIA lists, or add it to infra/slipway/lint/figures/driver.py with its source",
)
def driver_branch_unknown(release: Release) -> Iterator[Problem]:
    """The driver is of a branch that NVIDIA lists for data centers."""
    for host, _, branch in _drivers(release):
        if branch not in {one.number for one in figures.BRANCHES}:
            yield Problem(_PATH, f"R{branch} is not among the branches that we know", on=str(host))


@rule(
    "driver-modules-unsaid",
    "error",
    source=figures.OPEN_BY_DEFAULT_SINCE.source,
    fix="say `modules: open` or `modules: proprietary`",
)
def driver_modules_unsaid(release: Release) -> Iterator[Problem]:
    """A release says which kernel modules its driver has: the default changed on the way."""
    for host, pinned, branch in _drivers(release):
        if pinned.modules is None:
            default = "open" if branch >= figures.OPEN_BY_DEFAULT_SINCE.value else "proprietary"
            yield Problem(_PATH, f"does not say its `modules`; the default of R{branch} is {default}", on=str(host))


@rule(
    "driver-no-proprietary",
    "error",
    source=figures.NO_PROPRIETARY_SINCE.source,
    fix="take the open modules, or a branch that still has the others",
)
def driver_no_proprietary(release: Release) -> Iterator[Problem]:
    """Branches without proprietary modules are pinned with the open ones."""
    for host, pinned, branch in _drivers(release):
        if pinned.modules == "proprietary" and branch >= figures.NO_PROPRIETARY_SINCE.value:
            message = f"R{branch} has no proprietary modules (none since R{figures.NO_PROPRIETARY_SINCE.value})"
            yield Problem(_PATH, message, on=str(host))


@rule(
    "driver-packages-flavour",
    "error",
    source=figures.OPEN_PACKAGE.source,
    fix="name the packages of the flavour that `modules` says",
)
def driver_packages_flavour(release: Release) -> Iterator[Problem]:
    """The packages are of the flavour of modules that the release says."""
    for host, pinned, _ in _drivers(release):
        for package in pinned.packages:
            if pinned.modules is None or not re.search(figures.MODULES_PACKAGE.value, package):
                continue
            flavour = "open" if re.search(figures.OPEN_PACKAGE.value, package) else "proprietary"
            if flavour != pinned.modules:
                message = f"{package} has {flavour} modules, but `modules` says {pinned.modules}"
                yield Problem(_PATH, message, on=str(host))


@rule(
    "driver-packages-branch",
    "error",
    source=figures.NO_BRANCH_IN_NAMES_SINCE.source,
    fix="name the packages of the driver's branch",
)
def driver_packages_branch(release: Release) -> Iterator[Problem]:
    """Names of packages have the branch of their version, and none from the branch that dropped it."""
    for host, pinned, branch in _drivers(release):
        for package in pinned.packages:
            named = re.search(r"-(\d{3})(?:[.-]|$)", package)
            if not named or re.search(figures.PINNING_PACKAGE.value, package):
                continue
            if int(named[1]) != branch:
                yield Problem(_PATH, f"{package} is of R{named[1]}, the driver of R{branch}", on=str(host))
            elif branch >= figures.NO_BRANCH_IN_NAMES_SINCE.value and pinned.repository != UBUNTU:
                first = figures.NO_BRANCH_IN_NAMES_SINCE.value
                yield Problem(_PATH, f"{package}: from R{first} on NVIDIA's names have no branch", on=str(host))


@rule(
    "driver-not-held",
    "warning",
    source=figures.NO_BRANCH_IN_NAMES_SINCE.source,
    fix="add the package nvidia-driver-pinning-<version>",
)
def driver_not_held(release: Release) -> Iterator[Problem]:
    """A driver whose package names have no branch is held on it by a pinning package."""
    for host, pinned, branch in _drivers(release):
        held = any(re.search(figures.PINNING_PACKAGE.value, package) for package in pinned.packages)
        if branch >= figures.NO_BRANCH_IN_NAMES_SINCE.value and not held and pinned.repository != UBUNTU:
            yield Problem(_PATH, f"nothing holds the host on R{branch}: its packages have no branch", on=str(host))


@rule(
    "companion-package-name",
    "error",
    source=figures.PLAIN_NAMES_SINCE.source,
    fix="from R580 on leave the branch out of the name; before, put it at the end",
)
def companion_package_name(release: Release) -> Iterator[Problem]:
    """Fabric manager, NSCQ and IMEX are called with the branch before R580, and without it from there on."""
    for host, _, branch in _drivers(release):
        plain = branch >= figures.PLAIN_NAMES_SINCE.value
        for one in figures.COMPANIONS:
            pinned = host.pinned(one.component)
            if not pinned or one.component not in ("nvidia-fabricmanager", "nvidia-nscq", "nvidia-imex"):
                continue
            expected = one.package if plain else f"{one.package}-{branch}"
            if pinned.repository != UBUNTU and expected not in pinned.packages:
                found = ", ".join(pinned.packages) or "nothing"
                message = f"expected the package {expected}, found {found}"
                yield Problem(f"components.{one.component}", message, on=str(host))


@rule(
    "driver-precompiled",
    "error",
    source=figures.PRECOMPILED[0].source,
    fix="take a branch and a kernel that Ubuntu compiles for, or the DKMS packages",
)
def driver_precompiled(release: Release) -> Iterator[Problem]:
    """Precompiled modules are of a branch that Ubuntu compiles for that system and kernel."""
    for host, pinned, _ in _drivers(release):
        there = next((one for one in figures.PRECOMPILED if one.os == host.target.os), None)
        kernel = host.version("kernel")
        for package in pinned.packages:
            named = re.match(figures.PRECOMPILED_PACKAGE.value, package)
            if not named:
                continue
            if there is None or int(named[2]) not in there.branches:
                listed = ", ".join(f"R{number}" for number in there.branches) if there else "none"
                yield Problem(_PATH, f"{package}: precompiled for {host.target.os}: {listed}", on=str(host))
            elif kernel and versions.minor(kernel) in there.not_for:
                yield Problem(_PATH, f"{package}: none is precompiled for kernel {kernel}", on=str(host))


@rule("grid-and-datacenter", "error", source=figures.GRID_PACKAGE.source, fix="pin one of the two")
def grid_and_datacenter(release: Release) -> Iterator[Problem]:
    """A host has either the GRID module or the data-center module."""
    for host, pinned, _ in _drivers(release):
        modules = [name for name in pinned.packages if re.search(figures.MODULES_PACKAGE.value, name)]
        grid = [name for name in pinned.packages if re.search(figures.GRID_PACKAGE.value, name)]
        if grid and set(modules) - set(grid):
            yield Problem(_PATH, f"{grid[0]} beside {sorted(set(modules) - set(grid))[0]}", on=str(host))


@rule("kernel-not-supported", "warning", source=figures.KERNELS[0].source, fix="pin a kernel of a listed series")
def kernel_not_supported(release: Release) -> Iterator[Problem]:
    """The driver is supported on the kernel's series."""
    for host, _, _ in _drivers(release):
        kernel = host.version("kernel")
        listed = next((one.series for one in figures.KERNELS if one.os == host.target.os), None)
        if kernel and listed and versions.minor(kernel) not in listed:
            message = f"{kernel}: the driver is supported on {', '.join(listed)}"
            yield Problem("components.kernel", message, on=str(host))


@rule(
    "kernel-compiler", "warning", source=figures.COMPILERS[0].source, fix="pin the compiler among the kernel's packages"
)
def kernel_compiler(release: Release) -> Iterator[Problem]:
    """A host that builds modules has the compiler that built its kernel."""
    for host, driver, _ in _drivers(release):
        kernel = host.pinned("kernel")
        builds = any(re.search(figures.DKMS_PACKAGE.value, package) for package in driver.packages)
        for one in figures.COMPILERS if kernel and builds else ():
            fits = kernel and host.target.os == one.os and versions.minor(kernel.version) == one.series
            if kernel and fits and one.package not in {*kernel.packages, *driver.packages}:
                message = f"{kernel.version} was built by {one.package}, which modules need and nothing installs"
                yield Problem("components.kernel", message, on=str(host))


@rule(
    "driver-flavour-step",
    "error",
    source=figures.NO_PROPRIETARY_SINCE.source,
    fix="go by the releases that `slipway release path` names",
)
def driver_flavour_step(before: Release, release: Release) -> Iterator[Problem]:
    """Modules become open within a branch that has both flavours: so the old ones are there to go back to."""
    first = figures.NO_PROPRIETARY_SINCE.value
    old = {str(host): pinned for host, pinned, _ in _drivers(before)}
    for host, new, branch in _drivers(release):
        was = old.get(str(host))
        if was and was.modules == "proprietary" and new.modules == "open" and branch >= first:
            message = (
                f"from proprietary modules of {was.version} to R{branch}, which has none: change to open ones first"
            )
            yield Problem(_PATH, message, on=str(host))
