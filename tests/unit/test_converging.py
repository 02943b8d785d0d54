"""Waves of a play: when they go on and when not, what is kept of each host, and who is told. Hosts are played."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from slipway.play import journal as journals
from slipway.play import runner, survey
from slipway.play.broker import Order
from slipway.play.runner import Result
from slipway.provider import converging, play_state
from slipway.provider.log import Log
from slipway.provider.orders import Orders
from slipway.provider.play_inputs import PlayHost, PlayInputs
from slipway.provider.resource import Call, InitFailed, State

OK = Result(ok=True, changed=2, digest="new")
FAILED = Result(ok=False, reason="role : task: no", task="role : task")
GONE = Result(ok=False, reason="unreachable: no answer", unreachable=True)
DEFERRED = Result(ok=False, reason="deferred: not drained", deferred=True)
CANCELLED = Result(ok=False, reason="cancelled", cancelled=True)


class Memory(journals.Silent):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def begin(self, begin: journals.Begin) -> None:
        self.told.append(begin)

    def wave(self, wave: journals.Wave) -> None:
        self.told.append(wave.number)

    def event(self, host: str, event: Mapping[str, Any]) -> None:
        self.told.append((host, event["event"]))

    def host(self, ended: journals.Ended) -> None:
        self.told.append((ended.host, ended.wave, ended.outcome))

    def end(self, end: journals.End) -> None:
        self.told.append(end)


class Hosts:
    """Stands in for the runner and the gate: hosts become what the test says; nobody is reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **outcomes: Result) -> None:
        self.outcomes = outcomes
        self.waves: list[list[str]] = []
        self.call: Call | None = None
        self.seen: dict[str, Result] = {}
        self.always: Collection[str] = ()
        self.unwell: Collection[str] = ()
        self.lost: Collection[str] = ()
        self.seen_after: list[list[str]] = []
        monkeypatch.setattr(Orders, "of", lambda _, hosts: dict.fromkeys(hosts, Order({})))
        monkeypatch.setattr(survey, "survey", self._survey)
        monkeypatch.setattr(runner, "converge", self._converge)

    async def _survey(self, targets: Sequence[runner.Target], playbook: str, **_: Any) -> dict[str, Result]:
        return {target.name: self.seen.get(target.name, Result(ok=True)) for target in targets}

    async def _converge(self, targets: Sequence[runner.Target], orders: Any, **rest: Any) -> dict[str, Result]:
        names = [target.name for target in targets]
        self.waves.append(names)
        results = {name: self.outcomes.get(name, OK) for name in names}
        if any(result.cancelled for result in results.values()):
            rest["cancelled"].set()
        for name, result in results.items():
            rest["listener"](name, {"event": "state", "state": "running"})
            rest["listener"](name, {"event": "result", "ok": result.ok, "changed": result.changed})
        return results

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        return hosts

    async def before(self, wave: Sequence[str]) -> Mapping[str, Result]:
        return {name: self.outcomes[name] for name in wave if self.outcomes.get(name, OK).deferred}

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        return self.always

    def adapt(self, host: str, order: Order) -> Order:
        return replace(order, inputs={"force": host in self.unwell})

    async def after(self, results: Mapping[str, Result]) -> Mapping[str, Result]:
        self.seen_after.append(sorted(results))
        return {name: FAILED if name in self.lost else result for name, result in results.items()}


@pytest.fixture
def play() -> PlayInputs:
    hosts = [PlayHost(name=f"n{number}", address="::1", host_key="ssh-ed25519 AAAA", pool="gpu") for number in range(7)]
    rollout = {"mode": "waves", "growth": 2, "budget": {"hosts": 1}}
    return PlayInputs(playbook="node", hosts=hosts, digest="d", release="lab", ssh_key="k", rollout=rollout)


def converge(play: PlayInputs, hosts: Hosts, before: Mapping[str, Any] | None = None, journal: Any = None) -> State:
    async def run() -> State:
        call = Call("gpu", Log(None, "urn"), threading.Event(), journal=journal or journals.Silent())
        state = State("node-gpu", {"results": before or {}})
        names = {host.name for host in play.hosts}
        return await converging.converge(call, play, state, names, hosts)

    return asyncio.run(run())


