"""Draining, against a cluster in memory: what is evicted, what is waited for, and what is never done."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from nodes_api import CLUSTER, Cluster
from slipway.play import drain
from slipway.play.drain import Leaver
from slipway.play.nodes import Nodes
from slipway.provider import leaving
from slipway.provider.log import Log
from slipway.provider.resource import Call, InitFailed, ResourceError, State


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_PAUSES", (0.01, 0.02))
    monkeypatch.setattr(drain, "_PROBE_SECONDS", 0.2)


@pytest.fixture
def port() -> Iterator[int]:
    """A port on this machine where something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def empty(cluster: Cluster, *leavers: Leaver, seconds: float = 1.0, cancelled: bool = False) -> dict[str, str]:
    stop = threading.Event()
    if cancelled:
        stop.set()

    async def run() -> dict[str, str]:
        async with Nodes(CLUSTER, httpx.MockTransport(cluster)) as nodes:
            found = await drain.drain_all(nodes, leavers, seconds=seconds, cancelled=stop, tell=lambda _line: None)
            return dict(found)

    return asyncio.run(run())


def here(name: str, port: int = 1) -> Leaver:
    return Leaver(name, "127.0.0.1", port)


def away(name: str) -> Leaver:
    return Leaver(name, "255.255.255.255")  # the broadcast address: nobody can be connected to


def test_pods_are_evicted_and_waited_for():
    cluster = Cluster("n")
    cluster.pod("a", "n")
    cluster.pod("b", "n")
    assert empty(cluster, here("n")) == {}
    assert cluster.pods == {}
    assert cluster.log == ["cordon n", "evict a", "evict b"]


def test_all_are_cordoned_before_one_is_drained():
    cluster = Cluster("n", "m")
    cluster.pod("a", "n")
    assert empty(cluster, here("n"), here("m")) == {}
    assert set(cluster.log[:2]) == {"cordon n", "cordon m"}


def test_daemons_stay():
    cluster = Cluster("n")
    cluster.pod("agent", "n", kind="DaemonSet")
    assert empty(cluster, here("n")) == {}
    assert list(cluster.pods) == ["agent"]


def test_a_budget_keeps_its_node_and_no_other():
    cluster = Cluster("n", "m")
    cluster.pod("kept", "n", budget=True)
    cluster.pod("other", "n", grace=99)
    cluster.pod("a", "m")
    reasons = empty(cluster, here("n"), here("m"), seconds=0.1)
    assert reasons == {"n": "not drained: after 0.1 s x/kept may not be evicted: budget of kept; 1 other pod left"}
    assert "evict other" in cluster.log
    assert "a" not in cluster.pods
    assert cluster.nodes["n"]["cordoned"]


def test_a_pod_that_takes_long_to_end_is_named():
    cluster = Cluster("n")
    cluster.pod("slow", "n", grace=3600)
    reasons = empty(cluster, here("n"), seconds=0.1)
    assert reasons == {"n": "not drained: after 0.1 s x/slow is still ending (it may take 3600 s)"}
    assert cluster.log.count("evict slow") == 1


def test_a_node_that_the_api_does_not_know_is_empty():
    assert empty(Cluster(), away("n")) == {}


def test_pods_of_a_host_that_is_gone_are_removed():
    cluster = Cluster("n")
    cluster.nodes["n"]["ready"] = False
    cluster.pod("a", "n", budget=True)
    assert empty(cluster, away("n")) == {}
    assert cluster.log == ["cordon n", "remove a"]


@pytest.mark.parametrize("listening", [True, False])
def test_pods_of_a_host_that_answers_are_never_removed(listening, port):
    """Its kubelet is silent, its pods may run: a port that is refused is an answer too."""
    cluster = Cluster("n")
    cluster.nodes["n"]["ready"] = False
    cluster.pod("a", "n")
    reasons = empty(cluster, here("n", port if listening else 1), seconds=0.1)
    assert reasons == {
        "n": "not drained: after 0.1 s x/a is still there: the kubelet does not answer, though the host does"
    }
    assert "remove a" not in cluster.log


