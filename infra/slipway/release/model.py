"""What a release file may say.

Most specific key wins: what a component says in `install` for `<os>/<arch>/<platform>` comes before what it says for
`<os>/<arch>`, that before `<os>`, and all of them before the component itself. It goes field by field: a key that gives
only packages takes its version from the next less specific one.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, model_validator

from slipway.documents import nearest
from slipway.release.texts import (
    AbsolutePath,
    Arch,
    ComponentName,
    Fingerprint,
    GoSum,
    GoVersion,
    HostKind,
    ImageDigest,
    ImageReference,
    Modules,
    Name,
    PackageName,
    PackageVersion,
    ReleaseId,
    Sha256,
    Sha512,
    TargetKey,
    Url,
    Version,
)

UBUNTU = "ubuntu"
"""What a release calls the repository that is Ubuntu's own archive: its packages go by other names than NVIDIA's."""


class ReleaseError(ValueError):
    """A release file that cannot be used; the message has one line for each mistake."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Download(_Model):
    """One published file, an archive or a plain binary, with its digest for each architecture.

    `{arch}` in `url` and `members` stands for the architecture (amd64, arm64).
    """

    url: Url
    sha256: dict[Arch, Sha256] = {}
    sha512: dict[Arch, Sha512] = {}
    checksums: Url | None = None
    """The publisher's own file of digests for it (`{arch}` as in `url`), from which they can be filled in."""
    unverified: str | None = None
    """Why there is no digest yet. Such a file is not downloaded by `slipway engines`."""
    file: str | None = None
    """Name of the file that the download itself is."""
    members: dict[str, str] = {}
    """For an archive: name of each file, and its path in the archive."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not (self.sha256 or self.sha512 or self.unverified):
            raise ValueError("a download needs sha256 or sha512, or say in `unverified` why there is none")
        if (self.file is None) == (not self.members):
            raise ValueError("a download needs either `file` or `members`")
        return self

    def names(self) -> tuple[str, ...]:
        """Return the names of the files that this download brings."""
        return (self.file,) if self.file else tuple(self.members)

    def digest(self, arch: Arch) -> tuple[str, str] | None:
        """Return (algorithm, hex digest) for one architecture, or None when no digest is known for it."""
        if arch in self.sha256:
            return "sha256", self.sha256[arch]
        if arch in self.sha512:
            return "sha512", self.sha512[arch]
        return None


class Build(_Model):
    """How a component is built from Go modules when its files cannot be downloaded.

    The recipe's folder `infra/slipway/artifacts/builds/<component>/` holds go.mod and go.sum, which pin every module.
    """

    module: str
    """The Go module that the version belongs to; `.` when the source is in the recipe's own folder."""
    version: GoVersion | None = None
    packages: dict[str, str]
    """Name of each file, and the Go package that it is built from; `.` is the recipe's own folder."""
    copies: dict[str, str] = {}
    """Name of each script, and its path inside `module`."""
    embeds: dict[str, str] = {}
    """Name of each file to put beside the recipe's main.go, and its path inside `module`."""
    tags: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    """Go variables set by the linker (`-X name=value`)."""
    cgo: bool = False
    """Needs a C compiler."""
    static: bool = False
    """Link C libraries statically."""
    debian_packages: tuple[Name, ...] = ()
    """What the controller needs for the build besides Go."""


class Package(_Model):
    """One Debian package at one version: `name: 1.2.3-1`, or `name: {version: 1.2.3-1, sha256: {amd64: …}}`."""

    version: PackageVersion
    sha256: dict[Arch, Sha256] = {}
    """Digest of the .deb for each architecture, as the repository's index has it."""
    unverified: str | None = None
    """What of it nobody could confirm, such as the revision after the last dash."""


def _package(value: object) -> object:
    return {"version": value} if isinstance(value, str) else value


class Variant(_Model):
    """What installs a component on some of the hosts. Every key that is left out comes from the less specific ones."""

    version: Version | None = None
    modules: Modules | None = None
    """Of a GPU driver: the flavour of its kernel modules."""
    signed: bool | None = None
    """Of kernel modules: signed by a key that the machine's firmware trusts, as Secure Boot wants it."""
    repository: Name | None = None
    """The entry of `repositories` that the packages come from."""
    packages: dict[PackageName, Annotated[Package, BeforeValidator(_package)]] = {}
    downloads: tuple[Download, ...] = ()
    build: Build | None = None
    unverified: str | None = None
    """What nobody could confirm, such as files without a published digest, which are therefore always built."""


