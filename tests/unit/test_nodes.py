"""Nodes as the API has them: what is asked of it, and how its refusals are told."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest

from slipway.play import nodes as module
from slipway.play import tokens
from slipway.play.nodes import CORDONED_BY, NodeError, Nodes, Pod

T = TypeVar("T")
CLUSTER = tokens.Cluster("https://10.0.0.1:6443", ssl.create_default_context())
POD = Pod("default", "a", "u1")


def ask(api: Callable[[httpx.Request], httpx.Response], question: Callable[[Nodes], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Nodes(CLUSTER, httpx.MockTransport(api)) as nodes:
            return await question(nodes)

    return asyncio.run(run())


def node(*, cordoned: bool = False, by: str | None = None, ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "resourceVersion": "7", "annotations": {CORDONED_BY: by} if by else {}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


class Api:
    """Has one node, and remembers what was changed."""

    def __init__(self, *answers: dict[str, Any], patch: tuple[int, ...] = (200,)) -> None:
        self.answers, self.patch = list(answers), list(patch)
        self.patches: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/nodes/n"
        if request.method == "GET":
            return httpx.Response(200, json=self.answers.pop(0)) if self.answers else httpx.Response(404)
        assert request.method == "PATCH"
        assert request.headers["content-type"] == "application/merge-patch+json"
        self.patches.append(json.loads(request.content))
        return httpx.Response(self.patch.pop(0), json={})


def test_a_node_is_cordoned_in_our_name():
    api = Api(node())
    ask(api, lambda nodes: nodes.cordon("n"))
    assert api.patches == [
        {
            "metadata": {"resourceVersion": "7", "annotations": {CORDONED_BY: "slipway"}},
            "spec": {"unschedulable": True},
        }
    ]


def test_what_someone_else_cordoned_is_left_alone():
    api = Api(node(cordoned=True), node(cordoned=True))
    ask(api, lambda nodes: nodes.cordon("n"))
    assert not ask(api, lambda nodes: nodes.uncordon("n"))
    assert api.patches == []


def test_what_we_cordoned_is_uncordoned():
    api = Api(node(cordoned=True, by="slipway"))
    assert ask(api, lambda nodes: nodes.uncordon("n"))
    assert api.patches[0]["spec"] == {"unschedulable": None}
    assert api.patches[0]["metadata"]["annotations"] == {CORDONED_BY: None}


def test_a_node_that_changed_meanwhile_is_looked_at_again():
    api = Api(node(), node(cordoned=True), patch=(409,))
    found = ask(api, lambda nodes: nodes.cordon("n"))
    assert found is not None
    assert found.cordoned
    assert not found.ours
    assert len(api.patches) == 1


def test_a_node_that_is_not_there():
    api = Api()
    assert ask(api, lambda nodes: nodes.get("n")) is None
    assert ask(api, lambda nodes: nodes.cordon("n")) is None
    ask(lambda _request: httpx.Response(404), lambda nodes: nodes.delete("n"))


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_ready(status, ready):
    found = ask(Api(node(ready=status)), lambda nodes: nodes.get("n"))
    assert found is not None
    assert found.ready is ready


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "x", "name": name, "uid": name, **metadata}, "status": {"phase": "Running"}}


def test_pods_of_the_node_itself_and_finished_ones_stay():
    def owner(kind: str) -> list[dict[str, Any]]:
        return [{"kind": kind, "controller": True}]

    items = [
        pod("plain"),
        pod("daemon", ownerReferences=owner("DaemonSet")),
        pod("replica", ownerReferences=owner("ReplicaSet")),
        pod("mirror", annotations={"kubernetes.io/config.mirror": "x"}),
        pod("ending", deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=30),
        {**pod("finished"), "status": {"phase": "Succeeded"}},
    ]

    def api(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/pods"
        assert request.url.params["fieldSelector"] == "spec.nodeName=n"
        return httpx.Response(200, json={"items": items})

    found = ask(api, lambda nodes: nodes.pods("n"))
    assert {pod.name for pod in found if not pod.stays} == {"plain", "replica", "ending"}
    assert [(pod.name, pod.grace_seconds) for pod in found if pod.ending] == [("ending", 30)]


def test_an_eviction_is_of_this_very_pod():
    sent = []

    def api(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(201, json={})

    assert ask(api, lambda nodes: nodes.evict(POD)) is None
    assert sent[0].url.path == "/api/v1/namespaces/default/pods/a/eviction"
    body = json.loads(sent[0].content)
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
    assert body["deleteOptions"] == {"preconditions": {"uid": "u1"}}


def test_a_budget_that_is_used_up_is_named():
    status = {
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget web needs 2 healthy pods and has 2 currently",
                }
            ]
        },
    }
    refusal = ask(lambda _request: httpx.Response(429, json=status), lambda nodes: nodes.evict(POD))
    assert refusal == "The disruption budget web needs 2 healthy pods and has 2 currently"


@pytest.mark.parametrize("code", [404, 409])
def test_a_pod_that_is_gone_or_another_is_no_refusal(code):
    assert ask(lambda _request: httpx.Response(code, json={}), lambda nodes: nodes.evict(POD)) is None


def test_a_pod_with_two_budgets_is_a_refusal_not_a_broken_api():
    answer = {"message": "This pod has more than one PodDisruptionBudget"}
    refusal = ask(lambda _request: httpx.Response(500, json=answer), lambda nodes: nodes.evict(POD))
    assert refusal == "This pod has more than one PodDisruptionBudget"


def test_an_api_that_is_away_is_waited_for():
    answers: list[Any] = [httpx.ConnectError("refused"), 503, 429, 200]

    def api(_request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer, json=node())

    assert ask(api, lambda nodes: nodes.get("n"))
    assert not answers


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(module.tenacity, "stop_after_delay", lambda _seconds: module.tenacity.stop_after_attempt(2))
    with pytest.raises(NodeError, match=r"no answer from https://10\.0\.0\.1:6443/? for 60 s: HTTP 503"):
        ask(lambda _request: httpx.Response(503), lambda nodes: nodes.get("n"))


def test_a_refusal_is_told_at_once():
    with pytest.raises(NodeError, match=r"DELETE /api/v1/nodes/n: HTTP 403 not you"):
        ask(lambda _request: httpx.Response(403, json={"message": "not\nyou"}), lambda nodes: nodes.delete("n"))
