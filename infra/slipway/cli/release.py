"""`slipway release`: which there are, what is wrong with them, what changes between them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from slipway import documents, lint, paths, spec
from slipway import release as releases
from slipway import stack as stacks
from slipway.cli import check as checks
from slipway.cli.lock import lock
from slipway.cli.problems import FAILED, Problem
from slipway.cli.sbom import sbom
from slipway.lint import report
from slipway.node import role_meta
from slipway.release import Release, changes, steps

app = typer.Typer(
    name="release",
    help="Release files: every version of a cluster, pinned.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Before = Annotated[str, typer.Argument(help="The release that is there.")]
After = Annotated[str, typer.Argument(help="The release that is to be.")]


app.command()(lock)
app.command()(sbom)


@app.command("list")
def list_releases() -> None:
    """List the releases in stacks/releases."""
    table = Table("release", "for", "Kubernetes", "etcd", "driver", "CUDA", "what", box=None, header_style="bold")
    for one in map(releases.load, releases.known_ids()):
        versions = [
            one.version(name) if name in one.components else "-"
            for name in ("kubernetes", "etcd", "nvidia-driver", "cuda-toolkit")
        ]
        table.add_row(one.id, " ".join(one.targets), *versions, one.description)
    checks.wide_console().print(table)


@app.command()
def check(
    release: Annotated[list[str] | None, typer.Argument(help="Releases to judge; all of them unless given.")] = None,
    json: checks.AsJson = False,
    sarif: checks.AsSarif = False,
) -> None:
    """Judge releases by all rules that need no stack.

    Exit code 0: nothing, or only warnings and notes. 1: errors. 2: it could not run.
    """
    findings: list[lint.Finding] = []
    for name in release or releases.known_ids():
        case = lint.Case(release=releases.load(name), release_file=releases.shown(name))
        findings += lint.check(case)
    checks.show(findings, as_json=json, as_sarif=sarif)


@app.command()
def diff(
    before: Before,
    after: After,
    stack: Annotated[str | None, typer.Option(help="Name the hosts of this stack.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print changes as JSON.")] = False,
) -> None:
    """Show what changes from one release to another: by component, on which hosts, what it disrupts."""
    cluster = spec.load(stacks.file(stack)) if stack else None
    found = changes.between(releases.load(before), releases.load(after), _roles())
    touched = changes.touched(found, cluster)
    if json:
        _print_json(found, touched)
        return
    console = checks.wide_console()
    if not found:
        console.print(f"{before} and {after} are the same")
        return
    console.print(_changes(found))
    console.print()
    table = Table("hosts", "how many", "all changes together", box=None, header_style="bold")
    for one in touched:
        table.add_row(one.group, "" if one.hosts is None else str(one.hosts), one.cost)
    console.print(table)
    if any(change.assumed for change in found):
        console.print("\n* assumed: no role installs it yet")


@app.command()
def path(
    before: Before,
    after: After,
    write: Annotated[bool, typer.Option("--write", help="Write the files of steps that have none yet.")] = False,
) -> None:
    """Show the steps from one release to another where one jump is not allowed.

    Exit code 0: there is a way. 1: there is none. 2: it could not run.
    """
    start, end = releases.load(before), releases.load(after)
    others = [releases.load(name) for name in releases.known_ids()]
    console = checks.wide_console()
    try:
        way = steps.find(start, end, others)
    except steps.NoWayError as error:
        raise Problem(
            "\n".join(f"{before} to {after}: no way: {line}" for line in str(error).splitlines()), FAILED
        ) from None
    if len(way) == 1:
        console.print(f"{before} can become {after} at once")
    table = Table("step", "release", "what changes", "what it disrupts", "findings", box=None, header_style="bold")
    at = start
    for number, step in enumerate(way, 1):
        found = changes.between(at, step.release, _roles())
        what = ", ".join(f"{one.what} {one.after}" for one in found if one.what in _TOLD) or f"{len(found)} components"
        costs = [f"{one.group}: {one.cost}" for one in changes.touched(found) if one.cost != "none"]
        case = lint.Case(before=at, release=step.release, release_file=releases.shown(step.release.id))
        name = f"{step.release.id} (no file yet)" if step.made_up and not write else step.release.id
        table.add_row(str(number), name, what, "; ".join(costs), report.summary(lint.check(case)))
        at = step.release
    console.print(table)
    if write:
        for step in way:
            if step.made_up:
                console.print(f"written: {_write(step.release)}")
    elif any(step.made_up for step in way):
        console.print("\nto write the files that are not there yet: give --write")


_TOLD = ("etcd", "kubernetes", "nvidia-driver", "cuda-toolkit")
"""Components that steps name; of others they give the number."""


def _write(release: Release) -> str:
    """Write a release's file; return its path as messages have it."""
    file = paths.releases() / f"{release.id}.yaml"
    text = steps.text(release)
    if file.exists() and file.read_text(encoding="utf-8") != text:
        raise Problem(f"{documents.shown(file)}: is there already and differs; move it away first")
    file.write_text(text, encoding="utf-8")
    return documents.shown(file)


def _changes(found: Sequence[changes.Change]) -> Table:
    table = Table("what", "before", "after", "hosts", "disrupts", box=None, header_style="bold")
    for one in found:
        on = f" ({', '.join(one.on)})" if one.on else ""
        cost = f"{one.cost}{' *' if one.assumed else ''}"
        table.add_row(one.what, one.before, one.after, f"{', '.join(one.groups)}{on}", cost)
    return table


def _print_json(found: Sequence[changes.Change], touched: Sequence[changes.Touched]) -> None:
    rows = [
        {
            **{name: getattr(one, name) for name in ("what", "before", "after", "on", "groups", "assumed")},
            "costs": dict(one.costs),
        }
        for one in found
    ]
    groups = [dataclasses.asdict(one) for one in touched]
    typer.echo(json.dumps({"changes": rows, "hosts": groups}, indent=2))


def _roles() -> dict[str, role_meta.RoleMeta]:
    return role_meta.load(paths.root() / "roles")
