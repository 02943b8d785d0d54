"""Nodes and the pods on them, as the API has them: look, cordon, evict, remove."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx
import tenacity

from slipway.play.tokens import Cluster

CORDONED_BY = "slipway.dev/cordoned-by"
"""Annotation of a node that we cordoned. One without it was cordoned by someone else, and stays so."""

QUARANTINE = "slipway.dev/quarantine"
"""Key of the taint of a node that could not be proven after a change; its value names the check."""

QUARANTINED = "slipway.dev/quarantined"
"""Annotation of such a node: since when, and why."""

_MANAGER = "slipway"
_MIRROR = "kubernetes.io/config.mirror"
_PATIENCE_SECONDS = 60
"""How long the API may take to come back."""

_ONLY_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE = 500
"""Nodes asked for at a time."""

_MERGE = "application/merge-patch+json"


class NodeError(Exception):
    """The API refuses, or does not answer. The message is one line."""


class _NotNowError(Exception):
    """Worth another try."""


@dataclass(frozen=True)
class Node:
    """A node.

    Args:
        name: its name.
        ready: its kubelet says so, and was heard of lately.
        cordoned: no pod is scheduled to it.
        ours: it was cordoned by us.
        taints: all of them, as the API has them.
        version: changes with every change of the object.
    """

    name: str
    ready: bool
    cordoned: bool
    ours: bool
    version: str
    taints: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)

    @property
    def quarantined(self) -> bool:
        """Whether it waits to be proven."""
        return any(taint.get("key") == QUARANTINE for taint in self.taints)


@dataclass(frozen=True)
class Pod:
    """A pod on a node.

    Args:
        namespace: where it is.
        name: its name.
        uid: tells it from a later one of its name.
        ending: it has been told to end.
        grace_seconds: how long it may take for that.
        stays: it belongs to the node (a DaemonSet's, a static pod's mirror) or is finished: not to be evicted.
    """

    namespace: str
    name: str
    uid: str
    ending: bool = False
    grace_seconds: int = field(default=0, compare=False)
    stays: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"


class Nodes:
    """Use it as an async context manager. Every method raises `NodeError`.

    Args:
        cluster: the API.
        transport: for tests.
    """

    def __init__(self, cluster: Cluster, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._client = httpx.AsyncClient(
            base_url=cluster.server, verify=cluster.tls, transport=transport, timeout=15, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, name: str) -> Node | None:
        """Return a node, or None if there is none of that name."""
        answer = await self._send("GET", _node_path(name), missing_is_fine=True)
        return None if answer is None else _node(answer)

    async def cordon(self, name: str) -> Node | None:
        """Let no more pods be scheduled to a node, and return it as it was before.

        A node that someone else has cordoned is left as it is.
        """
        while node := await self.get(name):
            if node.cordoned or await self._patch(node, {CORDONED_BY: _MANAGER}, {"unschedulable": True}):
                return node
        return None

    async def uncordon(self, name: str, *, proven: bool = False) -> bool:
        """Let pods be scheduled to a node again, if it was us who forbade it; return whether it was.

        A node in quarantine is left as it is, unless it is proven.
        """
        while node := await self.get(name):
            if not (node.ours or node.quarantined) or (node.quarantined and not proven):
                return False
            annotations: dict[str, str | None] = {}
            spec: dict[str, Any] = {}
            if node.ours:
                annotations[CORDONED_BY] = spec["unschedulable"] = None
            if node.quarantined:
                annotations[QUARANTINED] = None
                spec["taints"] = _others(node)
            if await self._patch(node, annotations, spec):
                return True
        return False

    async def quarantine(self, name: str, check: str, reason: str) -> bool:
        """Keep a node from service until it is proven: cordon and taint it; return whether there is such a node.

        Args:
            name: the node.
            check: what does not hold, in a few words.
            reason: the whole reason, one line.
        """
        taint = {"key": QUARANTINE, "value": label_value(check), "effect": "NoSchedule"}
        since = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        while node := await self.get(name):
            annotations = {QUARANTINED: f"{since} {reason}"}
            spec: dict[str, Any] = {"taints": [*_others(node), taint]}
            if not node.cordoned:
                annotations[CORDONED_BY] = _MANAGER
                spec["unschedulable"] = True
            if await self._patch(node, annotations, spec):
                return True
        return False

    async def delete(self, name: str) -> None:
        """Remove a node from the API. That it is gone already is no error."""
        await self._send("DELETE", _node_path(name), missing_is_fine=True)

    async def labels(self) -> dict[str, dict[str, str]]:
        """Return the labels of every node, by its name."""
        found: dict[str, dict[str, str]] = {}
        more = ""
        while True:
            path = f"/api/v1/nodes?limit={_PAGE}" + (f"&continue={quote(more)}" if more else "")
            listed = (await self._answer("GET", path, accept=_ONLY_METADATA)).json()
            for item in listed["items"]:
                found[item["metadata"]["name"]] = item["metadata"].get("labels") or {}
            if not (more := listed["metadata"].get("continue") or ""):
                return found

    async def label(self, name: str, labels: Mapping[str, str]) -> None:
        """Give a node some labels; that it is gone is no error."""
        await self._answer(
            "PATCH", _node_path(name), {"metadata": {"labels": labels}}, final={404}, content_type=_MERGE
        )

    async def heartbeat(self, name: str) -> str:
        """Return when the kubelet of a node last said that it lives, by its own clock; "" if it never did."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        answer = await self._send("GET", path, missing_is_fine=True)
        return str(((answer or {}).get("spec") or {}).get("renewTime") or "")

    async def pods(self, name: str) -> list[Pod]:
        """Return the pods of a node, by namespace and name."""
        answer = await self._send("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")
        items = (answer or {}).get("items") or []
        return sorted((_pod(item) for item in items), key=str)

    async def evict(self, pod: Pod) -> str | None:
        """Ask for a pod to end, as its PodDisruptionBudgets allow; return why it may not now, one line."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        answer = await self._answer("POST", f"{pod.path}/eviction", eviction, final=range(400, 600))
        if answer.is_success or answer.status_code in {404, 409}:  # gone, another of its name, or changed just now
            return None
        return _refusal(answer)

    async def remove(self, pod: Pod) -> None:
        """Remove a pod from the API without its node's word: only for one whose host is not there any more."""
        now = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.uid},
        }
        await self._answer("DELETE", pod.path, now, final={404, 409})

    async def _patch(self, node: Node, annotations: Mapping[str, str | None], spec: Mapping[str, Any]) -> bool:
        """Change a node as we saw it; return whether it still was as we saw it."""
        change = {"metadata": {"resourceVersion": node.version, "annotations": annotations}, "spec": spec}
        answer = await self._answer("PATCH", _node_path(node.name), change, final={404, 409}, content_type=_MERGE)
        return answer.is_success

    async def _send(self, method: str, path: str, *, missing_is_fine: bool = False) -> dict[str, Any] | None:
        answer = await self._answer(method, path, final={404} if missing_is_fine else ())
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found: dict[str, Any] = answer.json()
        return found

    async def _answer(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        final: Collection[int] = (),
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> httpx.Response:
        """Return the API's answer: a good one, or one whose status is among `final`."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_NotNowError),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5),
            stop=tenacity.stop_after_delay(_PATIENCE_SECONDS),
            reraise=True,
        )
        content = None if body is None else json.dumps(body)
        headers = {"accept": accept} | ({} if body is None else {"content-type": content_type})
        try:
            async for attempt in retrying:
                with attempt:
                    return await self._once(method, path, content, headers, final)
        except _NotNowError as error:
            raise NodeError(f"no answer from {self._client.base_url} for {_PATIENCE_SECONDS} s: {error}") from None
        raise AssertionError  # tenacity returns or raises

    async def _once(
        self, method: str, path: str, content: str | None, headers: Mapping[str, str], final: Collection[int]
    ) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise _NotNowError(str(error) or type(error).__name__) from None
        if answer.is_success or answer.status_code in final:
            return answer
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise _NotNowError(f"HTTP {answer.status_code} {_refusal(answer)}")
        raise NodeError(f"{method} {answer.url.path}: HTTP {answer.status_code} {_refusal(answer)}")


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def _node(item: Mapping[str, Any]) -> Node:
    metadata, status = item["metadata"], item.get("status") or {}
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in status.get("conditions") or ()
    )
    return Node(
        name=metadata["name"],
        ready=ready,
        cordoned=bool((item.get("spec") or {}).get("unschedulable")),
        ours=(metadata.get("annotations") or {}).get(CORDONED_BY) == _MANAGER,
        version=metadata.get("resourceVersion", ""),
        taints=tuple((item.get("spec") or {}).get("taints") or ()),
    )


def _others(node: Node) -> list[Mapping[str, Any]]:
    """Return the taints of a node but ours."""
    return [taint for taint in node.taints if taint.get("key") != QUARANTINE]


def label_value(text: str) -> str:
    """Return a text as Kubernetes takes it for the value of a label or taint: 63 letters, digits, `-`, `_`, `.`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text)[:63].strip("-_.")


def _pod(item: Mapping[str, Any]) -> Pod:
    metadata = item["metadata"]
    owners = metadata.get("ownerReferences") or ()
    of_daemon_set = any(owner.get("controller") and owner.get("kind") == "DaemonSet" for owner in owners)
    mirror = _MIRROR in (metadata.get("annotations") or {})
    finished = (item.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        ending="deletionTimestamp" in metadata,
        grace_seconds=metadata.get("deletionGracePeriodSeconds") or 0,
        stays=of_daemon_set or mirror or finished,
    )


def _refusal(answer: httpx.Response) -> str:
    """Return what the API says about a request that it did not carry out, one line.

    A budget's own words, which name it, are in a cause; the message only says that there is one.
    """
    try:
        status = answer.json()
        causes = [cause["message"] for cause in (status.get("details") or {}).get("causes") or () if "message" in cause]
        text = "; ".join(causes) or str(status["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        text = answer.reason_phrase
    return " ".join(text.split())
