"""Check a mirror: every file against the signed lists, the package indices against their signature."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pysequoia

from slipway.mirror import apt
from slipway.mirror.content import PUBLIC_KEY, RELEASES, Content, File, MirrorError, read, sha256

AT_ONCE = 4
"""Files read at a time."""


def verify(folder: Path) -> tuple[list[Content], list[str]]:
    """Check everything in a mirror's folder against its signed lists; return them, and a line for each fault.

    Raises:
        MirrorError: the folder is no mirror.
    """
    public = folder / PUBLIC_KEY
    if not public.is_file():
        raise MirrorError(f"{folder}: no mirror: {PUBLIC_KEY} is missing; run: ./slipway mirror build")
    trusted = pysequoia.Cert.from_bytes(public.read_bytes())
    lists, faults = [], []
    for file in sorted((folder / RELEASES).glob("*.json")):
        try:
            signature = file.with_name(f"{file.name}.asc").read_bytes()
            lists.append(read(file.read_bytes(), signature, trusted, str(file)))
        except FileNotFoundError:
            faults.append(f"{file}: its signature is missing")
        except MirrorError as error:
            faults.append(str(error))
    wanted = {file.path: file for one in lists for file in one.files}
    with ThreadPoolExecutor(AT_ONCE) as workers:
        faults += [fault for fault in workers.map(lambda file: _fault(folder, file), wanted.values()) if fault]
    for suite in sorted((folder / "apt/dists").glob("*")):
        faults += apt.faults(suite, trusted)
    return lists, faults


def _fault(folder: Path, file: File) -> str | None:
    place = folder / file.path
    try:
        size = place.stat().st_size
    except FileNotFoundError:
        return f"{file.path}: is missing"
    if size != file.size:
        return f"{file.path}: wanted {file.size} bytes, got {size}"
    found = sha256(place)
    return None if found == file.sha256 else f"{file.path}: wanted sha256 {file.sha256}, got {found}"
