"""YAML files that people write: read whole, with every mistake in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from slipway import paths


class DocumentError(Exception):
    """A file is not YAML, or says a thing twice; one line with the place."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # ten times faster in C
    """Refuses a key that is there twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            seen: set[object] = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is there twice", key.start_mark
                    )
                seen.add(key.value)
        return made


def load(path: Path) -> Any:
    """Read a YAML file.

    Raises:
        FileNotFoundError: there is none.
        DocumentError: it is not YAML.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f":{mark.line + 1}" if mark else ""
        raise DocumentError(f"{shown(path)}{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DocumentError(f"{shown(path)}: not YAML: {' '.join(str(error).split())}") from None


def shown(path: Path) -> str:
    """Return a path as messages have it: from the root of the checkout when it lies there."""
    return str(path.relative_to(paths.root())) if path.is_relative_to(paths.root()) else str(path)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; nearest: <name>` for the end of a message, or nothing when no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; nearest: {close[0]}" if close else ""
