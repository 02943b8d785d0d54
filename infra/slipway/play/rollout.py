"""Plan in which order hosts are converged: waves, one after the other; the hosts of a wave go side by side.

Pure: hosts in, a plan out. Three modes:

* `together`: all at once, for hosts that do not depend on each other's being up.
* `quorum`: for members of a cluster that must keep its majority. A new cluster cannot form one by one, so its members
  go together; once any member runs, members go one at a time, those that were never converged first.
* `waves`: a canary, then waves that grow up to a limit, for node pools. Hosts that were never converged serve nobody
  yet and are no risk: they come along in the second wave. Waves do not mix failure domains, and a domain is finished
  before the next begins. Hosts of a unit (an NVLink rack) are in one wave; a unit that is larger than a wave may be
  goes alone. Hosts on which the last update failed come last, so that none of them is the canary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

Mode = Literal["together", "quorum", "waves"]

Waves = list[list[str]]
"""Names of hosts; in a wave they are in the order in which they were given, each unit at its first host."""


_SHOWN = 5
"""Names in a line."""


class RolloutError(ValueError):
    """The policy or the hosts make no plan; the message is one line."""


@dataclass(frozen=True)
class Limits:
    """How fast mode `waves` goes.

    Attributes:
        canary: hosts in the first wave; at least 1.
        growth: how many times larger each wave may be than the largest before; at least 1.
        hosts: running hosts in the largest wave; at least 1.
        percent: the same as a share of all hosts, rounded down but at least one host; the lower limit counts.
    """

    canary: int = 1
    growth: int = 2
    hosts: int = 50
    percent: int = 100

    def __post_init__(self) -> None:
        for name in ("canary", "growth", "hosts"):
            if getattr(self, name) < 1:
                raise RolloutError(f"rollout.{name}: expected 1 or more, got {getattr(self, name)}")
        if not 1 <= self.percent <= 100:
            raise RolloutError(f"rollout.percent: expected 1 to 100, got {self.percent}")

    def largest(self, total: int) -> int:
        """Return how many running hosts a wave may have, of so many hosts in all."""
        return max(1, min(self.hosts, total * self.percent // 100))


@dataclass(frozen=True)
class Budget:
    """How many hosts may fail, or not be reached, before mode `waves` stops. With neither given: none.

    Attributes:
        hosts: so many.
        percent: a share of all hosts, rounded down. When both are given, the lower limit counts.
    """

    hosts: int | None = None
    percent: int | None = None

    def __post_init__(self) -> None:
        if self.hosts is not None and self.hosts < 0:
            raise RolloutError(f"rollout.budget.hosts: expected 0 or more, got {self.hosts}")
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise RolloutError(f"rollout.budget.percent: expected 0 to 100, got {self.percent}")

    def may_fail(self, total: int) -> int:
        """Return how many hosts may fail, of so many hosts in all."""
        limits = [self.hosts, None if self.percent is None else total * self.percent // 100]
        return min((limit for limit in limits if limit is not None), default=0)


@dataclass(frozen=True)
class Plan:
    """In which order hosts are converged, and when that ends early.

    Attributes:
        waves: every host exactly once, no wave empty.
        may_fail: how many hosts may fail without stopping the rollout.
        total: hosts of the whole play, which that number and the size of waves relate to.
        troubled: hosts on which the last update failed, so that their failing again says little.
    """

    waves: Waves
    may_fail: int = 0
    total: int = 0
    troubled: frozenset[str] = frozenset()

    @property
    def canaries(self) -> frozenset[str]:
        """Hosts any of which stops the rollout when it fails, whatever the budget."""
        return frozenset(self.waves[0]) - self.troubled if self.waves else frozenset()

    def left(self, done: int) -> list[str]:
        """Return the hosts that are not begun after so many waves."""
        return [host for wave in self.waves[done:] for host in wave]

    def stopped(self, done: int, failed: Collection[str], well: int) -> str:
        """Return one line why the rollout ends after so many waves; "" when it goes on or is complete.

        Args:
            done: how many waves were gone through.
            failed: hosts that failed or could not be reached. Deferred ones are none.
            well: how many hosts went well. While none did, as canaries were deferred, those that follow are canaries.
        """
        left = self.left(done)
        canaries = sorted((self.canaries if well else frozenset(failed) - self.troubled).intersection(failed))
        if not left or not (canaries or len(failed) > self.may_fail):
            return ""
        why = f"{len(failed)} of {self.total} hosts failed ({first_few(sorted(failed))}), the budget is {self.may_fail}"
        if canaries and len(failed) <= self.may_fail:
            why = f"{'a canary' if len(self.canaries) > 1 else 'the canary'} failed ({first_few(canaries)})"
        where = f"after wave {done}" if done else "before wave 1"
        return f"stopped {where} of {len(self.waves)}: {why}; not begun: {first_few(left)}"


def first_few(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    shown = names[:_SHOWN] if len(names) > _SHOWN + 1 else names
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def plan(
    mode: Mode,
    hosts: Sequence[str],
    converged: Collection[str] = (),
    *,
    failure_domains: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    troubled: Collection[str] = (),
    limits: Limits | None = None,
    budget: Budget | None = None,
    total: int | None = None,
) -> Plan:
    """Return in which order hosts are converged.

    Args:
        mode: see above.
        hosts: names of those that are to be converged, in the order that is best for them.
        converged: those of the whole play on which a run went well before, so that they may be serving.
        failure_domains: what fails together (a rack, a zone), by host; for mode `waves`.
        units: what goes together, by host; hosts without one go on their own; for mode `waves`.
        troubled: hosts on which the last update failed.
        limits: how fast mode `waves` goes.
        budget: how many hosts may fail in mode `waves`; in the others the first failure stops.
        total: how many hosts the whole play has, if `hosts` are not all of them.

    Raises:
        RolloutError: a host is given twice, a unit lies in two failure domains, or the mode is unknown.
    """
    if len(set(hosts)) != len(hosts):
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        raise RolloutError(f"hosts: {', '.join(twice)} given more than once")
    total = len(hosts) if total is None else total
    match mode:
        case "together":
            return Plan([list(hosts)] if hosts else [], total=total)
        case "quorum":
            fresh = [host for host in hosts if host not in converged]
            serving = [host for host in hosts if host in converged]
            first = [[host] for host in fresh] if converged else [fresh]
            return Plan([wave for wave in [*first, *([host] for host in serving)] if wave], total=total)
        case "waves":
            grouped = _units(hosts, converged, failure_domains or {}, units or {}, troubled)
            waves = _growing(grouped, limits or Limits(), total)
            return Plan(waves, (budget or Budget()).may_fail(total), total, frozenset(troubled).intersection(hosts))
        case _:
            raise RolloutError(f"rollout.mode: {mode!r} is none of {', '.join(get_args(Mode))}")


@dataclass(frozen=True)
class _Unit:
    """Hosts that go together."""

    hosts: Sequence[str]
    serving: int
    domain: str
    troubled: bool


def _units(
    hosts: Sequence[str],
    converged: Collection[str],
    domains: Mapping[str, str],
    names: Mapping[str, str],
    troubled: Collection[str],
) -> list[_Unit]:
    """Return hosts by unit, in the order of each unit's first host."""
    members: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        unit = names.get(host, "")
        members.setdefault((unit, "") if unit else ("", host), []).append(host)
    found = []
    for (unit, _), of_unit in members.items():
        domain, *others = sorted({domains.get(host, "") for host in of_unit})
        if others:
            raise RolloutError(f"unit {unit}: its hosts lie in two failure domains, {domain} and {others[0]}")
        serving = sum(host in converged for host in of_unit)
        found.append(_Unit(of_unit, serving, domain, all(host in troubled for host in of_unit)))
    return found


