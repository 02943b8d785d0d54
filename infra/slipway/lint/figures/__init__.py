"""The figures that rules judge by: tables, a module a subject, each row with its source. Rules hold no figures."""

from __future__ import annotations

import dataclasses
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Figure(Generic[T]):
    """One figure that is not a row of a table."""

    value: T
    source: str
