"""Nodes in waves: emptied before a change that needs it, returned after it, deferred where they cannot be emptied."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import pytest

from nodes_api import CLUSTER, Cluster
from slipway.play import drain
from slipway.play.drain import Leaver
from slipway.play.nodes import Nodes
from slipway.play.runner import Result
from slipway.provider import serving as module
from slipway.provider.log import Log
from slipway.provider.resource import Call
from slipway.provider.serving import Serving

T = TypeVar("T")
DONE = Result(ok=True, changed=1, digest="new")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_PAUSES", (0.01, 0.02))
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    monkeypatch.setattr(module, "_READY_SECONDS", 0.2)


def serve(cluster: Cluster, use: Callable[[Serving], Awaitable[T]], *names: str) -> T:
    async def run() -> T:
        call = Call("pool", Log(None, "urn"), threading.Event())
        async with Nodes(CLUSTER, httpx.MockTransport(cluster)) as nodes:
            return await use(Serving(call, nodes, {name: Leaver(name, "127.0.0.1", 1) for name in names}, 0.1))

    return asyncio.run(run())


def test_only_nodes_that_must_be_empty_are_emptied():
    cluster = Cluster("n", "m")
    cluster.pod("a", "n")
    cluster.pod("b", "m")
    assert serve(cluster, lambda serving: serving.before(["n", "m"]), "n") == {}
    assert cluster.log == ["cordon n", "evict a"]


def test_a_node_comes_back_once_its_kubelet_is_heard_of_anew():
    cluster = Cluster("n")

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        return await serving.after({"n": DONE})

    assert serve(cluster, wave, "n") == {"n": DONE}
    assert cluster.log == ["cordon n", "uncordon n"]
    assert cluster.beats > 1


def test_a_node_whose_kubelet_stays_silent_is_failed_and_stays_cordoned():
    cluster = Cluster("n")

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        cluster.nodes["n"]["ready"] = False
        return await serving.after({"n": DONE})

    (result,) = serve(cluster, wave, "n").values()
    assert not result.ok
    assert not result.digest
    assert result.reason == "changed, but its kubelet was not ready within 0.2 s; its node is still cordoned"
    assert cluster.nodes["n"]["cordoned"]


def test_a_node_that_failed_stays_cordoned():
    cluster = Cluster("n")
    failed = Result(ok=False, reason="no")

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        return await serving.after({"n": failed})

    assert serve(cluster, wave, "n") == {"n": failed}
    assert cluster.nodes["n"]["cordoned"]


def test_a_node_that_someone_else_cordoned_stays_cordoned():
    cluster = Cluster("n")
    cluster.nodes["n"]["cordoned"] = True

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        return await serving.after({"n": DONE})

    assert serve(cluster, wave, "n") == {"n": DONE}
    assert cluster.log == []
    assert cluster.nodes["n"]["cordoned"]


def test_a_node_that_cannot_be_emptied_is_deferred_and_serves_on():
    cluster = Cluster("n", "m")
    cluster.pod("kept", "n", budget=True)
    cluster.pod("a", "m")
    deferred = serve(cluster, lambda serving: serving.before(["n", "m"]), "n", "m")
    reason = "deferred: not drained: after 0.1 s x/kept may not be evicted: budget of kept"
    assert deferred == {"n": Result(ok=False, deferred=True, reason=reason)}
    assert not cluster.nodes["n"]["cordoned"]
    assert cluster.nodes["m"]["cordoned"]
    assert list(cluster.pods) == ["kept"]


def test_a_node_that_an_earlier_update_left_cordoned_comes_back():
    cluster = Cluster("n", "m")
    cluster.nodes["n"] |= {"cordoned": True, "by": "slipway"}
    cluster.nodes["m"] |= {"cordoned": True}

    async def wave(serving: Serving) -> dict[str, Result]:
        serving.unsettled = ["n", "m"]
        return await serving.after({"n": DONE, "m": DONE})

    assert serve(cluster, wave) == {"n": DONE, "m": DONE}
    assert cluster.log == ["uncordon n"]
