"""The page of a report: one HTML file with everything in it, nothing fetched."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cache

import jinja2

from slipway.report.model import WELL, HostReport, Outcome, PlayReport, RunReport
from slipway.timing import elapsed

_WIDTH = 1000.0
"""Of a timeline, in its own units."""

_ROW, _DENSE_ROW, _DENSE = 14, 3, 150
"""Height of a host's bar; the same, in a timeline of more hosts than this."""

_TOP = 22
"""Room for the time above the bars."""

_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200)
"""Seconds between two marks of the time; the first that gives at most ten is taken."""


@dataclass(frozen=True)
class Bar:
    """One host in a timeline: where it is, how long, and what it says."""

    x: float
    y: float
    width: float
    height: float
    outcome: Outcome
    title: str


@dataclass(frozen=True)
class Timeline:
    """When the hosts of a play had their turn.

    Args:
        height: of the whole.
        bars: one a host that had its turn, wave under wave.
        ticks: where on the time axis, and what is written there.
        waves: where each wave begins, and its number.
    """

    height: float
    bars: list[Bar]
    ticks: list[tuple[float, str]]
    waves: list[tuple[float, int]]


def render(report: RunReport) -> str:
    """Return the page of a report."""
    return _template().render(
        report=report,
        counts=report.counts(),
        took=_between(report.started, report.finished),
        plays=[
            {
                "play": play,
                "counts": play.counts(),
                "took": _between(play.started, play.finished),
                "bad": [host for host in play.hosts if host.outcome not in WELL and host.reason],
                "timeline": timeline(play),
            }
            for play in report.plays
        ],
        took_of=lambda host: _between(host.started, host.finished),
        width=_WIDTH,
    )


def timeline(play: PlayReport) -> Timeline | None:
    """Return the timeline of a play; None when no host had its turn."""
    turns = [host for host in play.hosts if host.started]
    if not turns:
        return None
    begin = min(_seconds(host.started) for host in turns)
    last = max(_seconds(host.finished or host.started) for host in turns)
    span = max(last - begin, 1.0)
    row = _ROW if len(turns) <= _DENSE else _DENSE_ROW
    bars, waves, y = [], [], float(_TOP)
    before = 0
    for host in sorted(turns, key=lambda one: one.wave):  # stable: in the order of the play
        if host.wave != before:
            y += 6 if before else 0
            waves.append((y, host.wave))
            before = host.wave
        x = (_seconds(host.started) - begin) / span * _WIDTH
        end = _seconds(host.finished or play.finished) or last
        width = max((end - begin) / span * _WIDTH - x, 2.0)
        bars.append(Bar(x, y, width, row - 1, host.outcome, _title(host)))
        y += row
    step = next((tick for tick in _TICKS if span / tick <= 10), _TICKS[-1])
    ticks = [(at / span * _WIDTH, elapsed(at)) for at in range(0, int(span) + 1, step)]
    return Timeline(y + 4, bars, ticks, waves)


def _title(host: HostReport) -> str:
    took = _between(host.started, host.finished)
    return f"{host.name}: {host.outcome}{f' after {took}' if took else ''}{f': {host.reason}' if host.reason else ''}"


def _seconds(stamp: str | None) -> float:
    return dt.datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def _between(begin: str | None, end: str | None) -> str:
    return elapsed(_seconds(end) - _seconds(begin)) if begin and end else ""


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("slipway.report", ".")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2")
