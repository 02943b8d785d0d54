"""`slipway release lock`: digests from the publishers."""

from __future__ import annotations

from typing import Annotated

import typer

from slipway import documents, paths
from slipway import release as releases
from slipway.cli.problems import FAILED, Problem


def lock(
    release: Annotated[str, typer.Argument(help="Id of the release: stacks/releases/<id>.yaml.")],
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail where the file differs.")] = False,
) -> None:
    """Fill in digests from the publishers' own files, package indices and registries."""
    from slipway import lock as locking  # loads an HTTP client
    from slipway.lock.edit import EditError

    pinned = releases.load(release)
    file = paths.releases() / f"{release}.yaml"
    shown = documents.shown(file)
    report = locking.find(pinned)
    for line in report.open:
        typer.echo(f"{shown}: {line}")
    if report.found and not check:
        text = file.read_text(encoding="utf-8")
        try:
            changed = locking.write(text, report.found)
        except EditError as error:
            raise Problem(f"{shown}: {error}") from None
        file.write_text(changed, encoding="utf-8")
        releases.load(release)
    for found in report.found:
        what = ", ".join(found.fields) or "what was unverified is published"
        typer.echo(f"{shown}: {'.'.join(map(str, found.path))}: {what}{' is not in the file' if check else ''}")
    if report.problems or (check and report.found):
        lines = [f"{shown}: {line}" for line in report.problems]
        if check and report.found:
            lines.append(
                f"{shown}: {len(report.found)} digests are not in the file; run: ./slipway release lock {release}"
            )
        raise Problem("\n".join(lines), FAILED)
    typer.echo(f"{shown}: locked")
