"""`slipway release`: work on release files."""

from __future__ import annotations

import typer

from slipway.cli.lock import lock

app = typer.Typer(help="Release files: every version of a cluster, pinned.", no_args_is_help=True)

app.command()(lock)


@app.callback()
def _group() -> None:
    """Keep the command's name, also while it is the only one."""
