"""Build a mirror: collect what a release needs, list it, sign the list. What is there already stays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock, Timeout

from slipway import paths, writing
from slipway.artifacts import download, engines
from slipway.artifacts import images as made_images
from slipway.artifacts.progress import Progress
from slipway.lock import checksums
from slipway.mirror import apt, images, key
from slipway.mirror.content import Content, File, MirrorError, list_path, put, sha256
from slipway.node import bundle
from slipway.release import Download, RegistryImage, Release, Target

AT_ONCE = 4
"""Downloads at a time."""


@dataclasses.dataclass(frozen=True)
class Built:
    """A mirror as it is now."""

    content: Content
    key: key.Key


def build(release: Release, targets: Sequence[Target], folder: Path, progress: Progress) -> Built:
    """Collect everything that a release needs for some kinds of host.

    Engines are those of this machine's architecture, by download or build; for others the published files are there.

    Args:
        release: what is pinned.
        targets: kinds of host, among those of the release.
        folder: the mirror; made if it is not there, added to if it is.
        progress: told what goes on.

    Raises:
        MirrorError: something could not be had, a line each; what could is kept for the next time.
        EngineError: an engine could not be had.
    """
    if foreign := [str(target) for target in targets if str(target) not in release.targets]:
        raise MirrorError(
            f"release {release.id} is not for {', '.join(foreign)}; it is for {', '.join(release.targets)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(folder / ".lock").acquire(timeout=0)
    except Timeout:
        raise MirrorError(f"{folder}: another run builds it; wait for it") from None
    with held:
        signer = key.ensure(folder)
        found = [*_own(release, folder, progress), *_foreign(release, targets, folder, progress)]
        files = sorted({file.path: file for file in found}.values(), key=lambda file: file.path)
        apt.sign(folder, release.id, [file for file in files if file.path.startswith("apt/pool/")], signer)
        content = Content(
            release=release.id,
            release_digest=release.digest(),
            targets=tuple(map(str, targets)),
            files=tuple(files),
        )
        data = (content.model_dump_json(indent=1) + "\n").encode()
        place = folder / list_path(release.id)
        writing.write(place.with_name(f"{place.name}.asc"), signer.detached(data))
        writing.write(place, data)
    return Built(content, signer)


def _own(release: Release, folder: Path, progress: Progress) -> Iterator[File]:
    """Put what this machine makes into the mirror: engines, images of them, bundles."""
    names = [name for name in release.engines if _obtainable(release, name)]
    ready = engines.ensure_all(release, progress, names)
    for engine in ready.values():
        place = f"engines/{engine.folder.relative_to(paths.engines())}"
        for file in engine.manifest.files:
            yield _put(engine.folder / file.name, folder, f"{place}/{file.name}", file.source)
        yield _put(engine.folder / engines.MANIFEST, folder, f"{place}/{engines.MANIFEST}", "slipway")
    for archive in made_images.ensure(release):
        yield _put(archive, folder, f"images/{archive.name}", "slipway")
    bundles = bundle.ensure()
    for one in (bundles.runtime, bundles.content):
        yield _put(Path(one.path), folder, f"bundles/{one.digest}.tar.gz", "slipway")


def _obtainable(release: Release, name: str) -> bool:
    """Say whether a component can be an engine here; what only has undigested files is told by `_files`."""
    component = release.component(name)
    return component.build is not None or any(one.digest(engines.arch()) for one in component.downloads)


def _foreign(release: Release, targets: Sequence[Target], folder: Path, progress: Progress) -> list[File]:
    """Fetch packages, files and images, several at a time; say at the end what could not be had."""
    jobs: list[tuple[str, Callable[[], Iterable[File]]]] = []
    for target in targets:
        work = (folder / ".work" / str(target).replace("/", "-")).absolute()
        jobs.append((f"packages {target}", lambda target=target, work=work: _packages(release, target, folder, work)))  # type: ignore[misc]
    for url, digest in _files(release, targets).items():
        jobs.append((checksums.file_name(url), lambda url=url, digest=digest: [_file(url, digest, folder)]))  # type: ignore[misc]
    archs = {target.arch for target in targets}
    (folder / "images").mkdir(exist_ok=True)
    for name, image in release.registry_images.items():

        def pull(name: str = name, image: RegistryImage = image) -> Iterable[File]:
            made = images.ensure(name, image, archs, folder / "images", folder / ".work/images")
            return [
                File(path=f"images/{made.name}", sha256=sha256(made), size=made.stat().st_size, source=image.pinned)
            ]

        jobs.append((image.reference, pull))
    problems: list[str] = []
    files: list[File] = []

    def run(job: tuple[str, Callable[[], Iterable[File]]]) -> None:
        name, work = job
        try:
            with progress.step(name, "fetching"):
                files.extend(work())
        except (MirrorError, download.DownloadError) as error:
            problems.extend(str(error).splitlines())

    with ThreadPoolExecutor(AT_ONCE) as workers:
        list(workers.map(run, jobs))
    problems += _undigested(release, targets)
    if problems:
        raise MirrorError("\n".join(sorted(problems)))
    return files


def _packages(release: Release, target: Target, folder: Path, work: Path) -> list[File]:
    return apt.publish(folder, target, apt.fetch(release, target, work))


def _published(release: Release, targets: Sequence[Target]) -> Iterator[tuple[str, Download, Target]]:
    """Yield the published files that no engine of this machine stands for."""
    for name, component in release.components.items():
        if component.controller:
            continue
        for target in targets:
            pinned = component.at(target)
            if pinned is None or (target.arch == engines.arch() and _obtainable(release, name)):
                continue
            for one in pinned.downloads:
                yield name, one, target


def _files(release: Release, targets: Sequence[Target]) -> dict[str, tuple[str, str]]:
    """Return the published files to fetch: address → (algorithm, digest)."""
    return {
        one.url.format(arch=target.arch): digest
        for _, one, target in _published(release, targets)
        if (digest := one.digest(target.arch))
    }


def _undigested(release: Release, targets: Sequence[Target]) -> list[str]:
    """Say which published files cannot be fetched, and are needed since nothing can be built instead."""
    return sorted(
        {
            f"{name}: {one.url.format(arch=target.arch)}: no digest; run: ./slipway release lock {release.id}"
            for name, one, target in _published(release, targets)
            if one.digest(target.arch) is None and release.component(name).build is None
        }
    )


def _file(url: str, digest: tuple[str, str], folder: Path) -> File:
    algorithm, wanted = digest
    path = f"files/{wanted[:12]}/{checksums.file_name(url)}"
    place = folder / path
    if not place.exists():
        fetched = download.fetch(url, algorithm, wanted, folder / ".work/files")
        place.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(place)
    return File(path=path, sha256=sha256(place), size=place.stat().st_size, source=url)


def _put(source: Path, folder: Path, path: str, origin: str) -> File:
    """Put a file of this machine into the mirror."""
    place = folder / path
    digest = sha256(source)
    if not place.exists() or not (place.samefile(source) or sha256(place) == digest):
        put(source, place)
    return File(path=path, sha256=digest, size=source.stat().st_size, source=origin)
