"""The kinds of text in a release file. Each has a pattern, and says in words what it means."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints

from slipway.documents import nearest
from slipway.release.known import COMPONENTS


def _known_component(name: str) -> str:
    if name not in COMPONENTS:
        raise ValueError(f"unknown component{nearest(name, COMPONENTS)}")
    return name


Arch = Literal["amd64", "arm64"]
Modules = Literal["open", "proprietary"]
"""Flavour of the GPU driver's kernel modules."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$"), "a name of lower-case letters, digits and -"]
ComponentName = Annotated[str, AfterValidator(_known_component)]
ReleaseId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$"), "the id of a release, such as 2026.11"]
Version = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)*([.+~-][0-9A-Za-z.+~-]+)?$"),
    "a version; expected numbers with dots, such as 1.36.4",
]
GoVersion = Annotated[
    str,
    StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+([.+-][0-9A-Za-z.+-]+)?$"),
    "a version of a Go module, such as v1.36.4",
]
GoSum = Annotated[
    str, StringConstraints(pattern=r"^h1:[A-Za-z0-9+/]{43}=$"), "a hash as in go.sum: h1: and 44 characters"
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), "a SHA-256: 64 lower-case hexadecimal digits"]
Sha512 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$"), "a SHA-512: 128 lower-case hexadecimal digits"]
Url = Annotated[str, StringConstraints(pattern=r"^https?://\S+$"), "an address that begins with https:// or http://"]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/\S+$"), "a path from the root"]
ImageDigest = Annotated[
    str,
    StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$"),
    "the digest of an image: sha256: and 64 hexadecimal digits",
]
ImageReference = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9._-]+$"),
    "an image: <registry>/<repository>:<tag>",
]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9+.-]*$"), "the name of a Debian package"]
PackageVersion = Annotated[
    str,
    StringConstraints(pattern=r"^([0-9]+:)?[0-9][0-9A-Za-z.+~:-]*$"),
    "the version of a Debian package, such as 1:4.5.2-1",
]
Fingerprint = Annotated[
    str, StringConstraints(pattern=r"^[0-9A-F]{40}$"), "the fingerprint of a key: 40 upper-case hexadecimal digits"
]
TargetKey = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+[0-9]+(\.[0-9]+)?(/(amd64|arm64)(/[a-z0-9][a-z0-9-]*)?)?$"),
    "<os>, <os>/<arch> or <os>/<arch>/<platform>, such as ubuntu24.04/arm64",
]
HostKind = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]+[0-9]+(\.[0-9]+)?/(amd64|arm64)$"),
    "<os>/<arch>, such as ubuntu24.04/amd64",
]

_TEXTS = (Name, ReleaseId, Version, GoVersion, GoSum, Sha256, Sha512, Url, AbsolutePath, ImageDigest, ImageReference)
_TEXTS += (PackageName, PackageVersion, Fingerprint, TargetKey, HostKind)  # type: ignore[assignment]

MEANING: dict[str, str] = {one.__metadata__[0].pattern: one.__metadata__[1] for one in _TEXTS}  # type: ignore[attr-defined]
"""Pattern → what it means, for people: the end of the message `'x' is not …`."""
