"""A row a host under a resource's own row: Pulumi's view resources.

They are shown in previews, updates and refreshes, and kept in the stack's state, so they are few and small. The engine
never acts on them; the provider says at the end of a request what became of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from pulumi.runtime.proto import provider_pb2, resource_status_pb2, resource_status_pb2_grpc

from slipway.provider import wire
from slipway.provider.log import DETAILS

KIND = "slipway:index:Host"
ROWS = 50
"""Rows of one resource; what is beyond is one row that sums up."""

REST = "others"
"""The name of that row."""

_Step = resource_status_pb2.ViewStep


@dataclass(frozen=True)
class Row:
    """What a row says.

    Args:
        name: the host's.
        says: its properties, shown in diffs and kept in the state.
        changed: whether anything happened (or would) to the host. A row that did not change stays as it was.
        leaves: the row goes, with this as its last word.
    """

    name: str
    says: Mapping[str, Any]
    changed: bool = True
    leaves: bool = False


class _Request(Protocol):
    @property
    def resource_status_address(self) -> str: ...
    @property
    def resource_status_token(self) -> str: ...


class Views:
    """The rows of one resource during one request of the engine.

    Args:
        request: where and with what token the engine takes them. Old engines give none: then there are no rows.
        old: the rows that the state has.
    """

    def __init__(self, request: _Request | None = None, old: Iterable[provider_pb2.View] = ()) -> None:
        self._request = request
        self._old = {view.name: wire.decode(view.inputs) for view in old if view.type == KIND}

    def old(self, name: str) -> dict[str, Any]:
        """Return what the state's row of a host says; empty when there is none."""
        return dict(self._old.get(name, {}))

    async def publish(self, rows: Sequence[Row], *, must: bool = False) -> None:
        """Show these rows, and take away those of the state that are not among them. Once a request.

        The owner's own state must be saved with this request: a row without it would break the stack's state. With
        `must` an engine that does not take them is an error, else a line in the log.
        """
        if self._request is None or not self._request.resource_status_address:
            return
        rows = capped([row for row in rows if not row.leaves or row.name in self._old])
        kept = {row.name for row in rows}
        steps = [self._step(row) for row in rows]
        steps += [
            _Step(op=_Step.DELETE, type=KIND, name=name, old=_state(name, says))
            for name, says in self._old.items()
            if name not in kept
        ]
        if not steps:
            return
        async with grpc.aio.insecure_channel(self._request.resource_status_address) as channel:
            stub = resource_status_pb2_grpc.ResourceStatusStub(channel)  # type: ignore[no-untyped-call,unused-ignore]
            try:
                await stub.PublishViewSteps(
                    resource_status_pb2.PublishViewStepsRequest(token=self._request.resource_status_token, steps=steps)
                )
            except grpc.aio.AioRpcError as error:
                if must:
                    raise
                DETAILS.warning("the engine did not take rows: %s", error.details())

    def _step(self, row: Row) -> resource_status_pb2.ViewStep:
        if row.leaves:
            return _Step(op=_Step.DELETE, type=KIND, name=row.name, old=_state(row.name, row.says))
        if row.name not in self._old:
            return _Step(op=_Step.CREATE, type=KIND, name=row.name, new=_state(row.name, row.says))
        old = self._old[row.name]
        if not row.changed:
            return _Step(op=_Step.SAME, type=KIND, name=row.name, old=_state(row.name, old), new=_state(row.name, old))
        changes = wire.difference(old, dict(row.says))
        return _Step(
            op=_Step.UPDATE,
            type=KIND,
            name=row.name,
            old=_state(row.name, old),
            new=_state(row.name, row.says),
            diffs=sorted({path.split(".", 1)[0].split("[", 1)[0] for path in changes}),
            has_detailed_diff=True,
            detailed_diff={
                path: provider_pb2.PropertyDiff(kind=provider_pb2.PropertyDiff.Kind.Value(kind.upper()), inputDiff=True)
                for path, kind in changes.items()
            },
        )


def capped(rows: Sequence[Row], old: Collection[str] = ()) -> list[Row]:
    """Return at most `ROWS` rows, and one more that counts the rest.

    Those that changed come first, then those that the state has (`old`), so that nothing new makes no new rows.
    """
    if len(rows) <= ROWS:
        return list(rows)
    first = sorted(rows, key=lambda row: (not row.changed, row.name not in old))  # stable: otherwise in their order
    shown, rest = first[:ROWS], first[ROWS:]
    changed = sum(row.changed for row in rest)
    says = {"status": f"{len(rest)} more hosts, {changed} of them changed"}
    return [*shown, Row(REST, says, changed=bool(changed))]


def _state(name: str, says: Mapping[str, Any]) -> resource_status_pb2.ViewStepState:
    return resource_status_pb2.ViewStepState(type=KIND, name=name, inputs=wire.encode(says), outputs=wire.encode(says))