_DECIDES: Any = {
    "version": True,
    "downloads": {"__all__": {"url", "sha256", "sha512", "file", "members"}},
    "build": True,
    "unverified": True,
    "controller": True,
}


class Component(Variant):
    """One third-party (or own) piece: its version, and what installs it on which hosts."""

    version: Version
    controller: bool = False
    """Runs on the controller (Pulumi's parts), not on hosts."""
    install: dict[TargetKey, Variant] = {}
    """What differs on an operating system, an architecture or a platform."""

    @model_validator(mode="after")
    def _obtainable(self) -> Self:
        ways: list[Variant] = [self, *self.install.values()]
        if not any(one.packages or one.downloads or one.build for one in ways):
            raise ValueError("a component needs `downloads`, `build` or `packages`, here or in `install`")
        for key, one in self.install.items():
            if one.version and one.version != self.version and not (one.packages or one.downloads or one.build):
                raise ValueError(f"install.{key}: another version needs its own `packages`, `downloads` or `build`")
        published = [name for download in self.downloads for name in download.names()]
        if twice := sorted({name for name in published if published.count(name) > 1}):
            raise ValueError(f"two downloads bring the same file: {', '.join(twice)}")
        built = {*self.build.packages, *self.build.copies} if self.build else set(published)
        if extra := sorted(set(published) - built):
            raise ValueError(f"downloaded but not among the files of the build: {', '.join(extra)}")
        if (never := sorted(built - set(published))) and not self.unverified and self.downloads:
            raise ValueError(f"no download for {', '.join(never)}; say why in `unverified`")
        return self

    @property
    def is_engine(self) -> bool:
        """Whether the controller gets its files, by download or build; else hosts install packages."""
        return bool(self.downloads or self.build)

    def files(self) -> tuple[str, ...]:
        """Return the names of all files of the component, in a fixed order."""
        if self.build:
            return (*self.build.packages, *self.build.copies)
        return tuple(name for download in self.downloads for name in download.names())

    def recipe(self) -> dict[str, Any]:
        """Return what decides the content of its files, as plain data: part of the name of an engine."""
        return self.model_dump(mode="json", include=_DECIDES)

    def at(self, target: Target) -> Pinned | None:
        """Return what installs it on a kind of host, or None when nothing does."""
        layers = [self, *(self.install[key] for key in target.lookup() if key in self.install)]

        def most_specific(field: str) -> Any:
            return next((value for one in reversed(layers) if (value := getattr(one, field))), None)

        pinned = Pinned(
            version=most_specific("version"),
            modules=most_specific("modules"),
            signed=next((one.signed for one in reversed(layers) if one.signed is not None), None),
            repository=most_specific("repository"),
            packages=most_specific("packages") or {},
            downloads=most_specific("downloads") or (),
            build=most_specific("build"),
            unverified=most_specific("unverified"),
        )
        return pinned if pinned.packages or pinned.downloads or pinned.build else None


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind of host: operating system, architecture, and platform (machine type) where that matters."""

    os: str
    arch: Arch
    platform: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `<os>/<arch>` or `<os>/<arch>/<platform>`.

        Raises:
            ReleaseError: it is neither.
        """
        os, _, rest = text.partition("/")
        arch, _, platform = rest.partition("/")
        if not os or arch not in ("amd64", "arm64"):
            raise ReleaseError(f"{text!r}: expected <os>/<arch>, such as ubuntu24.04/amd64")
        return cls(os, arch, platform)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.arch, self.platform) if part)

    def lookup(self) -> tuple[str, ...]:
        """Return the keys that apply to it, the least specific first."""
        keys = (self.os, f"{self.os}/{self.arch}")
        return (*keys, f"{self.os}/{self.arch}/{self.platform}") if self.platform else keys


@dataclasses.dataclass(frozen=True)
class Pinned:
    """A component on one kind of host: what `Component.at` found. Fields as in `Variant`."""

    version: str
    modules: Modules | None
    signed: bool | None
    repository: str | None
    packages: Mapping[str, Package]
    downloads: tuple[Download, ...]
    build: Build | None
    unverified: str | None


