"""One run at a time on a host."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from slipway.node.host import places

POLL_SECONDS = 0.2
NOTE_BYTES = 64


class LockError(Exception):
    """Another run goes on; the message is one line."""


class Lock:
    """The lock that one run on this host holds. Its file says who: `{"pid", "attached"}`.

    Ansible inherits the lock (`fd`), so that it is held until the last process of a killed run is gone.
    """

    def __init__(self) -> None:
        self.fd = os.open(places.state("run.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, seconds: float, waiting: Callable[[str], None]) -> None:
        """Take the lock.

        A run that lost its controller is asked to stop; one that has a controller is waited for.

        Args:
            seconds: how long to wait for it.
            waiting: called once when it has to wait, with a line that says for what.

        Raises:
            LockError: the other run still goes on.
        """
        end = time.monotonic() + seconds
        asked = None
        told = False
        while not self._try():
            holder = self._holder()
            if not holder.get("attached", True) and holder.get("pid") != asked:
                asked = holder.get("pid")
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(asked, signal.SIGTERM)  # type: ignore[arg-type]  # None raises TypeError
            who = holder.get("pid", "unknown")
            if time.monotonic() > end:
                raise LockError(f"another run (process {who}) goes on since more than {seconds:.0f} s; try again later")
            if not told:
                waiting(f"waits for another run (process {who})")
                told = True
            time.sleep(POLL_SECONDS)
        self.note(attached=True)

    def note(self, *, attached: bool) -> None:
        """Write down who holds the lock, and whether a controller listens."""
        text = json.dumps({"pid": os.getpid(), "attached": attached}).encode()
        os.pwrite(self.fd, text.ljust(NOTE_BYTES), 0)  # over the same bytes each time: a full disk has room for it

    def _try(self) -> bool:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            return False
        return True

    def _holder(self) -> dict[str, Any]:
        try:
            holder = json.loads(os.pread(self.fd, 1000, 0))
        except ValueError:
            return {}  # nobody has held it yet
        return holder if isinstance(holder, dict) else {}
