"""What one sees of a converge: lines under the play's row while it runs, a row a host afterwards."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import dataclass, field

from slipway.play import runner
from slipway.play.broker import Event
from slipway.provider.log import Log, stamp
from slipway.provider.resource import Call
from slipway.provider.views import Row


@dataclass
class Progress:
    """Turns what hosts tell into lines under the play's row."""

    log: Log
    total: int
    started: float = field(default_factory=time.monotonic)
    running: set[str] = field(default_factory=set)
    done: int = 0
    shown: str = ""

    def __call__(self, host: str, event: Event) -> None:
        """Take in an event of a host."""
        match event.get("event"):
            case "task" if event.get("status") in {"changed", "failed"}:
                parts = [event.get("role"), event.get("name")]
                task = " : ".join(part for part in parts if part)
                item = f" ({event['item']})" if event.get("item") else ""
                message = f": {event['msg']}" if event["status"] == "failed" and event.get("msg") else ""
                self.log.info(f"{host} {task}{item} … {event['status']}{_one_line(message)}")
            case "state":
                self.running.add(host)
                self._count()
            case "result":
                self.running.discard(host)
                self.done += 1
                seconds = round(time.monotonic() - self.started)
                changed = event.get("changed") or 0
                if event.get("ok"):
                    self.log.info(f"{host} done, {changed} changed, {seconds} s")
                self._count()

    def _count(self) -> None:
        line = f"{self.done} of {self.total} hosts done, {len(self.running)} running"
        if line != self.shown:
            self.shown = line
            self.log.status(line)


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
    )


def by() -> str:
    """Return who we are: `user@controller`."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
