"""Where reports are kept: `<home>/runs/<stack>/<time>.json` and `.html`, of the last runs.

A report is written anew whenever a wave begins, whole or not at all: what a run did that was killed is there.
"""

from __future__ import annotations

from pathlib import Path

import pydantic

from slipway import paths, writing
from slipway.report.model import RunReport

KEPT = 50
"""Reports of one stack; older ones are removed."""


class ReportError(Exception):
    """There is no such report, or it cannot be read; the message is one line."""


def folder(stack: str) -> Path:
    """Return where the reports of a stack are."""
    return paths.runs() / stack


def write(report: RunReport, *, page: bool = True) -> Path:
    """Keep a report, and return its file; its page stands beside it. Files are for their owner only.

    Args:
        report: the report.
        page: whether to make the page, too: it takes longer than the report.
    """
    into = folder(report.stack)
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = into / f"{report.started.replace(':', '').replace('-', '')}-{report.pid}.json"
    writing.write(path, report.model_dump_json(indent=1), 0o600)
    if page:
        write_page(path, report)
    for old in every(report.stack)[KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".html").unlink(missing_ok=True)
    return path


def write_page(path: Path, report: RunReport) -> Path:
    """Make the page of a report that is kept in `path`, and return its file."""
    from slipway.report import page as pages  # a provider that only looks needs no templates

    into = path.with_suffix(".html")
    writing.write(into, pages.render(report), 0o600)
    return into


def every(stack: str) -> list[Path]:
    """Return the JSON files of all reports of a stack, the newest first."""
    return sorted(folder(stack).glob("*.json"), reverse=True)


def latest(stack: str) -> tuple[Path, RunReport]:
    """Return the newest report of a stack and its file.

    Raises:
        ReportError: there is none.
    """
    for path in every(stack):
        return path, read(path)
    raise ReportError(f"stack {stack}: no run has left a report in {folder(stack)}; run: ./slipway up {stack}")


def read(path: Path) -> RunReport:
    """Read one report.

    Raises:
        ReportError: it is none.
    """
    try:
        return RunReport.model_validate_json(path.read_bytes())
    except (OSError, pydantic.ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a report of this version"
        raise ReportError(f"{path}: {reason}") from None
