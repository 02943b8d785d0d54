"""What changes from one release to another: by component, on which hosts, at what cost to those who use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from slipway import platforms
from slipway.node.host import costs as host_costs
from slipway.node.role_meta import RoleMeta
from slipway.release.known import CLUSTER, COMPONENTS, CONTROLLER, GPU_POOLS, POOLS, PROGRAMS, ROLES
from slipway.release.model import Pinned, Release, Target
from slipway.spec import GROUPS, Cluster


@dataclasses.dataclass(frozen=True)
class Change:
    """A component, repository or image that is not the same in both releases.

    `before` and `after` are versions (or "none"); `on` names the kinds of host it is true for, empty for all.
    """

    what: str
    before: str
    after: str
    on: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Hosts that it touches; see `slipway.release.known`."""
    costs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What it costs each of the groups, as `slipway.node.host.costs` has it."""
    assumed: bool = False
    """There is no role yet that says the costs."""

    @property
    def cost(self) -> str:
        """What it costs all groups together."""
        return host_costs.highest(self.costs.values())


def between(before: Release, after: Release, roles: Mapping[str, RoleMeta]) -> list[Change]:
    """Return what changes, in the order of `known.COMPONENTS`, then images and repositories.

    Args:
        before: what is there.
        after: what is to be.
        roles: what changes cost, as `slipway.node.role_meta.load` returns it.
    """
    changes = [change for name in COMPONENTS for change in _component(name, before, after, roles)]
    changes += _images(before, after)
    changes += _repositories(before, after)
    return changes


def _component(name: str, before: Release, after: Release, roles: Mapping[str, RoleMeta]) -> Iterator[Change]:
    """Yield one change for each pair of versions, with the kinds of host that go from the one to the other."""
    pairs: dict[tuple[str, str], list[str]] = {}
    kinds = list(dict.fromkeys((*before.targets, *after.targets)))
    for kind in kinds:
        old, new = _at(before, name, kind), _at(after, name, kind)
        if name in PROGRAMS and name in {*before.components, *after.components}:
            # Where a release has no such component, the program comes from the one that it is part of.
            old, new = old or _at(before, PROGRAMS[name][0], kind), new or _at(after, PROGRAMS[name][0], kind)
            if old and new and old.version == new.version:
                continue
        if old != new:
            pairs.setdefault((_version(old), _version(new)), []).append(kind)
    known = COMPONENTS[name]
    costs, assumed = costs_of(name, roles, held={one for one in PROGRAMS if one in after.components})
    for (old_version, new_version), on in pairs.items():
        shown = f"{new_version}, other files" if old_version == new_version else new_version
        everywhere = len(on) == len(kinds)
        yield Change(name, old_version, shown, () if everywhere else tuple(on), known.groups, costs, assumed)


def _at(release: Release, name: str, kind: str) -> Pinned | None:
    component = release.components.get(name)
    return component.at(Target.parse(kind)) if component and kind in release.targets else None


def _version(pinned: Pinned | None) -> str:
    if pinned is None:
        return "none"
    return f"{pinned.version} ({pinned.modules})" if pinned.modules else pinned.version


def costs_of(name: str, roles: Mapping[str, RoleMeta], held: Collection[str] = ()) -> tuple[dict[str, str], bool]:
    """Return what a new version of a component costs each group that has it, and whether that is only assumed.

    Args:
        name: the component.
        roles: what changes cost, by role.
        held: programs that have a component of their own and so do not change with this one.
    """
    known = COMPONENTS[name]
    costs = dict.fromkeys(known.groups, "none")
    parts = {role: meta.disruption for role, meta in roles.items()}
    said = [(role, parts[role][part]) for role, part in known.parts if part in parts.get(role, {})]
    if not said:
        return dict.fromkeys(known.groups, known.cost), bool(known.parts) or known.cost != "none"
    elsewhere = {role for program, (whole, role) in PROGRAMS.items() if program in held and whole == name}
    for role, cost in said:
        if role in elsewhere:
            continue
        for group in set(ROLES[role]) & costs.keys():
            costs[group] = host_costs.highest([costs[group], cost])
    return costs, False


def _images(before: Release, after: Release) -> Iterator[Change]:
    for name in dict.fromkeys((*before.registry_images, *after.registry_images)):
        old, new = before.registry_images.get(name), after.registry_images.get(name)
        if old != new:
            yield Change(
                f"image {name}", old.pinned if old else "none", new.pinned if new else "none", groups=(CLUSTER,)
            )


def _repositories(before: Release, after: Release) -> Iterator[Change]:
    for name in dict.fromkeys((*before.repositories, *after.repositories)):
        old, new = before.repositories.get(name), after.repositories.get(name)
        if old != new:
            said = ("none" if old is None else "there", "none" if new is None else "changed" if old else "there")
            yield Change(f"repository {name}", *said, groups=(POOLS,))


@dataclasses.dataclass(frozen=True)
class Touched:
    """Hosts that an upgrade touches, and what it costs them all together. `hosts` is None where no stack was given."""

    group: str
    hosts: int | None
    cost: str


def touched(changes: list[Change], cluster: Cluster | None = None) -> list[Touched]:
    """Return the groups of hosts that changes touch, each with the cost of all of them; a stack's own if given."""
    costs: dict[str, str] = {}
    for change in changes:
        for group in change.groups:
            costs[group] = host_costs.highest([costs.get(group, "none"), change.costs.get(group, "none")])
    if cluster is None:
        return [Touched(group, None, cost) for group, cost in costs.items()]
    found = [Touched(group, getattr(cluster, group).count, costs[group]) for group in GROUPS if group in costs]
    known = platforms.load()
    for pool in cluster.pools:
        platform = known.get(pool.platform)
        groups = [POOLS, GPU_POOLS] if platform is None or platform.gpu else [POOLS]
        if there := [costs[group] for group in groups if group in costs]:
            found.append(Touched(pool.name, pool.count, host_costs.highest(there)))
    found += [Touched(group, None, costs[group]) for group in (CONTROLLER, CLUSTER) if group in costs]
    return found
