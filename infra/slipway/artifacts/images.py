"""The images that a cluster needs before it has a registry, made from the engines."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from filelock import FileLock

from slipway import paths
from slipway.artifacts import engines, oci
from slipway.artifacts.errors import EngineError
from slipway.release import Release


def archive(name: str, release: Release) -> Path:
    """Return where the archive of an image is, or will be; the name changes with anything that is in it."""
    image = release.images[name]
    digest = engines.digest(image.component, release)
    settings = hashlib.sha256(image.model_dump_json().encode()).hexdigest()
    return paths.images() / f"{name}-{release.version(image.component)}-{digest[:12]}{settings[:4]}.tar"


def ensure(release: Release) -> list[Path]:
    """Make every image of a release that is not there yet; the engines must be.

    Raises:
        EngineError: an engine is missing.
    """
    paths.images().mkdir(parents=True, exist_ok=True)
    with FileLock(paths.locks() / "images.lock"):
        return [_make(name, release) for name in release.images]


def files(release: Release, source: str = f"file://{paths.IMAGES_ON_HOST}") -> list[dict[str, Any]]:
    """Return the images as roles preload them: `[{ref, source, digest}]`.

    Raises:
        EngineError: an image was not made yet.
    """
    listed = []
    for name in release.images:
        made = archive(name, release)
        if not made.is_file():
            raise EngineError(f"image {release.image(name)} is missing; run: ./slipway engines")
        reference, digest = oci.read_digest(made)
        listed.append({"ref": reference, "source": f"{source}/{made.name}", "digest": digest})
    return listed


def _make(name: str, release: Release) -> Path:
    made = archive(name, release)
    if made.is_file():
        return made
    image = release.images[name]
    engine = engines.find(image.component, release)
    if engine is None:
        raise EngineError(f"engine {image.component} is missing; run: ./slipway engines --only {image.component}")
    partial = made.with_name(f".{made.name}.{os.getpid()}")
    oci.write(
        oci.Image(
            reference=release.image(name),
            binary=engine.folder / image.file,
            arch=engines.arch(),
            arguments=image.arguments,
            user=image.user,
            ports=image.ports,
            labels={
                "org.opencontainers.image.title": name,
                "org.opencontainers.image.version": release.version(image.component),
            },
        ),
        partial,
    )
    partial.rename(made)
    return made
