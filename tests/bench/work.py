"""One piece of the controller's work in a process of its own: a job as JSON on stdin, what it cost as JSON on stdout.

    python tests/bench/work.py < job.json     (PYTHONPATH: the checkout's `infra`)

CPU seconds are those of this process and of all that it started, connections of SSH that stay behind included.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pulumi.runtime.proto import provider_pb2

from slipway.play import reading, remote
from slipway.play.runner import Target
from slipway.provider import wire
from slipway.provider.log import Log
from slipway.provider.orders import Orders
from slipway.provider.play import Play
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call, InitFailed, State
from slipway.provider.server import Servicer

_PR_SET_CHILD_SUBREAPER = 36
URN = "urn:pulumi:bench::bench::slipway:index:Play::pool"
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMdy0uiCPxDi8C4kx6zS6tiohE1EqgvHE1lDuoVqp0du"


def cpu() -> float:
    """CPU seconds of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def reap() -> None:
    """Wait for orphans: those of our descendants that nobody else waits for come to us."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


class Meter:
    """Wall and CPU seconds of steps, by name."""

    def __init__(self) -> None:
        self.steps: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure what is inside."""
        wall, used = time.monotonic(), cpu()
        yield
        reap()
        self.steps[name] = {"wall": time.monotonic() - wall, "cpu": cpu() - used}


def converge(job: Mapping[str, Any], meter: Meter) -> dict[str, Any]:
    """Bring a play to its hosts: `{play, state, strategy}`, where without a state it is made."""
    if strategy := job.get("strategy"):
        plain = Orders._order

        def order(orders: Orders, name: str) -> Any:
            made = plain(orders, name)
            return type(made)({**made.inputs, "strategy": strategy}, made.certificates)

        Orders._order = order  # type: ignore[method-assign]

    async def run() -> dict[str, Any]:
        call, play = Call("bench", Log(None, URN)), Play()
        inputs = PlayInputs.model_validate(job["play"])
        try:
            if job.get("state") is None:
                return (await play.create(call, inputs)).outputs
            return (await play.update(call, inputs, inputs, State("bench", job["state"]))).outputs
        except InitFailed as error:
            raise SystemExit("; ".join(error.reasons)) from None

    with meter.step("converge"):
        return asyncio.run(run())


