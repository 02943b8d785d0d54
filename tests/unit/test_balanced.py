"""API servers one at a time: who may be stopped, as the load balancers see it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.play import remote
from slipway.play.remote import Reply
from slipway.play.runner import Result
from slipway.provider import balanced as module
from slipway.provider.balanced import Balanced, cannot_stop, out_of_service
from slipway.provider.log import Log
from slipway.provider.membership import Membership, MembershipInputs
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call, ResourceError, State

DONE = Result(ok=True, changed=1, digest="new")


def host(name: str) -> dict[str, Any]:
    return {"name": name, "address": name, "hostKey": "ssh-ed25519 AAAA"}


def test_all_that_are_declared_must_be_in_service_but_the_one_that_is_stopped() -> None:
    seen = {"lb": {"a": "UP", "b": "UP 1/2", "c": "DOWN 1/2"}}
    assert cannot_stop(seen, ["c"], ["a", "b", "c"]) == ""
    assert cannot_stop(seen, ["a"], ["a", "b", "c"]) == "c is DOWN 1/2 at load balancer lb"
    assert cannot_stop(seen, ["a"], ["a", "b"]) == ""


def test_a_server_that_no_load_balancer_knows_yet_is_not_waited_for() -> None:
    assert out_of_service({"lb": {"a": "UP"}}, "new") == ""


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    monkeypatch.setattr(module, "_STEADY_SECONDS", 0.0)
    monkeypatch.setattr(module, "_BACK_SECONDS", 0.05)


def turn(answers: list[Reply], monkeypatch: pytest.MonkeyPatch) -> tuple[Mapping[str, Result], Mapping[str, Result]]:
    """The turn of server a of two; the load balancer answers these, the last one again and again."""

    async def ask(*_: Any, **__: Any) -> dict[str, Reply]:
        return {"lb": answers.pop(0) if len(answers) > 1 else answers[0]}

    async def run() -> tuple[Mapping[str, Result], Mapping[str, Result]]:
        inputs = PlayInputs.model_validate(
            {
                "playbook": "apiserver",
                "hosts": [host("a"), host("b")],
                "balancers": [host("lb")],
                "digest": "x",
                "release": "r",
                "sshKey": "k",
            }
        )
        call = Call("apiservers", Log(None, "urn"), threading.Event())
        gate = Balanced(call, inputs)
        before = await gate.before(["a"])
        after = await gate.after({"a": DONE})
        await call.log.close()
        return before, after

    monkeypatch.setattr(remote, "run", ask)
    return asyncio.run(run())


def said(a: str, b: str) -> Reply:
    return Reply(ok=True, status=0, output=f"a {a}\nb {b}\n")


def test_a_changed_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [said("UP", "UP"), said("DOWN", "UP"), said("DOWN 1/2", "UP"), said("UP", "UP")]
    assert turn(answers, monkeypatch) == ({}, {"a": DONE})


def test_no_server_is_stopped_while_another_is_out_of_service(monkeypatch: pytest.MonkeyPatch) -> None:
    before, _ = turn([said("UP", "DOWN")], monkeypatch)
    assert before["a"].reason == "not changed: b is DOWN at load balancer lb"
    assert not before["a"].deferred


def test_a_server_that_does_not_come_back_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, after = turn([said("DOWN", "UP")], monkeypatch)
    assert (after["a"].ok, after["a"].reason) == (False, "changed, but a is DOWN at load balancer lb")


def test_a_load_balancer_that_does_not_run_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Reply(ok=False, reason="status 1: FileNotFoundError: /run/haproxy/admin.sock")
    assert turn([gone], monkeypatch) == ({}, {"a": DONE})


def leave(seen: str, stop: Reply, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have server b leave; a stays, and the load balancer sees servers like that. Returns why it does not, else ""."""

    async def ask(targets: Any, *_: Any, **__: Any) -> dict[str, Reply]:
        return {
            target.name: Reply(ok=True, status=0, output=seen) if target.name == "lb" else stop for target in targets
        }

    async def run() -> str:
        about = {"service": "apiservers", "balancers": [host("lb")], "sshKey": "k"}
        old = MembershipInputs.model_validate(about | {"hosts": [host("a"), host("b")]})
        new = MembershipInputs.model_validate(about | {"hosts": [host("a")]})
        call = Call("apiservers", Log(None, "urn"), threading.Event())
        try:
            await Membership().update(call, old, new, State("apiservers", {}))
        except ResourceError as error:
            return str(error)
        finally:
            await call.log.close()
        return ""

    monkeypatch.setattr(remote, "run", ask)
    return asyncio.run(run())


STOPPED = Reply(ok=True, status=0)


@pytest.mark.parametrize(
    ("seen", "stop", "said"),
    [
        ("a UP\n", STOPPED, ""),
        ("a UP\n", Reply(ok=False, reason="unreachable: no route", unreachable=True), ""),
        ("a UP\n", Reply(ok=False, reason="status 1: no"), "b cannot leave: it could not be stopped: status 1: no"),
        ("a UP\nb UP\n", STOPPED, "b cannot leave: load balancer lb still sends to it"),
        ("a DOWN\n", STOPPED, "b cannot leave: no other API server is in service"),
    ],
)
def test_a_server_leaves_when_load_balancers_have_forgotten_it(
    seen: str, stop: Reply, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert leave(seen, stop, monkeypatch) == said
