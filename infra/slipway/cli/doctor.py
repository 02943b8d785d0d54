"""`slipway doctor`: what is there, what is missing, and the command that mends it. Changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from slipway import apt, environment, paths
from slipway.artifacts import EngineError, engines, images
from slipway.cli import setup
from slipway.cli.problems import FAILED
from slipway.release import Release

NEEDED_GIB = {"cache": 8, "home": 8}
"""Free space, GiB, for engines with the compiler's caches, and for the hosts of a lab."""


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    what: str
    found: str
    mend: str = ""
    """The command that mends it; empty when there is nothing to mend."""


def doctor(stack: Annotated[str, typer.Argument(help="The stack to look at.")] = "lab") -> None:
    """Say in a table what is there, what is missing, and the command that mends it."""
    pinned = setup.release_of(stack)
    findings = [*_machine(), *_packages(pinned), *_engines(pinned), *_images(pinned), *_state()]
    table = Table("what", "found", "mend it with", box=None, header_style="bold")
    for finding in findings:
        table.add_row(finding.what, finding.found, finding.mend, style="red" if finding.mend else None)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(table)
    wrong = sum(bool(finding.mend) for finding in findings)
    console.print(f"\n{wrong} of {len(findings)} need mending" if wrong else "\nall is there")
    if wrong:
        raise typer.Exit(FAILED)


def _machine() -> Iterator[Finding]:
    yield Finding("Python", f"{sys.version.split()[0]} in {sys.prefix}")
    yield (
        Finding("root", "yes")
        if os.geteuid() == 0
        else Finding("root", "by sudo")
        if shutil.which("sudo")
        else Finding("root", "not root, and no sudo", "su -c './slipway doctor'")
    )
    yield Finding("cgroups", "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1")
    known = Path("/proc/filesystems").read_text().split()
    yield (
        Finding("overlayfs", "yes")
        if "overlay" in known
        else Finding("overlayfs", "the kernel does not have it loaded", "modprobe overlay")
    )
    for name, place in (("cache", paths.cache()), ("home", paths.home())):
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        free, need = shutil.disk_usage(there).free >> 30, NEEDED_GIB[name]
        yield Finding(
            f"space for {name}",
            f"{free} GiB free in {place}",
            "" if free >= need else f"free {need - free} GiB, or set SLIPWAY_{name.upper()} to another disk",
        )


def _packages(pinned: Release) -> Iterator[Finding]:
    try:
        missing = apt.missing(pinned.controller_packages)
    except apt.PackageError as error:
        yield Finding("system packages", str(error), "use Debian or Ubuntu")
        return
    for name in pinned.controller_packages:
        yield (
            Finding(f"package {name}", "missing", apt.install_command([name]))
            if name in missing
            else Finding(f"package {name}", "installed")
        )


def _engines(pinned: Release) -> Iterator[Finding]:
    for name in pinned.engines:
        component, engine = pinned.component(name), engines.find(name, pinned)
        yield (
            Finding(f"engine {name}", f"{component.version}, {_origin(engine)}")
            if engine
            else Finding(f"engine {name}", f"{component.version} missing", f"./slipway engines --only {name}")
        )


def _origin(engine: engines.Engine) -> str:
    downloaded = sum(file.source.startswith("http") for file in engine.manifest.files)
    total = len(engine.manifest.files)
    return "downloaded" if downloaded == total else "built" if not downloaded else f"{downloaded} of {total} downloaded"


def _images(pinned: Release) -> Iterator[Finding]:
    for name in pinned.images:
        try:
            there = images.archive(name, pinned).is_file()
        except EngineError:
            there = False
        yield (
            Finding(f"image {name}", pinned.image(name))
            if there
            else Finding(f"image {name}", "missing", "./slipway engines")
        )


def _state() -> Iterator[Finding]:
    passphrase, stacks = paths.passphrase(), environment.stacks()
    if stacks and not passphrase.exists():
        yield Finding("passphrase", f"gone; stacks need it: {', '.join(stacks)}", f"put it back: {passphrase}")
        return
    if not passphrase.exists():
        yield Finding("state", f"none yet in {paths.home()}; the first `up` makes it")
        return
    mode = stat.S_IMODE(passphrase.stat().st_mode)
    yield Finding(
        "passphrase", f"{passphrase} mode {mode:04o}", "" if mode & 0o077 == 0 else f"chmod 600 '{passphrase}'"
    )
    yield Finding("stacks", ", ".join(stacks) or "none")
