"""Members of an etcd cluster while their play changes them, joins new ones, and replaces those that lost their data.

What is decided when is in `slipway.play.etcd_order`. Nothing is kept from one update to the next: each turn begins with
a look at the members, so an update that was interrupted anywhere is taken up by the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from slipway.play import etcd_order, etcdctl, remote
from slipway.play.broker import Order
from slipway.play.etcd_order import Member, View
from slipway.play.runner import Result, Target
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call

_SCRIPT_SECONDS = 6.0 * etcdctl.SECONDS
_STEADY_SECONDS = 30.0
"""How long the other members may take to be well before one is stopped: after a change elsewhere they need a moment."""

_WELL_SECONDS = 60.0
"""How long a changed member may take to have caught up, after its role has seen it serve."""

_JOIN_SECONDS = 600.0
"""How long a new member may take to receive the whole database: 8 GiB at 15 MiB/s."""

_PAUSE = 1.0

_RESTORE = "see docs/trouble/etcd-quorum.md"

T = TypeVar("T")


class MembersError(Exception):
    """A step cannot be taken. The message is one line."""


@dataclass
class Etcd:
    """An etcd cluster, asked and told through its hosts.

    Args:
        call: the request.
        targets: the hosts, by name, which is their member's as well.
        peer_urls: host → where its member is reached by others.
        ssh_key: the private key that hosts accept.
        quota: the quota that members are to have, bytes.
    """

    call: Call
    targets: Mapping[str, Target]
    peer_urls: Mapping[str, str]
    ssh_key: str = field(repr=False)
    quota: int = 0

    async def look(self) -> View:
        """Ask all members, those too whose hosts are not ours.

        Raises:
            MembersError: there are members of two clusters.
        """
        replies = await self._run(list(self.targets.values()), etcdctl.LOOK)
        words = {name: etcdctl.word(reply) for name, reply in replies.items()}
        view = View(self.peer_urls, words, self.quota)
        if view.is_split:
            raise MembersError(f"there are members of two etcd clusters; {_RESTORE}")
        others = [member for member in view.members if member.begun and member.name not in self.targets]
        if others and view.spokesman:
            asked = (await self._run([self.targets[view.spokesman]], etcdctl.look_at(others)))[view.spokesman]
            view = View(self.peer_urls, words | etcdctl.strangers(asked, others), self.quota)
        return view

    async def hand_over(self, view: View, leader: str, leaving: Collection[str] = ()) -> None:
        """Make another member the leader, if a host's member is.

        Raises:
            MembersError: nobody else can be, or it does not happen.
        """
        entry = view.entry(leader)
        if entry is None or view.spokesman is None or not view.leads(leader) or len(view.voters) == 1:
            return
        to = etcd_order.successor(view, leader, leaving)
        if to is None:
            raise MembersError(f"{leader} leads, and no other member can")
        script = etcdctl.move_leader(entry, to)
        await self.tell(view.spokesman, script, f"{leader} could not hand over to {to.name}")
        self.call.log.info(f"{leader} handed over to {to.name}")

    async def remove(self, view: View, member: Member) -> None:
        """Take a member from the list.

        Raises:
            MembersError: a majority of those that stay would not be well, or etcd refuses.
        """
        name = member.name or member.peer_url
        if reason := etcd_order.cannot_remove(view, member):
            raise MembersError(f"{name} cannot be removed: {reason}")
        await self._change_list(view, etcdctl.remove(member), f"{name} could not be removed")
        self.call.log.info(f"{name} removed from the members")

    async def add(self, view: View, host: str) -> None:
        """Add a host's member to the list, without a vote.

        Raises:
            MembersError: etcd refuses.
        """
        await self._change_list(view, etcdctl.add(host, self.peer_urls[host]), f"{host} could not be added")
        self.call.log.info(f"{host} added to the members")

    async def promote(self, view: View, member: Member) -> None:
        """Give a member its vote.

        Raises:
            MembersError: etcd refuses, as while the member is behind.
        """
        await self._change_list(view, etcdctl.promote(member), f"{member.name} could not get its vote", seconds=0)
        self.call.log.info(f"{member.name} has its vote")

    async def _change_list(self, view: View, script: str, failure: str, seconds: float = _STEADY_SECONDS) -> None:
        """Have a member that sees a majority change the list; etcd refuses while members have just come or gone."""
        end = time.monotonic() + seconds
        while True:
            if view.spokesman is None:
                raise MembersError(f"{failure}: no member sees a majority; {_RESTORE}")
            try:
                return await self.tell(view.spokesman, script, failure)
            except MembersError:
                if time.monotonic() >= end or self.call.cancelled.is_set():
                    raise
            await asyncio.sleep(_PAUSE)
            view = await self.look()

    async def tell(self, host: str, script: str, failure: str) -> None:
        """Run a script on a host.

        Raises:
            MembersError: it failed.
        """
        reply = (await self._run([self.targets[host]], script))[host]
        if not reply.ok:
            raise MembersError(f"{failure}: {reply.reason}")

    async def _run(self, targets: Sequence[Target], script: str) -> dict[str, remote.Reply]:
        return await remote.run(
            targets, script, ssh_key=self.ssh_key, cancelled=self.call.cancelled, seconds=_SCRIPT_SECONDS
        )


@dataclass
class Members:
    """The gate of a play of etcd members: one turn a host, the others well before and after it.

    Args:
        etcd: the cluster.
        formed: an earlier update saw it whole, so that data that are missing were lost.
        due: hosts on which the update has something to do.
    """

    etcd: Etcd
    formed: bool
    due: Collection[str]
    _joining: dict[str, tuple[Member, ...]] = field(default_factory=dict)
    _forced: set[str] = field(default_factory=set)

    async def alone(self, hosts: Sequence[str]) -> set[str]:
        """Return the hosts that must go one at a time: all, if there is a majority to lose.

        Members that are neither declared nor well go at once, as the others cannot be changed while they count.

        Raises:
            MembersError: there are members of two clusters, or etcd refuses.
        """
        view = await self.etcd.look()
        for member in view.members:
            dead = member.name and member.name not in self.etcd.targets and view.trouble(member.name)
            if dead and not etcd_order.cannot_remove(view, member):
                await self.etcd.remove(view, member)
                view = await self.etcd.look()
        return set(hosts) if view.members else set()

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Unwell members first, then new ones, then followers, and the leader last."""
        try:
            return etcd_order.order(await self.etcd.look(), hosts)
        except MembersError:
            return hosts  # `before` says so

    async def before(self, wave: Sequence[str]) -> Mapping[str, Result]:
        """See that the cluster can do without each member; make a place for one that joins or is replaced."""
        try:
            view = await self.etcd.look()
        except MembersError as error:
            return dict.fromkeys(wave, self._failed(str(error)))
        if not view.members:
            return self._without_majority(view, wave)
        if len(wave) > 1:  # there was no majority when the waves were planned
            return dict.fromkeys(wave, self._failed("members have a majority again: run the same command once more"))
        return {host: self._failed(reason) for host in wave if (reason := await self._reason(self._make_ready, host))}

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        """All of them: a member may be unwell whatever the digest of its host."""
        return untouched

    def adapt(self, host: str, order: Order) -> Order:
        """Tell a member that joins how to begin; go through one that is not well, whatever its digest."""
        if host in self._forced:
            order = replace(order, inputs={**order.inputs, "force": True})
        if host not in self._joining:
            return order
        members = [{"name": each.name or host, "peer_url": each.peer_url} for each in self._joining[host]]
        begin = {"etcd_initial_cluster_state": "existing", "etcd_initial_members": members}
        return replace(order, inputs={**order.inputs, "vars": {**order.inputs["vars"], **begin}})

    async def after(self, results: Mapping[str, Result]) -> Mapping[str, Result]:
        """Wait until each changed member has caught up, and give new ones their vote."""
        done = dict(results)
        for host, result in results.items():
            if result.ok and (reason := await self._reason(self._settle, host)):
                done[host] = self._failed(reason)
        return done

    def _without_majority(self, view: View, wave: Sequence[str]) -> dict[str, Result]:
        """Let members start that have data, or a cluster form that never was one. What is lost is not made anew."""
        if not self.formed:
            return {}
        self._forced |= set(wave)
        if not view.has_data and all(view.word(host).reached for host in self.etcd.targets):
            self.etcd.call.log.warning("no member has any data left: a new, empty etcd is formed")
            return {}
        return {
            host: self._failed(f"has no data of its member, and the other members have no majority; {_RESTORE}")
            for host in wave
            if view.word(host).reached and not view.word(host).has_data
        }

    async def _make_ready(self, host: str) -> None:
        view = await self._steady(host)
        entry, step = view.entry(host), etcd_order.step(view, host)
        if step == "change":
            if view.trouble(host):
                self._forced.add(host)
            if entry and entry.learner:
                self._joining[host] = view.members
            if host in self.due:
                await self.etcd.hand_over(view, host)
            return
        if not view.word(host).reached:
            return  # the play finds out, and says so
        if step == "join" and view.word(host).has_data:
            await self.etcd.tell(host, etcdctl.SET_ASIDE, "data of an earlier member could not be set aside")
            self.etcd.call.log.warning(f"{host} is no member: the data it had are kept beside the new ones")
        if step == "replace" and entry:
            await self.etcd.remove(view, entry)
        if step != "begin":
            await self.etcd.add(view, host)
        self._forced.add(host)
        self._joining[host] = (await self.etcd.look()).members

    async def _steady(self, host: str) -> View:
        """Return the cluster once a member may be stopped.

        Raises:
            MembersError: it may not.
        """
        reason = ""

        async def look() -> View | None:
            nonlocal reason
            view = await self.etcd.look()
            reason = etcd_order.cannot_stop(view, host)
            return None if reason else view

        if (view := await self._until(look, _STEADY_SECONDS)) is None:
            raise MembersError(f"not changed: {reason}; {_RESTORE}")
        return view

    async def _settle(self, host: str) -> None:
        """Wait until a member has caught up; give it its vote.

        Raises:
            MembersError: it takes too long.
        """
        reason = ""

        async def look() -> bool:
            nonlocal reason
            view = await self.etcd.look()
            entry = view.entry(host)
            reason = view.trouble(host) if entry else "is not among the members"
            if reason or entry is None:
                return False
            if not entry.learner:
                return True
            try:
                await self.etcd.promote(view, entry)
            except MembersError as error:
                reason = str(error)
            return False

        seconds = _JOIN_SECONDS if host in self._joining else _WELL_SECONDS
        if not await self._until(look, seconds):
            raise MembersError(f"changed, but after {seconds:g} s its member {reason}; {_RESTORE}")

    async def _until(self, look: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Look again and again until something is found, it takes too long, or Ctrl-C is pressed."""
        end = time.monotonic() + seconds
        while not (found := await look()) and time.monotonic() < end and not self.etcd.call.cancelled.is_set():
            await asyncio.sleep(_PAUSE)
        return found

    def _failed(self, reason: str) -> Result:
        return Result.failure(reason, cancelled=self.etcd.call.cancelled.is_set())

    @staticmethod
    async def _reason(step: Callable[[str], Awaitable[None]], host: str) -> str:
        try:
            await step(host)
        except MembersError as error:
            return str(error)
        return ""


def members_of(call: Call, inputs: PlayInputs, *, formed: bool, due: Collection[str]) -> Members:
    """Return the gate of a play of etcd members."""
    listed = {member["name"]: member["peer_url"] for member in inputs.vars["etcd_members"]}
    etcd = Etcd(
        call,
        {host.name: host.target() for host in inputs.hosts},
        {host.name: listed[host.name] for host in inputs.hosts},
        inputs.ssh_key,
        int(inputs.vars.get("etcd_quota_backend_bytes", 0)),
    )
    return Members(etcd, formed, due)
