"""Environment variables by which people switch something on, as with `SLIPWAY_TASKS=1 pulumi up`."""

from __future__ import annotations

import os

TASKS = "SLIPWAY_TASKS"
"""Shows the tasks that change something on hosts of large plays, too."""


def is_on(name: str) -> bool:
    """Say whether a variable is set to 1."""
    return os.environ.get(name) == "1"
