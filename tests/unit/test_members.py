"""The gate of etcd members against a cluster of the test's own: what it does before and after each turn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from slipway.play import etcdctl, remote
from slipway.play.broker import Order
from slipway.play.etcd_order import majority
from slipway.play.remote import Reply
from slipway.play.runner import Result, Target
from slipway.provider import members as module
from slipway.provider.log import Log
from slipway.provider.members import Etcd, Members
from slipway.provider.membership import Membership, MembershipInputs
from slipway.provider.resource import Call, ResourceError, State

T = TypeVar("T")
DONE = Result(ok=True, changed=1, digest="new")


class Died(BaseException):
    """The controller was killed."""


@dataclass
class Server:
    """A host that may have a member."""

    id: int = 0
    up: bool = False
    reachable: bool = True


@dataclass
class Cluster:
    """Hosts, and the list of members: id → {name, learner}. Changes of the list need a majority, as in etcd.

    `life` is how often hosts can be asked or changed before the controller dies.
    """

    hosts: dict[str, Server]
    entries: dict[int, dict[str, Any]] = field(default_factory=dict)
    leader: int = 0
    log: list[str] = field(default_factory=list)
    behind: int = 0
    next_id: int = 500
    life: float = math.inf

    @classmethod
    def of(cls, *names: str) -> Cluster:
        made = cls({name: Server(100 + number, up=True) for number, name in enumerate(names)})
        made.entries = {server.id: {"name": name, "learner": False} for name, server in made.hosts.items()}
        made.leader = 100
        return made

    def voters(self) -> set[int]:
        return {number for number, entry in self.entries.items() if not entry["learner"]}

    def running(self) -> set[int]:
        return {server.id for server in self.hosts.values() if server.up and server.id in self.entries}

    def has_majority(self) -> bool:
        return bool(self.entries) and len(self.voters() & self.running()) >= majority(len(self.voters()))

    def live(self) -> None:
        self.life -= 1
        if self.life < 0:
            raise Died

    def elect(self) -> None:
        able = self.voters() & self.running()
        if self.leader not in able or not self.has_majority():
            self.leader = min(able) if self.has_majority() else 0

    async def run(self, targets: Sequence[Target], script: str, **_: Any) -> dict[str, Reply]:
        self.live()
        self.elect()
        return {target.name: self.reply(target.name, script) for target in targets}

    def reply(self, host: str, script: str) -> Reply:
        server = self.hosts[host]
        if not server.reachable:
            return Reply(ok=False, reason="unreachable: no route", unreachable=True)
        if script == etcdctl.LOOK:
            return Reply(ok=True, status=0, output=self.look(server))
        if script == etcdctl.SET_ASIDE:
            server.id, server.up = 0, False
            self.log.append(f"set aside {host}")
            return Reply(ok=True, status=0)
        if " endpoint status " in script:
            asked = [int(number, 16) for number in re.findall(r"s/\^/(\w+) /", script)]
            lines = [f"{each:x} {json.dumps(self.status(each))}\n" for each in asked if each in self.running()]
            return Reply(ok=True, status=0, output="".join(lines))
        words = script.split()[2:]
        if words[0].startswith("--endpoints="):
            host, words = words[0].removeprefix("--endpoints=https://").removesuffix(":2379"), words[1:]
        failure = self.change(host, words)
        return Reply(ok=not failure, status=0 if not failure else 1, reason=failure)

    def change(self, host: str, words: Sequence[str]) -> str:
        if not self.has_majority():
            return "no majority"
        match words:
            case ["move-leader", id]:
                assert self.hosts[host].id == self.leader
                self.leader = int(id, 16)
                self.log.append(f"{host} hands over to {self.entries[self.leader]['name']}")
            case ["member", "remove", id]:
                self.log.append(f"remove {self.entries.pop(int(id, 16))['name']}")
                assert self.has_majority(), self.log
            case ["member", "add", name, "--learner", url]:
                assert url == f"--peer-urls=https://{name}:2380"
                if any(entry["learner"] for entry in self.entries.values()):
                    return "too many learner members in cluster"
                self.next_id += 1
                self.entries[self.next_id] = {"name": "", "learner": True, "url": f"https://{name}:2380"}
                self.log.append(f"add {name}")
            case ["member", "promote", id]:
                if self.behind:
                    self.behind -= 1
                    return "can only promote a learner member which is in sync with leader"
                self.entries[int(id, 16)]["learner"] = False
                self.log.append(f"promote {self.entries[int(id, 16)]['name']}")
            case _:
                raise AssertionError(words)
        return ""

    def look(self, server: Server) -> str:
        said = "data\n" * bool(server.id)
        if server.id in self.running():
            said += f"status {json.dumps(self.status(server.id))}\n"
            listed = self.has_majority() and not self.entries[server.id]["learner"]
            said += f"members {json.dumps(self.listed())}\n" if listed else "members Error: context deadline exceeded\n"
        return said

    def status(self, member: int) -> Any:
        header = {"member_id": member, "cluster_id": 1}
        learner = self.entries[member]["learner"]
        status = {"header": header, "leader": self.leader, "raftIndex": 9, "raftAppliedIndex": 9, "isLearner": learner}
        return [{"Status": status}]

    def listed(self) -> Any:
        return {
            "members": [
                {
                    "ID": number,
                    "name": entry["name"],
                    "peerURLs": [entry.get("url") or f"https://{entry['name']}:2380"],
                    "clientURLs": [f"https://{entry['name']}:2379"] if entry["name"] else [],
                    "isLearner": entry["learner"],
                }
                for number, entry in self.entries.items()
            ]
        }

    def converge(self, host: str, order: Order) -> Result:
        """What the role does: start the member, from nothing as it is told; restart one that has data."""
        self.live()
        server = self.hosts[host]
        if not server.reachable:
            return Result(ok=False, reason="unreachable: no route", unreachable=True)
        if not server.id:
            joins = order.inputs["vars"].get("etcd_initial_cluster_state") == "existing"
            assert joins == bool(self.entries), "a member without data would begin a cluster of its own"
            assert order.inputs.get("force"), "a host at its digest would be passed over"
            named = [each["name"] for each in order.inputs["vars"]["etcd_initial_members"]]
            assert named == [entry["name"] or host for entry in self.entries.values()]
            own = f"https://{host}:2380"
            server.id = next(number for number, entry in self.entries.items() if entry.get("url") == own)
            self.entries[server.id]["name"] = host
            self.log.append(f"start {host}")
        else:
            assert self.leader != server.id or len(self.voters()) == 1, f"{host} was stopped while it led"
            served, server.up = self.has_majority(), False
            assert self.has_majority() or not served or len(self.voters()) == 1, self.log
            self.elect()
            self.log.append(f"restart {host}")
        server.up = True
        return DONE


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    monkeypatch.setattr(module, "_STEADY_SECONDS", 0.0)
    monkeypatch.setattr(module, "_WELL_SECONDS", 0.05)
    monkeypatch.setattr(module, "_JOIN_SECONDS", 0.2)


def up(cluster: Cluster, *hosts: str, formed: bool = True) -> dict[str, Result]:
    """An update of a play of these hosts."""

    async def run() -> dict[str, Result]:
        call = Call("etcd", Log(None, "urn"), threading.Event())
        targets = {host: Target(host, host, 22, "root", "ssh-ed25519 AAAA") for host in hosts}
        etcd = Etcd(call, targets, {host: f"https://{host}:2380" for host in hosts}, "key")
        gate = Members(etcd, formed, hosts)
        alone = await gate.alone(hosts)
        order = list(await gate.order(hosts))
        results: dict[str, Result] = {}
        for wave in [[host] for host in order] if alone else [order]:
            results |= await gate.before(wave)
            going = [host for host in wave if host not in results]
            done = {host: cluster.converge(host, gate.adapt(host, Order({"vars": {}}))) for host in going}
            results |= await gate.after(done)
            if any(not result.ok for result in results.values()):
                break
        await call.log.close()
        return results

    return told(cluster, run)


def told(cluster: Cluster, work: Callable[[], Awaitable[T]]) -> T:
    """Do something that asks hosts, with the cluster's hosts."""
    original, remote.run = remote.run, cluster.run  # type: ignore[assignment]
    try:
        return asyncio.run(work())  # type: ignore[arg-type]
    finally:
        remote.run = original


