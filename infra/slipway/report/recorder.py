"""Keeps the report of a run while it goes: what plays tell their journals."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from slipway.play.journal import Begin, End, Ended, Wave
from slipway.provider.log import DETAILS, stamp
from slipway.report import store
from slipway.report.model import HostReport, PlayReport, RunReport


class Recorder:
    """The report of one run of one stack: of all plays that this process brings to hosts.

    A report that cannot be written is no reason to stop a rollout; the provider's log says so.

    Args:
        stack: the stack.
    """

    def __init__(self, stack: str) -> None:
        self._stack = stack
        self._report: RunReport | None = None
        self._open = 0

    def journal(self) -> Record:
        """Return a journal for one play."""
        return Record(self)

    def begin(self, begin: Begin) -> PlayReport:
        """Take in a play."""
        if self._report is None:
            self._report = RunReport(stack=self._stack, by=begin.by, pid=os.getpid(), started=begin.at)
        waves = [(number, name) for number, wave in enumerate(begin.waves, 1) for name in wave]
        planned = {name for _, name in waves}
        rest = [(0, name) for name in begin.pools if name not in planned]
        play = PlayReport(
            name=begin.play,
            playbook=begin.playbook,
            release=begin.release,
            waves=len(begin.waves),
            started=begin.at,
            hosts=[HostReport(name=name, pool=begin.pools.get(name, ""), wave=wave) for wave, name in waves + rest],
        )
        self._report.plays.append(play)
        self._report.finished = None
        self._open += 1
        self.keep()
        return play

    def end(self) -> None:
        """Take note that a play has ended."""
        self._open -= 1
        if self._report is not None and self._open == 0:
            self._report.finished = stamp()
        self.keep(page=True)

    def keep(self, *, page: bool = False) -> None:
        """Write what is known by now."""
        if self._report is None:
            return
        try:
            store.write(self._report, page=page)
        except OSError as error:
            DETAILS.warning("the report was not written: %s", error)


class Record:
    """The journal of one play, kept in the report."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._play: PlayReport | None = None
        self._hosts: dict[str, HostReport] = {}

    def begin(self, begin: Begin) -> None:
        """A play begins."""
        self._play = self._recorder.begin(begin)
        self._hosts = {host.name: host for host in self._play.hosts}

    def wave(self, wave: Wave) -> None:
        """A wave begins."""
        for host in self._hosts.values():
            if host.wave == wave.number and host.outcome == "waiting":
                host.outcome, host.started = "running", wave.at
        self._recorder.keep()

    def event(self, host: str, event: Mapping[str, Any]) -> None:
        """A host tells something: nothing that a report has."""

    def host(self, ended: Ended) -> None:
        """A host is through."""
        host = self._hosts[ended.host]
        host.wave, host.outcome = ended.wave, ended.outcome
        host.started, host.finished = ended.started, ended.finished
        host.changed, host.task, host.reason = ended.changed, ended.task, ended.reason

    def end(self, end: End) -> None:
        """A play ends."""
        if self._play is not None:
            self._play.finished, self._play.stopped = end.at, end.stopped
        self._recorder.end()
