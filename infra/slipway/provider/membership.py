"""Hosts that leave a service of the cluster which goes on: members of an etcd, API servers.

A resource of its own, as it comes last: those who use the service forget a host before it leaves, and in an update the
service's own play comes before theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.play import etcd_order, etcdctl, remote
from slipway.provider import balanced, wire
from slipway.provider.members import Etcd, MembersError
from slipway.provider.play_inputs import PlayHost
from slipway.provider.resource import Call, Inputs, Resource, ResourceError, State

_STOP_SECONDS = 120.0
"""How long an API server may take to stop: its shutdown delay, and requests of up to a minute."""

_STOP_API_SERVER = """
systemctl disable --now csr-approver.service kube-controller-manager.service kube-scheduler.service
systemctl disable --now kube-apiserver.service
"""


class MembershipInputs(Inputs):
    """Inputs of a membership.

    Args:
        service: what the hosts are members of.
        hosts: the hosts.
        peers: of an etcd: host → where its member is reached by others.
        balancers: of API servers: the hosts of the load balancers before them.
        ssh_key: the private key that hosts accept.
    """

    service: Literal["etcd", "apiservers"]
    hosts: tuple[PlayHost, ...]
    peers: dict[str, str] = {}
    balancers: tuple[PlayHost, ...] = ()
    ssh_key: Annotated[str, Field(repr=False)]


class Membership(Resource[MembershipInputs]):
    """Takes hosts that are no longer declared out of a service, in a way that nobody feels it.

    It refuses where those that stay could not do without them. A host that is gone already can leave, too. Nothing
    happens when it is deleted: then the whole service goes.
    """

    kind = "slipway:index:Membership"
    inputs = MembershipInputs
    outputs = frozenset[str]()
    replaces = frozenset({"service"})
    quiet = frozenset({"peers", "balancers", "sshKey"})

    async def preview(
        self, call: Call, old: MembershipInputs | None, news: Mapping[str, Any], state: State | None
    ) -> None:
        """Name the hosts that would leave."""
        if old is None or news["hosts"] == wire.UNKNOWN:
            return
        stay = {host.get("name") for host in news["hosts"] if host != wire.UNKNOWN}
        for host in old.hosts:
            if host.name not in stay:
                call.log.info(f"{host.name} would leave {old.service}, then be stopped")

    async def create(self, call: Call, inputs: MembershipInputs) -> State:
        """Take out members of an etcd that an earlier run began with and nobody declares any more."""
        if inputs.service == "etcd":
            await _leave_etcd(call, inputs, (), {})
        return State(call.name, {})

    async def update(self, call: Call, old: MembershipInputs, inputs: MembershipInputs, state: State) -> State:
        """Take out those that leave, the last one first, one after the other."""
        stay = {host.name for host in inputs.hosts}
        leaving = [host for host in reversed(old.hosts) if host.name not in stay]
        if inputs.service == "etcd":
            await _leave_etcd(call, inputs, leaving, old.peers)
        elif leaving:
            await _leave_apiservers(call, inputs, leaving)
        return state


async def _leave_etcd(
    call: Call, inputs: MembershipInputs, leaving: Sequence[PlayHost], peers: Mapping[str, str]
) -> None:
    """Remove members that are not declared, whether their hosts are known or not; then stop them."""
    targets = {host.name: host.target() for host in [*inputs.hosts, *leaving]}
    etcd = Etcd(call, targets, {**peers, **inputs.peers}, inputs.ssh_key)
    try:
        view = await etcd.look()
        others = [each.name for each in view.members if each.name and each.name not in targets]
        names = [*(host.name for host in leaving), *others]
        for host in sorted(names, key=lambda name: not view.trouble(name)):  # those first that only count
            await _leave(etcd, host, names)
    except MembersError as error:
        raise ResourceError(f"{call.name}: {error}") from None


async def _leave(etcd: Etcd, host: str, leaving: Sequence[str]) -> None:
    """Remove a member from the list, then stop it.

    Raises:
        MembersError: the others could not do without it, or it cannot be stopped.
    """
    view = await etcd.look()
    if not view.members:
        raise MembersError(f"{host} cannot be removed: no member sees a majority; see docs/trouble/etcd-quorum.md")
    entry = view.entry(host)
    if entry and not etcd_order.cannot_remove(view, entry):
        await etcd.hand_over(view, host, leaving)
    if entry:
        await etcd.remove(view, entry)
    if host in etcd.targets and view.word(host).reached:
        await etcd.tell(host, etcdctl.SET_ASIDE, f"{host} could not be stopped")
    else:
        etcd.call.log.warning(f"{host} {view.word(host).complaint or 'is not known'}: its etcd was not stopped")


async def _leave_apiservers(call: Call, inputs: MembershipInputs, leaving: Sequence[PlayHost]) -> None:
    """Stop API servers that load balancers have forgotten."""
    seen = await balanced.look(call, inputs.balancers, inputs.ssh_key)
    for host in leaving:
        if known := [balancer for balancer, servers in seen.items() if host.name in servers]:
            raise ResourceError(f"{host.name} cannot leave: load balancer {known[0]} still sends to it")
    if seen and all(balanced.out_of_service(seen, host.name) for host in inputs.hosts):
        raise ResourceError(f"{leaving[0].name} cannot leave: no other API server is in service")
    for host in leaving:
        call.log.status(f"{host.name} finishes what it serves")
        replies = await remote.run(
            [host.target()],
            _STOP_API_SERVER,
            ssh_key=inputs.ssh_key,
            cancelled=call.cancelled,
            seconds=_STOP_SECONDS,
        )
        reply = replies[host.name]
        if reply.unreachable:
            call.log.warning(f"{host.name} cannot be asked: {reply.reason}: its API server was not stopped")
        elif not reply.ok:
            raise ResourceError(f"{host.name} cannot leave: it could not be stopped: {reply.reason}")
        else:
            call.log.info(f"{host.name} stopped")