def reasons(results: dict[str, Result]) -> dict[str, str]:
    return {host: result.reason for host, result in results.items() if not result.ok}


def test_a_rolling_change_hands_over_before_the_leaders_turn():
    cluster = Cluster.of("a", "b", "c")
    assert reasons(up(cluster, "a", "b", "c")) == {}
    assert cluster.log == ["restart b", "restart c", "a hands over to b", "restart a"]


def test_nothing_is_stopped_while_another_member_is_down():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["c"] = Server(102, up=False, reachable=False)
    assert reasons(up(cluster, "a", "b", "c")) == {"c": "unreachable: no route"}
    assert cluster.log == []


def test_a_cluster_grows_one_member_at_a_time():
    cluster = Cluster.of("a")
    cluster.hosts |= {"b": Server(), "c": Server()}
    assert reasons(up(cluster, "a", "b", "c")) == {}
    joins = ["add b", "start b", "promote b", "add c", "start c", "promote c"]
    assert cluster.log == [*joins, "a hands over to b", "restart a"]
    assert cluster.voters() == cluster.running() == {100, 501, 502}


def test_a_member_that_is_slow_gets_its_vote_when_it_has_caught_up():
    cluster = Cluster.of("a")
    cluster.hosts["b"], cluster.behind = Server(), 3
    assert "not changed: 2 members cannot spare one" in reasons(up(cluster, "a", "b"))["a"]
    assert cluster.log[:3] == ["add b", "start b", "promote b"]


