"""What a user sees when something does not work: one line, an exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pydantic
import typer
from typer.exceptions import TyperException

FAILED = 1
"""Checks or hosts failed."""

CANNOT_RUN = 2
"""The command could not do its work."""

INTERRUPTED = 130
"""Ctrl-C, as shells count it."""


class Problem(Exception):  # noqa: N818 (what a user calls it)
    """Something to tell the user: each line says what, where, what was expected, and the next command."""

    def __init__(self, message: str, code: int = CANNOT_RUN) -> None:
        super().__init__(message)
        self.code = code


def guarded(run: Callable[[], object]) -> int:
    """Run a command line and return its exit code; say every problem in one line on stderr."""
    try:
        code = run()  # typer returns the code of `raise typer.Exit(code)`
    except typer.Exit as asked:
        return asked.exit_code
    except TyperException as error:  # a wrong option or argument
        context = getattr(error, "ctx", None)
        hint = f"; see: ./{context.command_path} --help" if context else ""
        said = error.format_message() if hasattr(error, "format_message") else str(error)
        if not said:  # no arguments at all: the help that is printed says it
            return CANNOT_RUN
        return _say(f"{said.rstrip('.')}{hint}", CANNOT_RUN)
    except (KeyboardInterrupt, typer.Abort):  # typer's stands for Ctrl-C too
        return _say("interrupted; the same command goes on where this one stopped", INTERRUPTED)
    except BrokenPipeError:  # `slipway … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 (the one place that turns any of them into a line)
        if os.environ.get("SLIPWAY_DEBUG") == "1":
            traceback.print_exc()
        return _say(describe(error), getattr(error, "code", CANNOT_RUN))
    return code if isinstance(code, int) else 0


def describe(error: Exception) -> str:
    """Return an exception in words: its own when it is one of ours, else with its type and place."""
    if type(error).__module__.partition(".")[0] == "slipway":
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, subprocess.CalledProcessError):
        said = str(error.stderr or error.stdout or "").strip().splitlines()
        return f"{Path(error.cmd[0]).name} failed with exit code {error.returncode}" + (f": {said[-1]}" if said else "")
    if isinstance(error, pydantic.ValidationError):
        return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "nowhere"
    what = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
    return f"{what} ({place}); SLIPWAY_DEBUG=1 shows where it comes from"


def _say(message: str, code: int) -> int:
    for line in message.splitlines() or [message]:
        print(f"slipway: {line}", file=sys.stderr)  # noqa: T201
    return code if isinstance(code, int) else CANNOT_RUN