def _growing(units: Sequence[_Unit], limits: Limits, total: int) -> Waves:
    """Return a canary, then growing waves."""
    largest = limits.largest(total)
    allowed = min(limits.canary, largest)
    fresh = sorted((unit for unit in units if not unit.serving), key=lambda unit: unit.troubled)
    serving = [unit for unit in units if unit.serving]
    if not serving:
        canary = _first(fresh, allowed)
        waves = [fresh[:canary], fresh[canary:]]
    else:
        waves = []
        for _, group in groupby(sorted(serving, key=_turn), key=_turn):
            left = list(group)
            while left:
                taken = _first(left, allowed)
                waves.append(left[:taken])
                left = left[taken:]
                allowed = min(max(allowed, sum(unit.serving for unit in waves[-1])) * limits.growth, largest)
        waves = [waves[0], (waves[1] if waves[1:] else []) + fresh, *waves[2:]]
    return [[host for unit in wave for host in unit.hosts] for wave in waves if wave]


def _turn(unit: _Unit) -> tuple[bool, str]:
    """Return by what units are kept apart and ordered. By name: so an interrupted domain is finished first."""
    return unit.troubled, unit.domain


def _first(units: Sequence[_Unit], allowed: int) -> int:
    """Return how many of the first units make a wave: at least one, however large it is."""
    hosts = 0
    for taken, unit in enumerate(units):
        hosts += unit.serving or len(unit.hosts)
        if taken and hosts > allowed:
            return taken
    return len(units)
