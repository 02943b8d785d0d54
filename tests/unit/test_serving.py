"""Nodes in waves: emptied before a change that needs it, returned after it, deferred where they cannot be emptied."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import httpx
import pytest

from nodes_api import CLUSTER, Cluster
from slipway.play import drain
from slipway.play.drain import Leaver
from slipway.play.findings import Finding
from slipway.play.nodes import CORDONED_BY, QUARANTINE, QUARANTINED, Nodes
from slipway.play.runner import Result
from slipway.provider import serving as module
from slipway.provider.log import Log
from slipway.provider.resource import Call
from slipway.provider.serving import Serving

T = TypeVar("T")
DONE = Result(ok=True, changed=1, digest="new")
UNTOUCHED = Result(ok=True, digest="new", untouched=True)
UNPROVEN = Result(ok=False, reason="not proven: kubelet : runs: kubelet is failed", unproven="kubelet : runs")
NEEDS_DRAIN = Finding("change", cost="drain")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_PAUSES", (0.01, 0.02))
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    monkeypatch.setattr(module, "_READY_SECONDS", 0.2)


def serve(
    cluster: Cluster, use: Callable[[Serving], Awaitable[T]], *names: str, found: Finding = NEEDS_DRAIN, **more: Any
) -> T:
    """Use a Serving whose check runs find the same on each of the named hosts."""

    async def look(asked: Sequence[str]) -> dict[str, Finding]:
        assert set(asked) <= set(names)
        return dict.fromkeys(asked, found)

    async def run() -> T:
        call = Call("pool", Log(None, "urn"), threading.Event())
        async with Nodes(CLUSTER, httpx.MockTransport(cluster)) as nodes:
            leavers = {name: Leaver(name, "127.0.0.1", 1) for name in names}
            return await use(Serving(call, nodes, leavers, look, 0.1, **more))

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("found", "log"),
    [
        (Finding("change", cost="drain"), ["cordon n", "evict a"]),
        (Finding("change", cost="reboot"), ["cordon n", "evict a"]),
        (Finding("unlike", "its reboot is due", cost="reboot"), ["cordon n", "evict a"]),
        (Finding("failed", "nobody knows"), ["cordon n", "evict a"]),
        (Finding("change", cost="restart:kubelet"), []),
        (Finding("same"), []),
        (Finding("unreachable", "no route"), []),
    ],
)
def test_only_nodes_that_must_be_empty_are_emptied(found: Finding, log: list[str]):
    cluster = Cluster("n", "m")
    cluster.pod("a", "n")
    cluster.pod("b", "m")
    assert serve(cluster, lambda serving: serving.before(["n", "m"]), "n", found=found) == {}
    assert cluster.log == log


def test_a_node_comes_back_once_its_kubelet_is_heard_of_anew():
    cluster = Cluster("n")

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        return await serving.after({"n": DONE})

    assert serve(cluster, wave, "n") == {"n": DONE}
    assert cluster.log == ["cordon n", "uncordon n"]
    assert cluster.beats > 1


def test_a_node_whose_kubelet_stays_silent_is_quarantined():
    cluster = Cluster("n")

    async def wave(serving: Serving) -> dict[str, Result]:
        await serving.before(["n"])
        cluster.nodes["n"]["ready"] = False
        return await serving.after({"n": DONE})

    (result,) = serve(cluster, wave, "n").values()
    assert not result.ok
    assert not result.digest
    assert result.reason == "changed, but its kubelet was not ready within 0.2 s; its node is quarantined"
    assert cluster.log == ["cordon n", "quarantine n"]
    assert cluster.nodes["n"]["taints"] == [{"key": QUARANTINE, "value": "kubelet-is-heard-of", "effect": "NoSchedule"}]


def test_a_node_that_is_not_proven_is_cordoned_with_its_reason_until_it_is():
    cluster = Cluster("n")
    cluster.nodes["n"]["taints"] = [theirs := {"key": "theirs", "effect": "NoSchedule"}]
    (result,) = serve(cluster, lambda serving: serving.after({"n": UNPROVEN})).values()
    assert result.reason == f"{UNPROVEN.reason}; its node is quarantined"
    assert cluster.nodes["n"]["taints"] == [
        theirs,
        {"key": QUARANTINE, "value": "kubelet-runs", "effect": "NoSchedule"},
    ]
    assert cluster.nodes["n"]["annotations"][QUARANTINED].endswith(f"Z {UNPROVEN.reason}")
    assert sorted(cluster.log) == ["cordon n", "quarantine n"]

    again = serve(cluster, lambda serving: serving.after({"n": UNPROVEN}))  # not twice
    assert len(cluster.nodes["n"]["taints"]) == 2
    assert not again["n"].ok

    assert serve(cluster, lambda serving: serving.after({"n": DONE})) == {"n": DONE}
    assert cluster.nodes["n"]["taints"] == [theirs]
    assert not cluster.nodes["n"]["cordoned"]
    assert not any(cluster.nodes["n"]["annotations"].values())


def test_a_node_that_someone_else_cordoned_stays_so_through_a_quarantine():
    cluster = Cluster("n")
    cluster.nodes["n"]["cordoned"] = True
    serve(cluster, lambda serving: serving.after({"n": UNPROVEN}))
    assert CORDONED_BY not in cluster.nodes["n"]["annotations"]
    serve(cluster, lambda serving: serving.after({"n": DONE}))
    assert cluster.log == ["quarantine n", "release n"]
    assert cluster.nodes["n"]["cordoned"]


def test_a_quarantined_node_that_cannot_be_emptied_stays_in_quarantine():
    cluster = Cluster("n")
    serve(cluster, lambda serving: serving.after({"n": UNPROVEN}))
    cluster.pod("kept", "n", budget=True)
    deferred = serve(cluster, lambda serving: serving.before(["n"]), "n")
    assert deferred["n"].deferred
    assert cluster.nodes["n"]["cordoned"]
    assert cluster.nodes["n"]["taints"]


def test_a_host_without_a_node_cannot_be_quarantined():
    assert serve(Cluster(), lambda serving: serving.after({"n": UNPROVEN})) == {"n": UNPROVEN}


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


@pytest.mark.parametrize(("result", "unsettled"), [(DONE, ()), (UNTOUCHED, ("n", "m"))])
def test_a_node_that_an_earlier_update_left_cordoned_comes_back(result: Result, unsettled: tuple[str, ...]):
    cluster = Cluster("n", "m")
    cluster.nodes["n"] |= {"cordoned": True, "annotations": {CORDONED_BY: "slipway"}}
    cluster.nodes["m"] |= {"cordoned": True}
    results = {"n": result, "m": result}
    assert serve(cluster, lambda serving: serving.after(results), unsettled=unsettled) == results
    assert cluster.log == ["uncordon n"]


def test_a_node_that_nothing_was_done_to_costs_no_look():
    class Deaf(Cluster):
        def __call__(self, request: httpx.Request) -> httpx.Response:
            raise AssertionError(request.url)

    assert serve(Deaf("n"), lambda serving: serving.after({"n": UNTOUCHED})) == {"n": UNTOUCHED}
