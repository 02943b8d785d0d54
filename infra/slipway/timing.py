"""Spans of time as people read them."""

from __future__ import annotations


def elapsed(seconds: float) -> str:
    """Return a span as `8 s`, `3:07` or `1:03:07`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
