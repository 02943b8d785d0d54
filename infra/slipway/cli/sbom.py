"""`slipway release sbom`: what is in a release, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipway import release as releases


def sbom(
    release: Annotated[str, typer.Argument(help="Id of the release: stacks/releases/<id>.yaml.")],
    output: Annotated[Path | None, typer.Option(help="File to write instead of printing.")] = None,
) -> None:
    """Print the bill of materials of a release: CycloneDX 1.6, JSON. The same release gives the same bytes."""
    from slipway.sbom import document  # loads a library that nothing else needs

    text = document(releases.load(release))
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
