"""What a mirror says of itself: a signed list of files for each release."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pydantic
import pysequoia
from pydantic import BaseModel, ConfigDict

from slipway import openpgp
from slipway.release.texts import HostKind, ReleaseId, Sha256

PUBLIC_KEY = "slipway-mirror.asc"
RELEASES = "releases"
SERVED = (PUBLIC_KEY, RELEASES, "apt", "engines", "images", "bundles", "files")
"""What of the folder is for everyone."""


class MirrorError(Exception):
    """A mirror that cannot be made or believed; one line for each reason."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class File(_Model):
    """A file of the mirror: path below its folder, digest, size in bytes, and where it came from."""

    path: str
    sha256: Sha256
    size: int
    source: str


class Content(_Model):
    """What one release needs of a mirror."""

    format: int = 1
    release: ReleaseId
    release_digest: Sha256
    targets: tuple[HostKind, ...]
    files: tuple[File, ...]

    def below(self, folder: str) -> list[File]:
        """Return the files below a folder."""
        return [file for file in self.files if file.path.startswith(f"{folder.rstrip('/')}/")]


def list_path(release: str) -> str:
    """Return the path of a release's list; its signature is beside it, with `.asc`."""
    return f"{RELEASES}/{release}.json"


def read(data: bytes, signature: bytes, key: pysequoia.Cert, where: str) -> Content:
    """Return a list that the mirror's key signed.

    Raises:
        MirrorError: it is not signed by the key, or not such a list.
    """
    try:
        openpgp.refuse_stale(key, where)
        openpgp.check(data, signature, key, where)
    except openpgp.SignatureError as error:
        raise MirrorError(str(error)) from None
    try:
        return Content.model_validate_json(data)
    except pydantic.ValidationError as error:
        raise MirrorError(f"{where}: not a mirror's list: {error.errors()[0]['msg']}") from None


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def put(source: Path, place: Path) -> None:
    """Put a file that never changes into a mirror: whole or not at all, without copying where the file system can."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_name(f".{place.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        os.link(source, fresh)
    except OSError:
        shutil.copyfile(source, fresh)
    fresh.replace(place)
