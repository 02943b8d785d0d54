"""Use a mirror: the controller's side, which takes engines from it and nothing else."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pysequoia

from slipway import openpgp, paths
from slipway.artifacts import download
from slipway.mirror.content import PUBLIC_KEY, Content, MirrorError, list_path, read


def public_key(url: str, fingerprint: str) -> str:
    """Return the public key of a mirror as ASCII, fetched once.

    Args:
        url: address of the mirror.
        fingerprint: which key it must be.

    Raises:
        MirrorError: it has no such key.
    """
    kept = paths.cache() / "mirrors" / f"{fingerprint}.asc"
    source = f"{url.rstrip('/')}/{PUBLIC_KEY}"
    try:
        found = kept.read_bytes() if kept.is_file() else download.read(source).content
        key = openpgp.pick(found, fingerprint, source)
    except (download.DownloadError, openpgp.SignatureError) as error:
        raise MirrorError(f"mirror: {error}") from None
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = kept.with_name(f".{kept.name}.{os.getpid()}")
        fresh.write_text(str(key))
        fresh.replace(kept)
    return str(key)


class Client:
    """A mirror somewhere.

    Args:
        url: its address.
        fingerprint: of its key.
        release: the release that is taken from it.
    """

    def __init__(self, url: str, fingerprint: str, release: str) -> None:
        self.url = url.rstrip("/")
        self._fingerprint = fingerprint
        self._release = release

    @functools.cached_property
    def content(self) -> Content:
        """What it has for the release.

        Raises:
            MirrorError: it has no list of it, or one that its key did not sign.
        """
        url = f"{self.url}/{list_path(self._release)}"
        try:
            data, signature = download.read(url).content, download.read(f"{url}.asc").content
        except download.DownloadError as error:
            raise MirrorError(f"mirror: {error}; run there: ./slipway mirror build {self._release}") from None
        return read(data, signature, pysequoia.Cert.from_bytes(self._public().encode()), url)

    def _public(self) -> str:
        return public_key(self.url, self._fingerprint)

    def fill(self, engine: str, target: Path, downloads: Path) -> None:
        """Put the files of an engine, its manifest too, into a folder.

        Args:
            engine: its folder below `engines`.
            target: the folder.
            downloads: where half-done files are kept.

        Raises:
            MirrorError: the mirror has no such engine.
            download.DownloadError: a file cannot be had, or is another one.
        """
        files = self.content.below(f"engines/{engine}")
        if not files:
            raise MirrorError(
                f"mirror {self.url} has no engine {engine}; build it again with this checkout: "
                f"./slipway mirror build {self._release}"
            )
        for file in files:
            fetched = download.fetch(f"{self.url}/{file.path}", "sha256", file.sha256, downloads)
            place = target / Path(file.path).name
            fetched.replace(place)
            place.chmod(0o644 if place.suffix == ".json" else 0o755)
