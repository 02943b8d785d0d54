"""`slipway env`: the environment for plain `pulumi` commands."""

from __future__ import annotations

from typing import Annotated

import typer

from slipway import environment
from slipway.cli import setup


def env(
    stack: Annotated[str, typer.Argument(help="The stack that is made when it is not there yet.")] = "lab",
) -> None:
    """Print shell lines that let pulumi and kubectl work here: eval "$(./slipway env)".

    What is missing (engines, the stack) is made first; that is told on stderr.
    """
    pinned, _ = setup.stack_ready(stack)
    typer.echo(environment.exports(pinned))
