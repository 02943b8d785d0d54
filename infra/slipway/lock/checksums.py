"""Publishers' files of digests, in the layouts that they have.

* `<digest>  <file>` or `<digest> *<file>`, a line each, as sha256sum writes them (`SHA256SUMS`, `*.sha256sum`)
* `SHA256 (<file>) = <digest>`, as BSD and `sha256sum --tag` write them
* `<digest>` alone, for the file whose name the address has (`kubelet.sha256`)
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

ALGORITHMS = {64: "sha256", 128: "sha512"}
"""Length of a digest in hexadecimal digits → its algorithm."""

_HEX = r"(?P<digest>[0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})"
_LINES = (
    re.compile(rf"^\\?{_HEX} [ *](?P<name>.+)$"),
    re.compile(rf"^SHA(?:256|512) \((?P<name>.+)\) = {_HEX}$"),
)
_ALONE = re.compile(rf"^{_HEX}$")


class ChecksumError(Exception):
    """A file of digests that does not say what was asked; one line without its address."""


def digest_of(text: str, url: str) -> tuple[str, str]:
    """Return (algorithm, lower-case hex digest) that a file of digests has for a published file.

    Args:
        text: content of the file of digests.
        url: address of the published file; its last part is its name.

    Raises:
        ChecksumError: it has none for it, or two that differ.
    """
    name = file_name(url)
    found = set()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        for layout in _LINES:
            if (match := layout.match(line)) and PurePosixPath(match["name"]).name == name:
                found.add(match["digest"].lower())
    if not found and len(lines) == 1 and (match := _ALONE.match(lines[0])):
        found.add(match["digest"].lower())
    if len(found) > 1:
        raise ChecksumError(f"has {len(found)} digests for {name}")
    if not found:
        raise ChecksumError(f"has no digest for {name}")
    digest = found.pop()
    return ALGORITHMS[len(digest)], digest


def file_name(url: str) -> str:
    """Return the name of the file at an address."""
    return PurePosixPath(unquote(urlsplit(url).path)).name
