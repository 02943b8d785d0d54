"""Waivers of a stack: rules that may be broken for a while."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from slipway import documents
from slipway.lint.rules import RULES, Finding, Problem, rule
from slipway.spec import Cluster

_SOURCE = "docs/tasks/check-before-you-change.md"


@rule(
    "waiver-expired",
    "error",
    source=_SOURCE,
    fix="put right what it waived, or give it a new day with a new reason",
    structural=True,
)
def waiver_expired(cluster: Cluster, today: dt.date) -> Iterator[Problem]:
    """A waiver has not passed its day."""
    for index, waiver in enumerate(cluster.waivers):
        if waiver.until < today:
            yield Problem(f"waivers[{index}].until", f"the waiver of {waiver.rule} ended on {waiver.until}")


@rule("waiver-impossible", "error", source=_SOURCE, fix="name a rule that can be waived", structural=True)
def waiver_impossible(cluster: Cluster) -> Iterator[Problem]:
    """A waiver names a rule that there is and that can be waived."""
    for index, waiver in enumerate(cluster.waivers):
        if waiver.rule not in RULES:
            near = documents.nearest(waiver.rule, RULES)
            yield Problem(f"waivers[{index}].rule", f"no rule {waiver.rule!r}{near}")
        elif RULES[waiver.rule].structural:
            yield Problem(f"waivers[{index}].rule", f"{waiver.rule} cannot be waived: Slipway relies on it")


@rule("waiver-unused", "note", source=_SOURCE, fix="remove the waiver")
def waiver_unused(cluster: Cluster, findings: Sequence[Finding]) -> Iterator[Problem]:
    """A waiver lets something pass."""
    found = {finding.rule for finding in findings}
    for index, waiver in enumerate(cluster.waivers):
        if waiver.rule in RULES and not RULES[waiver.rule].structural and waiver.rule not in found:
            yield Problem(f"waivers[{index}]", f"{waiver.rule} finds nothing any more")
