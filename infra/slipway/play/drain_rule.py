"""Which changes of a node need it to be empty of pods: told from what it is and what it is to be, before it is touched.

Pure but for the roles' own files. Each role says in `meta/slipway.yml` what a change of each of its parts costs; a part
that is called like a variable (with the role's name before it or not) costs that when the variable changes. A change of
a role's content needs no drain: it restarts units, which leaves pods alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import yaml

_COSTS = frozenset({"drain", "reboot"})


def draining_variables(roles: Iterable[str], folder: Path) -> frozenset[str]:
    """Return the names of the variables whose change needs a drain.

    Args:
        roles: names of the roles.
        folder: where they are.
    """
    found: set[str] = set()
    for role in roles:
        file = folder / role / "meta/slipway.yml"
        parts = (yaml.safe_load(file.read_text()) or {}).get("disruption") or {} if file.is_file() else {}
        found |= {name for part, cost in parts.items() if cost in _COSTS for name in (part, f"{role}_{part}")}
    return frozenset(found)


def needs_drain(
    *,
    is_at: str,
    was_to_be: str,
    is_to_be: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    draining: Set[str],
) -> bool:
    """Say whether a node must be empty before its host is converged.

    Args:
        is_at: the digest that it is at; "" when no run went well on it, so that it serves nobody yet.
        was_to_be: the digest of what it was to be by the last update that went well everywhere.
        is_to_be: the digest of what it is to be.
        before: the variables of `was_to_be`.
        after: the variables of `is_to_be`.
        draining: names of the variables whose change needs a drain.
    """
    if is_at in ("", is_to_be):
        return False
    if is_at != was_to_be:
        return True  # half of some other update got there: nobody knows what differs
    return any(before.get(name) != after.get(name) for name in draining)
