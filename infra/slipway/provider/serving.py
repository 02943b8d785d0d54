"""Nodes that serve while their play changes them.

Where a change needs a node to be empty (`slipway.play.drain_rule`), its wave cordons and drains it first, and returns
it when its kubelet is well again. One that cannot be emptied in time is deferred: it goes on serving as it is, is named
in the play's failure, and its turn comes again with the next update; the other nodes go on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from slipway.play import drain
from slipway.play.broker import Order
from slipway.play.nodes import NodeError, Nodes
from slipway.play.runner import Result
from slipway.provider.resource import Call

_READY_SECONDS = 120.0
"""How long a kubelet may take to be heard of after its host was changed."""

_PAUSE = 1.0


@dataclass
class Serving:
    """The nodes of one update.

    Args:
        call: the update.
        nodes: the API.
        hosts: those whose change needs a drain, by name.
        seconds: how long a node may take to be empty.
        unsettled: hosts that an earlier update may have left cordoned by us.
    """

    call: Call
    nodes: Nodes
    hosts: Mapping[str, drain.Leaver]
    seconds: float
    unsettled: Collection[str] = ()
    _drained: set[str] = field(default_factory=set)

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Take nodes as they come."""
        return hosts

    async def before(self, wave: Sequence[str]) -> dict[str, Result]:
        """Empty the nodes of a wave that must be; return a result for each one that is deferred."""
        hosts = [self.hosts[name] for name in wave if name in self.hosts]
        if not hosts:
            return {}
        reasons = await drain.drain_all(
            self.nodes, hosts, seconds=self.seconds, cancelled=self.call.cancelled, tell=self.call.log.status
        )
        self._drained |= {host.name for host in hosts} - reasons.keys()
        deferred = {}
        for name, reason in reasons.items():
            left = await self._uncordon(name)
            deferred[name] = Result(ok=False, deferred=True, reason=f"deferred: {reason}{left}")
        return deferred

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        """None: a node at its digest is left alone."""
        return ()

    def adapt(self, host: str, order: Order) -> Order:
        """Nodes get what they are to become as it is."""
        return order

    async def after(self, results: Mapping[str, Result]) -> dict[str, Result]:
        """Return the nodes that were emptied and changed; return all results, with those that did not come back."""
        ours = {*self._drained, *self.unsettled}
        back = [name for name, result in results.items() if name in ours and result.ok]
        reasons = await asyncio.gather(*(self._return(name) for name in back))
        failed = {
            name: replace(results[name], ok=False, digest="", reason=reason)
            for name, reason in zip(back, reasons, strict=True)
            if reason
        }
        return {**results, **failed}

    async def _return(self, name: str) -> str:
        """Uncordon a node once its kubelet is heard of anew; return why not, else ""."""
        try:
            if name not in self._drained or await self._is_heard_of(name):
                if await self.nodes.uncordon(name):
                    self.call.log.info(f"{name} back in service")
                return ""
        except NodeError as error:
            return f"changed, but still cordoned: {error}"
        if self.call.cancelled.is_set():
            return "changed, but still cordoned: cancelled"
        return f"changed, but its kubelet was not ready within {_READY_SECONDS:g} s; its node is still cordoned"

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

    async def _uncordon(self, name: str) -> str:
        try:
            await self.nodes.uncordon(name)
        except NodeError as error:
            return f"; still cordoned: {error}"
        return ""
