"""`slipway mirror`: everything that a release needs, in one folder that any web server can serve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipway import release as releases
from slipway.artifacts import Progress
from slipway.cli.problems import FAILED, Problem
from slipway.release import Target

app = typer.Typer(help="Mirrors: all that a release needs, without the internet.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of the mirror.", show_default=False)]


@app.command()
def build(
    release: Annotated[str, typer.Argument(help="Id of the release: stacks/releases/<id>.yaml.")],
    folder: Folder,
    targets: Annotated[
        list[str] | None,
        typer.Option("--for", help="A kind of host, such as ubuntu24.04/amd64; may be given several times."),
    ] = None,
) -> None:
    """Collect packages, files, images, bundles and engines of a release; go on where an earlier run stopped."""
    from slipway.mirror import build as building  # loads an HTTP client and apt's side

    pinned = releases.load(release)
    with Progress() as progress:
        built = building.build(pinned, [Target.parse(one) for one in targets or pinned.targets], folder, progress)
    size = sum(file.size for file in built.content.files)
    typer.echo(
        f"{folder}: {len(built.content.files)} files, {size >> 20} MiB for release {release}; in a stack file:\n"
    )
    typer.echo(f"    mirror:\n      url: http://<address>:8080\n      fingerprint: {built.key.fingerprint}")


@app.command()
def verify(folder: Folder) -> None:
    """Check every file of a mirror against its signed lists."""
    from slipway.mirror import verify as verifying

    lists, faults = verifying.verify(folder)
    if faults:
        raise Problem("\n".join(faults), FAILED)
    for one in lists:
        typer.echo(f"{folder}: release {one.release} for {', '.join(one.targets)}: {len(one.files)} files are right")


@app.command()
def serve(
    folder: Folder,
    listen: Annotated[str, typer.Option(help="Address and port.")] = "127.0.0.1:8080",
    certificate: Annotated[Path | None, typer.Option(help="Certificate chain (PEM) for HTTPS.")] = None,
    private_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None,
) -> None:
    """Serve a mirror until Ctrl-C."""
    from slipway.mirror.serve import Server

    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit():
        raise Problem(f"--listen {listen}: expected <address>:<port>, such as 0.0.0.0:8080")
    if (certificate is None) != (private_key is None):
        raise Problem("--certificate and --private-key: expected both or neither")
    with Server(folder, (host, int(port)), (certificate, private_key) if certificate and private_key else None) as one:
        typer.echo(f"serving {folder} on {'https' if certificate else 'http'}://{host}:{one.server_address[1]}")
        one.serve_forever()
