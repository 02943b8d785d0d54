"""OpenPGP signatures: of publishers' package indices, and of our own mirror."""

from __future__ import annotations

import datetime as dt

import pysequoia


class SignatureError(Exception):
    """A signature or a key that is not good; one line."""


def pick(keys: bytes, fingerprint: str, where: str) -> pysequoia.Cert:
    """Return the one key of a file of keys (binary or ASCII) that has a fingerprint.

    Args:
        keys: content of the file.
        fingerprint: 40 hexadecimal digits.
        where: names the file in messages.

    Raises:
        SignatureError: it is not among them, expired or revoked.
    """
    try:
        certificates = pysequoia.Cert.split_bytes(keys)
    except Exception as error:  # noqa: BLE001 (the library has no types of its own)
        raise SignatureError(f"{where}: no OpenPGP key ({_first_line(error)})") from None
    found = {certificate.fingerprint.upper(): certificate for certificate in certificates}
    key = found.get(fingerprint.upper())
    if key is None:
        raise SignatureError(f"{where}: wanted the key {fingerprint.upper()}, got {', '.join(sorted(found)) or 'none'}")
    refuse_stale(key, where)
    return key


def refuse_stale(key: pysequoia.Cert, where: str) -> None:
    """Refuse a key that is expired or revoked, even for what it signed before.

    Raises:
        SignatureError: it is.
    """
    name = key.fingerprint.upper()
    if key.is_revoked:
        raise SignatureError(f"{where}: the key {name} is revoked")
    try:
        expiration = key.expiration
    except Exception as error:  # noqa: BLE001
        # Such as a key that is bound to its owner by SHA-1, which apt of today refuses as well.
        raise SignatureError(f"{where}: the key {name} cannot be trusted: {_cause(error)}") from None
    if expiration is not None and expiration <= dt.datetime.now(dt.UTC):
        raise SignatureError(f"{where}: the key {name} expired on {expiration.date()}")


def content(signed: bytes, key: pysequoia.Cert, where: str) -> bytes:
    """Return the content of a clear-signed text.

    Raises:
        SignatureError: it is not signed, not by this key, or was changed afterwards.
    """
    try:
        read = pysequoia.verify(signed, store=lambda _: [key]).bytes
    except Exception as error:  # noqa: BLE001
        raise SignatureError(f"{where}: not signed by {key.fingerprint.upper()}: {_first_line(error)}") from None
    return read or b""


def check(data: bytes, signature: bytes, key: pysequoia.Cert, where: str) -> None:
    """Check a detached signature.

    Raises:
        SignatureError: it is not of this key or of other data.
    """
    try:
        pysequoia.verify(data, store=lambda _: [key], signature=pysequoia.Sig.from_bytes(signature))
    except Exception as error:  # noqa: BLE001
        raise SignatureError(f"{where}: not signed by {key.fingerprint.upper()}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    """The library puts a trace behind its message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _cause(error: Exception) -> str:
    """Return the last of the causes that the library names, which is the telling one."""
    head = str(error).partition("Stack backtrace")[0].strip()
    return head.splitlines()[-1].strip().lstrip("0123456789: ") or type(error).__name__
