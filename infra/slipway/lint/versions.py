"""Comparing versions, of releases and of Debian packages."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_WIDTH = 4


@functools.cache
def key(version: str) -> tuple[int, ...]:
    """Return what versions are ordered by: the numbers before any suffix, `1.18` as `1.18.0.0`.

    Suffixes (`-rc.1`, `+cuda13`) do not count: no figure of ours tells them apart.
    """
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[-+~]", version, maxsplit=1)[0])]
    return (*numbers, *[0] * (_WIDTH - len(numbers)))


def older(one: str, other: str) -> bool:
    """Whether `one` is older than `other`."""
    return key(one) < key(other)


def same(one: str, other: str) -> bool:
    """Whether two versions are the same but for suffixes."""
    return key(one) == key(other)


def major(version: str) -> int:
    """Return the first number: 13 of 13.0.2."""
    return key(version)[0]


def minor(version: str) -> str:
    """Return the first two numbers: 1.36 of 1.36.4."""
    return ".".join(str(number) for number in key(version)[:2])


def minors_apart(one: str, other: str) -> int:
    """Return by how many minor versions `other` is newer than `one`; negative when it is older.

    A step between major versions counts as a hundred.
    """
    (first, second), (third, fourth) = key(one)[:2], key(other)[:2]
    return (third - first) * 100 + fourth - second


def upstream(package: str) -> str:
    """Return the upstream part of a Debian version: 4.5.2 of 1:4.5.2-1, 2.30.7 of 2.30.7-1+cuda13.3."""
    without_epoch = package.partition(":")[2] or package
    return without_epoch.rsplit("-", 1)[0] if "+" not in without_epoch else without_epoch.split("-", 1)[0]


def within(package: str, version: str) -> bool:
    """Whether a package is of a component's version: the same, or with more numbers after it."""
    found = upstream(package)
    return found == version or found.startswith((f"{version}.", f"{version}-"))


def newest(versions: Iterable[str]) -> str | None:
    """Return the newest, or None of none."""
    return max(versions, key=key, default=None)
