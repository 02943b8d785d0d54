"""`slipway test`: every check and test of the project, the cheap ones first."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from slipway import environment, paths
from slipway.artifacts import Progress
from slipway.cli import setup
from slipway.cli.problems import FAILED
from slipway.timing import elapsed

SUITES = ("unit", "graph", "provider", "roles", "lab")
"""Folders of tests/ in the order in which they run: cheap ones first, those that break things last."""

CHEAP = ("ruff", "mypy", "ansible-lint", "unit", "graph")
"""What needs neither engines nor hosts."""


@dataclass(frozen=True)
class Check:
    """One tool that looks at the project."""

    name: str
    command: tuple[str, ...]


def run_tests(
    context: typer.Context,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this check or suite; may be given several times.")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Only what needs no engines and no hosts.")] = False,
) -> None:
    """Run ruff, mypy, ansible-lint and all tests. Other options and paths go to pytest as they are.

    Suites: unit, graph, provider, roles, lab. They share one lab. Examples: ./slipway test --only unit;
    ./slipway test tests/lab -k faults.
    """
    pinned = setup.release_of("lab")
    chosen = set(only or (CHEAP if fast else ()))
    named = {argument.split("/")[1] for argument in context.args if argument.startswith("tests/")}
    if not (chosen or named) or (chosen | named) - set(CHEAP):
        with Progress() as progress:
            setup.make_ready(pinned, progress)
    variables = environment.merged(pinned)
    outcomes = [_run(check, variables) for check in _checks(chosen, context.args)]
    typer.echo("\nslipway test: " + " · ".join(said for _, said in outcomes))
    if not all(passed for passed, _ in outcomes):
        raise typer.Exit(FAILED)


def _checks(chosen: set[str], extra: list[str]) -> list[Check]:
    """Return the checks to run; arguments for pytest mean that only pytest runs."""
    programs = Path(sys.prefix) / "bin"
    linters = [
        Check("ruff", (str(programs / "ruff"), "check", "--quiet")),
        Check("mypy", (str(programs / "mypy"),)),
        Check("ansible-lint", (str(programs / "ansible-lint"), "--offline", "-q")),
    ]
    suites = [
        f"tests/{suite}"
        for suite in SUITES
        if (not chosen or suite in chosen) and any((paths.root() / "tests" / suite).rglob("test_*.py"))
    ]
    pytest = (sys.executable, "-P", "-m", "pytest")
    if extra:
        places = any((paths.root() / argument.partition("::")[0]).exists() for argument in extra)
        return [Check("pytest", (*pytest, *([] if places else suites), *extra))]
    checks = [check for check in linters if not chosen or check.name in chosen]
    return [*checks, Check("pytest", (*pytest, *suites))] if suites else checks


def _run(check: Check, variables: dict[str, str]) -> tuple[bool, str]:
    """Run one check with this terminal; return whether it passed, and a few words."""
    typer.echo(f"==> {check.name}")
    begun = time.monotonic()
    passed = (
        subprocess.run(check.command, cwd=paths.root(), env=variables, stdin=subprocess.DEVNULL, check=False).returncode
        == 0
    )
    return passed, f"{check.name} {'ok' if passed else 'FAILED'} in {elapsed(time.monotonic() - begun)}"
