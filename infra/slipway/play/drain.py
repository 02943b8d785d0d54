"""Empty nodes of their pods, as their PodDisruptionBudgets allow and within a deadline.

Nothing is forced: a node that cannot be emptied in time is left cordoned, and the error names the pod and the budget.
Only where the host itself is not there any more (the control plane has not heard of its kubelet, and it does not answer
on its SSH port either) its pods are removed from the API without its word, as nobody will ever give it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from slipway.play.nodes import Node, NodeError, Nodes, Pod

_AT_ONCE = 50
"""Nodes drained side by side. Budgets say how many pods go at a time; this is for the API's sake."""

_PAUSES = (0.5, 5.0)
"""Seconds between two looks at a node's pods: at first, and at most."""

_PROBE_SECONDS = 3.0
_PROBES = 2

Tell = Callable[[str], None]
"""Takes a line about how far it is."""


class DrainError(Exception):
    """A node could not be emptied. The message is one line."""


@dataclass(frozen=True)
class Leaver:
    """A host whose node is to be empty.

    Args:
        name: of host and node.
        address: where its SSH server listens.
        port: likewise.
    """

    name: str
    address: str
    port: int = 22

    async def answers(self) -> bool:
        """Return whether something answers at the host's address, be it with a refusal."""
        for _ in range(_PROBES):
            try:
                async with asyncio.timeout(_PROBE_SECONDS):
                    _, writer = await asyncio.open_connection(self.address, self.port)
            except ConnectionRefusedError:
                return True
            except OSError:  # no route, no answer in time
                continue
            writer.close()
            return True
        return False


async def drain_all(
    nodes: Nodes, leavers: Sequence[Leaver], *, seconds: float, cancelled: threading.Event, tell: Tell
) -> Mapping[str, str]:
    """Cordon nodes and empty them side by side; return by name, one line each, why one is not empty.

    All are cordoned before the first is drained, so that no pod goes from one to another. A node that the API does not
    know is empty.

    Args:
        nodes: the API.
        leavers: whose nodes.
        seconds: how long each may take.
        cancelled: when it is set, nothing more is begun.
        tell: gets a line from time to time.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    reasons: dict[str, str] = {}

    async def cordon(leaver: Leaver) -> None:
        async with gate:
            try:
                await nodes.cordon(leaver.name)
            except NodeError as error:
                reasons[leaver.name] = f"not cordoned: {error}"

    async def empty(leaver: Leaver) -> None:
        async with gate:
            if leaver.name in reasons:
                return
            try:
                await drain(nodes, leaver, seconds=seconds, cancelled=cancelled, tell=tell)
            except (DrainError, NodeError) as error:
                reasons[leaver.name] = f"not drained: {error}"

    await asyncio.gather(*(cordon(leaver) for leaver in leavers))
    await asyncio.gather(*(empty(leaver) for leaver in leavers))
    return reasons


async def drain(nodes: Nodes, leaver: Leaver, *, seconds: float, cancelled: threading.Event, tell: Tell) -> None:
    """Empty one node, which is cordoned.

    Raises:
        DrainError: pods are left at the deadline, or it was cancelled.
        NodeError: the API refuses, or does not answer.
    """
    end = time.monotonic() + seconds
    pause, longest = _PAUSES
    told = 0
    while node := await nodes.get(leaver.name):
        pods = [pod for pod in await nodes.pods(leaver.name) if not pod.stays]
        if not pods:
            return
        if len(pods) != told:
            told = len(pods)
            tell(f"draining {leaver.name}: {_count(told, 'pod')} left")
        refusals: dict[Pod, str] = {}
        if await _is_gone(node, leaver):
            for pod in pods:
                await nodes.remove(pod)
        else:
            for pod in pods:
                if not pod.ending and (refusal := await nodes.evict(pod)):
                    refusals[pod] = refusal
        if cancelled.is_set():
            raise DrainError("cancelled")
        if (left := end - time.monotonic()) <= 0:
            raise DrainError(f"after {seconds:g} s {_what_is_left(pods, refusals, node)}")
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, longest)


async def _is_gone(node: Node, leaver: Leaver) -> bool:
    """Say whether nobody has heard of a host: neither the control plane nor we."""
    return not node.ready and not await leaver.answers()


def _what_is_left(pods: Sequence[Pod], refusals: Mapping[Pod, str], node: Node) -> str:
    """Return what keeps a node from being empty: a budget rather than a pod that is slow to end."""
    if refusals:
        pod, refusal = next(iter(refusals.items()))
        what = f"{pod} may not be evicted: {refusal}"
    else:
        pod = pods[0]
        what = f"{pod} is still ending (it may take {pod.grace_seconds} s)"
        if not node.ready:
            what = f"{pod} is still there: the kubelet does not answer, though the host does"
    others = len(pods) - 1
    return f"{what}; {_count(others, 'other pod')} left" if others else what


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
