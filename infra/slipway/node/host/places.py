"""Where things lie on a host. The variables move them for tests."""

from __future__ import annotations

import contextlib
import errno
import os

STATE = os.environ.get("SLIPWAY_NODE_STATE", "/var/lib/slipway")
"""Kept over reboots, 0700: bundles, manifest, lock, handlers that have not run."""

RUN = os.environ.get("SLIPWAY_NODE_RUN", "/run/slipway")
"""In memory, 0700: inputs for as long as Ansible reads them, the broker's socket."""

RESERVE = "reserve"
"""A file in STATE that is given up for the others there when the disk is full (`space.set_aside`)."""

BOOT_ID = os.environ.get("SLIPWAY_NODE_BOOT_ID", "/proc/sys/kernel/random/boot_id")
"""A file with another text after each boot."""

CONTENT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))
"""The content bundle that this file is part of."""

BUNDLES = os.path.dirname(CONTENT)


def state(name: str) -> str:
    """Return the path of a file in STATE."""
    return os.path.join(STATE, name)


def run(name: str) -> str:
    """Return the path of a file in RUN."""
    return os.path.join(RUN, name)


def content(*names: str) -> str:
    """Return the path of a file in the content bundle."""
    return os.path.join(CONTENT, *names)


def write(path: str, text: str) -> None:
    """Write a file 0600, whole or not at all, and on the disk when this returns.

    Raises:
        OSError: it cannot be written, even with the reserve; it names the path.
    """
    try:
        _write(path, text)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        with contextlib.suppress(FileNotFoundError):
            os.unlink(state(RESERVE))
        _write(path, text)


def _write(path: str, text: str) -> None:
    new = path + ".new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise OSError(error.errno, error.strerror, path) from None
