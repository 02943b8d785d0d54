"""Plan in which order hosts are converged: waves, one after the other; the hosts of a wave go side by side.

Pure: hosts in, waves out. Three modes:

* `together`: all at once, for hosts that do not depend on each other's being up.
* `quorum`: for members of a cluster that must keep its majority. Members that were never converged come first,
  together (a new cluster cannot form one by one); members that run already follow one at a time.
* `waves`: a canary, then waves that grow up to a limit, for node pools. Hosts that were never converged serve nobody
  yet and are no risk: they come along in the second wave. Waves do not mix failure domains, and a domain is finished
  before the next begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

Mode = Literal["together", "quorum", "waves"]

Waves = list[list[str]]
"""Names of hosts; in a wave they are in the order in which they were given."""


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


def plan(
    mode: Mode,
    hosts: Sequence[str],
    converged: Collection[str] = (),
    *,
    failure_domains: Mapping[str, str] | None = None,
    limits: Limits | None = None,
) -> Waves:
    """Return the waves in which hosts are converged: every host exactly once, no empty wave.

    Args:
        mode: see above.
        hosts: their names.
        converged: those on which a run of this playbook went well before, so that they may be serving.
        failure_domains: what fails together (a rack, a zone), by host; for mode `waves`.
        limits: how fast mode `waves` goes.

    Raises:
        RolloutError: a host is given twice, or the mode is unknown.
    """
    if len(set(hosts)) != len(hosts):
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        raise RolloutError(f"hosts: {', '.join(twice)} given more than once")
    fresh = [host for host in hosts if host not in converged]
    serving = [host for host in hosts if host in converged]
    match mode:
        case "together":
            waves = [list(hosts)]
        case "quorum":
            waves = [fresh, *([host] for host in serving)]
        case "waves":
            waves = _growing(fresh, serving, failure_domains or {}, limits or Limits())
        case _:
            raise RolloutError(f"rollout.mode: {mode!r} is none of {', '.join(get_args(Mode))}")
    return [wave for wave in waves if wave]


def _growing(fresh: list[str], serving: list[str], domains: Mapping[str, str], limits: Limits) -> Waves:
    """Return a canary, then growing waves."""
    largest = limits.largest(len(fresh) + len(serving))
    size = min(limits.canary, largest)
    if not serving:
        return [fresh[:size], fresh[size:]]
    waves: Waves = []
    for _, members in groupby(
        sorted(serving, key=lambda host: domains.get(host, "")), key=lambda h: domains.get(h, "")
    ):
        domain = list(members)
        while domain:
            waves.append(domain[:size])
            domain = domain[size:]
            size = min(size * limits.growth, largest)
    waves.append([])
    return [waves[0], waves[1] + fresh, *waves[2:]]
