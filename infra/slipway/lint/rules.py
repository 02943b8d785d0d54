"""What a rule is, and what it finds.

A rule is a pure function under `@rule(…)`. The names of its parameters say what it judges, and it runs when all of that
is there:

    cluster     what the stack file declares (`slipway.spec.Cluster`)
    release     the release (`slipway.release.Release`)
    before      the release that is deployed, or that one comes from
    deployed    inputs of the plays that have converged a host, by name (`slipway.stack.deployed`)
    today       the day of the check
    findings    what all other rules have found; such a rule runs last

It yields a `Problem` for each place that is wrong.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

File = Literal["stack", "release"]

JUDGED = ("cluster", "release", "before", "deployed", "today", "findings")
"""The names that a rule's parameters can have."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """`path` is the place in the stack file or the release; `message` says what is wrong and what was expected.

    `on` is the kind of host that it is true for, where that matters; the same problem on several kinds is told once.
    `file` is given where it is not the one that the rule is about.
    """

    path: str
    message: str
    on: str = ""
    file: File | None = None
    fix: str = ""
    """What to do about it, where that is more than the rule's own."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule: its function with what people are told of it."""

    id: str
    severity: Severity
    about: str
    """What must hold, in one sentence."""
    fix: str
    source: str
    structural: bool
    """Programs rely on it: it is checked whenever a stack file is read, and cannot be waived."""
    subject: str
    """The module it is in."""
    needs: tuple[str, ...]
    find: Callable[..., Iterator[Problem]]

    @property
    def file(self) -> File:
        """The file that its problems are in unless they say otherwise."""
        return "stack" if "cluster" in self.needs else "release"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One problem, with all that a report needs."""

    rule: str
    severity: Severity
    file: str
    """Path of the file, as messages have it."""
    path: str
    message: str
    fix: str
    source: str
    waived: str = ""
    """Why it is let pass, when the stack waives it."""

    def __str__(self) -> str:
        """Return the one line that a user sees: where, what, what to do, which rule."""
        return f"{self.file}: {self.path}: {self.message}; {self.fix} [{self.rule}]"


RULES: dict[str, Rule] = {}
"""Every rule by its id, in the order in which they run."""

Function = TypeVar("Function", bound=Callable[..., Iterator[Problem]])


def rule(
    id: str,  # noqa: A002 (what it is called everywhere)
    severity: Severity,
    *,
    source: str,
    fix: str,
    structural: bool = False,
) -> Callable[[Function], Function]:
    """Make a function a rule. Its docstring says what must hold.

    Args:
        id: how people name it; lower-case words joined by -.
        severity: of all its problems.
        source: where what it says comes from.
        fix: what to do about a problem.
        structural: see `Rule`.
    """

    def register(function: Function) -> Function:
        needs = tuple(inspect.signature(function).parameters)
        if unknown := [name for name in needs if name not in JUDGED]:
            raise TypeError(f"rule {id}: cannot give it {', '.join(unknown)}")
        if id in RULES:
            raise TypeError(f"rule {id}: there are two")
        about = inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0]
        RULES[id] = Rule(
            id=id,
            severity=severity,
            about=" ".join(about.split()),
            fix=fix,
            source=source,
            structural=structural,
            subject=function.__module__.rpartition(".")[2],
            needs=needs,
            find=function,
        )
        return function

    return register


def problems(one: Rule, given: dict[str, Any]) -> list[Problem]:
    """Return what a rule finds. The same problem on several kinds of host is one, on all of them it names none."""
    everywhere = set(given["release"].targets) if given.get("release") else set()
    found: dict[Problem, list[str]] = {}
    for problem in one.find(**{name: given[name] for name in one.needs}):
        on = found.setdefault(dataclasses.replace(problem, on=""), [])
        if problem.on and problem.on not in on:
            on.append(problem.on)
    return [
        dataclasses.replace(problem, message=f"{problem.message} ({', '.join(on)})")
        if on and not (everywhere and everywhere <= set(on))
        else problem
        for problem, on in found.items()
    ]