class Source(_Model):
    """Where a repository has the packages of some hosts, in the words of deb822 (sources.list(5))."""

    uris: tuple[Url, ...]
    suites: tuple[str, ...]
    """Names of suites, or one path that ends in `/`, which has no components."""
    components: tuple[Name, ...] = ()

    @model_validator(mode="after")
    def _flat_or_not(self) -> Self:
        if any(suite.endswith("/") for suite in self.suites) == bool(self.components):
            raise ValueError("a suite that ends in / has no components; any other has at least one")
        return self


class Repository(_Model):
    """An apt repository, the key that signs it, and the packages that come from it alone."""

    description: str
    sources: dict[TargetKey, Source]
    """For each operating system or architecture; the most specific key wins."""
    key: Url
    """Where its signing key is published."""
    fingerprint: Fingerprint | None = None
    """Of the signing key: 40 upper-case hexadecimal digits."""
    signed_by: AbsolutePath
    """Path of the key on hosts."""
    owns: tuple[str, ...] = ()
    """Patterns of the packages that come from here and from nowhere else, as apt_preferences(5) has them."""
    unverified: str | None = None
    """What of it nobody could confirm."""

    @model_validator(mode="after")
    def _known_key(self) -> Self:
        if self.fingerprint is None and self.unverified is None:
            raise ValueError("a repository needs the `fingerprint` of its key, or say in `unverified` why it has none")
        return self

    def source(self, target: Target) -> Source | None:
        """Return where it has the packages of a kind of host, or None when it has none."""
        return next((self.sources[key] for key in reversed(target.lookup()) if key in self.sources), None)

    def deb822(self, target: Target) -> str:
        """Return the text of its `.sources` file on a kind of host.

        Raises:
            ReleaseError: it has nothing for that kind.
        """
        source = self.source(target)
        if source is None:
            raise ReleaseError(f"{self.description}: has nothing for {target}")
        lines = {
            "Types": "deb",
            "URIs": " ".join(source.uris),
            "Suites": " ".join(source.suites),
            "Components": " ".join(source.components),
            "Architectures": target.arch,
            "Signed-By": self.signed_by,
        }
        return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


class RegistryImage(_Model):
    """An OCI image that the cluster pulls, by digest."""

    reference: ImageReference
    """`<registry>/<repository>:<tag>`; the tag is for people, the digest decides."""
    digest: ImageDigest | None = None
    """Of its index (all architectures)."""
    unverified: str | None = None
    """Why there is no digest yet."""

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.digest is None and self.unverified is None:
            raise ValueError("an image needs its `digest`, or say in `unverified` why it has none")
        return self

    @property
    def pinned(self) -> str:
        """How a Pod names it: with its digest when that is known."""
        return f"{self.reference}@{self.digest}" if self.digest else self.reference


class Image(_Model):
    """An OCI image made of one static binary, preloaded on hosts: `slipway.local/<name>:<version>`."""

    component: Name
    file: str
    arguments: tuple[str, ...] = ()
    user: str = "65532:65532"
    ports: tuple[int, ...] = ()


class Toolchain(_Model):
    """The Go toolchain that builds, itself a Go module (golang.org/toolchain)."""

    version: Version
    sums: dict[Arch, GoSum]
    """Go's own hash of the toolchain's module, for each architecture of the controller."""


class Bundle(_Model):
    """What a host runs its playbooks with: pure-Python packages, pinned."""

    packages: dict[str, Version]


