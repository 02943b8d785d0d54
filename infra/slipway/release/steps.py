"""The way from one release to another where one jump is not allowed.

Releases that there are come first: the shortest way over those that lie between. Else releases are made up: each is the
first one with only those components moved that cannot go all the way at once, to versions of `waypoints.yaml`. They
hold back kubelet and kube-proxy, so that nodes are changed once, in the last step.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from slipway import documents, lint
from slipway.lint import versions
from slipway.lint.figures import driver as driver_figures
from slipway.lint.figures import kubernetes as kubernetes_figures
from slipway.release.model import Component, Package, Release, Variant

_WAYPOINTS = Path(__file__).with_name("waypoints.yaml")
_NODE_PROGRAMS = ("kubelet", "kube-proxy")


class NoWayError(Exception):
    """There is no way; one line for each reason."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One step: the release that it leads to."""

    release: Release
    made_up: bool = False
    """There is no file of it yet."""


def refusals(before: Release, after: Release) -> list[lint.Finding]:
    """Return why one jump is not allowed: errors of the rules about steps."""
    rules = [one for one in lint.RULES.values() if set(one.needs) == {"before", "release"}]
    return lint.errors(lint.check(lint.Case(before=before, release=after, release_file=after.id), only=rules))


def find(before: Release, after: Release, there: Sequence[Release] = ()) -> list[Step]:
    """Return the steps that lead from one release to another, at least one.

    Args:
        before: where it begins.
        after: where it ends.
        there: other releases that may lie on the way.

    Raises:
        NoWayError: no steps do.
    """
    if way := _over(before, after, there):
        return way
    steps = _made_up(before, after)
    at = before
    for step in steps:
        if refused := refusals(at, step.release):
            raise NoWayError("\n".join(f"{one.path}: {one.message} [{one.rule}]" for one in refused))
        at = step.release
    return steps


def _over(before: Release, after: Release, there: Sequence[Release]) -> list[Step]:
    """Return the shortest way over releases that there are; nothing when there is none."""
    between = [one for one in there if one.id not in (before.id, after.id) and _lies_between(before, one, after)]
    queue: collections.deque[list[Release]] = collections.deque([[before]])
    seen = {before.id}
    while queue:
        way = queue.popleft()
        for release in (after, *between):
            if release.id in seen or refusals(way[-1], release):
                continue
            if release is after:
                return [Step(one) for one in (*way[1:], after)]
            seen.add(release.id)
            queue.append([*way, release])
    return []


def _lies_between(before: Release, release: Release, after: Release) -> bool:
    """Whether a release is for the same hosts, and no component in it is older than before or newer than after."""
    if not set(before.targets) & set(after.targets) <= set(release.targets):
        return False
    for name in release.components:
        here = release.version(name)
        if name in before.components and versions.older(here, before.version(name)):
            return False
        if name in after.components and versions.older(after.version(name), here):
            return False
    return True


# -- made up -----------------------------------------------------------------------------------------------------------


def _made_up(before: Release, after: Release) -> list[Step]:
    """Return steps over made-up releases: etcd moves as early as it can, Kubernetes as late."""
    etcd = list(_way("etcd", before, after))
    kubernetes = list(_way("kubernetes", before, after))
    opened = _opened(before, after)
    count = max(len(etcd), len(kubernetes), 1 if opened else 0)
    steps = []
    for number in range(count):
        parts: dict[str, Component] = {}
        if etcd:
            parts["etcd"] = etcd[min(number, len(etcd) - 1)]
        if kubernetes and (place := number - (count - len(kubernetes))) >= 0:
            parts |= {"kubernetes": kubernetes[place], **_held_back(before, kubernetes[place].version)}
        if opened:
            parts["nvidia-driver"] = opened
        steps.append(Step(_with(before, after, number + 1, parts), made_up=True))
    return [*steps, Step(after)]


def _with(before: Release, after: Release, number: int, parts: Mapping[str, Component]) -> Release:
    changed = ", ".join(f"{name} {component.version}" for name, component in parts.items())
    return before.model_copy(
        update={
            "id": f"{before.id}-to-{after.id}-{number}",
            "description": f"Step {number} from {before.id} to {after.id}: {changed}",
            "components": {**before.components, **parts},
        }
    )


@functools.cache
def waypoints() -> dict[str, dict[str, Component]]:
    """Return the versions that a way can lead over: component → minor version → its entry in a release."""
    data: dict[str, dict[str, Any]] = documents.load(_WAYPOINTS)
    return {
        name: {minor: Component.model_validate_json(json.dumps(entry)) for minor, entry in entries.items()}
        for name, entries in data.items()
    }


def _way(name: str, before: Release, after: Release) -> Iterator[Component]:
    """Yield the entries that a component must pass on its way, one minor version after the other."""
    if name not in before.components or name not in after.components:
        return
    old, new = before.version(name), after.version(name)
    known = sorted(waypoints()[name].items(), key=lambda one: versions.key(one[0]))
    for minor, entry in known:
        beyond = versions.older(old, entry.version) and versions.older(minor, versions.minor(new))
        if not beyond or versions.older(minor, versions.minor(old)):
            continue
        # The first minor version is passed only where its newest patch is asked for before one leaves it.
        if minor == versions.minor(old) and not _asks_for_patch(name, before, after):
            continue
        yield entry


def _asks_for_patch(name: str, before: Release, after: Release) -> bool:
    return any(one.rule == f"{name}-minor-floor" for one in refusals(before, after))


def _held_back(before: Release, server: str) -> dict[str, Component]:
    """Return kubelet and kube-proxy of a release as components of their own, where they can stay as they are."""
    kubernetes = before.component("kubernetes")
    if versions.minors_apart(kubernetes.version, server) > kubernetes_figures.KUBELET_OLDER.value:
        return {}
    held = {}
    for program in _NODE_PROGRAMS:
        if program in before.components:
            continue
        downloads = tuple(one for one in kubernetes.downloads if one.names() == (program,))
        if downloads:
            held[program] = Component(version=kubernetes.version, downloads=downloads)
    return held


def _opened(before: Release, after: Release) -> Component | None:
    """Return the driver of a release with open modules, where one must change to these before its branch."""
    if not any(one.rule == "driver-flavour-step" for one in refusals(before, after)):
        return None
    driver = before.component("nvidia-driver")
    return driver.model_copy(
        update={
            "modules": "open",
            "packages": _open_packages(driver),
            "install": {key: _open_variant(one) for key, one in driver.install.items()},
        }
    )


def _open_variant(one: Variant) -> Variant:
    modules = "open" if one.modules else None
    return one.model_copy(update={"modules": modules, "packages": _open_packages(one)})


def _open_packages(one: Variant) -> dict[str, Package]:
    """Return packages with those that have proprietary modules as their open twins."""
    opened = {}
    for name, package in one.packages.items():
        proprietary = re.search(driver_figures.MODULES_PACKAGE.value, name) and not re.search(
            driver_figures.OPEN_PACKAGE.value, name
        )
        if proprietary:
            opened[f"{name}-open"] = Package(version=package.version, unverified="that its repository has it")
        else:
            opened[name] = package
    return opened


def text(release: Release) -> str:
    """Return a release as the text of a file."""
    data = release.model_dump(mode="json", exclude_defaults=True)
    head = "# Written by `slipway release path --write`.\n"
    return head + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)
