"""Shows findings: as a table for people, as JSON, and as SARIF 2.1.0 for CI systems."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from slipway import __version__
from slipway.lint.rules import RULES, SEVERITIES, Finding

_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


def table(findings: Sequence[Finding]) -> Table:
    """Return findings as a table, one row each."""
    made = Table("", "rule", "where", "what, and what to do", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for one in findings:
        severity = "waived" if one.waived else one.severity
        said = f"{one.message}; {'waived: ' + one.waived if one.waived else one.fix}"
        style = "dim" if one.waived else _STYLES[one.severity]
        made.add_row(severity, one.rule, f"{one.file}: {one.path}", said, style=style)
    return made


def summary(findings: Sequence[Finding]) -> str:
    """Return one line that counts: `2 errors, 1 warning, 1 waived`."""
    counted = collections.Counter("waived" if one.waived else one.severity for one in findings)
    parts = [f"{counted[one]} {one}{'s' if counted[one] != 1 else ''}" for one in SEVERITIES if counted[one]]
    parts += [f"{counted['waived']} waived"] if counted["waived"] else []
    return ", ".join(parts) or "nothing found"


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return findings as plain data: `{findings: [{rule, severity, file, path, message, fix, source, waived}]}`."""
    return {"findings": [dataclasses.asdict(one) for one in findings]}


def as_sarif(findings: Sequence[Finding], root: Path) -> dict[str, Any]:
    """Return findings as a SARIF 2.1.0 log; each result has the line of its place in the file.

    Args:
        findings: what the rules found.
        root: the folder that the findings' files are relative to.
    """
    used = [one for one in RULES.values() if any(one.id == finding.rule for finding in findings)]
    index = {one.id: number for number, one in enumerate(used)}
    lines = _Lines(root)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "slipway",
                        "version": __version__,
                        "rules": [
                            {
                                "id": one.id,
                                "shortDescription": {"text": one.about},
                                "help": {"text": one.fix},
                                "defaultConfiguration": {"level": one.severity},
                                "properties": {"source": one.source, "subject": one.subject},
                            }
                            for one in used
                        ],
                    }
                },
                "results": [_result(one, index[one.rule], lines) for one in findings],
            }
        ],
    }


def _result(finding: Finding, index: int, line: Callable[[str, str], int | None]) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": finding.file}}
    if number := line(finding.file, finding.path):
        location["region"] = {"startLine": number}
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.path}: {finding.message}; {finding.fix}"},
        "locations": [{"physicalLocation": location}],
    }
    if finding.waived:
        result["suppressions"] = [{"kind": "external", "justification": finding.waived}]
    return result


class _Lines:
    """Finds the line of a path in a YAML file; reads each file once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[str, yaml.Node | None] = {}

    def __call__(self, file: str, path: str) -> int | None:
        if file not in self._read:
            try:
                self._read[file] = yaml.compose((self._root / file).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
            except (OSError, yaml.YAMLError):
                self._read[file] = None
        root = self._read[file]
        return line(root, path) if root else None


def line(root: yaml.Node, path: str) -> int:
    """Return the line (from 1) of the deepest node that a path such as `pools[0].count` leads to.

    A stack file's paths begin below `slipway:cluster`. Keys may have dots in them: the longest that fits is taken.
    """
    at, number, rest = root, root.start_mark.line + 1, path
    for wrapper in ("config", "slipway:cluster"):
        if inner := _inside(at, wrapper):
            at, number, _ = inner
    while rest and (inner := _inside(at, rest)):
        at, number, rest = inner
    return number


def _inside(node: yaml.Node, path: str) -> tuple[yaml.Node, int, str] | None:
    """Return (node, its line, rest of the path) of the first step of a path, or None where it ends."""
    if isinstance(node, yaml.SequenceNode):
        first, _, rest = path.removeprefix("[").partition("]") if path.startswith("[") else path.partition(".")
        if not first.isdigit() or int(first) >= len(node.value):
            return None
        found = node.value[int(first)]
        return found, found.start_mark.line + 1, rest.removeprefix(".")
    if not isinstance(node, yaml.MappingNode):
        return None
    fitting = [
        (len(key.value), key, value)
        for key, value in node.value
        if path == key.value or path.startswith((f"{key.value}.", f"{key.value}["))
    ]
    if not fitting:
        return None
    length, key, value = max(fitting, key=lambda one: one[0])
    return value, key.start_mark.line + 1, path[length:].removeprefix(".")
