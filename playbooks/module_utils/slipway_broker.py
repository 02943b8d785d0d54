"""The socket on the host through which modules reach who drives the run: one JSON line there, one back.

Runs on the host's own Python (3.9 or newer), standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import Any

SOCKET = "/run/slipway/broker.sock"


def exchange(path: str, request: dict[str, Any], seconds: float) -> bytes:
    """Send a request to the socket at ``path``; returns the line that comes back, empty when the other end is gone.

    Raises OSError when nobody listens or answers within ``seconds``.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as reader:
            return reader.readline()


def say_waiting(msg: str) -> None:
    """Have a line shown that says what a task waits for; without a controller nobody is there to read it."""
    with contextlib.suppress(OSError):
        exchange(os.environ.get("SLIPWAY_BROKER", SOCKET), {"kind": "waiting", "msg": msg}, seconds=5)