def failed(play: PlayInputs, hosts: Hosts, before: Mapping[str, Any] | None = None, journal: Any = None) -> InitFailed:
    with pytest.raises(InitFailed) as caught:
        converge(play, hosts, before, journal)
    return caught.value


def test_each_result_says_its_wave(play, monkeypatch):
    hosts = Hosts(monkeypatch)
    results = play_state.results(converge(play, hosts))
    assert hosts.waves == [["n0"], ["n1", "n2"], ["n3", "n4", "n5", "n6"]]
    assert {name: result["wave"] for name, result in results.items()} == {
        name: number for number, wave in enumerate(hosts.waves, 1) for name in wave
    }


def test_within_the_budget_the_rollout_goes_on_and_names_the_failed_at_the_end(play, monkeypatch):
    hosts = Hosts(monkeypatch, n2=FAILED)
    error = failed(play, hosts)
    assert len(hosts.waves) == 3
    assert error.reasons == ["n2: role : task: no"]
    assert error.outputs["failedHosts"] == ["n2"]
    assert error.outputs["results"]["n6"]["ok"]
    assert error.outputs["results"]["n2"]["outcome"] == "failed"


def test_beyond_the_budget_no_wave_begins(play, monkeypatch):
    hosts = Hosts(monkeypatch, n1=GONE, n2=FAILED)
    error = failed(play, hosts)
    assert len(hosts.waves) == 2
    assert error.reasons == [
        "stopped after wave 2 of 3: 2 of 7 hosts failed (n1, n2), the budget is 1; not begun: n3, n4, n5, n6",
        "n1: unreachable: no answer",
        "n2: role : task: no",
    ]
    assert error.outputs["failedHosts"] == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert {name: result.get("outcome") for name, result in error.outputs["results"].items()} == {
        "n0": None,
        "n1": "unreachable",
        "n2": "failed",
        **dict.fromkeys(["n3", "n4", "n5", "n6"], "not begun"),
    }


def test_a_canary_that_fails_stops_within_the_budget_and_is_none_the_next_time(play, monkeypatch):
    hosts = Hosts(monkeypatch, n0=FAILED)
    first = failed(play, hosts)
    assert hosts.waves == [["n0"]]
    assert first.reasons[0].startswith("stopped after wave 1 of 3: the canary failed (n0); not begun: n1, ")
    hosts.waves.clear()
    again = failed(play, hosts, first.outputs["results"])
    assert hosts.waves == [["n1"], ["n2", "n3"], ["n4", "n5", "n6"], ["n0"]]
    assert again.reasons == ["n0: role : task: no"]


def test_a_failed_host_that_the_next_rollout_does_not_reach_is_still_known_as_failed(play, monkeypatch):
    first = failed(play, Hosts(monkeypatch, n0=FAILED))
    second = failed(play, Hosts(monkeypatch, n1=FAILED), first.outputs["results"])
    assert second.outputs["results"]["n0"]["reason"] == "role : task: no"
    assert play_state.troubled(State("", second.outputs)) == {"n0", "n1"}


def test_deferred_hosts_do_not_count(play, monkeypatch):
    hosts = Hosts(monkeypatch, n0=DEFERRED, n1=DEFERRED, n2=DEFERRED)
    error = failed(play, hosts)
    assert hosts.waves == [["n3", "n4", "n5", "n6"]]
    assert error.reasons == [f"n{number}: deferred: not drained" for number in range(3)]


def test_ctrl_c_says_where_it_stopped(play, monkeypatch):
    hosts = Hosts(monkeypatch, n1=CANCELLED)
    error = failed(play, hosts)
    assert len(hosts.waves) == 2
    assert error.reasons == ["cancelled in wave 2 of 3: 2 hosts done, 5 left", "n1: cancelled"]


