"""Write found digests into a release file: keys sorted, every other byte as it was, comments too.

The parser says where each node of the file begins and ends; only those places are touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from slipway.lock.find import Found, Path

_AFTER = {
    "sha256": ("version", "url", "reference"),
    "sha512": ("sha256", "url"),
    "digest": ("reference",),
}
"""New key → the keys that it is put after; the first of them that is there."""


class EditError(Exception):
    """A place of the file that cannot be changed without touching more; one line."""


def write(text: str, found: Iterable[Found]) -> str:
    """Return the text of a release file with what was found.

    Raises:
        EditError: a mapping spans lines between braces, where comments could get lost.
    """
    top = yaml.compose(text, Loader=yaml.SafeLoader)
    edits: list[tuple[int, int, str]] = []
    for one in found:
        node = _at(top, one.path)
        if isinstance(node, yaml.ScalarNode):
            edits.append((node.start_mark.index, node.end_mark.index, _flow({"version": _source(text, node)}, one)))
        elif node.flow_style:
            edits.append((node.start_mark.index, node.end_mark.index, _flow(_pairs(text, node, one.path), one)))
        else:
            edits += _block(text, node, one)
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _scalar(digest: str) -> str:
    """Return a digest as YAML has text: one of decimal digits alone would be a number."""
    return digest if yaml.safe_load(digest) == digest else f'"{digest}"'


def _at(node: Any, path: Path) -> Any:
    """Return the node at a path."""
    for part in path:
        if isinstance(part, int):
            node = node.value[part]
        else:
            node = next(value for key, value in node.value if key.value == part)
    return node


def _source(text: str, node: Any) -> str:
    return text[node.start_mark.index : node.end_mark.index]


def _pairs(text: str, node: Any, path: Path) -> dict[str, str]:
    """Return keys and values of a mapping in braces, as they are written."""
    if "\n" in _source(text, node):
        raise EditError(f"{'.'.join(map(str, path))}: spans lines between braces; write it a key a line")
    return {key.value: _source(text, value) for key, value in node.value}


def _flow(pairs: Mapping[str, str], one: Found) -> str:
    """Return a mapping in braces with what was found put in its place."""
    kept = {key: value for key, value in pairs.items() if not (one.settles and key == "unverified")}
    for key, value in one.fields.items():
        known = yaml.safe_load(kept[key]) if key in kept else {}
        kept[key] = _scalar(value) if isinstance(value, str) else _braces({**known, **value})
    order = sorted(kept, key=lambda key: (_rank(key, list(pairs)), key))
    return "{" + ", ".join(f"{key}: {kept[key]}" for key in order) + "}"


def _rank(key: str, before: list[str]) -> float:
    if key in before:
        return before.index(key)
    return next((before.index(other) + 0.5 for other in _AFTER[key] if other in before), len(before))


def _braces(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(values[key])}" for key in sorted(values)) + "}"


def _block(text: str, node: Any, one: Found) -> list[tuple[int, int, str]]:
    """Return the edits of a mapping that has a key a line."""
    keys = {key.value: (key, value) for key, value in node.value}
    indent = " " * node.value[0][0].start_mark.column
    edits = []
    if one.settles and "unverified" in keys:
        edits.append(_removal(text, node, keys["unverified"]))
    for key, value in one.fields.items():
        if key in keys:
            assert isinstance(value, Mapping)  # noqa: S101 (a single digest is only found where there was none)
            edits += _additions(text, keys[key][1], value)
            continue
        after = next(other for other in _AFTER[key] if other in keys)
        lines = [f"{indent}{key}: {_scalar(value)}"] if isinstance(value, str) else [f"{indent}{key}:"]
        if not isinstance(value, str):
            lines += [f"{indent}  {name}: {_scalar(value[name])}" for name in sorted(value)]
        place = _line_end(text, _last(keys[after][1]))
        edits.append((place, place, "".join(f"\n{line}" for line in lines)))
    return edits


def _additions(text: str, node: Any, values: Mapping[str, str]) -> list[tuple[int, int, str]]:
    """Return the edits that put keys into a mapping of digests, each where it belongs in order."""
    if node.flow_style:
        merged = {key.value: value.value for key, value in node.value} | dict(values)
        return [(node.start_mark.index, node.end_mark.index, _braces(merged))]
    indent = " " * node.value[0][0].start_mark.column
    edits = []
    for name in sorted(values):
        before = [value for key, value in node.value if key.value < name]
        if before:
            place = _line_end(text, before[-1].end_mark.index)
            edits.append((place, place, f"\n{indent}{name}: {_scalar(values[name])}"))
        else:
            place = node.value[0][0].start_mark.index
            edits.append((place, place, f"{name}: {_scalar(values[name])}\n{indent}"))
    return edits


def _removal(text: str, node: Any, pair: tuple[Any, Any]) -> tuple[int, int, str]:
    """Return the edit that takes a key with its line away."""
    key, value = pair
    following = [other.start_mark.index for other, _ in node.value if other.start_mark.index > key.start_mark.index]
    start = text.rfind("\n", 0, key.start_mark.index) + 1
    if text[start : key.start_mark.index].strip() and following:  # the first key of an item of a list: after its dash
        return key.start_mark.index, following[0], ""
    return start, min(_line_end(text, _last(value)) + 1, len(text)), ""


def _last(node: Any) -> int:
    """Return where the last scalar of a node ends."""
    while not isinstance(node, yaml.ScalarNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end
