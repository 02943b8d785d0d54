"""Room on this host's disks: a run begins only when what it must write down itself has its place."""

from __future__ import annotations

import contextlib
import errno
import os

from slipway.node.host import places

RESERVE_BYTES = 2**20
"""Enough for the manifest and the list of pending handlers, many times over."""


def set_aside() -> None:
    """Keep a file that is given up when the disk fills while a run is at work (`places.write`).

    Raises:
        OSError: there is no room for it.
    """
    path = places.state(places.RESERVE)
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_size == RESERVE_BYTES:
            return
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(fd, 0, RESERVE_BYTES)
    except OSError as error:
        os.unlink(path)
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(fd)


def told(error: OSError) -> str:
    """Return in one line what is wrong, for a full disk with the room that is left and that is needed."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return str(error)
    folder = os.path.dirname(error.filename or places.state(""))
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize // 2**20
    return f"no space left on {folder} ({free} MiB free, {RESERVE_BYTES // 2**20} needed); make room and run it again"
