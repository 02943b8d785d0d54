"""`slipway check`: judge a stack with its release before anything is touched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from slipway import lint, paths
from slipway.cli import stacks
from slipway.cli.problems import FAILED
from slipway.lint import report

AsJson = Annotated[bool, typer.Option("--json", help="Print findings as JSON.")]
AsSarif = Annotated[bool, typer.Option("--sarif", help="Print findings as SARIF 2.1.0, for CI systems.")]


def check(stack: stacks.Stack = "lab", json: AsJson = False, sarif: AsSarif = False) -> None:
    """Judge a stack, its release and its machine types by all rules; change nothing.

    Exit code 0: nothing, or only warnings and notes. 1: errors. 2: it could not run.
    """
    show(lint.check(stacks.case(stack)), as_json=json, as_sarif=sarif)


def wide_console() -> Console:
    """Return a console that does not break lines where no terminal asks for it, so that grep finds whole ones."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 400
    return console


def show(findings: Sequence[lint.Finding], *, as_json: bool, as_sarif: bool) -> None:
    """Print findings; leave with exit code 1 when there is an error that nothing waives."""
    if as_json or as_sarif:
        made = report.as_sarif(findings, paths.root()) if as_sarif else report.as_json(findings)
        typer.echo(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        console = wide_console()
        if findings:
            console.print(report.table(findings))
        console.print(f"\n{report.summary(findings)}" if findings else report.summary(findings))
    if lint.errors(findings):
        raise typer.Exit(FAILED)