class Release(_Model):
    """A whole release. `load` makes it; nothing in it can be changed."""

    id: ReleaseId
    description: str
    targets: tuple[HostKind, ...]
    """The kinds of host that it is for: `<os>/<arch>`."""
    repositories: dict[Name, Repository] = {}
    components: dict[ComponentName, Component]
    images: dict[Name, Image] = {}
    """Images that are made from components and preloaded on hosts."""
    registry_images: dict[Name, RegistryImage] = {}
    """Images that are pulled."""
    toolchain: Toolchain
    bundle: Bundle
    controller_packages: tuple[str, ...]
    """Debian packages that the controller itself needs (for the lab and for builds)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        mistakes = [*self._unknown_targets(), *self._bad_packages(), *self._bad_images()]
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return self

    def _unknown_targets(self) -> Iterator[str]:
        known = {key for target in self.targets for key in Target.parse(target).lookup()}
        places: list[tuple[str, Iterable[str]]] = [
            (f"components.{name}.install", one.install) for name, one in self.components.items()
        ]
        places += [(f"repositories.{name}.sources", one.sources) for name, one in self.repositories.items()]
        for place, keys in places:
            for key in keys:
                if "/".join(key.split("/")[:2]) not in known:
                    yield f"{place}.{key}: not among `targets` of the release{nearest(key, known)}"

    def _bad_packages(self) -> Iterator[str]:
        for name, component in self.components.items():
            for target in map(Target.parse, self.targets):
                pinned = component.at(target)
                if pinned is None or not pinned.packages:
                    continue
                if pinned.repository is None:
                    yield f"components.{name}: packages for {target}, but no `repository`"
                elif pinned.repository not in self.repositories:
                    near = nearest(pinned.repository, self.repositories)
                    yield f"components.{name}.repository: no repository {pinned.repository!r}{near}"
                elif self.repositories[pinned.repository].source(target) is None:
                    yield f"repositories.{pinned.repository}.sources: nothing for {target}, which {name} needs"

    def _bad_images(self) -> Iterator[str]:
        for name, image in self.images.items():
            component = self.components.get(image.component)
            if component is None:
                near = nearest(image.component, self.components)
                yield f"images.{name}.component: no component {image.component!r}{near}"
            elif image.file not in component.files():
                near = nearest(image.file, component.files())
                yield f"images.{name}.file: {image.component} has no file {image.file!r}{near}"

    @property
    def engines(self) -> tuple[str, ...]:
        """Names of the components whose files the controller gets, by download or build."""
        return tuple(name for name, component in self.components.items() if component.is_engine)

    def provider(self, component: str, file: str) -> str:
        """Return the component that a file of another one comes from: itself, or one called like the file.

        So a release can hold back `kubelet` at another version than `kubernetes`.
        """
        return file if file in self.components else component

    def owners(self, package: str, target: Target) -> set[str]:
        """Return the repositories that own a package's name on a kind of host: those with the longest pattern for it.

        It is one, unless two claim the same pattern.
        """
        patterns = [
            (len(pattern), name)
            for name, repository in self.repositories.items()
            if repository.source(target)
            for pattern in repository.owns
            if fnmatch.fnmatchcase(package, pattern)
        ]
        longest = max(patterns, default=(0, ""))[0]
        return {name for length, name in patterns if length == longest}

    def unverified(self) -> Iterator[tuple[str, str]]:
        """Yield (path in the file, what) for everything in the release that nobody could confirm."""
        for path, one in _walk(self, ""):
            said = getattr(one, "unverified", None)
            if isinstance(said, str):
                yield path, said

    def component(self, name: str) -> Component:
        """Return one component.

        Raises:
            ReleaseError: the release has none of that name; the message gives the nearest.
        """
        if name not in self.components:
            raise ReleaseError(f"release {self.id}: no component {name!r}{nearest(name, self.components)}")
        return self.components[name]

    def version(self, name: str) -> str:
        """Return the version of one component."""
        return self.component(name).version

    def image(self, name: str) -> str:
        """Return the reference of one image, as in a Pod's `image:`."""
        if name not in self.images:
            raise ReleaseError(f"release {self.id}: no image {name!r}{nearest(name, self.images)}")
        return f"slipway.local/{name}:{self.version(self.images[name].component)}"

    def digest(self) -> str:
        """Return the SHA-256 (hex) of everything in the release; comments and order in the file do not count."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _walk(value: Any, path: str) -> Iterator[tuple[str, BaseModel]]:
    """Yield every model inside a value with its path."""
    if isinstance(value, BaseModel):
        yield path, value
        inside: Iterator[tuple[str, Any]] = ((name, getattr(value, name)) for name in type(value).model_fields)
    elif isinstance(value, dict):
        inside = iter(value.items())
    elif isinstance(value, tuple):
        inside = ((str(index), one) for index, one in enumerate(value))
    else:
        return
    for name, one in inside:
        yield from _walk(one, f"{path}.{name}" if path else name)
