"""Images of registries as OCI archives: the pinned index, and of it what the wanted architectures need."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from slipway.lock import registry
from slipway.mirror.content import MirrorError
from slipway.release import Arch, RegistryImage


def ensure(name: str, image: RegistryImage, archs: Collection[Arch], folder: Path, work: Path) -> Path:
    """Return the archive of an image in a folder, pulled by its digest if it is not there.

    Args:
        name: its name in the release.
        image: the image.
        archs: architectures whose layers are wanted.
        folder: where archives are.
        work: where half-done layers are kept.

    Raises:
        MirrorError: the release has no digest for it, or it cannot be had.
    """
    if image.digest is None:
        raise MirrorError(f"registry_images.{name}: no digest; run: ./slipway release lock")
    made = folder / f"{name}-{image.digest.partition(':')[2][:12]}-{'-'.join(sorted(archs))}.tar"
    if made.exists():
        return made
    repository = registry.Repository(image.reference)
    blobs: dict[str, bytes | Path] = {}
    try:
        kind, size = _collect(repository, image.digest, archs, blobs, work)
    except registry.RegistryError as error:
        raise MirrorError(f"registry_images.{name}: {error}") from None
    entry = {
        "mediaType": kind,
        "digest": image.digest,
        "size": size,
        "annotations": {
            "io.containerd.image.name": image.reference,
            "org.opencontainers.image.ref.name": repository.tag,
        },
    }
    index = {"schemaVersion": 2, "mediaType": registry.MANIFESTS[0], "manifests": [entry]}
    partial = made.with_name(f".{made.name}")
    with tarfile.open(partial, "w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        for digest in sorted(blobs):
            place, content = f"blobs/{digest.replace(':', '/')}", blobs[digest]
            if isinstance(content, Path):
                archive.add(content, place, filter=_plain)
            else:
                _add(archive, place, content)
        _add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
    partial.rename(made)
    return made


def _collect(
    repository: registry.Repository,
    digest: str,
    archs: Collection[Arch],
    blobs: dict[str, bytes | Path],
    work: Path,
) -> tuple[str, int]:
    """Gather a manifest and all that it names for the architectures; return its media type and size."""
    _, kind, content = repository.manifest(digest)
    blobs[digest] = content
    document: dict[str, Any] = json.loads(content)
    for entry in document.get("manifests", ()):
        if entry.get("platform", {}).get("architecture") in archs:
            _collect(repository, entry["digest"], archs, blobs, work)
    for entry in [*([document["config"]] if "config" in document else []), *document.get("layers", ())]:
        if entry["digest"] not in blobs:
            blobs[entry["digest"]] = repository.blob(entry["digest"], work)
    return str(document.get("mediaType") or kind), len(content)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who made a file and when."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