def test_a_member_that_never_catches_up_is_told():
    cluster = Cluster.of("a")
    cluster.hosts["b"], cluster.behind = Server(), 10**9
    (reason,) = reasons(up(cluster, "a", "b")).values()
    assert reason.startswith("changed, but after 0.2 s its member b could not get its vote: can only promote")


def test_a_member_that_lost_its_data_is_replaced():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["a"] = Server()
    assert reasons(up(cluster, "a", "b", "c")) == {}
    assert cluster.log[:4] == ["remove a", "add a", "start a", "promote a"]
    assert cluster.voters() == cluster.running()


def test_data_of_a_member_that_was_removed_are_set_aside():
    cluster = Cluster.of("a")
    cluster.hosts["b"] = Server(77)
    up(cluster, "a", "b")
    assert cluster.log[:3] == ["set aside b", "add b", "start b"]


def test_two_of_three_that_lost_their_data_are_not_made_anew():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["b"], cluster.hosts["c"] = Server(), Server()
    said = reasons(up(cluster, "a", "b", "c"))
    lost = "has no data of its member, and the other members have no majority; see docs/trouble/etcd-quorum.md"
    assert said["b"] == said["c"] == lost
    assert not any(line.startswith(("add", "remove", "start")) for line in cluster.log)


def test_members_that_are_all_down_start_together():
    cluster = Cluster.of("a", "b", "c")
    for server in cluster.hosts.values():
        server.up = False
    cluster.leader = 0

    async def run() -> tuple[set[str], Any, Order]:
        call = Call("etcd", Log(None, "urn"), threading.Event())
        targets = {host: Target(host, host, 22, "root", "ssh-ed25519 AAAA") for host in cluster.hosts}
        gate = Members(Etcd(call, targets, {}, "key"), True, ())
        return await gate.alone("abc"), await gate.before("abc"), gate.adapt("a", Order({"vars": {}}))

    alone, failed, order = told(cluster, run)
    assert (alone, failed, order.inputs) == (set(), {}, {"vars": {}, "force": True})


def test_members_that_have_a_majority_again_do_not_stop_together():
    cluster = Cluster.of("a", "b", "c")

    async def run() -> Any:
        call = Call("etcd", Log(None, "urn"), threading.Event())
        targets = {host: Target(host, host, 22, "root", "ssh-ed25519 AAAA") for host in cluster.hosts}
        return await Members(Etcd(call, targets, {}, "key"), True, ()).before("abc")

    said = reasons(told(cluster, run))
    assert said == dict.fromkeys("abc", "members have a majority again: run the same command once more")


def test_a_member_that_was_not_waited_for_is_not_done():
    cluster = Cluster.of("a")

    async def run() -> Any:
        call = Call("etcd", Log(None, "urn"), threading.Event())
        call.cancelled.set()
        target = Target("a", "a", 22, "root", "ssh-ed25519 AAAA")
        return await Members(Etcd(call, {"a": target}, {}, "key"), True, ()).after({"a": DONE})

    cluster.hosts["a"].reachable = False
    assert told(cluster, run) == {"a": Result(ok=False, reason="cancelled", cancelled=True)}


