"""What roles say of themselves in `meta/slipway.yml`: what changes of their parts cost, how a host proves its work.

The content bundle takes it along as JSON (`slipway.node.host.costs`, `slipway.node.host.proof`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from slipway.node.host.costs import LEVELS

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class RoleMetaError(Exception):
    """A role's data does not fit; the message is one line with the file."""


def _cost(text: str) -> str:
    level, _, units = text.partition(":")
    if level not in LEVELS or (level == "restart") != bool(units):
        raise ValueError(f"{text!r}: expected none, restart:<unit>[,<unit>…], drain or reboot")
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme != "http" and not (parts.scheme == "https" and parts.hostname in _LOOPBACK):
        raise ValueError(f"{text!r}: expected http, or https at a loopback address, as no certificate is looked at")
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r}: no regular expression: {error}") from None
    return text


Cost = Annotated[str, AfterValidator(_cost)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Check(_Model):
    """One check of a proof: see `slipway.node.host.proof`. It has one of `unit`, `url` and `command`."""

    name: str = Field(min_length=1, max_length=60)
    unit: str | None = None
    url: Annotated[str, AfterValidator(_url)] | None = None
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    expect: Annotated[str, AfterValidator(_pattern)] | None = None
    seconds: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(each is not None for each in (self.unit, self.url, self.command)) != 1:
            raise ValueError(f"{self.name}: expected one of unit, url, command")
        if self.expect is not None and self.command is None:
            raise ValueError(f"{self.name}: expect goes with command")
        return self


class RoleMeta(_Model):
    """The data of one role.

    Args:
        disruption: part → what its change costs.
        tasks: task or handler → the part that it changes; what is not named costs nothing.
        proof: how a host proves that what the role made works.
        packages: packages of the distribution that it installs.
    """

    disruption: dict[str, Cost]
    tasks: dict[str, str] = {}
    proof: tuple[Check, ...] = ()
    packages: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _parts_are_known(self) -> Self:
        if unknown := sorted(set(self.tasks.values()) - self.disruption.keys()):
            raise ValueError(f"tasks name {', '.join(unknown)}, which disruption does not have")
        return self


def parse(data: Any, where: str) -> RoleMeta:
    """Read a role's data.

    Raises:
        RoleMetaError: it does not fit; `where` names the file.
    """
    try:
        return RoleMeta.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(str(step) for step in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise RoleMetaError(f"{where}: {at}: {message}" if at else f"{where}: {message}") from None


def load(roles: Path) -> dict[str, RoleMeta]:
    """Read the data of all roles in a folder that have some.

    Raises:
        RoleMetaError: a file does not fit.
    """
    found = {}
    for file in sorted(roles.glob("*/meta/slipway.yml")):
        try:
            data = yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        except yaml.YAMLError as error:
            raise RoleMetaError(f"{file}: {' '.join(str(error).split())}") from None
        found[file.parents[1].name] = parse(data, str(file))
    return found


def index(roles: dict[str, RoleMeta]) -> dict[str, Any]:
    """Return what hosts need of it: `{"costs": {role: {"parts", "tasks"}}, "proof": {role: [check]}}`."""
    return {
        "costs": {name: {"parts": role.disruption, "tasks": role.tasks} for name, role in roles.items()},
        "proof": {
            name: [check.model_dump(mode="json", exclude_none=True) for check in role.proof]
            for name, role in roles.items()
            if role.proof
        },
    }
