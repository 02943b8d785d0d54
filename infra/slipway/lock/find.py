"""Ask the publishers of a release for the digests of everything in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from slipway.artifacts import download
from slipway.lock import checksums, packages, registry
from slipway.release import Arch, Component, Download, Package, RegistryImage, Release, Target, Variant

AT_ONCE = 8
"""Publishers asked at a time."""

Path = tuple[str | int, ...]
"""Keys from the top of the release file."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What is to be written into one mapping of the file; its `unverified` goes, since it is not true any more."""

    path: Path
    fields: Mapping[str, str | Mapping[str, str]]
    settles: bool


@dataclasses.dataclass
class Report:
    """What the publishers said.

    `found` is not in the file yet. `problems` are digests that differ, and publishers that cannot be asked or believed;
    one line each. `open` are things that nobody publishes a digest for.
    """

    found: list[Found] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    open: list[str] = dataclasses.field(default_factory=list)


def find(release: Release) -> Report:
    """Compare a release with its publishers; nothing is written."""
    report = Report()
    asked: list[Callable[[], None]] = []
    for place, one, archs in _downloads(release):
        asked.append(lambda place=place, one=one, archs=archs: _download(report, place, one, archs))  # type: ignore[misc]
    for name, image in release.registry_images.items():
        asked.append(lambda name=name, image=image: _image(report, name, image))  # type: ignore[misc]
    asked += [lambda: _packages(report, release)]
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for job in [workers.submit(one) for one in asked]:
            job.result()
    report.found.sort(key=lambda found: [str(part) for part in found.path])
    report.problems.sort()
    report.open.sort()
    return report


def _said(path: Path) -> str:
    return ".".join(map(str, path))


# -- downloads ---------------------------------------------------------------------------------------------------------


def _variants(release: Release) -> Iterator[tuple[Path, Component, Variant, str]]:
    """Yield every place that says what installs something: path, its component, itself, key of the hosts."""
    for name, component in release.components.items():
        yield ("components", name), component, component, ""
        for key, variant in component.install.items():
            yield ("components", name, "install", key), component, variant, key


def _targets(release: Release, component: Component) -> list[Target]:
    """Return the kinds of host of a release, and the platforms that a component tells apart."""
    deeper = [key for key in component.install if key.count("/") == 2]
    return [Target.parse(text) for text in (*release.targets, *deeper)]


def _downloads(release: Release) -> Iterator[tuple[Path, Download, list[Arch]]]:
    for path, component, variant, key in _variants(release):
        kinds = [target for target in _targets(release, component) if not key or key in target.lookup()]
        for index, one in enumerate(variant.downloads):
            yield (*path, "downloads", index), one, sorted({target.arch for target in kinds})


def _download(report: Report, path: Path, one: Download, archs: list[Arch]) -> None:
    if one.checksums is None:
        if one.unverified:
            report.open.append(f"{_said(path)}: {one.url}: its publisher's digests are not named; add `checksums`")
        return
    fresh: dict[str, dict[str, str]] = {}
    complete = True
    for arch in archs:
        url, source = one.url.format(arch=arch), one.checksums.format(arch=arch)
        try:
            algorithm, digest = checksums.digest_of(download.read(source).text, url)
        except (download.DownloadError, checksums.ChecksumError) as error:
            said = f"{source}: {error}" if isinstance(error, checksums.ChecksumError) else str(error)
            report.problems.append(f"{_said(path)}: {said}")
            complete = False
            continue
        known = getattr(one, algorithm).get(arch)
        if known is None:
            fresh.setdefault(algorithm, {})[arch] = digest
        elif known != digest:
            report.problems.append(
                f"{_said(path)}: {url}: published anew: wanted {algorithm} {known}, got {digest} (from {source})"
            )
            complete = False
    settles = complete and one.unverified is not None
    if fresh or settles:
        report.found.append(Found(path, fresh, settles))


# -- images ------------------------------------------------------------------------------------------------------------


