"""How a rollout goes: which wave is next, what came of each host, and who is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipway.play import journal as journals
from slipway.play.broker import Event
from slipway.play.rollout import Plan
from slipway.play.runner import Result
from slipway.provider.log import stamp
from slipway.provider.progress import Progress


@dataclass
class Course:
    """A rollout under way.

    Args:
        plan: its waves and its budget.
        results: what came of hosts; those that had nothing to do are in no wave, and their results are there from the
            beginning.
        done: how many waves were gone through.
        stopped: why no other begins, one line; "" when there is no reason.
    """

    plan: Plan
    results: dict[str, Result] = field(default_factory=dict)
    done: int = 0
    stopped: str = ""
    _waves: dict[str, int] = field(init=False)
    _failed: set[str] = field(default_factory=set)
    _well: int = 0

    def __post_init__(self) -> None:
        self._waves = {host: number for number, wave in enumerate(self.plan.waves, 1) for host in wave}
        self._count(self.results)

    def next(self, *, cancelled: bool) -> list[str]:
        """Return the next wave; none when there is no other, or no other may begin."""
        self.stopped = self._cancelled() if cancelled else self.plan.stopped(self.done, self._failed, self._well)
        return [] if self.stopped or self.done == len(self.plan.waves) else self.plan.waves[self.done]

    def take(self, results: Mapping[str, Result]) -> None:
        """Take in what came of the hosts of the wave that was next."""
        self.results |= results
        self._count(results)
        self.done += 1

    def _count(self, results: Mapping[str, Result]) -> None:
        self._well += sum(result.ok for result in results.values())
        self._failed |= {host for host in results if self.outcome(host) in journals.BAD}

    def wave(self, host: str) -> int:
        """Return the number of a host's wave, from 1; 0 when it was in none that began."""
        number = self._waves.get(host, 0)
        return number if number <= self.done else 0

    def outcome(self, host: str) -> journals.Outcome:
        """Return what became of a host."""
        result = self.results.get(host)
        if result is None:
            return "not begun"
        if result.ok:
            return "unchanged" if result.untouched else "converged"
        if result.deferred:
            return "deferred"
        if result.cancelled:
            return "cancelled"
        return "unreachable" if result.unreachable else "failed"

    def _cancelled(self) -> str:
        """Return where it stopped when it was told to; "" when that came too late to stop anything."""
        ended = [self.outcome(host) for wave in self.plan.waves for host in wave]
        left = ended.count("not begun") + ended.count("cancelled")
        if not left:
            return ""
        where = f"wave {self.done or 1} of {len(self.plan.waves)}"
        how = "in" if "cancelled" in ended else "after" if self.done else "before"
        done = ended.count("converged") + ended.count("unchanged")
        return f"cancelled {how} {where}: {done} host{'' if done == 1 else 's'} done, {left} left"


@dataclass
class Telling:
    """Tells people and a journal how a rollout goes. It listens to what hosts tell.

    Args:
        course: the rollout.
        progress: lines for people.
        journal: who else is told.
    """

    course: Course
    progress: Progress
    journal: journals.Journal
    _started: dict[str, str] = field(default_factory=dict)
    _finished: dict[str, str] = field(default_factory=dict)

    def __call__(self, host: str, event: Event) -> None:
        """Take in an event of a host."""
        self._started.setdefault(host, stamp())
        if event.get("event") == "result":
            self._finished[host] = stamp()
        self.progress(host, event)
        self.journal.event(host, event)

    def begins(self, begin: journals.Begin) -> None:
        """Tell that it begins, and of the hosts that have nothing to do."""
        self.journal.begin(begin)
        for host in self.course.results:
            self._through(host)

    def wave_begins(self) -> None:
        """Tell that the next wave begins."""
        number = self.course.done + 1
        self.progress.begin(number)
        self.journal.wave(journals.Wave(number, stamp()))

    def wave_ended(self) -> None:
        """Tell what came of the last wave."""
        hosts = self.course.plan.waves[self.course.done - 1]
        self.progress.settle({host: self.course.results[host] for host in hosts})
        for host in hosts:
            self._through(host)

    def ended(self) -> None:
        """Tell that it is over."""
        self.progress.end()
        for host in self.course.plan.left(self.course.done):
            self._through(host)
        self.journal.end(journals.End(stamp(), self.course.done, self.course.stopped))

    def _through(self, host: str) -> None:
        result = self.course.results.get(host, Result(ok=False))
        self.journal.host(
            journals.Ended(
                host,
                wave=self.course.wave(host),
                outcome=self.course.outcome(host),
                started=self._started.get(host),
                finished=self._finished.get(host),
                changed=result.changed,
                task=result.task,
                reason=result.reason,
            )
        )
