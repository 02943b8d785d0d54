"""Indices of apt repositories, believed only when the pinned key signed them.

The chain: the key by its fingerprint → `InRelease` (or `Release` with `Release.gpg`) → digest of `Packages` → digest of
each package.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import email.utils
import gzip
import hashlib
import lzma
import re
from collections.abc import Callable, Iterator

from slipway import openpgp
from slipway.artifacts import download
from slipway.release import Repository, Target

_COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.decompress, ".gz": gzip.decompress, "": bytes}
"""How an index may be packed, best first."""


class PackageIndexError(Exception):
    """An index that cannot be believed or read; one line that begins with its address."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A package in an index."""

    version: str
    architecture: str
    sha256: str
    url: str


class Indices:
    """What repositories offer. Each signed list is asked for once."""

    def __init__(self) -> None:
        self._listed: dict[str, dict[str, str]] = {}

    def entries(self, repository: Repository, target: Target, wanted: frozenset[str]) -> dict[str, list[Entry]]:
        """Return what a repository has of some packages for a kind of host, by the package's name.

        Raises:
            PackageIndexError: an index is not there, not signed by the key of the release, too old, or not what was
                signed.
        """
        source = repository.source(target)
        if source is None:
            return {}
        if repository.fingerprint is None:
            raise PackageIndexError(
                f"{repository.key}: the release has no fingerprint for this key; compare the key with what its "
                "publisher says and write `fingerprint`"
            )
        found: dict[str, list[Entry]] = {}
        for uri in source.uris:
            base = uri.rstrip("/")
            for suite in source.suites:
                flat = suite.endswith("/")
                top = f"{base}/{suite.strip('./')}".rstrip("/") if flat else f"{base}/dists/{suite}"
                if top not in self._listed:
                    self._listed[top] = _signed(top, repository.key, repository.fingerprint)
                parts = [f"{part}/binary-{target.arch}/" for part in source.components] or [""]
                for part in parts:
                    read = _read(top, f"{part}Packages", self._listed[top], top if flat else base, wanted)
                    for package, entry in read:
                        if entry.architecture in (target.arch, "all"):
                            found.setdefault(package, []).append(entry)
        return found


def _signed(top: str, key_url: str, fingerprint: str) -> dict[str, str]:
    """Return the SHA-256 of every file that a signed `Release` lists."""
    try:
        key = openpgp.pick(_get(key_url), fingerprint, key_url)
        try:
            url = f"{top}/InRelease"
            text = openpgp.content(_get(url, may_miss=True), key, url)
        except download.NotThereError:
            url = f"{top}/Release"
            text = _get(url)
            openpgp.check(text, _get(f"{url}.gpg"), key, url)
    except openpgp.SignatureError as error:
        raise PackageIndexError(str(error)) from None
    fields = _fields(text.decode(errors="replace"))
    until = email.utils.parsedate_to_datetime(fields["Valid-Until"]) if "Valid-Until" in fields else None
    if until is not None and until < dt.datetime.now(dt.UTC):
        raise PackageIndexError(f"{url}: was valid until {until.date()}; its server is stale")
    lines = (line.split() for line in fields.get("SHA256", "").splitlines())
    return {words[2].removeprefix("./"): words[0] for words in lines if len(words) == 3}


def _read(
    top: str, name: str, listed: dict[str, str], base: str, wanted: frozenset[str]
) -> Iterator[tuple[str, Entry]]:
    packed = next((suffix for suffix in _COMPRESSIONS if name + suffix in listed), None)
    if packed is None:
        raise PackageIndexError(f"{top}/{name}: not among the files that are signed")
    url = f"{top}/{name}{packed}"
    data = _get(url)
    found = hashlib.sha256(data).hexdigest()
    if found != listed[name + packed]:
        raise PackageIndexError(f"{url}: wanted sha256 {listed[name + packed]} (signed), got {found}")
    text = _COMPRESSIONS[packed](data).decode(errors="replace")
    for paragraph in re.split(r"\n\n+", text):
        first = re.search(r"^Package: (\S+)$", paragraph, re.MULTILINE)
        if first and first[1] in wanted:
            fields = _fields(paragraph)
            if "SHA256" in fields:
                address = f"{base}/{fields['Filename'].removeprefix('./')}"
                yield first[1], Entry(fields["Version"], fields["Architecture"], fields["SHA256"], address)


def _fields(paragraph: str) -> dict[str, str]:
    """Return the fields of a deb822 paragraph; lines of one are joined by newlines."""
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line[:1] in (" ", "\t"):
            fields[name] = f"{fields.get(name, '')}\n{line.strip()}"
        elif ":" in line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return fields


def _get(url: str, *, may_miss: bool = False) -> bytes:
    try:
        return download.read(url).content
    except download.DownloadError as error:
        if may_miss and isinstance(error, download.NotThereError):
            raise
        raise PackageIndexError(str(error)) from None
