"""Reads a release file; says each mistake in one line with its path, what was expected, and the nearest right name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from slipway import documents, paths
from slipway.release.model import Release, ReleaseError
from slipway.release.texts import MEANING


def shown(release: str) -> str:
    """Return the file of a release as messages have it."""
    return documents.shown(paths.releases() / f"{release}.yaml")


def known_ids(folder: Path | None = None) -> list[str]:
    """Return the ids of the releases that there are."""
    return sorted(file.stem for file in (folder or paths.releases()).glob("*.yaml"))


def load(release: str, folder: Path | None = None) -> Release:
    """Read and check a release by its id.

    Args:
        release: the id, which is the file's name without `.yaml`.
        folder: where release files are; the checkout's `stacks/releases` unless given.

    Raises:
        ReleaseError: no such release, or mistakes in the file (one line each).
    """
    folder = folder or paths.releases()
    path = folder / f"{release}.yaml"
    shown = documents.shown(path)
    try:
        data = documents.load(path)
    except FileNotFoundError:
        known = known_ids(folder)
        near = documents.nearest(release, known)
        raise ReleaseError(f"{shown}: no release {release!r}{near}; there are: {', '.join(known) or 'none'}") from None
    except documents.DocumentError as error:
        raise ReleaseError(str(error)) from None
    if not isinstance(data, dict):
        raise ReleaseError(f"{shown}: expected a mapping with keys, found {type(data).__name__}")
    try:
        # JSON mode: lists become tuples while scalars stay strict.
        loaded = Release.model_validate_json(json.dumps(data, default=str))
    except ValidationError as error:
        raise ReleaseError("\n".join(f"{shown}: {line}" for line in _lines(error))) from None
    if loaded.id != release:
        raise ReleaseError(f"{shown}: id: expected {release!r} like the file's name, found {loaded.id!r}")
    return loaded


def _lines(error: ValidationError) -> list[str]:
    """Say each mistake in one line that begins with its path in the file."""
    lines = []
    for mistake in error.errors(include_url=False):
        where = ".".join(str(part) for part in mistake["loc"] if part != "[key]")
        prefix = f"{where}: " if where else ""
        lines += [f"{prefix}{line}" for line in _said(mistake).splitlines()]
    return lines


def _said(mistake: Any) -> str:
    """Say one mistake, without its path."""
    if mistake["type"] == "extra_forbidden":
        return f"unknown key{documents.nearest(str(mistake['loc'][-1]), _keys(mistake['loc'][:-1]))}"
    if mistake["type"] == "missing":
        return "missing"
    if mistake["type"] == "value_error":
        return str(mistake["ctx"]["error"])
    found = repr(mistake["input"])
    found = found if len(found) <= 60 else found[:57] + "..."
    if mistake["type"] == "string_pattern_mismatch" and mistake["ctx"]["pattern"] in MEANING:
        return f"{found} is not {MEANING[mistake['ctx']['pattern']]}"
    quotes = mistake["type"] == "string_type" and isinstance(mistake["input"], int | float)
    return f"{mistake['msg']}; found {found}{' (put it in quotes)' if quotes else ''}"


def _keys(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """Return the keys that the model at a path of the file knows."""
    at: Any = Release
    for part in location:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(part))
            at = field.annotation if field else None
        else:  # the values of a mapping, or the items of a list
            inner = [one for one in get_args(at) if isinstance(one, type) and issubclass(one, BaseModel)]
            at = inner[-1] if inner else None
        optional = [one for one in get_args(at) if isinstance(one, type) and issubclass(one, BaseModel)]
        if optional and type(None) in get_args(at):
            at = optional[0]
    return tuple(at.model_fields) if isinstance(at, type) and issubclass(at, BaseModel) else ()
