"""A run's report as plain data: plays, their waves, and a line a host. Times are UTC, such as 2026-01-31T12:00:00Z."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from slipway.play import journal

Outcome = journal.Outcome | Literal["waiting", "running"]
"""What became of a host. `waiting` and `running` are of a run that goes on, or that died."""

WELL: frozenset[Outcome] = frozenset({"converged", "unchanged"})
"""Outcomes after which a host is as declared."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class HostReport(_Model):
    """One host in one play.

    Args:
        name: its name.
        pool: its node pool, else its group.
        wave: in which it was converged, from 1; 0 for one that was in no wave.
        outcome: what became of it.
        started: when its turn came; None when it did not.
        finished: when it was over.
        changed: how many tasks changed something.
        task: the task that failed, if one did.
        reason: one line when it is not as declared.
    """

    name: str
    pool: str = ""
    wave: Annotated[int, Field(ge=0)] = 0
    outcome: Outcome = "waiting"
    started: str | None = None
    finished: str | None = None
    changed: int = 0
    task: str = ""
    reason: str = ""


class PlayReport(_Model):
    """One play of a run.

    Args:
        name: the resource's name in the stack: a group or a pool.
        playbook: what was run.
        release: the release that hosts were brought to.
        waves: how many there are.
        started: when it began.
        finished: None while it goes on, and of one that died.
        stopped: why waves were left out, one line; "" when none was.
        hosts: in the order of their waves.
    """

    name: str
    playbook: str
    release: str
    waves: int = 0
    started: str
    finished: str | None = None
    stopped: str = ""
    hosts: list[HostReport] = []

    def counts(self) -> Counter[Outcome]:
        """Return how many hosts have which outcome."""
        return Counter(host.outcome for host in self.hosts)


class RunReport(_Model):
    """All plays of one run.

    Args:
        version: of this form.
        stack: the stack.
        by: who ran it: user@controller.
        pid: the process that writes it.
        started: when the first play began.
        finished: None while a play goes on, and of a run that died.
        plays: in the order in which they began.
    """

    version: Literal[1] = 1
    stack: str
    by: str
    pid: int = 0
    started: str
    finished: str | None = None
    plays: list[PlayReport] = []

    def counts(self) -> Counter[Outcome]:
        """Return how many hosts have which outcome; a host of two plays counts twice."""
        return sum((play.counts() for play in self.plays), Counter())
