"""Make ansible-core start fast on a host that has only the pure-Python YAML parser.

Two thirds of the start of `ansible-playbook` there is parsing YAML: its settings, its table of moved plugins, and the
documentation inside every plugin it loads. JSON is YAML too, and Python's JSON parser is in C, so the bundle carries
these texts as JSON; `host/ansible_playbook.py` hands them to that parser. What they say stays the same.
"""

from __future__ import annotations

import ast
import json
from typing import Any

import yaml

_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FAST_BASE: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_DATA_FILES = {
    "ansible/config/base.yml": _FAST,
    # Ansible reads this one with the loader that leaves every scalar a string (versions such as 2.20).
    "ansible/config/ansible_builtin_runtime.yml": _FAST_BASE,
}
_READ_AT_RUN_TIME = "ansible/plugins/"
_NEVER_READ = ("ansible/modules/", "ansible/plugins/action/")
_TEXTS = ("DOCUMENTATION", "EXAMPLES", "RETURN")


def slim(name: str, data: bytes) -> bytes:
    """Return what the bundle carries for one file of a package: the same, or its YAML as JSON.

    Args:
        name: path inside the package folder, such as `ansible/plugins/shell/sh.py`.
        data: the file's content.
    """
    if name in _DATA_FILES:
        return json.dumps(yaml.load(data, Loader=_DATA_FILES[name]), separators=(",", ":")).encode()  # noqa: S506
    if name.endswith(".py") and name.startswith((_READ_AT_RUN_TIME, *_NEVER_READ)):
        return _slim_python(data, keep_documentation=not name.startswith(_NEVER_READ))
    return data


def _slim_python(data: bytes, *, keep_documentation: bool) -> bytes:
    """Return a plugin's source with its documentation as JSON, without examples; other lines keep their numbers."""
    source = data.decode()
    lines = source.splitlines(keepends=True)
    for node in reversed(ast.parse(source).body):
        name = _text_name(node)
        if name is None or not isinstance(node, ast.Assign) or node.end_lineno is None:
            continue
        text = ""
        if name == "DOCUMENTATION" and keep_documentation:
            parsed = _documentation(ast.literal_eval(node.value))
            if parsed is None:
                continue
            text = parsed
        lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {text!r}\n", *["\n"] * (node.end_lineno - node.lineno)]
    return "".join(lines).encode()


def _text_name(node: ast.stmt) -> str | None:
    """Return which documentation text a statement assigns, None for any other statement."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str())) if name in _TEXTS:
            return name
    return None


def _documentation(text: str) -> str | None:
    """Return documentation as JSON, None when it says something that JSON cannot (dates, an odd text)."""
    try:
        parsed = yaml.load(text, Loader=_FAST)  # noqa: S506 - a safe loader
        return json.dumps(parsed, separators=(",", ":")) if isinstance(parsed, dict) else None
    except (yaml.YAMLError, TypeError):
        return None
