"""What a release file must be in itself: complete, of one mind, from one source."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from slipway.lint import versions, views
from slipway.lint.figures import driver, node_software
from slipway.lint.rules import Problem, rule
from slipway.release import Release

NEEDED = (
    "etcd",
    "kubernetes",
    "containerd",
    "runc",
    "cni-plugins",
    "coredns",
    "dns-autoscaler",
    "csr-approver",
    "pause",
)
"""Components without which no cluster comes up."""

_SELF = "design of Slipway's roles"

_OWN_RULES = {"nvidia-container-toolkit", "nccl", "dcgm"}
"""Components whose packages have a rule of their own."""


@rule(
    "unverified",
    "note",
    source="the release file's own `unverified`",
    fix="have `slipway release lock` fill it in, or look it up at the publisher",
)
def unverified(release: Release) -> Iterator[Problem]:
    """Every figure of a release was seen at its publisher."""
    marks: dict[str, dict[str, int]] = collections.defaultdict(lambda: collections.defaultdict(int))
    for path, what in release.unverified():
        kind, name, *_ = path.split(".")
        marks[f"{kind}.{name}"][what] += 1
    for path, said in marks.items():
        words = [f"{what} ({count} times)" if count > 1 else what for what, count in said.items()]
        yield Problem(path, f"not verified: {'; '.join(words)}")


@rule("component-missing", "error", source=_SELF, fix="copy the component from a release that has it")
def component_missing(release: Release) -> Iterator[Problem]:
    """A release pins every component that a cluster cannot come up without."""
    for name in NEEDED:
        if name not in release.components:
            yield Problem("components", f"no {name}, without which no cluster comes up")


@rule(
    "file-not-obtainable",
    "warning",
    source=_SELF,
    fix="have `slipway release lock` fill in its digest, or give a `build`",
)
def file_not_obtainable(release: Release) -> Iterator[Problem]:
    """Every file of a component can be had on every kind of host: it has a digest, or is built."""
    for name in release.engines:
        component = release.component(name)
        built = {*component.build.packages, *component.build.copies} if component.build else set()
        for host in views.hosts(release):
            pinned = host.pinned(name)
            unknown = [one for one in pinned.downloads if one.digest(host.target.arch) is None] if pinned else []
            if rest := sorted({file for one in unknown for file in one.names()} - built):
                yield Problem(f"components.{name}", f"no digest and no build of {', '.join(rest)}", on=str(host))


@rule(
    "package-version",
    "error",
    source="apt installs the newest of what is not pinned together (lyulyul/shine-cluster#50)",
    fix="give the packages of a component the component's version, or the component another version",
)
def package_version(release: Release) -> Iterator[Problem]:
    """The packages of a component are of its version."""
    for name in release.components:
        if name in _OWN_RULES:
            continue
        for host, package, one in views.packages(release, name):
            # DOCA brings packages that go by other numbers (rdma-core 2507mlnx58).
            if name == "doca-ofed" and not package.startswith("doca-"):
                continue
            version = host.version(name) or ""
            if not versions.within(one.version, version):
                message = f"{package} {one.version} is not of version {version}"
                yield Problem(f"components.{name}", message, on=str(host))


@rule(
    "packages-of-two-owners",
    "error",
    source="apt-packaging-fabric-manager#3; azhpc-images: one owner repository per package family",
    fix="let one repository own the pattern",
)
def packages_of_two_owners(release: Release) -> Iterator[Problem]:
    """No two repositories own the same packages on a host."""
    for host in views.hosts(release):
        owners: dict[str, str] = {}
        for name, repository in release.repositories.items():
            if repository.source(host.target) is None:
                continue
            for pattern in repository.owns:
                if (other := owners.setdefault(pattern, name)) != name:
                    yield Problem(f"repositories.{name}.owns", f"{other} owns {pattern} too", on=str(host))


@rule(
    "package-from-elsewhere",
    "error",
    source="apt-packaging-fabric-manager#3: two repositories have packages of the same names",
    fix="take the package from the repository that owns it",
)
def package_from_elsewhere(release: Release) -> Iterator[Problem]:
    """A package comes from the repository that owns its name."""
    for name in release.components:
        for host, package, _ in views.packages(release, name):
            pinned, owners = host.pinned(name), release.owners(package, host.target)
            if pinned and owners and pinned.repository not in owners:
                message = f"{package} comes from {pinned.repository}, but {min(owners)} owns packages of that name"
                yield Problem(f"components.{name}", message, on=str(host))


@rule(
    "image-latest",
    "error",
    source="pulumi.com/registry; nothing in a release is `latest`",
    fix="name the tag that the digest belongs to",
)
def image_latest(release: Release) -> Iterator[Problem]:
    """No image is pulled by a tag that moves."""
    for name, image in release.registry_images.items():
        if image.reference.endswith(":latest"):
            yield Problem(f"registry_images.{name}.reference", f"{image.reference} moves")


@rule(
    "container-toolkit-one-version",
    "error",
    source=node_software.TOOLKIT_PACKAGES.source,
    fix="pin all four packages at the component's version",
)
def container_toolkit_one_version(release: Release) -> Iterator[Problem]:
    """All four packages of the container toolkit are pinned at one version."""
    for host in views.hosts(release):
        pinned = host.pinned("nvidia-container-toolkit")
        if pinned is None:
            continue
        path = "components.nvidia-container-toolkit"
        if missing := [name for name in node_software.TOOLKIT_PACKAGES.value if name not in pinned.packages]:
            yield Problem(path, f"{', '.join(missing)} not pinned: apt would take the newest", on=str(host))
        yield from _one_version(path, "nvidia-container-toolkit", host)


@rule(
    "nccl-one-version",
    "error",
    source="developer.nvidia.com redist: libnccl2 and libnccl-dev are built together",
    fix="pin both at the same version, suffix included",
)
def nccl_one_version(release: Release) -> Iterator[Problem]:
    """libnccl2 and libnccl-dev are of one build."""
    for host in views.hosts(release):
        yield from _one_version("components.nccl", "nccl", host)


@rule(
    "dcgm-one-version",
    "error",
    source="DCGM documentation, installation: packages of one version",
    fix="pin all packages of DCGM at the component's version",
)
def dcgm_one_version(release: Release) -> Iterator[Problem]:
    """All packages of DCGM are of one version."""
    for host in views.hosts(release):
        yield from _one_version("components.dcgm", "dcgm", host)


def _one_version(path: str, component: str, host: views.Host) -> Iterator[Problem]:
    """Yield a problem when packages of a component differ from each other or from the component."""
    pinned = host.pinned(component)
    if pinned is None or not pinned.packages:
        return
    different = sorted({one.version for one in pinned.packages.values()})
    if len(different) > 1:
        yield Problem(path, f"packages of different versions: {', '.join(different)}", on=str(host))
    elif not versions.within(different[0], pinned.version):
        yield Problem(path, f"packages of {different[0]}, but the component is {pinned.version}", on=str(host))


@rule(
    "no-arm-build",
    "error",
    source="; ".join(one.source for one in driver.NO_ARM),
    fix="give the component entries for amd64 only",
)
def no_arm_build(release: Release) -> Iterator[Problem]:
    """Nothing is pinned for Arm that does not exist there."""
    for one in driver.NO_ARM:
        for host in views.hosts(release):
            if host.target.arch == "arm64" and host.pinned(one.value):
                yield Problem(f"components.{one.value}", "there is none for Arm", on=str(host))
