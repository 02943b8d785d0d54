"""Write an OCI image archive: one static binary, nothing else; the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.release import Arch

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class Image:
    """What an image is made of."""

    reference: str
    """Name in a Pod's `image:`, with registry and tag."""
    binary: Path
    arch: Arch
    arguments: Sequence[str] = ()
    user: str = "65532:65532"
    ports: Sequence[int] = ()
    labels: dict[str, str] = field(default_factory=dict)


def write(image: Image, archive: Path) -> str:
    """Write an image as a tar of an OCI layout; return the digest of its manifest (`sha256:…`).

    `ctr images import` and every other tool that reads OCI layouts take the archive.
    """
    layer = _layer(image.binary)
    config = _json(
        {
            "architecture": image.arch,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {
                "User": image.user,
                "Entrypoint": [f"/{image.binary.name}"],
                "Cmd": list(image.arguments),
                "Env": ["PATH=/"],
                "WorkingDir": "/",
                "ExposedPorts": {f"{port}/tcp": {} for port in image.ports},
                "Labels": image.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "slipway"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, layer)],
        }
    )
    index = _json(
        {
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [
                _descriptor(_MANIFEST, manifest)
                | {
                    "platform": {"architecture": image.arch, "os": "linux"},
                    "annotations": {
                        "io.containerd.image.name": image.reference,
                        "org.opencontainers.image.ref.name": image.reference.rsplit(":", 1)[-1],
                    },
                }
            ],
        }
    )
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as opened:
        _add(opened, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        for blob in (config, layer, manifest):
            _add(opened, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        _add(opened, "index.json", index)
    return _digest(manifest)


def read_digest(archive: Path) -> tuple[str, str]:
    """Return (reference, digest of the manifest) of an archive that `write` made."""
    with tarfile.open(archive) as opened:
        index = opened.extractfile("index.json")
        if index is None:
            raise ValueError(f"{archive}: no index.json; not an OCI archive")
        entry = json.load(index)["manifests"][0]
    return entry["annotations"]["io.containerd.image.name"], entry["digest"]


def _layer(binary: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as layer:
        _add(layer, binary.name, binary.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
