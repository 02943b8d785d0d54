"""What a resource of the provider is."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, ParamSpec, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from slipway.play.journal import Journal, Silent
from slipway.provider.log import Log
from slipway.provider.views import Views

P = ParamSpec("P")
T = TypeVar("T")


class Inputs(BaseModel):
    """Base of a resource's inputs: camelCase for the engine, snake_case here; unknown names are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True, hide_input_in_errors=True
    )


I = TypeVar("I", bound=Inputs)  # noqa: E741  (a type variable; I for inputs)


class ResourceError(Exception):
    """A resource could not be made, changed or removed. Its message is one line for the user."""


class InitFailed(Exception):  # noqa: N818  (the engine's own word)
    """A resource is there, but not as it should be: it is saved, and the next `up` takes it up again.

    Args:
        id: the resource's id.
        outputs: what is known of it.
        reasons: one line each, shown to the user.
    """

    def __init__(self, id: str, outputs: Mapping[str, Any], reasons: list[str]) -> None:  # noqa: A002
        super().__init__("; ".join(reasons))
        self.id = id
        self.outputs = dict(outputs)
        self.reasons = reasons


@dataclass(frozen=True)
class Call:
    """One request of the engine, as a resource sees it.

    Args:
        name: the resource's name in the program.
        log: lines for the user.
        cancelled: set at Ctrl-C or when the engine has gone: stop as soon as it is safe.
        left_out: of a delete: the program was run and does not declare the resource any more, but does declare others.
            False when everything is destroyed, as no program is run then, and when the resource is replaced.
        views: rows under the resource's own.
        journal: who is told how a rollout goes.
    """

    name: str
    log: Log
    cancelled: threading.Event = field(default_factory=threading.Event)
    left_out: bool = False
    views: Views = field(default_factory=Views)
    journal: Journal = field(default_factory=Silent)


@dataclass(frozen=True)
class State:
    """A resource as the stack's state has it: outputs as plain values, with no secret marks."""

    id: str
    outputs: dict[str, Any]


class Resource(ABC, Generic[I]):
    """A kind of resource. Class attributes describe it to the server, which does everything that is the same for all.

    Attributes:
        kind: its type for the engine.
        inputs: the model of its inputs.
        outputs: the names of its outputs.
        secrets: those of its outputs that are secret.
        volatile: those of its outputs that an update may change, so that a preview must not promise them.
        replaces: inputs (top level) whose change makes a new one.
        quiet: inputs (top level) that say how things are done: their change alone is no reason for an update.
        one_at_a_time: the old one must go before the new one is made, as with a host's name and address.
    """

    kind: ClassVar[str]
    inputs: type[I]
    outputs: ClassVar[frozenset[str]]
    secrets: ClassVar[frozenset[str]] = frozenset()
    volatile: ClassVar[frozenset[str]] = frozenset()
    replaces: ClassVar[frozenset[str]] = frozenset()
    quiet: ClassVar[frozenset[str]] = frozenset()
    one_at_a_time: ClassVar[bool] = False

    def check(self, inputs: I) -> Mapping[str, str]:
        """Return what is wrong with inputs that the model accepts: input's name → one line."""
        return {}

    async def drift(self, state: State, inputs: I) -> frozenset[str]:
        """Return the outputs which say that the resource needs an update although its inputs are the same."""
        return frozenset()

    async def preview(self, call: Call, old: I | None, news: Mapping[str, Any], state: State | None) -> None:
        """Show in rows what making or updating it would do, and change nothing.

        Args:
            call: the request.
            old: the inputs that it was made from; None when it is not there yet.
            news: the new inputs as plain values; what is not known yet is `wire.UNKNOWN`.
            state: what it is; None when it is not there yet.
        """

    @abstractmethod
    async def create(self, call: Call, inputs: I) -> State:
        """Make it. After a run that died half-way the same inputs come again, and it must come out right."""

    async def read(self, call: Call, inputs: I, state: State) -> State | None:
        """Return it as it is in the world, or None when it is gone."""
        return state

    async def update(self, call: Call, old: I, inputs: I, state: State) -> State:
        """Bring it to new inputs."""
        return state

    async def delete(self, call: Call, inputs: I, state: State) -> None:
        """Remove it. That it is gone already is no error."""


async def in_thread(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work beside everything else."""
    return await asyncio.to_thread(work, *args, **kwargs)
