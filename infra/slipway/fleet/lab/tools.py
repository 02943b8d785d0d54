"""Small things that all of the lab uses: running commands, locks, whole files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import filelock

from slipway import paths
from slipway.fleet.lab.errors import LabError
from slipway.writing import write as write

Progress = Callable[[str], None]
"""Takes one line about what is being done now."""


def silent(_message: str) -> None:
    """Be the progress of callers who do not care."""


def run(command: Sequence[str], *, data: str | None = None, timeout: float = 60) -> str:
    """Run a command to its end and return its standard output.

    Raises:
        LabError: it is missing, fails or takes longer than `timeout` seconds; the message has its last line.
    """
    try:
        done = subprocess.run(command, input=data, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is missing; run: slipway doctor") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{' '.join(command)} takes longer than {timeout:.0f} s") from error
    if done.returncode != 0:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise LabError(f"{' '.join(command)}: {lines[-1] if lines else f'exit status {done.returncode}'}")
    return done.stdout


@contextmanager
def lock(name: str, *, waiting: Progress = silent) -> Iterator[None]:
    """Hold a lock against threads and other processes; a killed holder loses it.

    Lock files stay: removing one that another process waits for would let two of them in.
    """
    held = filelock.FileLock(paths.locks() / f"lab-{name}.lock")
    try:
        held.acquire(timeout=0)
    except filelock.Timeout:
        waiting(f"another run works on {name}, waiting for it")
        held.acquire()
    try:
        yield
    finally:
        held.release()


def remove_tree(path: Path) -> None:
    """Remove a folder and what is in it, but never what is mounted in it.

    Raises:
        LabError: something is mounted below.
    """
    prefix = f"{path}/"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mounted = line.split()[4].replace("\\040", " ")
        if mounted == str(path) or mounted.startswith(prefix):
            raise LabError(f"{mounted} is still mounted; run: umount {mounted}")
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
