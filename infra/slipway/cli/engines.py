"""`slipway engines`: get the pinned programs."""

from __future__ import annotations

from typing import Annotated

import typer

from slipway import release as releases
from slipway.artifacts import Progress, ensure_all, images


def engines(
    only: Annotated[list[str] | None, typer.Option(help="Only this engine; may be given several times.")] = None,
    release: Annotated[str, typer.Option(help="The release that pins them.")] = "lab",
    build: Annotated[bool, typer.Option("--build", help="Build even what could be downloaded.")] = False,
) -> None:
    """Download or build every pinned program, and make the images that a cluster starts with."""
    pinned = releases.load(release)
    for name in only or []:
        pinned.component(name)
    with Progress() as progress:
        ready = ensure_all(pinned, progress, only, build=build)
        if not only:
            images.ensure(pinned)
    for name, engine in sorted(ready.items()):
        typer.echo(f"{name} {engine.manifest.version}: {engine.folder}")
