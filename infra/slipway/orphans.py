"""Processes that a killed pulumi left behind: its language host and its providers, which nothing else would end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARKS = (b"pulumi-language-", b"pulumi-resource-", b"slipway.provider")
"""One of these is in the command line of each such process."""

PATIENCE = 10.0
"""Seconds that a process has to stop by itself."""


def is_pulumi(pid: int) -> bool:
    """Tell whether a process is there and is the program pulumi."""
    arguments = _arguments(pid)
    return bool(arguments) and os.path.basename(arguments[0]) == b"pulumi"  # noqa: PTH119 (bytes)


def find(backend: str) -> list[int]:
    """Return the orphans of runs with one backend (the value of PULUMI_BACKEND_URL); never those of a living run."""
    return [pid for pid in _processes() if _is_ours(pid, backend) and not any(map(is_pulumi, (pid, *_ancestors(pid))))]


def end(pids: list[int], patience: float = PATIENCE) -> None:
    """Ask processes to stop, and kill those that have not after some seconds."""
    for number, limit in ((signal.SIGTERM, patience), (signal.SIGKILL, 2.0)):
        left = [pid for pid in pids if _send(pid, number)]
        until = time.monotonic() + limit
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = [pid for pid in left if _arguments(pid)]
        if not left:
            return


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _arguments(pid: int) -> list[bytes]:
    """Return a command line; empty when the process has ended."""
    try:
        return [part for part in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if part]
    except OSError:
        return []


def _is_ours(pid: int, backend: str) -> bool:
    line = b" ".join(_arguments(pid))
    if not any(mark in line for mark in MARKS):
        return False
    try:
        return f"PULUMI_BACKEND_URL={backend}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        try:
            # "pid (name) state parent …"; the name may hold anything, so count from its last bracket.
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            return
        yield pid
