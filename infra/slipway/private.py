"""Folders (0700) in memory for keys, named by the process that they belong to: those of dead processes go."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "slipway-play-"


def memory() -> Path:
    """Return a folder whose files never reach a disk, as short as can be: a socket's path has 108 characters."""
    wanted = ["/run", os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm"]  # noqa: S108
    for candidate in filter(None, wanted):
        if os.access(candidate, os.W_OK | os.X_OK):
            return Path(candidate)
    return Path(tempfile.gettempdir())


def make() -> Path:
    """Make a folder of this process."""
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=memory()))


def remove_left() -> None:
    """Remove the folders of processes that have died."""
    for left in memory().glob(f"{PREFIX}*"):
        owner = left.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
