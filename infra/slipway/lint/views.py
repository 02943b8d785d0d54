"""Release and cluster as most rules look at them: what one kind of host gets, what one pool is made of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from slipway import platforms
from slipway.lint.figures.gpu import ARCHITECTURES, MODELS, Architecture, Model
from slipway.platforms import Platform
from slipway.release import Package, Pinned, Release, Target
from slipway.spec import Cluster, Pool


@dataclasses.dataclass(frozen=True)
class Host:
    """What a release puts on one kind of host."""

    target: Target
    components: Mapping[str, Pinned]
    """What installs each component that is there."""

    @classmethod
    def of(cls, release: Release, target: Target) -> Host:
        """Return what a release puts on a kind of host."""
        found = ((name, component.at(target)) for name, component in release.components.items())
        return cls(target, {name: pinned for name, pinned in found if pinned})

    def __str__(self) -> str:
        return str(self.target)

    def pinned(self, component: str) -> Pinned | None:
        """Return what installs a component on it, or None."""
        return self.components.get(component)

    def version(self, component: str) -> str | None:
        """Return the version of a component on it, or None when nothing installs it."""
        found = self.components.get(component)
        return found.version if found else None


class _Same:
    """A release as a key: itself, not what is in it."""

    def __init__(self, release: Release) -> None:
        self.release = release

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.release is self.release

    def __hash__(self) -> int:
        return id(self.release)


def hosts(release: Release) -> tuple[Host, ...]:
    """Return every kind of host of a release: its targets, and the platforms that some component has an entry for."""
    return _hosts(_Same(release))


@functools.lru_cache(maxsize=4)  # a release and the one before it, for all rules
def _hosts(key: _Same) -> tuple[Host, ...]:
    kinds = list(key.release.targets)
    kinds += [each for one in key.release.components.values() for each in one.install if each.count("/") == 2]
    return tuple(Host.of(key.release, Target.parse(kind)) for kind in dict.fromkeys(kinds))


def packages(release: Release, component: str) -> Iterator[tuple[Host, str, Package]]:
    """Every package of a component with its name, on each kind of host."""
    for host in hosts(release):
        pinned = host.pinned(component)
        for name, package in pinned.packages.items() if pinned else ():
            yield host, name, package


def declared(cluster: Cluster) -> Iterator[tuple[str, Pool, Platform]]:
    """Every pool whose machine type is known: `pools[<index>]`, the pool, its machine type."""
    known = platforms.load()
    for index, pool in enumerate(cluster.pools):
        if platform := known.get(pool.platform):
            yield f"pools[{index}]", pool, platform


@dataclasses.dataclass(frozen=True)
class Machines:
    """One pool with its machine type, and what the release puts on it."""

    path: str
    """`pools[<index>]`."""
    pool: Pool
    platform: Platform
    host: Host

    @property
    def model(self) -> Model | None:
        """Their GPU, or None."""
        return MODELS.get(self.platform.gpu)

    @property
    def architecture(self) -> Architecture | None:
        """The architecture of their GPU, or None."""
        return ARCHITECTURES[self.model.architecture] if self.model else None


def pools(cluster: Cluster, release: Release) -> Iterator[Machines]:
    """Every pool whose machine type is known, with what the release puts on it."""
    for path, pool, platform in declared(cluster):
        target = Target(cluster.fleet.os, platform.arch, pool.platform)
        yield Machines(path, pool, platform, Host.of(release, target))


def gpu_pools(cluster: Cluster, release: Release) -> Iterator[tuple[Machines, Model, Architecture]]:
    """Every pool with GPUs on hosts that the release has a driver for, its GPU and the GPU's architecture."""
    for machines in pools(cluster, release):
        if machines.model and machines.architecture and machines.host.pinned("nvidia-driver"):
            yield machines, machines.model, machines.architecture
