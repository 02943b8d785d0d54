"""Pages of docs/ that are made from the code: every key of a stack file, every variable of a role.

    PYTHONPATH=infra python3 -m slipway.docs

writes them anew; a unit test fails while one is stale. Reads `slipway.spec` and `roles/*/meta`.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slipway import paths
from slipway.lint import RULES
from slipway.spec import CONFIG_KEY, Cluster

COMMAND = "PYTHONPATH=infra python3 -m slipway.docs"

_NOTE = f"<!-- Made by `{COMMAND}`; edit the sources, not this page. -->\n"

_STACK_HEAD = f"""\
# Keys of a stack file

A stack file is `stacks/Pulumi.<stack>.yaml`. Slipway reads one value in it, `config: {CONFIG_KEY}:`, and refuses keys
that it does not know. All mistakes are told at once, a line each, before anything is touched. `stacks/Pulumi.lab.yaml`
and `stacks/Pulumi.tiny.yaml` are examples; every key that they leave out has its default.

Pulumi adds a line `encryptionsalt:` at the end. It belongs to the passphrase of this machine; Git does not see it (a
filter in `.gitattributes`).
"""

_MORE_RULES = """\
[All rules](rules.md) has those that also look at the release, the machine types and what is deployed.
"""

_RULES_HEAD = """\
# Rules

`./slipway check` judges a stack with its release by these rules, `./slipway release check` a release alone; `up` and
`preview` do so first and refuse on an error. [Check before you change](tasks/check-before-you-change.md) says how to
read what they find and how to waive a rule. Figures are in `infra/slipway/lint/figures/` and
`infra/slipway/platforms/`.
"""

_RULES_COLUMNS = ("Rule", "Severity", "What must hold", "What to do", "Source")

_ROLES_HEAD = """\
# Variables of the roles

From each role's `meta/argument_specs.yml`. `infra/slipway/play/inventory.py` sets those that depend on the stack file,
the release or the host; all others keep their default. "What a change costs" is the role's `meta/slipway.yml`; it is
information, nothing reads it yet.
"""

_CLASSES = {
    str: "text",
    int: "number",
    float: "number",
    bool: "true or false",
    dt.date: "day",
    IPv4Network: "network, such as `10.98.0.0/24`",
}


def main() -> None:
    """Write the pages that are stale."""
    for name in stale():
        (paths.root() / name).write_text(PAGES[name]())
        print(name)  # noqa: T201


def stale() -> list[str]:
    """Return the pages that differ from what the code says, by their path in the checkout."""
    return [name for name, page in PAGES.items() if _text(paths.root() / name) != page()]


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


# -- stack files -------------------------------------------------------------------------------------------------------


def stack_page() -> str:
    """Return docs/stack.md."""
    sections = [_NOTE, _STACK_HEAD]
    for model, title in _titles().items():
        sections += [f"## {title}\n", f"{inspect.cleandoc(model.__doc__ or '')}\n", _table(_rows(model), 4)]
    sections += ["## What is checked besides\n", _table(_rules(), 2, head=("Rule", "What must hold")), _MORE_RULES]
    return "\n".join(sections)


@functools.cache
def _titles() -> dict[type[BaseModel], str]:
    """Return the heading of each model: the places of a stack file that it describes."""
    places: dict[type[BaseModel], list[str]] = {}
    for path, model in _models(Cluster, ""):
        places.setdefault(model, []).append(path or CONFIG_KEY)
    return {model: ", ".join(where) for model, where in places.items()}


def _models(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each place of a stack file that has keys of its own, with its model."""
    yield path, model
    for name, field in model.model_fields.items():
        if found := _nested(field.annotation):
            inner, many = found
            yield from _models(inner, f"{path}.{name}".removeprefix(".") + ("[]" if many else ""))


def _nested(annotation: Any) -> tuple[type[BaseModel], bool] | None:
    """Return the model that a key holds, and whether it holds a list of them."""
    if typing.get_origin(annotation) is list:
        found = _nested(typing.get_args(annotation)[0])
        return (found[0], True) if found else None
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:  # a model that may be left out
        return next((found for one in typing.get_args(annotation) if (found := _nested(one))), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    return None


def _rows(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    for name, field in model.model_fields.items():
        if not field.description:
            raise ValueError(f"infra/slipway/spec.py: {model.__name__}.{name} has no description")
        yield f"`{name}`", _kind(field), _default(field), field.description


def _kind(field: FieldInfo) -> str:
    """Return in words what a key may hold."""
    if found := _nested(field.annotation):
        title = _titles()[found[0]]
        return f"{'list of ' if found[1] else ''}[{title}](#{anchor(title)})"
    words = _words(field.annotation)
    low = next((bound.ge for bound in field.metadata if hasattr(bound, "ge")), None)
    high = next((bound.le for bound in field.metadata if hasattr(bound, "le")), None)
    if low is not None and high is not None:
        return f"{words}, {low}" if low == high else f"{words}, {low} to {high}"
    return f"{words}, {low} or more" if low is not None else words


def _words(annotation: Any) -> str:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _words(inside[0])
    if origin in {typing.Union, types.UnionType}:
        return _words(next(one for one in inside if one is not type(None)))
    if origin is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in inside)
    if origin is list:
        return f"list of {_words(inside[0])}"
    if origin is dict:
        return f"map of {_words(inside[0])} to {_words(inside[1])}"
    if origin is list:
        return f"list of {_words(inside[0])}"
    if annotation is Any:
        return "anything"
    return _CLASSES[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], {}) or isinstance(value, BaseModel):
        return ""
    return f"`{value}`"


