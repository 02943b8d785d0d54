"""Hosts that leave a play of nodes: drained before anything else, their Node objects removed at the end.

Pulumi removes hosts last, and only after everything else in an update went well. So a play that fails for a host that
cannot be drained keeps that host. It stays in the play's results, marked as leaving, until an update has drained it;
one that is declared again until then takes part as before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from slipway.play import drain, runner, tokens
from slipway.play.broker import BrokerError
from slipway.play.nodes import NodeError, Nodes
from slipway.provider.log import stamp
from slipway.provider.resource import Call, InitFailed, ResourceError, State

_MARK = "leaving"


class Host(Protocol):
    """What is asked of a play's host."""

    @property
    def name(self) -> str:
        """Its name, which is its node's."""

    @property
    def address(self) -> str:
        """Where its SSH server listens."""

    @property
    def port(self) -> int:
        """Likewise."""


def leavers(
    old: Sequence[Host], declared: Collection[str], results: Mapping[str, Mapping[str, Any]]
) -> list[drain.Leaver]:
    """Return the hosts that are no longer declared: those of the last update, and those that earlier ones kept."""
    known = {
        name: drain.Leaver(name, result["address"], result["port"])
        for name, result in results.items()
        if result.get(_MARK)
    }
    known |= {host.name: drain.Leaver(host.name, host.address, host.port) for host in old}
    return [leaver for name, leaver in known.items() if name not in declared]


def returning(new: Sequence[Host], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the hosts that were to leave and are declared again."""
    return [host.name for host in new if results.get(host.name, {}).get(_MARK)]


def foretold(*, nodes: bool, seconds: float) -> dict[str, str]:
    """Return what a preview's row says about a host that leaves.

    Args:
        nodes: the play's hosts are nodes of a cluster.
        seconds: how long a node may take to be empty.
    """
    if not nodes:
        return {"wouldChange": "leaves this play"}
    return {"wouldChange": f"leaves: its node is drained (for at most {seconds:g} s) and removed", "disrupts": "drain"}


@dataclass(frozen=True)
class Departure:
    """Hosts that leave with this update, drained as far as they could be.

    Args:
        leavers: the hosts.
        reasons: by name, one line each, why one cannot leave yet.
        kept: what is known of them, by name, for the play's results until they are gone.
    """

    leavers: Sequence[drain.Leaver]
    reasons: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def and_failed(self, error: InitFailed) -> InitFailed:
        """Return the failure of the play's other hosts together with what there is to say of those that leave."""
        outputs = dict(error.outputs)
        outputs["results"] = {**outputs.get("results", {}), **self.kept}
        outputs["failedHosts"] = [*outputs.get("failedHosts", []), *self.reasons]
        lines = [f"{name}: {reason}; the host is kept, its node cordoned" for name, reason in self.reasons.items()]
        return InitFailed(error.id, outputs, [*error.reasons, *lines])


@asynccontextmanager
async def api(kubeconfig: str) -> AsyncIterator[Nodes]:
    """Connect to a cluster.

    Raises:
        ResourceError: the kubeconfig is of no use.
    """
    with runner.private_folder() as scratch:
        try:
            cluster = tokens.cluster(kubeconfig, scratch)
        except BrokerError as error:
            raise ResourceError(str(error)) from None
    async with Nodes(cluster) as nodes:
        yield nodes


async def begin(
    call: Call,
    nodes: Nodes,
    leaving: Sequence[drain.Leaver],
    *,
    seconds: float,
    results: Mapping[str, Mapping[str, Any]],
) -> Departure:
    """Drain the nodes of hosts that leave."""
    reasons = await drain.drain_all(nodes, leaving, seconds=seconds, cancelled=call.cancelled, tell=call.log.status)
    for leaver in leaving:
        if leaver.name not in reasons:
            call.log.info(f"{leaver.name} drained")
    kept = {
        leaver.name: {
            "ok": leaver.name not in reasons,
            "digest": results.get(leaver.name, {}).get("digest", ""),
            "at": results.get(leaver.name, {}).get("at") or stamp(),
            "reason": reasons.get(leaver.name, "drained; it leaves when the play's other hosts are done"),
            _MARK: True,
            "address": leaver.address,
            "port": leaver.port,
        }
        for leaver in leaving
    }
    return Departure(leaving, reasons, kept)


async def finish(nodes: Nodes, departure: Departure, state: State) -> State:
    """Remove the Node objects of hosts that leave, when all of the play's other hosts are done.

    Raises:
        InitFailed: some cannot leave yet. No Node object is removed then, as no host will be.
    """
    if departure.reasons:
        raise departure.and_failed(InitFailed(state.id, state.outputs, []))
    try:
        for leaver in departure.leavers:
            await nodes.delete(leaver.name)
    except NodeError as error:
        failure = InitFailed(state.id, state.outputs, [f"{leaver.name}: its Node was not removed: {error}"])
        failure = departure.and_failed(failure)
        failure.outputs["failedHosts"].append(leaver.name)
        raise failure from None
    return state


async def come_back(nodes: Nodes, names: Sequence[str]) -> None:
    """Let pods be scheduled again to nodes that were to leave, if it was us who cordoned them.

    Raises:
        ResourceError: the API refuses, or does not answer.
    """
    try:
        for name in names:
            await nodes.uncordon(name)
    except NodeError as error:
        raise ResourceError(f"{name} could not be uncordoned: {error}") from None


async def remove_all(call: Call, kubeconfig: str, leaving: Sequence[drain.Leaver], seconds: float) -> None:
    """Drain the nodes of a play that a living cluster no longer has, and remove their Node objects.

    When one cannot leave, none does, and all are uncordoned: a play whose removal failed is just what it was, so that
    nothing would tell an update which declares it again that there is something to mend.

    Raises:
        ResourceError: some cannot leave; with one reason each.
    """
    async with api(kubeconfig) as nodes:
        departure = await begin(call, nodes, leaving, seconds=seconds, results={})
        if departure.reasons:
            await come_back(nodes, [leaver.name for leaver in leaving])
            raise ResourceError("; ".join(f"{name}: {reason}" for name, reason in departure.reasons.items()))
        try:
            for leaver in leaving:
                await nodes.delete(leaver.name)
        except NodeError as error:
            raise ResourceError(f"{leaver.name}: its Node was not removed: {error}") from None