def test_members_whose_hosts_are_not_ours_count():
    cluster = Cluster.of("a", "b", "c")
    assert reasons(up(cluster, "a", "b")) == {}
    assert cluster.log == ["restart b", "a hands over to b", "restart a"]


@settings(max_examples=50, deadline=None, phases=[Phase.generate])
@given(
    st.sampled_from([1, 3, 5]),
    st.sampled_from([1, 3, 5]),
    st.sets(st.integers(0, 4), max_size=2),
    st.lists(st.integers(0, 60), max_size=3),
)
def test_any_interruption_is_taken_up(before: int, after: int, lost: set[int], lives: list[int]) -> None:
    """Grow, with data of any minority lost, and die at any step, again and again: the next update ends whole."""
    cluster = Cluster.of(*"abcde"[:before])
    hosts = "abcde"[: max(before, after)]
    cluster.hosts |= {host: Server() for host in hosts[before:]}
    for number in sorted(number for number in lost if number < before)[: (before - 1) // 2]:
        cluster.hosts[hosts[number]] = Server()
    for cluster.life in lives:
        with contextlib.suppress(Died):
            assert reasons(up(cluster, *hosts)) == {}
    cluster.life = math.inf
    assert reasons(up(cluster, *hosts)) == {}
    assert cluster.voters() == cluster.running() == {cluster.hosts[host].id for host in hosts}


def leave(cluster: Cluster, stay: str, leaving: str) -> str:
    """Take members out; return why that is refused, else ""."""

    async def run() -> str:
        call = Call("etcd", Log(None, "urn"), threading.Event())
        peers = {name: f"https://{name}:2380" for name in [*stay, *leaving]}
        hosts = [{"name": name, "address": name, "hostKey": "ssh-ed25519 AAAA"} for name in [*stay, *leaving]]
        made = {"service": "etcd", "peers": peers, "sshKey": "key"}
        old = MembershipInputs.model_validate(made | {"hosts": hosts})
        new = MembershipInputs.model_validate(made | {"hosts": hosts[: len(stay)]})
        try:
            await Membership().update(call, old, new, State("etcd", {}))
        except ResourceError as error:
            return str(error)
        finally:
            await call.log.close()
        return ""

    return told(cluster, run)


def test_members_leave_the_last_one_first_and_the_leader_hands_over():
    cluster = Cluster.of("a", "b", "c", "d", "e")
    cluster.leader = 104
    assert leave(cluster, "abc", "de") == ""
    assert cluster.log == ["e hands over to a", "remove e", "set aside e", "remove d", "set aside d"]


def test_a_member_whose_host_is_gone_can_leave():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["c"] = Server(102, up=False, reachable=False)
    assert leave(cluster, "ab", "c") == ""
    assert cluster.log == ["remove c"]


def test_those_that_do_not_run_leave_first():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["b"].up = False
    assert leave(cluster, "a", "bc") == ""
    assert [line for line in cluster.log if line.startswith("remove")] == ["remove b", "remove c"]


def test_a_member_that_is_neither_declared_nor_well_is_no_hindrance():
    cluster = Cluster.of("a", "b", "c", "d", "e")
    cluster.hosts["d"].up = cluster.hosts["e"].up = False
    assert reasons(up(cluster, "a", "b", "c")) == {}
    assert cluster.log[:2] == ["remove d", "remove e"]


def test_a_member_does_not_leave_where_the_rest_has_no_majority():
    cluster = Cluster.of("a", "b", "c")
    cluster.hosts["b"].up = False
    refused = "etcd: c cannot be removed: 1 of the 2 members that stay are well, and 2 must be"
    assert leave(cluster, "ab", "c") == refused
    assert cluster.log == []


def test_what_has_left_already_is_only_stopped():
    cluster = Cluster.of("a", "b")
    cluster.hosts["c"] = Server(102)
    assert leave(cluster, "ab", "c") == ""
    assert cluster.log == ["set aside c"]


def test_members_that_nobody_declares_leave_too():
    cluster = Cluster.of("a", "b", "c")
    assert leave(cluster, "ab", "") == ""
    assert cluster.log == ["remove c"]