def _rules() -> Iterator[tuple[str, ...]]:
    for one in RULES.values():
        if one.structural and one.file == "stack":
            yield f"`{one.id}`", one.about


# -- rules -------------------------------------------------------------------------------------------------------------


def rules_page() -> str:
    """Return docs/rules.md."""
    sections = [_NOTE, _RULES_HEAD]
    for subject in dict.fromkeys(one.subject for one in RULES.values()):
        rules = [one for one in RULES.values() if one.subject == subject]
        about = inspect.cleandoc(importlib.import_module(f"slipway.lint.{subject}").__doc__ or "").partition("\n")[0]
        rows = ((f"`{one.id}`", one.severity, one.about, one.fix, one.source) for one in rules)
        sections += [f"## {subject}\n", f"{about}\n", _table(rows, 5, head=_RULES_COLUMNS)]
    return "\n".join(sections).replace("<", "&lt;").replace("&lt;!--", "<!--")


# -- roles -------------------------------------------------------------------------------------------------------------


def roles_page() -> str:
    """Return docs/roles.md."""
    roles = sorted(file.parents[1].name for file in (paths.root() / "roles").glob("*/meta/argument_specs.yml"))
    listed = "\n".join(f"- [{role}](#{role}): {_spec(role)['short_description']}" for role in roles)
    return "\n".join([_NOTE, _ROLES_HEAD, f"{listed}\n", *(part for role in roles for part in _role(role))])


def _spec(role: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((paths.root() / "roles" / role / "meta/argument_specs.yml").read_text())
    main: dict[str, Any] = loaded["argument_specs"]["main"]
    return main


def _role(role: str) -> Iterator[str]:
    spec = _spec(role)
    yield f"## {role}\n"
    yield f"{_markup(spec['short_description'])}\n"
    if described := spec.get("description"):
        yield "\n".join(f"- {_markup(line)}" for line in _lines(described)) + "\n"
    yield _table(_options(spec.get("options", {}), ""), 4, head=("Variable", "Type", "Default", "Meaning"))
    costs = yaml.safe_load((paths.root() / "roles" / role / "meta/slipway.yml").read_text())["disruption"]
    yield f"What a change costs: {', '.join(f'{part} → {cost}' for part, cost in costs.items())}.\n"


def _options(options: dict[str, Any], path: str) -> Iterator[tuple[str, ...]]:
    for name, option in options.items():
        kind = option.get("type", "str")
        many = kind == "list"
        words = f"list of {option.get('elements', 'str')}" if many else kind
        if choices := option.get("choices"):
            words += f": {', '.join(f'`{choice}`' for choice in choices)}"
        if option.get("no_log"):
            words += ", secret"
        meaning = " ".join(_markup(line) for line in _lines(option["description"]))
        yield f"`{path}{name}`", words, _role_default(option), meaning
        yield from _options(option.get("options", {}), f"{path}{name}{'[]' if many else ''}.")


def _role_default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "**required**"
    value = option.get("default")
    if value in (None, "", [], {}):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _lines(text: str | list[str]) -> list[str]:
    return [" ".join(line.split()) for line in ([text] if isinstance(text, str) else text)]


def _markup(text: str) -> str:
    """Return Ansible's markup, such as C(code), as Markdown."""
    return re.sub(r"\b[CVOI]\(([^)]*)\)", r"`\1`", text)


# -- Markdown ----------------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """Return the anchor that a Markdown heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _table(
    rows: Iterable[tuple[str, ...]], columns: int, head: tuple[str, ...] = ("Key", "Type", "Default", "Meaning")
) -> str:
    lines = [head, ("---",) * columns, *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


PAGES: dict[str, Callable[[], str]] = {
    "docs/stack.md": stack_page,
    "docs/roles.md": roles_page,
    "docs/rules.md": rules_page,
}
"""The pages by their path in the checkout."""

if __name__ == "__main__":
    main()