def _image(report: Report, name: str, image: RegistryImage) -> None:
    path: Path = ("registry_images", name)
    repository = registry.Repository(image.reference)
    try:
        digest, _, _ = repository.manifest(repository.tag)
    except registry.RegistryError as error:
        report.problems.append(f"{_said(path)}: {error}")
        return
    if image.digest is not None and image.digest != digest:
        report.problems.append(f"{_said(path)}: {image.reference}: published anew: wanted {image.digest}, got {digest}")
    elif image.digest is None or image.unverified is not None:
        report.found.append(Found(path, {} if image.digest else {"digest": digest}, image.unverified is not None))


# -- packages ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Wanted:
    """A package at its place in the file, and the hosts that it is for there."""

    path: Path
    name: str
    package: Package
    kinds: dict[str, list[Target]] = dataclasses.field(default_factory=dict)
    """Repository → hosts."""


def _packages(report: Report, release: Release) -> None:
    wanted = list(_wanted(release))
    pairs = {(name, f"{kind.os}/{kind.arch}") for one in wanted for name, kinds in one.kinds.items() for kind in kinds}
    names = frozenset(one.name for one in wanted)
    offered = packages.Indices()
    indices: dict[tuple[str, str], dict[str, list[packages.Entry]]] = {}
    for name, kind in sorted(pairs):
        try:
            indices[name, kind] = offered.entries(release.repositories[name], Target.parse(kind), names)
        except packages.PackageIndexError as error:
            report.problems.append(f"repositories.{name}: {kind}: {error}")
    for one in wanted:
        _package(report, one, indices)


def _wanted(release: Release) -> Iterator[_Wanted]:
    """Yield the packages of a release, each at the place from which some hosts take it."""
    for path, component, variant, key in _variants(release):
        kinds: dict[str, list[Target]] = {}
        for target in _targets(release, component):
            if key and key not in target.lookup():
                continue
            pinned = component.at(target)
            # A more specific place that has packages of its own takes this one's place.
            if pinned and pinned.repository and pinned.packages and dict(pinned.packages) == variant.packages:
                kinds.setdefault(pinned.repository, []).append(target)
        for name, package in variant.packages.items():
            yield _Wanted((*path, "packages", name), name, package, kinds)


def _package(report: Report, one: _Wanted, indices: Mapping[tuple[str, str], dict[str, list[packages.Entry]]]) -> None:
    fresh: dict[str, str] = {}
    complete = bool(one.kinds)
    for repository, kinds in one.kinds.items():
        for kind in kinds:
            index = indices.get((repository, f"{kind.os}/{kind.arch}"))
            if index is None:
                complete = False
                continue
            listed = [entry for entry in index.get(one.name, []) if entry.version == one.package.version]
            known = one.package.sha256.get(kind.arch) or fresh.get(kind.arch)
            problem = _mismatch(one, kind, index.get(one.name, []), listed, known)
            if problem:
                report.problems.append(f"{_said(one.path)}: {problem}")
                complete = False
            elif known is None:
                fresh[kind.arch] = listed[0].sha256
    settles = complete and one.package.unverified is not None
    if fresh or settles:
        report.found.append(Found(one.path, {"sha256": fresh} if fresh else {}, settles))


def _mismatch(
    one: _Wanted, kind: Target, offered: list[packages.Entry], listed: list[packages.Entry], known: str | None
) -> str | None:
    """Return what is wrong with a package in the index of one kind of host, or None."""
    if not listed:
        near = [entry.version for entry in offered if entry.version.startswith(one.package.version)]
        others = near or [entry.version for entry in offered]
        return (
            f"no version {one.package.version} for {kind}; "
            f"{'there are: ' + ', '.join(sorted(set(others))[-5:]) if others else 'its repository has no such package'}"
        )
    digests = {entry.sha256 for entry in listed}
    if len(digests) > 1:
        return f"{listed[0].url}: two files of version {one.package.version} for {kind}: {', '.join(sorted(digests))}"
    if known is not None and known not in digests:
        if one.package.sha256.get(kind.arch) is None:
            return f"differs between kinds of host, {kind} among them: say it for each under `install`"
        return f"{listed[0].url}: published anew: wanted sha256 {known}, got {digests.pop()}"
    return None
