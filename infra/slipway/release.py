"""The release file: one file that pins every version a cluster is made of.

`load("lab")` reads `stacks/releases/lab.yaml`. A mistake in it raises `ReleaseError` with one line for each mistake:
the file, the path inside it, what was expected, and the nearest name that would have been right.

Reads its own file and nothing else; imports neither Pulumi nor Ansible.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from slipway import documents, paths

Arch = Literal["amd64", "arm64"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
Version = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*([.+~-][0-9A-Za-z.+~-]+)?$")]
GoVersion = Annotated[str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+([.+-][0-9A-Za-z.+-]+)?$")]
GoSum = Annotated[str, StringConstraints(pattern=r"^h1:[A-Za-z0-9+/]{43}=$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Sha512 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class ReleaseError(ValueError):
    """A release file that cannot be used; the message has one line for each mistake."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Download(_Model):
    """One published file, an archive or a plain binary, with its digest for each architecture.

    `{arch}` in `url` and `members` stands for the architecture (amd64, arm64).
    """

    url: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")]
    sha256: dict[Arch, Sha256] = {}
    sha512: dict[Arch, Sha512] = {}
    file: str | None = None
    """Name of the file that the download itself is."""
    members: dict[str, str] = {}
    """For an archive: name of each file, and its path in the archive."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not (self.sha256 or self.sha512):
            raise ValueError("a download needs sha256 or sha512")
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


class Component(_Model):
    """One third-party (or own) piece: the files it has, and the ways to get them."""

    version: Version
    downloads: tuple[Download, ...] = ()
    build: Build | None = None
    unverified: str | None = None
    """What has no published digest that we know of, and is therefore always built."""
    controller: bool = False
    """Runs on the controller (Pulumi's parts), not on hosts."""

    @model_validator(mode="after")
    def _obtainable(self) -> Self:
        if not self.downloads and self.build is None:
            raise ValueError("a component needs `downloads` or `build`")
        published = [name for download in self.downloads for name in download.names()]
        if twice := sorted({name for name in published if published.count(name) > 1}):
            raise ValueError(f"two downloads bring the same file: {', '.join(twice)}")
        built = {*self.build.packages, *self.build.copies} if self.build else set(published)
        if extra := sorted(set(published) - built):
            raise ValueError(f"downloaded but not among the files of the build: {', '.join(extra)}")
        if (never := sorted(built - set(published))) and not self.unverified and self.downloads:
            raise ValueError(f"no download for {', '.join(never)}; say why in `unverified`")
        return self

    def files(self) -> tuple[str, ...]:
        """Return the names of all files of the component, in a fixed order."""
        if self.build:
            return (*self.build.packages, *self.build.copies)
        return tuple(name for download in self.downloads for name in download.names())


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


class OperatingSystem(_Model):
    """A base tree for hosts, made by debootstrap."""

    suite: Name
    components: tuple[str, ...] = ("main",)
    packages: tuple[str, ...]
    """In the base of every host."""


class Bundle(_Model):
    """What a host runs its playbooks with: pure-Python packages, pinned."""

    packages: dict[str, Version]


class Release(_Model):
    """A whole release. `load` makes it; nothing in it can be changed."""

    id: Name
    description: str
    components: dict[Name, Component]
    images: dict[Name, Image]
    toolchain: Toolchain
    operating_systems: dict[Name, OperatingSystem]
    bundle: Bundle
    controller_packages: tuple[str, ...]
    """Debian packages that the controller itself needs (for the lab and for builds)."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, image in self.images.items():
            component = self.components.get(image.component)
            if component is None:
                raise ValueError(
                    f"images.{name}.component: no component {image.component!r}"
                    f"{_nearest(image.component, self.components)}"
                )
            if image.file not in component.files():
                raise ValueError(
                    f"images.{name}.file: {image.component} has no file {image.file!r}"
                    f"{_nearest(image.file, component.files())}"
                )
        return self

    def component(self, name: str) -> Component:
        """Return one component.

        Raises:
            ReleaseError: the release has none of that name; the message gives the nearest.
        """
        if name not in self.components:
            raise ReleaseError(f"release {self.id}: no component {name!r}{_nearest(name, self.components)}")
        return self.components[name]

    def version(self, name: str) -> str:
        """Return the version of one component."""
        return self.component(name).version

    def image(self, name: str) -> str:
        """Return the reference of one image, as in a Pod's `image:`."""
        if name not in self.images:
            raise ReleaseError(f"release {self.id}: no image {name!r}{_nearest(name, self.images)}")
        return f"slipway.local/{name}:{self.version(self.images[name].component)}"

    def digest(self) -> str:
        """Return the SHA-256 (hex) of everything in the release; comments and order in the file do not count."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def load(release: str, folder: Path | None = None) -> Release:
    """Read and check a release by its id.

    Args:
        release: the id, which is the file's name without `.yaml`.
        folder: where release files are; the checkout's `stacks/releases` unless given.

    Raises:
        ReleaseError: no such release, or mistakes in the file (one line each).
    """
    folder = folder or paths.releases()
    path = folder / f"{release}.yaml"
    shown = documents.shown(path)
    try:
        data = documents.load(path)
    except FileNotFoundError:
        known = sorted(file.stem for file in folder.glob("*.yaml"))
        raise ReleaseError(
            f"{shown}: no release {release!r}{_nearest(release, known)}; there are: {', '.join(known) or 'none'}"
        ) from None
    except documents.DocumentError as error:
        raise ReleaseError(str(error)) from None
    if not isinstance(data, dict):
        raise ReleaseError(f"{shown}: expected a mapping with keys, found {type(data).__name__}")
    try:
        # JSON mode: lists become tuples while scalars stay strict.
        loaded = Release.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        raise ReleaseError("\n".join(f"{shown}: {line}" for line in _lines(error))) from None
    if loaded.id != release:
        raise ReleaseError(f"{shown}: id: expected {release!r} like the file's name, found {loaded.id!r}")
    return loaded


def _lines(error: ValidationError) -> list[str]:
    """Say each mistake in one line that begins with its path in the file."""
    lines = []
    for mistake in error.errors(include_url=False):
        where = ".".join(str(part) for part in mistake["loc"])
        if mistake["type"] == "extra_forbidden":
            said = f"unknown key{_nearest(str(mistake['loc'][-1]), _keys(mistake['loc'][:-1]))}"
        elif mistake["type"] == "missing":
            said = "missing"
        elif mistake["type"] == "value_error":
            said = str(mistake["ctx"]["error"])
        else:
            found = repr(mistake["input"])
            said = f"{mistake['msg']}; found {found if len(found) <= 60 else found[:57] + '...'}"
            if mistake["type"] == "string_type" and isinstance(mistake["input"], int | float):
                said += " (put it in quotes)"
        lines.append(f"{where}: {said}" if where else said)
    return lines


def _keys(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the keys that the model at a path of the file knows."""
    at: Any = Release
    for part in location:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(part))
            at = field.annotation if field else None
        else:  # the values of a mapping, or the items of a list
            inner = [one for one in get_args(at) if isinstance(one, type) and issubclass(one, BaseModel)]
            at = inner[-1] if inner else None
        optional = [one for one in get_args(at) if isinstance(one, type) and issubclass(one, BaseModel)]
        if optional and type(None) in get_args(at):
            at = optional[0]
    return tuple(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else ()


def _nearest(name: str, known: Any) -> str:
    """Return `; nearest: <name>` for the end of a message, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; nearest: {close[0]}" if close else ""
