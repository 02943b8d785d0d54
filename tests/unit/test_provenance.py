"""Nodes say which release they are at, when the play of their hosts has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from nodes_api import CLUSTER, Cluster
from slipway.play.nodes import Nodes
from slipway.provider import leaving, provenance
from slipway.provider.log import Log
from slipway.provider.play_inputs import PlayHost, PlayInputs
from slipway.provider.resource import Call, InitFailed, State

DIGEST = "0123456789abcdef" * 4
LABELS = {"slipway.dev/release": "2026.11", "slipway.dev/release-digest": "0123456789ab"}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster("a", "b", "other")

    @contextlib.asynccontextmanager
    async def api(_kubeconfig: str) -> AsyncIterator[Nodes]:
        async with Nodes(CLUSTER, httpx.MockTransport(made)) as nodes:
            yield nodes

    monkeypatch.setattr(leaving, "api", api)
    return made


def mark(outcome: State | InitFailed, **inputs: Any) -> State:
    hosts = tuple(
        PlayHost(name=name, address="10.0.0.1", user="root", host_key="ssh-ed25519 AAAA") for name in ("a", "b")
    )
    about: dict[str, Any] = {"kubeconfig": "k", "release": "2026.11", "release_digest": DIGEST, **inputs}
    play = PlayInputs(playbook="node", hosts=hosts, digest="d", ssh_key="k", **about)

    async def work() -> State:
        if isinstance(outcome, InitFailed):
            raise outcome
        return outcome

    async def run() -> State:
        return await provenance.marked(Call("pool", Log(None, "urn")), play, work())

    return asyncio.run(run())


def results(**ok: bool) -> dict[str, Any]:
    return {"results": {name: {"ok": well, "changed": 0, "digest": "d"} for name, well in ok.items()}}


def labels(cluster: Cluster) -> dict[str, Any]:
    return {name: node.get("labels") for name, node in cluster.nodes.items()}


def test_nodes_of_the_play_are_marked_once(cluster: Cluster) -> None:
    state = State("pool", results(a=True, b=True))
    assert mark(state) is state
    assert labels(cluster) == {"a": LABELS, "b": LABELS, "other": None}
    mark(state)
    assert cluster.log == ["label a", "label b"]


def test_another_release_marks_them_anew(cluster: Cluster) -> None:
    mark(State("pool", results(a=True, b=True)))
    mark(State("pool", results(a=True, b=True)), release_digest="f" * 64)
    assert {node["slipway.dev/release-digest"] for node in labels(cluster).values() if node} == {"f" * 12}


def test_a_host_that_failed_keeps_its_mark(cluster: Cluster) -> None:
    with pytest.raises(InitFailed):
        mark(InitFailed("pool", results(a=True, b=False), ["b: why"]))
    assert labels(cluster) == {"a": LABELS, "b": None, "other": None}


def test_plays_without_nodes_ask_nothing(cluster: Cluster) -> None:
    mark(State("etcd", results(a=True, b=True)), kubeconfig=None)
    mark(State("pool", results(a=True, b=True)), release_digest="")
    assert cluster.log == []
    assert labels(cluster) == {"a": None, "b": None, "other": None}


def test_a_silent_api_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def api(_kubeconfig: str) -> AsyncIterator[Nodes]:
        refused = httpx.MockTransport(lambda _request: httpx.Response(403, json={"message": "no"}))
        async with Nodes(CLUSTER, refused) as nodes:
            yield nodes

    monkeypatch.setattr(leaving, "api", api)
    state = State("pool", results(a=True, b=True))
    assert mark(state) is state
