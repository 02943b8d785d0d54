"""All commands together."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.metadata import version as package_version

import typer

from slipway import __version__
from slipway.cli import check, doctor, engines, env, mirror, release, stacks, status, tests
from slipway.cli.problems import guarded

app = typer.Typer(
    name="slipway",
    help="Turns machines into training-ready GPU Kubernetes clusters and keeps them there.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STACKS = "A cluster"
_TOOLS = "This machine"

app.command(rich_help_panel=_STACKS)(stacks.up)
app.command(rich_help_panel=_STACKS)(stacks.preview)
app.command(rich_help_panel=_STACKS)(stacks.refresh)
app.command(rich_help_panel=_STACKS)(check.check)
app.command(rich_help_panel=_STACKS)(stacks.destroy)
app.command(rich_help_panel=_STACKS)(status.status)
app.command(rich_help_panel=_STACKS)(status.report)
app.command(rich_help_panel=_STACKS)(stacks.kubeconfig)
app.command(rich_help_panel=_TOOLS)(env.env)
app.command(rich_help_panel=_TOOLS)(doctor.doctor)
app.command(rich_help_panel=_TOOLS)(engines.engines)
app.command(
    "test",
    rich_help_panel=_TOOLS,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(tests.run_tests)

app.add_typer(mirror.app, name="mirror", rich_help_panel=_STACKS)
app.add_typer(release.app, name="release", rich_help_panel=_STACKS)
if importlib.util.find_spec("slipway.cli.lab"):
    app.add_typer(importlib.import_module("slipway.cli.lab").app, name="lab", rich_help_panel=_STACKS)


@app.command(rich_help_panel=_TOOLS)
def version() -> None:
    """Print the version of Slipway and of the parts that do its work."""
    typer.echo(f"slipway {__version__}")
    for package in ("pulumi", "ansible-core", "mitogen"):
        typer.echo(f"{package} {package_version(package)} (Python package)")


def main() -> None:
    """Run the command line and leave with its exit code: 0 done, 1 failed checks or hosts, 2 could not run."""
    sys.exit(guarded(lambda: app(standalone_mode=False, prog_name="slipway")))
