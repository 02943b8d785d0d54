"""A shell script run on a host as root: its command, and what is said when that fails.

Used on both ways to a host: through Ansible's connection (`playbooks/controller`) and beside it
(`slipway.play.remote`). Pure, and of the standard library only.
"""

from __future__ import annotations

import shlex

_LONGEST_REASON = 300


def as_root(user: str | None, script: str) -> str:
    """Return the command that runs a script as root; a user who is not root may use sudo without a password."""
    command = f"sh -c {shlex.quote(script)}"
    return command if user in (None, "root") else f"sudo -n -- {command}"


def last_line(complaint: str) -> str:
    """Return the last line of what a program wrote to its standard error: most often the reason."""
    lines = [line.strip() for line in complaint.splitlines() if line.strip()]
    return lines[-1][:_LONGEST_REASON] if lines else "no reason given"


def cannot_connect(why: str) -> str:
    """Return the reason of a host that cannot be reached at all."""
    return f"cannot connect: {why}"


def connection_lost(why: str) -> str:
    """Return the reason of a host whose connection broke while something ran on it."""
    return f"connection lost: {why}"


def unreachable(reason: str) -> str:
    """Return a reason that says on its own that the host could not be reached, as opposed to one that failed."""
    return f"unreachable: {reason}"
