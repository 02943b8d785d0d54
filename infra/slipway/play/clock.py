"""How far a host's clock is from ours: too far, and certificates and package lists are not valid there. Pure."""

from __future__ import annotations

import datetime as dt

BOUND_SECONDS = 60
"""More than clocks without any time service drift in months, less than what certificates allow at their beginning."""


def ahead(theirs: float, before: float, after: float) -> int:
    """Return by how many seconds a host's clock is ahead of ours; negative when it is behind, 0 when it may be right.

    Args:
        theirs: what it said, in seconds since 1970, when it was asked.
        before: ours just before it was asked.
        after: ours when its answer was there.
    """
    return int(min(theirs - int(before), 0) or max(theirs - after, 0))


def complaint(off: int, now: float) -> str:
    """Return what is wrong with a host whose clock is ahead by so many seconds; empty when that is within the bound."""
    if abs(off) <= BOUND_SECONDS:
        return ""
    ours = dt.datetime.fromtimestamp(int(now), dt.UTC)
    theirs = ours + dt.timedelta(seconds=off)
    form = "%Y-%m-%d %H:%M:%S UTC"
    return (
        f"the clock is off: {theirs:{form}} on the host, {ours:{form}} on the controller; expected at most "
        f"{BOUND_SECONDS} s between them; set the wrong one, for example with: timedatectl set-ntp true"
    )
