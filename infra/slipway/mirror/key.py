"""The key of a mirror: made once, in its folder; the private part is the owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pysequoia

from slipway.mirror.content import PUBLIC_KEY

_PRIVATE = "private/key.asc"


class Key:
    """Signs for one mirror."""

    def __init__(self, secret: pysequoia.Tsk) -> None:
        self._secret = secret
        self.public = secret.extract_certificate()

    @property
    def fingerprint(self) -> str:
        """40 upper-case hexadecimal digits."""
        return self.public.fingerprint.upper()

    def clear(self, text: bytes) -> bytes:
        """Return a text with its signature around it."""
        return pysequoia.sign(self._secret.signer(), text, mode=pysequoia.SignatureMode.CLEAR)

    def detached(self, data: bytes) -> bytes:
        """Return a signature of data, as ASCII."""
        return pysequoia.sign(self._secret.signer(), data, mode=pysequoia.SignatureMode.DETACHED)


def ensure(folder: Path) -> Key:
    """Return the key of a mirror's folder, made if there is none, and write its public part."""
    private = folder / _PRIVATE
    if not private.exists():
        private.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # RFC 4880 keys are what the apt of every supported system reads.
        made = pysequoia.Tsk.generate("Slipway mirror <mirror@slipway.dev>", profile=pysequoia.Profile.RFC4880)
        with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(str(made))
    key = Key(pysequoia.Tsk.from_bytes(private.read_bytes()))
    (folder / PUBLIC_KEY).write_text(str(key.public))
    return key
