"""What one sees of a converge: a live line a wave, lines of tasks, a row a host afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import math
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from slipway import switches
from slipway.play import runner
from slipway.play.broker import Event
from slipway.play.rollout import Waves
from slipway.provider.log import Log, stamp
from slipway.provider.resource import Call
from slipway.provider.views import Row
from slipway.timing import elapsed

_SMALL = 20
"""Hosts of a play whose tasks are shown without being asked for."""

_LEAST_SECONDS, _MOST_SECONDS = 2.0, 15.0
"""Between two live lines: at least so long when hosts came further, at most so long when none did.

Where there is no terminal, Pulumi prints every one of them.
"""


@dataclass
class Progress:
    """Turns what hosts tell into lines under the play's row.

    Args:
        log: takes the lines.
        waves: the hosts that are gone through.
        tasks: whether hosts that are done and tasks that change something have a line; failed ones always have.
        clock: seconds.
    """

    log: Log
    waves: Waves
    tasks: bool = True
    clock: Callable[[], float] = time.monotonic
    _wave: int = 0
    _began: float = 0.0
    _wave_began: float = 0.0
    _running: dict[str, float] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _failed: set[str] = field(default_factory=set)
    _deferred: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)
    _spans: list[float] = field(default_factory=list)
    _total: int = 0
    _settled: bool = False
    _shown: str = ""
    _shown_at: float = -math.inf

    def __post_init__(self) -> None:
        self._total = sum(map(len, self.waves))

    def begin(self, wave: int) -> None:
        """Begin a wave, the first of which is 1."""
        self._wave_began = self.clock()
        if not self._wave:
            self._began = self._wave_began
        self._wave, self._settled = wave, False
        self._show()

    def __call__(self, host: str, event: Event) -> None:
        """Take in an event of a host."""
        match event.get("event"):
            case "task" if event.get("status") == "failed" or (event.get("status") == "changed" and self.tasks):
                parts = [event.get("role"), event.get("name")]
                task = " : ".join(part for part in parts if part)
                item = f" ({event['item']})" if event.get("item") else ""
                message = f": {event['msg']}" if event["status"] == "failed" and event.get("msg") else ""
                self.log.info(f"{host} {task}{item} … {event['status']}{_one_line(message)}")
            case "state":
                if waiting := event.get("msg"):
                    self.log.info(f"{host} {_one_line(waiting)}")
                self._running.setdefault(host, self.clock())
            case "result":
                began = self._running.pop(host, None)
                took = self.clock() - (self._wave_began if began is None else began)
                (self._done if event.get("ok") else self._failed).add(host)
                if event.get("ok") and not event.get("unchanged"):
                    self._spans.append(took)
                if event.get("ok") and self.tasks:
                    self.log.info(f"{host} done, {event.get('changed') or 0} changed, {took:.0f} s")
                if event.get("failed_task"):
                    self._told.add(host)
        self.tick()

    def tick(self) -> None:
        """Show the live line when it is time for it."""
        least = _LEAST_SECONDS if self._counts() != self._shown else _MOST_SECONDS
        if self.clock() - self._shown_at >= least:
            self._show()

    def settle(self, results: Mapping[str, runner.Result]) -> None:
        """Take in what finally came of the hosts of a wave: the gate has looked at them."""
        for names in (self._done, self._failed):
            names.difference_update(results)
        for name, result in results.items():
            self._running.pop(name, None)
            if result.ok:
                self._done.add(name)
            elif result.deferred:
                self._deferred.add(name)
            elif not result.cancelled:
                self._failed.add(name)
            if not (result.ok or result.cancelled or name in self._told):
                self.log.info(f"{name} {result.reason}")
        self._settled = True
        if self._left():
            self._show()

    def end(self) -> None:
        """Show how it ended."""
        if not self._wave:
            return
        counts = [f"{len(self._done)} of {self._total} hosts done", *self._troubles()]
        if left := self._left():
            counts.append(f"{left} left")
        self.log.status(", ".join([*counts, elapsed(self.clock() - self._began)]))

    @contextlib.asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Keep the time in the live line going."""

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                self.tick()

        ticker = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticker.cancel()

    def line(self) -> str:
        """Return `wave 2 of 4: 3 done, 2 running, 1 failed, 4 left, 12 s so far, about 30 s to go`."""
        to_go = self._to_go()
        times = f"{elapsed(self.clock() - self._began)} so far" + (f", about {elapsed(to_go)} to go" if to_go else "")
        return f"{self._counts()}, {times}"

    def _counts(self) -> str:
        running = len(self._running)
        counts = [f"{len(self._done)} done", *([f"{running} running"] if running else []), *self._troubles()]
        wave = f"wave {self._wave} of {len(self.waves)}: " if len(self.waves) > 1 else ""
        return wave + ", ".join([*counts, f"{self._left() - running} left"])

    def _show(self) -> None:
        if self._wave:
            self._shown, self._shown_at = self._counts(), self.clock()
            self.log.status(self.line())

    def _troubles(self) -> list[str]:
        counts = {"failed": len(self._failed), "deferred": len(self._deferred)}
        return [f"{count} {what}" for what, count in counts.items() if count]

    def _left(self) -> int:
        return self._total - len(self._done) - len(self._failed) - len(self._deferred)

    def _to_go(self) -> float | None:
        now, current = self.clock(), self.waves[self._wave - 1]
        if self._wave > 1:
            pace = (self._wave_began - self._began) / _rounds(self.waves[: self._wave - 1])
        elif self._spans:
            pace = sum(self._spans) / len(self._spans)
        else:
            return None
        rest = 0 if self._settled else max(0.0, pace * _rounds([current]) - (now - self._wave_began))
        return rest + pace * _rounds(self.waves[self._wave :])


def tasks_wanted(hosts: int) -> bool:
    """Say whether tasks that change something are shown, of a play with so many hosts."""
    return hosts <= _SMALL or switches.is_on(switches.TASKS)


def row(call: Call, name: str, result: runner.Result | None) -> Row:
    """Return what a host's row says after a run: `{status, changed, at, by}`."""
    before = call.views.old(name)
    if result is None:
        return Row(name, before or {"status": "not begun"}, changed=False)
    if not result.ok:
        status = result.reason if result.deferred else f"failed: {result.reason}"
        return Row(name, {**before, "status": status[:300]})
    settled = before.get("status") == "converged" and not before.keys() & {"drift", "seen"}
    if settled and (result.untouched or not result.changed):
        return Row(name, before, changed=False)
    entry = result.entry
    return Row(
        name,
        {
            "status": "converged",
            "changed": result.changed,
            "at": entry.get("finished") or stamp(),
            "by": entry.get("by") or by(),
        },
        changed=bool(before) or not result.untouched,
    )


def by() -> str:
    """Return who we are: `user@controller`."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _rounds(waves: Iterable[list[str]]) -> int:
    """Return how many times hosts go side by side: a wave that is larger than that many takes several turns."""
    return sum(math.ceil(len(wave) / runner.AT_ONCE) for wave in waves)


def _one_line(text: str) -> str:
    return " ".join(text.split())
