"""Nodes that serve while their play changes them.

Before a wave touches a node in service, a check run on it tells what the change costs. Where that is a drain or a
reboot, the node is cordoned and drained first, and returned when it is proven: its host by the checks of its roles, its
kubelet by being heard of anew. One that cannot be emptied in time is deferred: it goes on serving as it is, is named in
the play's failure, and its turn comes again with the next update; the other nodes go on. One that cannot be proven is
quarantined: it stays cordoned, with a taint that says why, until an update has proven it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipway.play import drain
from slipway.play.broker import Order
from slipway.play.findings import Finding
from slipway.play.nodes import NodeError, Nodes
from slipway.play.runner import Result
from slipway.provider.resource import Call

_READY_SECONDS = 120.0
"""How long a kubelet may take to be heard of after its host was changed."""

_PAUSE = 1.0
_SILENT = "kubelet : is heard of"
"""The check that the API is asked for."""

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, Finding]]]
"""Finds out by check runs what would change on hosts."""


@dataclass
class Serving:
    """The nodes of one update.

    Args:
        call: the update.
        nodes: the API.
        hosts: those that serve and may have to change, by name.
        look: finds out what would change on them.
        seconds: how long a node may take to be empty.
        unsettled: hosts that an earlier update may have left cordoned or quarantined by us.
    """

    call: Call
    nodes: Nodes
    hosts: Mapping[str, drain.Leaver]
    look: Look
    seconds: float
    unsettled: Collection[str] = ()
    drained: set[str] = field(default_factory=set)

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Take nodes as they come."""
        return hosts

    async def before(self, wave: Sequence[str]) -> dict[str, Result]:
        """Empty the nodes of a wave that must be; return a result for each one that is deferred."""
        serving = [name for name in wave if name in self.hosts]
        found = await self.look(serving) if serving else {}
        hosts = [self.hosts[name] for name in serving if _must_be_empty(found[name])]
        if not hosts:
            return {}
        reasons = await drain.drain_all(
            self.nodes, hosts, seconds=self.seconds, cancelled=self.call.cancelled, tell=self.call.log.status
        )
        self.drained |= {host.name for host in hosts} - reasons.keys()
        deferred = {}
        for name, reason in reasons.items():
            left = await self._uncordon(name)
            deferred[name] = Result(ok=False, deferred=True, reason=f"deferred: {reason}{left}")
        return deferred

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        """None: a node at its digest is left alone."""
        return ()

    def adapt(self, host: str, order: Order) -> Order:
        """Tell a host that was drained that it is not done before it is returned."""
        return replace(order, inputs={**order.inputs, "drained": True}) if host in self.drained else order

    async def after(self, results: Mapping[str, Result]) -> dict[str, Result]:
        """Return nodes that are proven to service, quarantine those that are not; return all results."""
        return dict(zip(results, await asyncio.gather(*(self._settle(*each) for each in results.items())), strict=True))

    async def _settle(self, name: str, result: Result) -> Result:
        if result.ok and (name in self.unsettled or not result.untouched):
            result = await self._return(name, result)
        return await self._quarantine(name, result) if result.unproven else result

    async def _return(self, name: str, result: Result) -> Result:
        """Let a node serve, if it was us who kept it from that, once its kubelet is heard of anew."""
        try:
            if name not in self.drained or await self._is_heard_of(name):
                if await self.nodes.uncordon(name, proven=True):
                    self.call.log.info(f"{name} back in service")
                return result
        except NodeError as error:
            return replace(result, ok=False, digest="", reason=f"changed, but still cordoned: {error}")
        if self.call.cancelled.is_set():
            return replace(result, ok=False, digest="", reason="changed, but still cordoned: cancelled", cancelled=True)
        reason = f"changed, but its kubelet was not ready within {_READY_SECONDS:g} s"
        return replace(result, ok=False, digest="", reason=reason, unproven=_SILENT)

    async def _is_heard_of(self, name: str) -> bool:
        """Wait for a sign of life later than now: readiness alone may be what was said before the change."""
        before = await self.nodes.heartbeat(name)
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end and not self.call.cancelled.is_set():
            node = await self.nodes.get(name)
            if node is None:  # nothing to return
                return True
            if node.ready and await self.nodes.heartbeat(name) != before:
                return True
            await asyncio.sleep(_PAUSE)
        return False

    async def _quarantine(self, name: str, result: Result) -> Result:
        try:
            if await self.nodes.quarantine(name, result.unproven, result.reason):
                self.call.log.warning(f"{name} quarantined: {result.reason}")
                return replace(result, reason=f"{result.reason}; its node is quarantined")
        except NodeError as error:
            return replace(result, reason=f"{result.reason}; its node could not be quarantined: {error}")
        return result  # it has no node yet

    async def _uncordon(self, name: str) -> str:
        try:
            await self.nodes.uncordon(name)
        except NodeError as error:
            return f"; still cordoned: {error}"
        return ""


def _must_be_empty(found: Finding) -> bool:
    """Say whether a change needs a node to be empty; of one that the check run could not foresee nobody knows."""
    return found.kind == "failed" or found.cost in ("drain", "reboot")
