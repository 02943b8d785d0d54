"""Engines: the pinned third-party programs, downloaded or built, kept under one digest.

An engine is a folder `<cache>/engines/<name>/<version>-<digest12>/` with its files and a manifest.json. The digest
covers all that decides what the files are: the release's entry, the recipe's sources and go.sum, the toolchain, and the
architecture. Nothing in a finished engine is ever changed; `current` beside it points at the newest.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict

from slipway import paths
from slipway.artifacts import gobuild
from slipway.artifacts.errors import EngineError
from slipway.artifacts.progress import Progress
from slipway.release import Arch, Release

MANIFEST = "manifest.json"

COLD_SECONDS = {
    "kubernetes": 560,
    "pulumi-kubernetes": 400,  # 11 CPU-minutes: its module registers every kind of Kubernetes as a Go type
    "pulumi": 370,
    "coredns": 310,
    "containerd": 140,
    "etcd": 50,
    "runc": 45,
    "pulumi-language-python": 30,
    "csr-approver": 30,
    "cni-plugins": 10,
    "netprobe": 5,
    "pause": 2,
}
"""What each build took once on two cores, modules fetched on the way; only used to start the longest first."""


class Mirror(Protocol):
    """Where engines come from instead of their publishers."""

    def fill(self, engine: str, target: Path, downloads: Path) -> None:
        """Put the files of an engine, its manifest too, into a folder; `engine` is its folder below `engines`."""


class File(BaseModel):
    """One file of an engine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    sha256: str
    size: int
    source: str
    """Where it came from: an address, or `<module>@<version>`."""