def reads(job: Mapping[str, Any], meter: Meter) -> dict[str, Any]:
    """Read hosts over SSH, each many times: `{play, times}`."""
    inputs = PlayInputs.model_validate(job["play"])
    targets = [host.target() for host in inputs.hosts]
    many = [
        Target(f"{number}", target.address, target.port, target.user, target.host_key)
        for number, target in enumerate(targets * (job["times"] // len(targets)))
    ]

    async def run(targets: Sequence[Target]) -> dict[str, remote.Reply]:
        return await remote.run(
            targets, reading.SCRIPT, ssh_key=inputs.ssh_key, cancelled=threading.Event(), seconds=60
        )

    asyncio.run(run(targets))  # what is loaded and worked out once does not count
    with meter.step("read"):
        replies = asyncio.run(run(many))
    return {"hosts": len(many), "failed": [reply.reason for reply in replies.values() if not reply.ok]}


def synthetic(job: Mapping[str, Any], meter: Meter) -> dict[str, Any]:
    """Take a large play of hosts that nobody reaches through what the engine asks at no change: `{hosts}`.

    All but SSH is real, from the engine's messages on; hosts say that they are at their digest.
    """
    play = declared(int(job["hosts"]))
    struct = wire.encode(play | {"sshKey": wire.Secret("a key")})
    digests = PlayInputs.model_validate(play).digests()
    manifests = {name: manifest(play["playbook"], digest) for name, digest in digests.items()}

    async def run(targets: Sequence[Target], *_: Any, **__: Any) -> dict[str, remote.Reply]:
        return {target.name: remote.Reply(ok=True, status=0, output=manifests[target.name]) for target in targets}

    remote.run = run
    with meter.step("up: make (all at their digest)"):
        made = _ask("Create", provider_pb2.CreateRequest(urn=URN, properties=struct))
    state = made.properties
    with meter.step("up: check"):
        _ask("Check", provider_pb2.CheckRequest(urn=URN, olds=struct, news=struct))
    with meter.step("up: diff"):
        found = _ask("Diff", provider_pb2.DiffRequest(id=made.id, urn=URN, olds=state, news=struct, old_inputs=struct))
    assert found.changes == provider_pb2.DiffResponse.DIFF_NONE
    with meter.step("refresh: read by digest"):
        read = _ask("Read", provider_pb2.ReadRequest(id=made.id, urn=URN, properties=state, inputs=struct))
    assert not wire.decode(read.properties)["drifted"]
    return {"state": state.ByteSize(), "inputs": struct.ByteSize()}


def _ask(method: str, request: Any) -> Any:
    async def run() -> Any:
        return await getattr(Servicer(None), method)(request, None)

    return asyncio.run(run())


def declared(hosts: int, network: int = 10) -> dict[str, Any]:
    """Return the inputs of a pool's play, about as large as real ones: 5 variables a host, 60 for all of them.

    Args:
        hosts: how many.
        network: the first number of their addresses.
    """
    addresses = [f"{network}.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(1, hosts + 1)]
    certificate = "-----BEGIN CERTIFICATE-----\n" + ("A" * 64 + "\n") * 12 + "-----END CERTIFICATE-----\n"
    artifact = {
        "component": "kubernetes",
        "version": "1.34.2",
        "files": [
            {"name": f"file-{n}", "source": f"/srv/slipway/engines/kubernetes/{n}", "sha256": "0" * 64}
            for n in range(3)
        ],
    }
    return {
        "playbook": "node",
        "digest": "d" * 64,
        "release": "2026.11",
        "releaseDigest": "0" * 64,
        "sshKey": "a key",
        "preview": "digest",
        "rollout": {"mode": "waves"},
        "vars": {
            "pki_authorities": {"kubernetes": certificate},
            "pki_certificates": [],
            "containerd_images": [{"name": f"registry.k8s.io/image-{n}:v1", "source": "0" * 64} for n in range(12)],
            **{f"component_{n}_artifact": artifact for n in range(6)},
            **{f"component_{n}_setting": "value" for n in range(50)},
        },
        "hosts": [
            {
                "name": f"gpu-{n:05d}",
                "address": address,
                "hostKey": HOST_KEY,
                "group": "nodes",
                "pool": "gpu",
                "vars": {
                    "kubelet_node_name": f"gpu-{n:05d}",
                    "kubelet_node_ip": address,
                    "kube_proxy_node_name": f"gpu-{n:05d}",
                    "pod_network_node_name": f"gpu-{n:05d}",
                    "pod_network_address": address,
                },
            }
            for n, address in enumerate(addresses)
        ],
    }


def manifest(playbook: str, digest: str) -> str:
    """Return what a host says that is at a digest, with two bundles and seven roles in its manifest."""
    role = {"digest": "e" * 64, "result": "ok", "changed": 3, "seconds": 2.5}
    entry = {
        "release": "2026.11",
        "digest": digest,
        "result": "ok",
        "reason": None,
        "failed_task": None,
        "changed": 21,
        "roles": {f"role_{n}": role for n in range(7)},
        "started": "2026-01-31T12:00:00Z",
        "finished": "2026-01-31T12:01:00Z",
        "seconds": 60.0,
        "by": "somebody@somewhere",
    }
    text = json.dumps({"version": 1, "playbooks": {playbook: entry}})
    return f"{int(time.time())}\n{text}\n\n{'a' * 64}\n{'b' * 64}\n"


JOBS: dict[str, Callable[[Mapping[str, Any], Meter], dict[str, Any]]] = {
    "converge": converge,
    "reads": reads,
    "synthetic": synthetic,
}


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    the_job, the_meter = json.load(sys.stdin), Meter()
    came = JOBS[the_job["what"]](the_job, the_meter)
    json.dump(
        {"steps": the_meter.steps, "start": cpu() - sum(s["cpu"] for s in the_meter.steps.values()), "came": came},
        sys.stdout,
    )
