"""What a change costs those who use a host: nothing, a restart of units, a drain, a reboot.

Each role says it in `meta/slipway.yml`: `disruption` gives each part of the role a cost, `tasks` names the part that a
task or handler changes (what it does not name costs nothing). A part called like a variable has its cost also when that
variable changes together with anything else of the role.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

LEVELS = ("none", "restart", "drain", "reboot")


class DisruptionError(Exception):
    """A role's data does not fit; the message is one line with the file."""


@dataclass(frozen=True)
class Cost:
    """A cost: its level, one of `LEVELS`, and the units that restart."""

    level: str = "none"
    units: frozenset[str] = frozenset()

    def __add__(self, other: Cost) -> Cost:
        """Return the cost of both: the higher level, the units of either."""
        level = max(self.level, other.level, key=LEVELS.index)
        return Cost(level, self.units | other.units)

    def __str__(self) -> str:
        """Return `none`, `restart:etcd,kubelet`, `drain` or `reboot`; the last two restart everything anyway."""
        return f"restart:{','.join(sorted(self.units))}" if self.level == "restart" else self.level


NONE = Cost()


@dataclass(frozen=True)
class Role:
    """Costs of one role: part → cost, task or handler → part."""

    parts: Mapping[str, Cost] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)

    def of_task(self, task: str) -> Cost:
        """Return what a change by a task costs."""
        return self.parts.get(self.tasks.get(task, ""), NONE)


def parse_cost(text: str) -> Cost:
    """Read `none`, `restart:<unit>[,<unit>…]`, `drain` or `reboot`.

    Raises:
        ValueError: it is none of these.
    """
    level, _, units = text.partition(":")
    names = frozenset(filter(None, units.split(",")))
    if level not in LEVELS or (level == "restart") != bool(names):
        raise ValueError(f"{text!r}: expected none, restart:<unit>, drain or reboot")
    return Cost(level, names)


def parse_role(data: Any, where: str) -> Role:
    """Read a role's data.

    Raises:
        DisruptionError: it does not fit; `where` names the file.
    """
    try:
        parts = {str(part): parse_cost(str(cost)) for part, cost in (data["disruption"] or {}).items()}
        tasks = {str(task): str(part) for task, part in (data.get("tasks") or {}).items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DisruptionError(f"{where}: {error}; expected `disruption: {{part: cost}}`") from None
    if unknown := sorted(set(tasks.values()) - parts.keys()):
        raise DisruptionError(f"{where}: tasks name {', '.join(unknown)}, which disruption does not have")
    return Role(parts, tasks)


def load(roles: Path) -> dict[str, Role]:
    """Read the data of all roles in a folder; a role without any costs nothing.

    Raises:
        DisruptionError: a file does not fit.
    """
    found = {}
    for file in sorted(roles.glob("*/meta/slipway.yml")):
        try:
            data = yaml.safe_load(file.read_text())
        except yaml.YAMLError as error:
            raise DisruptionError(f"{file}: {' '.join(str(error).split())}") from None
        found[file.parents[1].name] = parse_role(data, str(file))
    return found


def total(roles: Mapping[str, Role], changed: Iterable[tuple[str, str]], variables: Set[str] = frozenset()) -> Cost:
    """Return the cost of all changes of a host together.

    Args:
        roles: what changes cost, by role.
        changed: the tasks that change something, as (role, task).
        variables: names of variables that have another value than before.
    """
    cost = NONE
    seen: set[str] = set()
    for name, task in changed:
        role = roles.get(name, Role())
        cost += role.of_task(task)
        if name not in seen:
            seen.add(name)
            for part in sorted(role.parts.keys() & variables):
                cost += role.parts[part]
    return cost
