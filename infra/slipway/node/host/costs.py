"""What a run costs those who use this host: nothing, a restart of units, a drain, a reboot.

The roles say it in `meta/slipway.yml`, which the bundle's index carries: `parts` gives each part of a role a cost,
`tasks` names the part that a task or handler changes (what it does not name costs nothing). A part called like a
variable has its cost also when that variable changes together with anything else of the role; the manifest keeps
digests of such variables for that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

LEVELS = ("none", "restart", "drain", "reboot")

Roles = dict[str, Any]
"""`{role: {"parts": {part: cost}, "tasks": {task: part}}}`; a cost is one of LEVELS, `restart:<unit>[,<unit>…]`."""


def total(roles: Roles, changed: Iterable[tuple[str, str]], variables: Iterable[str] = ()) -> str:
    """Return the cost of all changes together: the highest level; of restarts all units.

    Args:
        roles: what changes cost.
        changed: the tasks that change something, as (role, task).
        variables: names of variables that have another value than before.
    """
    return highest(cost for _, cost in _each(roles, changed, variables))


def highest(costs: Iterable[str]) -> str:
    """Return the highest of some costs; of restarts all units."""
    level = "none"
    units: set[str] = set()
    for cost in costs:
        own, _, names = cost.partition(":")
        level = max(level, own, key=LEVELS.index)
        units.update(filter(None, names.split(",")))
    return f"restart:{','.join(sorted(units))}" if level == "restart" else level


def reboots(roles: Roles, changed: Iterable[tuple[str, str]], variables: Iterable[str] = ()) -> list[str]:
    """Return what makes a reboot necessary, one line each."""
    return list(dict.fromkeys(why for why, cost in _each(roles, changed, variables) if cost == "reboot"))


def costly_variables(roles: Roles, variables: dict[str, Any]) -> dict[str, str]:
    """Return digests of the variables whose change costs a drain or a reboot, for the manifest."""
    names = {part for role in roles.values() for part, cost in role["parts"].items() if cost in ("drain", "reboot")}
    return {name: _digest(variables[name]) for name in sorted(names & variables.keys())}


def _each(roles: Roles, changed: Iterable[tuple[str, str]], variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield (what it is, its cost) for each change."""
    seen = set()
    for name, task in changed:
        role = roles.get(name)
        if role is None:
            continue
        part = role["tasks"].get(task)
        if part is not None:
            yield f"{name} : {task}", role["parts"][part]
        if name not in seen:
            seen.add(name)
            for variable in sorted(role["parts"].keys() & set(variables)):
                yield f"{variable} changed", role["parts"][variable]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