def test_the_journal_is_told_of_waves_and_hosts(play, monkeypatch):
    memory = Memory()
    failed(play, Hosts(monkeypatch, n1=GONE, n2=FAILED), journal=memory)
    begin, *told, end = memory.told
    assert begin.waves == [["n0"], ["n1", "n2"], ["n3", "n4", "n5", "n6"]]
    assert (begin.play, begin.may_fail, begin.pools["n6"]) == ("gpu", 1, "gpu")
    assert told == [
        1,
        ("n0", "state"),
        ("n0", "result"),
        ("n0", 1, "converged"),
        2,
        ("n1", "state"),
        ("n1", "result"),
        ("n2", "state"),
        ("n2", "result"),
        ("n1", 2, "unreachable"),
        ("n2", 2, "failed"),
        *((f"n{number}", 0, "not begun") for number in range(3, 7)),
    ]
    assert end.waves == 2
    assert end.stopped.startswith("stopped after wave 2 of 3")


def test_hosts_at_their_digest_are_in_no_wave(play, monkeypatch):
    hosts, memory = Hosts(monkeypatch), Memory()
    at = play.digests()
    hosts.seen = {name: Result(ok=True, digest=at[name]) for name in ("n0", "n1", "n2", "n3", "n4", "n6")}
    results = play_state.results(converge(play, hosts, journal=memory))
    assert hosts.waves == [["n5"]]
    assert results["n0"].items() >= {"ok": True, "changed": 0, "tasks": 0, "digest": at["n0"]}.items()
    assert ("n0", 0, "unchanged") in memory.told
    assert ("n5", 1, "converged") in memory.told


def test_nothing_runs_where_all_are_at_their_digest(play, monkeypatch):
    hosts = Hosts(monkeypatch)
    hosts.seen = {name: Result(ok=True, digest=digest) for name, digest in play.digests().items()}
    long_ago = {"n3": {"ok": True, "at": "2020-01-01T00:00:00Z"}}
    assert len(play_state.results(converge(play, hosts))) == 7
    assert not hosts.waves
    converge(play, hosts, long_ago)
    assert hosts.waves == [["n3"]]  # due for review: it is not even asked


@pytest.mark.parametrize("gone", ["n0", "n1"])
def test_a_host_that_cannot_be_read_fails_in_the_last_wave_without_a_run_and_is_no_canary(play, monkeypatch, gone):
    hosts = Hosts(monkeypatch)
    hosts.seen = {gone: GONE}
    error = failed(play, hosts)
    first = "n1" if gone == "n0" else "n0"
    assert hosts.waves == [[first], ["n2", "n3"], ["n4", "n5", "n6"]]
    assert error.reasons == [f"{gone}: unreachable: no answer"]
    assert error.outputs["results"][gone]["wave"] == 4


def test_hosts_at_their_digest_that_do_not_come_back_count_too(play, monkeypatch):
    hosts = Hosts(monkeypatch)
    at_digest = {name: play.digests()[name] for name in ("n0", "n1", "n2")}
    hosts.seen = {name: Result(ok=True, digest=digest) for name, digest in at_digest.items()}
    hosts.lost = {"n0", "n1"}
    error = failed(play, hosts)
    assert not hosts.waves
    assert error.reasons[0] == (
        "stopped before wave 1 of 3: 2 of 7 hosts failed (n0, n1), the budget is 1; not begun: n3, n4, n5, n6"
    )


def test_a_gate_may_give_hosts_at_their_digest_a_turn_and_have_them_gone_through(play, monkeypatch):
    hosts = Hosts(monkeypatch)
    hosts.seen = {name: Result(ok=True, digest=digest) for name, digest in play.digests().items()}
    hosts.always, hosts.unwell = ["n0", "n1"], ["n1"]
    results = play_state.results(converge(play, hosts))
    assert hosts.waves == [["n1"]]
    assert hosts.seen_after == [["n2", "n3", "n4", "n5", "n6"], ["n0"], ["n1"]]
    assert {name: result.get("wave", 0) for name, result in results.items()} == {
        "n0": 1,
        "n1": 2,
        **dict.fromkeys(["n2", "n3", "n4", "n5", "n6"], 0),
    }
