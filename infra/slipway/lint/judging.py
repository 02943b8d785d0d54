"""Runs the rules: on a stack and its release, or on a release alone."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from slipway import release as releases
from slipway.lint import versions
from slipway.lint.changes import Deployed
from slipway.lint.rules import RULES, SEVERITIES, Finding, Rule, problems
from slipway.release import Release
from slipway.spec import Cluster, SpecError


@dataclasses.dataclass(frozen=True)
class Case:
    """What is judged; what is None is not there, and rules that need it do not run.

    `stack_file` and `release_file` are what messages call the files.
    """

    cluster: Cluster | None = None
    release: Release | None = None
    before: Release | None = None
    deployed: Deployed | None = None
    stack_file: str = "stack"
    release_file: str = "release"


def check(case: Case, today: dt.date | None = None, *, only: Sequence[Rule] | None = None) -> list[Finding]:
    """Return what the rules find: errors first, then warnings, then notes; waived ones are among them, marked so.

    Args:
        case: what is judged.
        today: the day of the check; that of this machine unless given.
        only: the rules to run; all of them unless given.
    """
    given: dict[str, Any] = {
        name: value
        for name in ("cluster", "release", "before", "deployed")
        if (value := getattr(case, name)) is not None
    }
    given["today"] = today or dt.datetime.now(tz=dt.UTC).date()
    waived = {one.rule: one.reason for one in case.cluster.waivers} if case.cluster else {}
    findings: list[Finding] = []
    rules = RULES.values() if only is None else only
    for one in sorted(rules, key=lambda one: "findings" in one.needs):
        if set(one.needs) <= {*given, "findings"}:
            findings += _findings(one, {**given, "findings": tuple(findings)}, case, waived)
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


def _findings(one: Rule, given: Mapping[str, Any], case: Case, waived: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            rule=one.id,
            severity=one.severity,
            file=case.stack_file if (problem.file or one.file) == "stack" else case.release_file,
            path=problem.path,
            message=problem.message,
            fix=problem.fix or one.fix,
            source=one.source,
            waived="" if one.structural else waived.get(one.id, ""),
        )
        for problem in problems(one, dict(given))
    ]


def structural(cluster: Cluster, stack_file: str) -> list[Finding]:
    """Return what is wrong with a stack file by itself, of what programs rely on."""
    return check(
        Case(cluster=cluster, stack_file=stack_file),
        only=[one for one in RULES.values() if one.structural and one.needs == ("cluster",)],
    )


def errors(findings: Sequence[Finding]) -> list[Finding]:
    """Return the errors that nothing waives."""
    return [finding for finding in findings if finding.severity == "error" and not finding.waived]


def refuse(case: Case, today: dt.date | None = None) -> list[Finding]:
    """Return the findings; raise SpecError with all errors that nothing waives."""
    findings = check(case, today)
    if found := errors(findings):
        raise SpecError(str(finding) for finding in found)
    return findings


def deployed_release(deployed: Deployed) -> Release | None:
    """Return the release that a stack was deployed with, or None when its file is gone.

    Where an upgrade was interrupted there are several: then the one with the oldest Kubernetes, which some hosts have.
    """
    found = []
    for one in sorted({str(inputs["release"]) for inputs in deployed.values() if inputs.get("release")}):
        with contextlib.suppress(releases.ReleaseError):
            found.append(releases.load(one))
    with_kubernetes = [one for one in found if "kubernetes" in one.components]
    return min(with_kubernetes, key=lambda one: versions.key(one.version("kubernetes")), default=None)