def test_pods_of_a_node_that_is_ready_are_never_removed():
    cluster = Cluster("n")
    cluster.pod("a", "n", budget=True)
    assert "may not be evicted" in empty(cluster, away("n"), seconds=0.1)["n"]
    assert "remove a" not in cluster.log


def test_it_stops_when_cancelled():
    cluster = Cluster("n")
    cluster.pod("a", "n", budget=True)
    assert empty(cluster, here("n"), seconds=60, cancelled=True) == {"n": "not drained: cancelled"}


KEPT = {"ok": False, "leaving": True, "address": "127.0.0.1", "port": 22, "reason": "budget", "digest": "d"}


def test_who_leaves_and_who_comes_back():
    assert leaving.leavers([here("a"), here("b")], ["a"], {}) == [here("b")]
    # The inputs of an update that failed are the old ones of the next: only the results know who was to leave.
    assert [each.name for each in leaving.leavers([here("a")], ["a"], {"b": KEPT})] == ["b"]
    assert leaving.leavers([here("a")], ["a"], {"b": {"ok": False, "digest": ""}}) == []
    assert leaving.leavers([here("b")], ["b"], {"b": KEPT}) == []
    assert leaving.returning([here("b")], {"b": KEPT}) == ["b"]
    assert leaving.returning([here("b")], {"b": {"ok": True}}) == []


def test_a_host_that_cannot_leave_is_a_reason_beside_the_others():
    departure = leaving.Departure([here("b")], {"b": "not drained"}, {"b": KEPT})
    failed = departure.and_failed(InitFailed("id", {"results": {"a": {}}, "failedHosts": ["a"]}, ["a: no"]))
    assert failed.outputs == {"results": {"a": {}, "b": KEPT}, "failedHosts": ["a", "b"]}
    assert failed.reasons == ["a: no", "b: not drained; the host is kept, its node cordoned"]


def finish(cluster: Cluster, departure: leaving.Departure) -> State:
    async def run() -> State:
        async with Nodes(CLUSTER, httpx.MockTransport(cluster)) as nodes:
            return await leaving.finish(nodes, departure, State("id", {"results": {}, "failedHosts": []}))

    return asyncio.run(run())


def test_nodes_are_removed_when_all_are_drained():
    cluster = Cluster("n", "m")
    assert finish(cluster, leaving.Departure([here("n"), here("m")])).outputs["results"] == {}
    assert cluster.nodes == {}


def test_no_node_is_removed_while_one_cannot_leave():
    cluster = Cluster("n", "m")
    with pytest.raises(InitFailed):
        finish(cluster, leaving.Departure([here("n"), here("m")], {"n": "not drained"}, {"n": KEPT}))
    assert set(cluster.nodes) == {"n", "m"}


def test_a_pool_that_cannot_leave_is_as_it_was(monkeypatch):
    cluster = Cluster("n", "m")
    cluster.pod("kept", "n", budget=True)

    @contextlib.asynccontextmanager
    async def api(_kubeconfig: str) -> AsyncIterator[Nodes]:
        async with Nodes(CLUSTER, httpx.MockTransport(cluster)) as nodes:
            yield nodes

    monkeypatch.setattr(leaving, "api", api)

    async def remove() -> None:
        call = Call("pool", Log(None, "urn"))
        await leaving.remove_all(call, "kubeconfig", [here("n"), here("m")], 0.1)

    with pytest.raises(ResourceError, match=r"n: not drained: after 0\.1 s x/kept may not be evicted: budget of kept$"):
        asyncio.run(remove())
    assert not any(node["cordoned"] for node in cluster.nodes.values())
    cluster.pods["kept"]["budget"] = False
    asyncio.run(remove())
    assert cluster.nodes == {}
