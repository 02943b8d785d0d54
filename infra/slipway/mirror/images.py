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


def ensure(name: str, image: RegistryImage, archs: Collection[Arch], folder: Path) -> Path:
    """Return the archive of an image, pulled by its digest if it is not there.

    Raises:
        MirrorError: the release has no digest for it, or it cannot be had.
    """
    if image.digest is None:
        raise MirrorError(f"registry_images.{name}: no digest; run: ./slipway release lock")
    made = folder / f"{name}-{image.digest.partition(':')[2][:12]}-{'-'.join(sorted(archs))}.tar"
    if made.exists():
        return made
    repository = registry.Repository(image.reference)
    blobs: dict[str, bytes] = {}
    try:
        kind = _collect(repository, image.digest, archs, blobs)
    except registry.RegistryError as error:
        raise MirrorError(f"registry_images.{name}: {error}") from None
    entry = {
        "mediaType": kind,
        "digest": image.digest,
        "size": len(blobs[image.digest]),
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
            _add(archive, f"blobs/{digest.replace(':', '/')}", blobs[digest])
        _add(archive, "index.json", json.dumps(index, sort_keys=True).encode())
    partial.rename(made)
    return made


def _collect(repository: registry.Repository, digest: str, archs: Collection[Arch], blobs: dict[str, bytes]) -> str:
    """Gather a manifest and all that it names for the architectures; return its media type."""
    _, kind, content = repository.manifest(digest)
    blobs[digest] = content
    document: dict[str, Any] = json.loads(content)
    for entry in document.get("manifests", ()):
        if entry.get("platform", {}).get("architecture") in archs:
            _collect(repository, entry["digest"], archs, blobs)
    for entry in [*([document["config"]] if "config" in document else []), *document.get("layers", ())]:
        if entry["digest"] not in blobs:
            blobs[entry["digest"]] = repository.blob(entry["digest"])
    return str(document.get("mediaType") or kind)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))
