"""A cluster's API in memory, as far as draining goes."""

from __future__ import annotations

import json
import re
import ssl
from typing import Any

import httpx

from slipway.play import tokens
from slipway.play.nodes import QUARANTINE, QUARANTINED

CLUSTER = tokens.Cluster("https://10.0.0.1:6443", ssl.create_default_context())


class Cluster:
    """An API with nodes and pods. A pod that may end is gone at the next look, if its kubelet lives."""

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, dict[str, Any]] = {
            name: {"ready": True, "cordoned": False, "annotations": {}, "taints": []} for name in names
        }
        self.pods: dict[str, dict[str, Any]] = {}
        self.log: list[str] = []
        self.beats = 0

    def pod(self, name: str, on: str, *, budget: bool = False, kind: str = "ReplicaSet", grace: int = 0) -> None:
        self.pods[name] = {"on": on, "budget": budget, "kind": kind, "grace": grace, "ending": False}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/api/v1/nodes":
            return self.page(request)
        if match := re.fullmatch(r"/api/v1/nodes/(.+)", path):
            return self.node(request, match[1])
        if match := re.fullmatch(r"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/(.+)", path):
            self.beats += self.nodes[match[1]]["ready"]
            return httpx.Response(200, json={"spec": {"renewTime": str(self.beats)}})
        if path == "/api/v1/pods":
            return self.listed(request.url.params["fieldSelector"].removeprefix("spec.nodeName="))
        if match := re.fullmatch(r"/api/v1/namespaces/x/pods/([^/]+)(/eviction)?", path):
            return self.evict(match[1]) if match[2] else self.remove(match[1], request)
        raise AssertionError(path)

    def node(self, request: httpx.Request, name: str) -> httpx.Response:
        found = self.nodes.get(name)
        if found is None:
            return httpx.Response(404, json={})
        if request.method == "DELETE":
            self.log.append(f"delete {name}")
            del self.nodes[name]
        if request.method == "PATCH":
            change = json.loads(request.content)
            if labels := change["metadata"].get("labels"):
                found.setdefault("labels", {}).update(labels)
                self.log.append(f"label {name}")
                return httpx.Response(200, json={})
            before = self.said(found)
            if "unschedulable" in change["spec"]:
                found["cordoned"] = bool(change["spec"]["unschedulable"])
            found["taints"] = change["spec"].get("taints", found["taints"])
            found["annotations"] |= change["metadata"]["annotations"]
            self.log += [f"{word} {name}" for word in self.said(found) if word not in before]
        body = {
            "metadata": {"name": name, "annotations": found["annotations"]},
            "spec": {"unschedulable": found["cordoned"], "taints": found["taints"]},
            "status": {"conditions": [{"type": "Ready", "status": "True" if found["ready"] else "Unknown"}]},
        }
        return httpx.Response(200, json=body)

    def page(self, request: httpx.Request) -> httpx.Response:
        """One node a page."""
        assert "PartialObjectMetadataList" in request.headers["accept"]
        names = sorted(self.nodes)
        at = int(request.url.params.get("continue", "0"))
        items = [{"metadata": {"name": name, "labels": self.nodes[name].get("labels")}} for name in names[at : at + 1]]
        more = str(at + 1) if at + 1 < len(names) else ""
        return httpx.Response(200, json={"items": items, "metadata": {"continue": more}})

    @staticmethod
    def said(node: dict[str, Any]) -> set[str]:
        """What one would say of a node."""
        quarantined = any(taint["key"] == QUARANTINE for taint in node["taints"])
        assert quarantined == bool(node["annotations"].get(QUARANTINED))
        return {"cordon" if node["cordoned"] else "uncordon", "quarantine" if quarantined else "release"}

    def listed(self, node: str) -> httpx.Response:
        if self.nodes[node]["ready"]:
            self.pods = {name: pod for name, pod in self.pods.items() if not pod["ending"] or pod["grace"]}
        return httpx.Response(
            200,
            json={
                "items": [
                    {
                        "metadata": {
                            "namespace": "x",
                            "name": name,
                            "uid": name,
                            "ownerReferences": [{"kind": pod["kind"], "controller": True}],
                            **({"deletionTimestamp": "now"} if pod["ending"] else {}),
                            "deletionGracePeriodSeconds": pod["grace"],
                        }
                    }
                    for name, pod in self.pods.items()
                    if pod["on"] == node
                ]
            },
        )

    def evict(self, name: str) -> httpx.Response:
        if self.pods[name]["budget"]:
            return httpx.Response(429, json={"message": f"budget of {name}"})
        self.log.append(f"evict {name}")
        self.pods[name]["ending"] = True
        return httpx.Response(201, json={})

    def remove(self, name: str, request: httpx.Request) -> httpx.Response:
        assert request.method == "DELETE"
        assert b'"gracePeriodSeconds": 0' in request.content
        self.log.append(f"remove {name}")
        del self.pods[name]
        return httpx.Response(200, json={})
