"""API servers behind load balancers while their play changes them.

A server that is told to stop fails its readiness at once and serves on for its shutdown delay; the load balancers see
that and send nobody there any more. So nothing is to be done to take one out, but all others must be in service, as the
load balancers see it, before one goes, and it must be back in service before the next.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from slipway.play import remote
from slipway.play.broker import Order
from slipway.play.runner import Result
from slipway.provider.play_inputs import PlayHost, PlayInputs
from slipway.provider.resource import Call

_STEADY_SECONDS = 30.0
"""How long other servers may take to be in service before one is stopped."""

_BACK_SECONDS = 60.0
"""How long a changed server may take to be back in service, after its role has seen it ready."""

_PAUSE = 1.0
_SCRIPT_SECONDS = 20.0

_SHOW = """python3 - <<'END'
import csv, socket
with socket.socket(socket.AF_UNIX) as admin:
    admin.connect("/run/haproxy/admin.sock")
    admin.sendall(b"show stat\\n")
    for row in csv.DictReader(admin.makefile()):
        if row["# pxname"] == "apiservers" and row["svname"] != "BACKEND":
            print(row["svname"], row["status"])
END
"""
"""Prints each server and how its load balancer sees it: `lab-api-0 UP`."""

Seen = Mapping[str, Mapping[str, str]]
"""Load balancer → server → how it is seen: UP, DOWN, `UP 1/2` on its way and so on."""


@dataclass
class Balanced:
    """The gate of a play of API servers.

    Args:
        call: the update.
        inputs: the play.
    """

    call: Call
    inputs: PlayInputs
    _silent: set[str] = field(default_factory=set)

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Servers that are out of service first."""
        seen = await self._look()
        return sorted(hosts, key=lambda host: not out_of_service(seen, host))

    async def before(self, wave: Sequence[str]) -> Mapping[str, Result]:
        """See that the others are in service before one is stopped."""
        declared = [host.name for host in self.inputs.hosts]
        reason = await self._until_none(lambda seen: cannot_stop(seen, wave, declared), _STEADY_SECONDS)
        return dict.fromkeys(wave, self._failed(f"not changed: {reason}")) if reason else {}

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        """None: a server at its digest is left alone."""
        return ()

    def adapt(self, host: str, order: Order) -> Order:
        """API servers get what they are to become as it is."""
        return order

    async def after(self, results: Mapping[str, Result]) -> Mapping[str, Result]:
        """Wait until the changed servers are in service again."""
        done = dict(results)
        for host in [name for name, result in results.items() if result.ok]:
            reason = await self._until_none(partial(out_of_service, host=host), _BACK_SECONDS)
            if reason:
                done[host] = self._failed(f"changed, but {reason}")
        return done

    def _failed(self, reason: str) -> Result:
        return Result.failure(reason, cancelled=self.call.cancelled.is_set())

    async def _until_none(self, reason: Callable[[Seen], str], seconds: float) -> str:
        """Look again and again until nothing speaks against it any more; return what still does at the end."""
        end = time.monotonic() + seconds
        while (last := reason(await self._look())) and time.monotonic() < end and not self.call.cancelled.is_set():
            await asyncio.sleep(_PAUSE)
        return last

    async def _look(self) -> Seen:
        return await look(self.call, self.inputs.balancers, self.inputs.ssh_key, self._silent)


async def look(call: Call, balancers: Sequence[PlayHost], ssh_key: str, silent: set[str] | None = None) -> Seen:
    """Ask all load balancers. Those that do not answer let nobody through whom a change could disturb.

    Args:
        call: the request.
        balancers: their hosts.
        ssh_key: the private key that hosts accept.
        silent: those that were told of already, as they do not answer; it is added to.
    """
    replies = await remote.run(
        [balancer.target() for balancer in balancers],
        _SHOW,
        ssh_key=ssh_key,
        cancelled=call.cancelled,
        seconds=_SCRIPT_SECONDS,
    )
    told = set() if silent is None else silent
    for name, reply in replies.items():
        if not reply.ok and name not in told:
            told.add(name)
            call.log.warning(f"load balancer {name} does not say how it sees API servers: {reply.reason}")
    return {
        name: dict(line.split(" ", 1) for line in reply.output.splitlines())
        for name, reply in replies.items()
        if reply.ok
    }


def out_of_service(seen: Seen, host: str) -> str:
    """Say at which load balancer a server is not in service; "" where none that knows it says so."""
    for balancer, servers in seen.items():
        if not servers.get(host, "UP").startswith("UP"):
            return f"{host} is {servers[host]} at load balancer {balancer}"
    return ""


def cannot_stop(seen: Seen, wave: Sequence[str], declared: Sequence[str]) -> str:
    """Say why the servers of a wave may not be stopped now; "" where all others that are declared are in service."""
    for other in declared:
        if other not in wave and (reason := out_of_service(seen, other)):
            return reason
    return ""
