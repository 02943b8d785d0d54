"""Values as the engine sends them, and as Python has them.

The engine sends protobuf structs in which a few objects and strings mean more than they say: a secret is an object with
a signature, a value not known before an `up` is a fixed string. Here a secret is a `Secret` and a value not yet known
is the string `UNKNOWN`; whole numbers, which travel as floats, are ints again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf import struct_pb2

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  (the protocol's mark, no secret)

Kind = Literal["add", "delete", "update"]


@dataclass(frozen=True)
class Secret:
    """A value that is encrypted in the state and never shown."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(…)"


def decode(struct: struct_pb2.Struct) -> dict[str, Any]:
    """Return a struct's fields as Python values.

    By name: structs have no order of their own, and the same inputs must make the same files on a host every time.
    """
    return {name: _decode(struct.fields[name]) for name in sorted(struct.fields)}


def encode(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return Python values as a struct."""
    return struct_pb2.Struct(fields={name: _encode(value) for name, value in values.items()})


def reveal(value: Any) -> Any:
    """Return a value with every `Secret` in it replaced by what it holds."""
    match value:
        case Secret():
            return reveal(value.value)
        case dict():
            return {key: reveal(item) for key, item in value.items()}
        case list():
            return [reveal(item) for item in value]
        case _:
            return value


def has_unknown(value: Any) -> bool:
    """Say whether a value is, or holds anywhere, one that is not known yet."""
    match value:
        case Secret():
            return has_unknown(value.value)
        case dict():
            return any(has_unknown(item) for item in value.values())
        case list():
            return any(has_unknown(item) for item in value)
        case _:
            return bool(value == UNKNOWN)


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Kind]:
    """Return what changed between two sets of inputs: `{"hosts[0].vars.port": "update", …}`.

    A secret is one value: no path leads into it. Whether a value is marked secret is no difference.
    """
    return dict(_differences(old, new, ""))


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Kind]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            inner = _join(path, key)
            if key not in new:
                yield inner, "delete"
            elif key not in old:
                yield inner, "add"
            else:
                yield from _differences(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            inner = f"{path}[{index}]"
            if index >= len(new):
                yield inner, "delete"
            elif index >= len(old):
                yield inner, "add"
            else:
                yield from _differences(old[index], new[index], inner)
    elif has_unknown(new) or reveal(old) != reveal(new):
        yield path, "update"


def _join(path: str, key: str) -> str:
    if not re.fullmatch(r"[A-Za-z_$][\w$-]*", key):
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'{path}["{escaped}"]'
    return f"{path}.{key}" if path else key


def _decode(value: struct_pb2.Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            fields = value.struct_value.fields
            if _SIGNATURE in fields and fields[_SIGNATURE].string_value == _SECRET:
                return Secret(_decode(fields["value"]))
            return decode(value.struct_value)
        case "list_value":
            return [_decode(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None


def _encode(value: Any) -> struct_pb2.Value:
    match value:
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case Secret():
            marked = {_SIGNATURE: _encode(_SECRET), "value": _encode(value.value)}
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=marked))
        case bool():
            return struct_pb2.Value(bool_value=value)
        case int() | float():
            return struct_pb2.Value(number_value=value)
        case str():
            return struct_pb2.Value(string_value=value)
        case dict():
            return struct_pb2.Value(struct_value=encode(value))
        case list() | tuple():
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_encode(item) for item in value]))
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be sent to the engine")
