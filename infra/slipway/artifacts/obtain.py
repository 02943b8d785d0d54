"""Get the files of one component: downloaded where they are published and can be reached, built where not."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from slipway import paths
from slipway.artifacts import download, gobuild
from slipway.artifacts.errors import EngineError
from slipway.artifacts.progress import Progress, Step
from slipway.release import Arch, Build, Component, Download, Release


def fill(name: str, release: Release, arch: Arch, target: Path, progress: Progress, *, build: bool) -> dict[str, str]:
    """Put every file of a component into an empty folder; return where each came from.

    What comes from where is said in one line. A wrong digest ends it; nothing is built instead.

    Args:
        name: the component.
        release: what is pinned.
        arch: architecture of the files.
        target: the folder.
        progress: told what goes on.
        build: build even what could be downloaded.
    """
    component = release.component(name)
    label = f"{name} {component.version}"
    reason = "asked for" if build else _why_not(component, arch)
    sources: dict[str, str] = {}
    if reason is None:
        try:
            sources = _download_all(component, arch, target, progress, label)
        except download.WrongDigestError as error:
            raise EngineError(
                f"{label}: {error}; to build it instead: ./slipway engines --only {name} --build"
            ) from None
        except download.DownloadError as error:
            reason = f"the release file cannot be had: {error}"
    rest = [file for file in component.files() if file not in sources]
    if not rest:
        return sources
    if component.build is None:
        raise EngineError(f"{label}: {reason}, and the release says no way to build it")
    why = reason or f"no published digest of {', '.join(rest)}"
    with progress.step(label, f"building from Go modules ({why})"):
        gobuild.build(name, _only(component.build, rest), release.toolchain, arch, target)
    origin = name if component.build.module == "." else f"{component.build.module}@{component.build.version}"
    return sources | dict.fromkeys(rest, origin)


def _only(build: Build, files: list[str]) -> Build:
    """Return a build of some of the files."""
    return build.model_copy(
        update={
            "packages": {file: package for file, package in build.packages.items() if file in files},
            "copies": {file: path for file, path in build.copies.items() if file in files},
        }
    )


def _why_not(component: Component, arch: Arch) -> str | None:
    """Return why nothing of a component can be downloaded, or None when all its downloads can be."""
    if not component.downloads:
        return component.unverified or "not published"
    checked = [published for published in component.downloads if published.digest(arch)]
    if not checked:
        return f"no digest known for {arch}"
    for published in checked:
        if why := download.unreachable(published.url.format(arch=arch)):
            return f"release file {why}"
    return None


def _download_all(component: Component, arch: Arch, target: Path, progress: Progress, label: str) -> dict[str, str]:
    """Fetch every file of a component that has a digest; return the address of each file in it."""
    sources: dict[str, str] = {}
    with progress.step(label, "downloading") as step:
        for published in component.downloads:
            if published.digest(arch):
                sources |= _download(published, arch, target, step)
    return sources


def _download(published: Download, arch: Arch, target: Path, step: Step) -> dict[str, str]:
    """Fetch one published file and take out what the component needs."""
    checked = published.digest(arch)
    url = published.url.format(arch=arch)
    if checked is None:
        raise EngineError(f"{url}: no digest known for {arch}")

    def show(done: int, total: int | None) -> None:
        step.doing = f"downloading {done >> 20}" + (f" of {total >> 20} MiB" if total else " MiB")

    archive = download.fetch(url, *checked, paths.downloads(), progress=show)
    if published.file:
        shutil.copyfile(archive, target / published.file)
    else:
        _extract(archive, {name: path.format(arch=arch) for name, path in published.members.items()}, target, url)
    for name in published.names():
        (target / name).chmod(0o755)
    return dict.fromkeys(published.names(), url)


def _extract(archive: Path, members: dict[str, str], target: Path, url: str) -> None:
    """Take single files out of a tar archive."""
    with tarfile.open(archive) as opened:
        for name, path in members.items():
            try:
                content = opened.extractfile(path)
            except KeyError:
                content = None
            if content is None:
                raise EngineError(f"{url}: no file {path} in the archive")
            with content, (target / name).open("wb") as file:
                shutil.copyfileobj(content, file)