class Manifest(BaseModel):
    """What an engine holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    component: str
    version: str
    digest: str
    files: tuple[File, ...]
    seconds: float
    """How long it took to get."""


@dataclass(frozen=True)
class Engine:
    """A complete engine on this machine."""

    folder: Path
    manifest: Manifest


def arch() -> Arch:
    """Return the architecture of this machine, in Go's and Debian's words."""
    machine = platform.machine()
    names: dict[str, Arch] = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    if machine not in names:
        raise EngineError(f"no engines for {machine}; supported: x86_64, aarch64")
    return names[machine]


def digest(name: str, release: Release) -> str:
    """Return the SHA-256 (hex) of all that decides what the files of an engine are."""
    component = release.component(name)
    facts: dict[str, Any] = {"component": component.recipe(), "arch": arch()}
    if component.build:
        facts["toolchain"] = release.toolchain.version
        facts["recipe"] = {
            file: hashlib.sha256(content).hexdigest() for file, content in gobuild.recipe_files(name).items()
        }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def folder(name: str, release: Release) -> Path:
    """Return where an engine is, or will be."""
    return paths.engines() / name / f"{release.version(name)}-{digest(name, release)[:12]}"


def find(name: str, release: Release) -> Engine | None:
    """Return an engine when it is there and whole (all files, right sizes), else None."""
    place = folder(name, release)
    try:
        manifest = Manifest.model_validate_json((place / MANIFEST).read_bytes())
        whole = all((place / file.name).stat().st_size == file.size for file in manifest.files)
    except (OSError, ValueError):
        return None
    return Engine(place, manifest) if whole else None


def files(name: str, release: Release, source: str = f"file://{paths.ENGINES_ON_HOST}") -> dict[str, Any]:
    """Return an engine as the variable that roles hand to `slipway_artifact`.

    Args:
        name: the component.
        release: what is pinned.
        source: where the engines folder is for the host: `file:///…` or `https://…`.

    Returns:
        `{component, version, files: [{name, source, sha256}]}`.

    Raises:
        EngineError: the engine is not on this machine.
    """
    engine = find(name, release)
    if engine is None:
        raise EngineError(f"engine {name} {release.version(name)} is missing; run: ./slipway engines --only {name}")
    base = f"{source}/{engine.folder.relative_to(paths.engines())}"
    return {
        "component": name,
        "version": engine.manifest.version,
        "files": [
            {"name": file.name, "source": f"{base}/{file.name}", "sha256": file.sha256}
            for file in engine.manifest.files
        ],
    }


def ensure(
    name: str, release: Release, progress: Progress, *, build: bool = False, mirror: Mirror | None = None
) -> Engine:
    """Return an engine, downloading or building it when it is not there.

    Files with a known digest are downloaded when they can be reached; what is left is built. Which of them, and why, is
    said in one line. Two runs at once do not collide: the second waits and finds the work done.

    Args:
        name: the component.
        release: what is pinned.
        progress: told what goes on.
        build: build even what could be downloaded.
        mirror: what the engine comes from; nothing else is then asked, nothing built.

    Raises:
        EngineError: a download is not the pinned file, or the engine could be had in no way.
        gobuild.BuildError, apt.PackageError: building failed.
    """
    if engine := find(name, release):
        _point(engine)
        return engine
    from slipway.artifacts import obtain  # loads an HTTP client: only when something is missing

    place = folder(name, release)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _held(name, progress):
        if engine := find(name, release):
            return engine
        for left in place.parent.glob(".partial-*"):  # of a run that was killed
            shutil.rmtree(left)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=place.parent))
        try:
            if mirror:
                with progress.step(_label(name, release), "downloading from the mirror"):
                    mirror.fill(str(place.relative_to(paths.engines())), partial, paths.downloads())
                manifest = Manifest.model_validate_json((partial / MANIFEST).read_bytes())
            else:
                begun = time.monotonic()
                sources = obtain.fill(name, release, arch(), partial, progress, build=build)
                manifest = _manifest(name, release, partial, sources, time.monotonic() - begun)
                (partial / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
            partial.chmod(0o755)
            if place.exists():  # damaged: find() refused it
                shutil.rmtree(place)
            partial.rename(place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    engine = Engine(place, manifest)
    _point(engine)
    return engine


def ensure_all(
    release: Release,
    progress: Progress,
    names: Iterable[str] | None = None,
    *,
    build: bool = False,
    mirror: Mirror | None = None,
) -> dict[str, Engine]:
    """Return several engines (all of the release's unless named), two at a time, the longest builds first.

    Two at a time keeps two cores busy: one links or fetches modules while the other compiles.
    """
    wanted = sorted(names or release.engines, key=lambda name: -COLD_SECONDS.get(name, 30))
    missing = [name for name in wanted if find(name, release) is None]
    progress.waiting, progress.total = [_label(name, release) for name in missing], len(missing)
    with ThreadPoolExecutor(max_workers=2) as workers:
        jobs = {workers.submit(ensure, name, release, progress, build=build, mirror=mirror): name for name in missing}
        done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
        if any(job.exception() for job in done):
            workers.shutdown(wait=True, cancel_futures=True)
        for job in done:
            job.result()
    return {name: ensure(name, release, progress) for name in wanted}


def _manifest(name: str, release: Release, folder: Path, sources: dict[str, str], seconds: float) -> Manifest:
    component = release.component(name)
    described = tuple(
        File(name=file, sha256=_sha256(folder / file), size=(folder / file).stat().st_size, source=sources[file])
        for file in component.files()
    )
    return Manifest(
        component=name,
        version=component.version,
        digest=digest(name, release),
        files=described,
        seconds=round(seconds, 1),
    )


@contextmanager
def _held(name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock of one engine; say so when another run has it."""
    lock = FileLock(paths.locks() / f"engine-{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress.say(f"{name}: another run is at it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _label(name: str, release: Release) -> str:
    return f"{name} {release.version(name)}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _point(engine: Engine) -> None:
    """Let `current` name the engine, in one step."""
    link = engine.folder.parent / "current"
    if link.is_symlink() and os.readlink(link) == engine.folder.name:  # noqa: PTH115 (the link's own text)
        return
    fresh = link.with_name(f".current-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(engine.folder.name)
    fresh.rename(link)
