"""Rows under a resource: the steps that the engine is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, resource_status_pb2, resource_status_pb2_grpc

from slipway.provider import views, wire
from slipway.provider.views import KIND, ROWS, Row, Views, capped

STEP = resource_status_pb2.ViewStep


class Engine(resource_status_pb2_grpc.ResourceStatusServicer):
    def __init__(self, refuses: bool) -> None:
        self.refuses = refuses
        self.requests: list[Any] = []

    async def PublishViewSteps(self, request: Any, context: Any) -> Any:  # noqa: N802  (the protocol's name)
        if self.refuses:
            await context.abort(grpc.StatusCode.UNKNOWN, "no such token")
        self.requests.append(request)
        return resource_status_pb2.PublishViewStepsResponse()


def published(old: dict[str, Any], rows: Iterable[Row], *, must: bool = False, refuses: bool = False) -> Any:
    """The one request that the engine gets, None if none."""

    async def run() -> Any:
        engine, server = Engine(refuses), grpc.aio.server()
        resource_status_pb2_grpc.add_ResourceStatusServicer_to_server(engine, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        request = SimpleNamespace(resource_status_address=f"127.0.0.1:{port}", resource_status_token="t")
        had = [provider_pb2.View(type=KIND, name=name, inputs=wire.encode(says)) for name, says in old.items()]
        try:
            await Views(request, had).publish(list(rows), must=must)
        finally:
            await server.stop(None)
        return engine.requests[0] if engine.requests else None

    return asyncio.run(run())


def test_a_row_that_leaves_says_why_as_it_goes() -> None:
    rows = [Row("a", {"status": "converged", "wouldChange": "leaves"}, leaves=True), Row("b", {}, leaves=True)]
    (step,) = published({"a": {"status": "converged"}}, rows).steps  # of b the state has no row
    assert (step.name, step.op) == ("a", STEP.DELETE)
    assert wire.decode(step.old.inputs)["wouldChange"] == "leaves"


def test_each_row_is_made_changed_kept_or_taken_away() -> None:
    old = {"kept": {"status": "converged"}, "changed": {"status": "converged", "at": 1}, "gone": {"status": "x"}}
    rows = [Row("new", {"a": 1}), Row("kept", {"other": 1}, changed=False), Row("changed", {"status": "failed: b"})]
    request = published(old, rows)
    assert request.token == "t"
    steps = {step.name: step for step in request.steps}
    assert {name: step.op for name, step in steps.items()} == {
        "new": STEP.CREATE,
        "kept": STEP.SAME,
        "changed": STEP.UPDATE,
        "gone": STEP.DELETE,
    }
    assert wire.decode(steps["kept"].new.inputs) == old["kept"]
    assert wire.decode(steps["changed"].old.inputs) == old["changed"]
    assert set(steps["changed"].detailed_diff) == {"status", "at"}
    assert not steps["gone"].HasField("new")


def test_nothing_to_say_is_not_said() -> None:
    assert published({}, []) is None
    asyncio.run(Views(SimpleNamespace(resource_status_address="", resource_status_token="")).publish([Row("a", {})]))


def test_an_engine_that_refuses_matters_only_where_its_state_would_break() -> None:
    published({"a": {}}, [], refuses=True)
    with pytest.raises(grpc.aio.AioRpcError):
        published({"a": {}}, [], must=True, refuses=True)


def test_rows_are_few_and_those_that_changed_come_first() -> None:
    rows = [Row(f"h{number}", {}, changed=number % 100 == 99) for number in range(7500)]
    shown = capped(rows)
    assert len(shown) == ROWS + 1
    assert all(row.changed for row in shown[:ROWS])
    assert shown[-1] == Row(views.REST, {"status": "7450 more hosts, 25 of them changed"}, changed=True)
    assert capped(rows[:ROWS]) == rows[:ROWS]


def test_rows_stay_where_nothing_is_new() -> None:
    rows = [Row(f"h{number}", {}, changed=False) for number in range(7500)]
    old = {f"h{number}" for number in range(7000, 7000 + ROWS)}
    assert {row.name for row in capped(rows, old)} == {*old, views.REST}
    rows[3] = Row("h3", {}, changed=True)
    shown = [row.name for row in capped(rows, old)]
    assert shown[0] == "h3"
    assert len(old & set(shown)) == ROWS - 1
