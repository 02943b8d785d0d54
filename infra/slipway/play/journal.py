"""What is told about a rollout while it goes, for reports and tables: plain data.

Times are UTC, such as 2026-01-31T12:00:00Z.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from slipway.play.rollout import Waves

Outcome = Literal["converged", "unchanged", "failed", "unreachable", "deferred", "cancelled", "not begun"]
"""What became of a host."""

BAD: frozenset[Outcome] = frozenset({"failed", "unreachable"})
"""Outcomes that count against the failure budget."""


@dataclass(frozen=True)
class Begin:
    """A play begins.

    Args:
        play: the resource's name in the program: a group or a pool.
        playbook: what is run.
        release: to which hosts are brought.
        by: who runs it: user@controller.
        at: when.
        waves: the hosts that are gone through, in order.
        pools: every host of the play, also those with nothing to do, and its pool or group.
        may_fail: how many hosts may fail without stopping the rollout.
    """

    play: str
    playbook: str
    release: str
    by: str
    at: str
    waves: Waves
    pools: Mapping[str, str]
    may_fail: int = 0


@dataclass(frozen=True)
class Wave:
    """A wave begins: its number, from 1, and when."""

    number: int
    at: str


@dataclass(frozen=True)
class Ended:
    """A host is through.

    Args:
        host: its name.
        wave: in which it was, from 1; 0 for one that had nothing to do, or whose wave was not begun.
        outcome: what became of it.
        started: when its run began; None when none did.
        finished: when that was over; None when none began.
        changed: how many tasks changed something.
        task: the task that failed, if one did.
        reason: one line when it is not as it should be.
    """

    host: str
    wave: int
    outcome: Outcome
    started: str | None = None
    finished: str | None = None
    changed: int = 0
    task: str = ""
    reason: str = ""


@dataclass(frozen=True)
class End:
    """A play ends.

    Args:
        at: when.
        waves: how many were gone through.
        stopped: why the others were not, one line; "" when all were.
    """

    at: str
    waves: int
    stopped: str = ""


class Journal(Protocol):
    """Who is told. Called from the provider's event loop: it must not block, and must not raise."""

    def begin(self, begin: Begin) -> None:
        """A play begins."""

    def wave(self, wave: Wave) -> None:
        """A wave begins."""

    def event(self, host: str, event: Mapping[str, Any]) -> None:
        """A host tells something while its run goes on (`slipway.node` has the kinds), its result at last."""

    def host(self, ended: Ended) -> None:
        """A host is through. Told when its wave is, as that may still fail it; of hosts not begun, at the end."""

    def end(self, end: End) -> None:
        """A play ends, however it does."""


class Silent:
    """A journal of nobody."""

    def begin(self, begin: Begin) -> None:
        """Let it go."""

    def wave(self, wave: Wave) -> None:
        """Let it go."""

    def event(self, host: str, event: Mapping[str, Any]) -> None:
        """Let it go."""

    def host(self, ended: Ended) -> None:
        """Let it go."""

    def end(self, end: End) -> None:
        """Let it go."""
