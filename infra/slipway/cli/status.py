"""`slipway status` and `slipway report`: what the hosts of a stack are, and what the last run did."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Annotated, NoReturn

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slipway import stack as stacks
from slipway import status as states
from slipway.cli import setup
from slipway.cli.problems import FAILED, Problem
from slipway.cli.stacks import Stack
from slipway.report import store
from slipway.report.model import WELL
from slipway.status import HostStatus
from slipway.timing import elapsed

WATCH_SECONDS = 5.0

SHOWN = 40
"""Hosts up to which all are shown; of more, only those that are not as declared."""

_STYLES = {"as declared": "green", "running": "cyan", "new": "cyan", "behind": "yellow", "drifted": "yellow"}


def status(
    stack: Stack = "lab",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list with an object a host.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every few seconds, until Ctrl-C.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every host of a large cluster.")] = False,
) -> None:
    """Show what each host is, against what the last `up` declared. Exit code 1 when a host is not as declared."""
    stacks.file(stack)
    if not stacks.is_there(stack):  # looking makes none
        raise _nothing(stack)
    _, environment = setup.stack_ready(stack)
    if watch and not as_json:
        _watch(lambda: _table(stack, _rows(stack, environment), every=every))
    rows = _rows(stack, environment)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], indent=1))
    else:
        _console().print(_table(stack, rows, every=every))
    if any(row.state != "as declared" for row in rows):
        raise typer.Exit(FAILED)


def report(
    stack: Stack = "lab",
    as_json: Annotated[bool, typer.Option("--json", help="Print the report itself.")] = False,
) -> None:
    """Say what the last run did, and where its page is. Exit code 1 when it left a host not as declared."""
    path, found = store.latest(stack)
    counts = found.counts()
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()) or "no hosts"
        typer.echo(f"{stack}, {found.started} by {found.by}: {said}")
        for play in found.plays:
            for host in play.hosts:
                if host.reason:
                    typer.echo(f"  {play.name} wave {host.wave or '-'} {host.name} {host.outcome}: {host.reason}")
        typer.echo(f"page: {store.write_page(path, found)}")
    if counts.keys() - WELL:
        raise typer.Exit(FAILED)


def _watch(look: Callable[[], RenderableType]) -> NoReturn:
    """Look until Ctrl-C: on a terminal each look takes the place of the last, else it comes under it."""
    console = _console()
    with Live(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as live:
        while True:
            if live:
                live.update(look(), refresh=True)
            else:
                console.print(look())
            time.sleep(WATCH_SECONDS)


def _rows(stack: str, environment: dict[str, str]) -> list[HostStatus]:
    """Return how the hosts of a stack stand.

    Raises:
        Problem: it has none.
    """
    from slipway.cli import standing  # SSH and the provider's types: other commands start without them

    if not (rows := standing.rows(stack, environment)):
        raise _nothing(stack)
    return rows


def _nothing(stack: str) -> Problem:
    return Problem(f"stack {stack} has no hosts yet; run: ./slipway up {stack}")


def _table(stack: str, rows: list[HostStatus], *, every: bool) -> RenderableType:
    """Return the rows as a table, without columns that have nothing in them, and a line that sums up."""
    shown = [row for row in rows if every or len(rows) <= SHOWN or row.state != "as declared"]
    columns: dict[str, list[Text]] = {
        "group": [Text("" if before and before.group == row.group else row.group) for before, row in _pairs(shown)],
        "host": [Text(row.name) for row in shown],
        "release": [Text(row.release) for row in shown],
        "state": [Text(row.state, _STYLES.get(row.state, "red")) for row in shown],
        "last run": [Text(_ago(row.at)) for row in shown],
        "by": [Text(row.by) for row in shown],
        "step": [Text(row.step) for row in shown],
        "reason": [Text(row.reason) for row in shown],
    }
    filled = {name: cells for name, cells in columns.items() if any(cell.plain for cell in cells)}
    table = Table(box=None)
    for name in filled:
        table.add_column(name, no_wrap=name != "reason", overflow="fold")
    for cells in zip(*filled.values(), strict=True):
        table.add_row(*cells)
    counts = ", ".join(f"{count} {state}" for state, count in states.counts(rows).items())
    hidden = len(rows) - len(shown)
    summary = f"{stack}: {len(rows)} hosts: {counts}" + (f" ({hidden} not shown; see --all)" if hidden else "")
    return Group(*([table] if shown else []), Text(summary))


def _pairs(rows: list[HostStatus]) -> Iterator[tuple[HostStatus | None, HostStatus]]:
    return zip([None, *rows], rows, strict=False)


def _ago(stamp: str) -> str:
    """Return how long ago a time was: `3:07 ago`, `12 days ago`; "" for none."""
    if not stamp:
        return ""
    span = dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(stamp)
    return f"{span.days} days ago" if span.days > 1 else f"{elapsed(max(span.total_seconds(), 0))} ago"


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 240
    return console
