"""What is made of the replies of hosts that were read."""

import asyncio
import json
import threading

from slipway.play import reading, remote
from slipway.play.runner import Result, Target
from slipway.play.survey import survey

ENTRY = {"release": "r", "digest": "d1", "result": "ok", "by": "me", "roles": {"host": {"changed": 1}}}
SAID = {key: value for key, value in ENTRY.items() if key != "roles"}


def results(monkeypatch, replies):
    async def run(targets, script, **_):
        assert script == reading.SCRIPT
        return {target.name: replies[target.name] for target in targets}

    monkeypatch.setattr(remote, "run", run)
    targets = [Target(name, "10.0.0.1", 22, "root", "ssh-ed25519 AAAA") for name in replies]
    return asyncio.run(survey(targets, "node", ssh_key="k", cancelled=threading.Event()))


def manifest(**changes):
    return "1700000000\n" + json.dumps({"version": 1, "playbooks": {"node": ENTRY | changes}}) + "\n"


def test_a_host_is_at_what_its_last_run_brought_it_to(monkeypatch):
    found = results(
        monkeypatch,
        {
            "good": remote.Reply(ok=True, status=0, output=manifest()),
            "bad": remote.Reply(ok=True, status=0, output=manifest(result="failed")),
            "new": remote.Reply(ok=True, status=0, output="1700000000\n"),
        },
    )
    assert found["good"] == Result(ok=True, digest="d1", before=SAID, entry=SAID)
    assert found["bad"].ok
    assert (found["bad"].digest, found["bad"].before["result"]) == ("", "failed")
    assert found["new"] == Result(ok=True)


def test_a_host_that_cannot_be_read_says_why(monkeypatch):
    found = results(
        monkeypatch,
        {
            "gone": remote.Reply(ok=False, reason="unreachable: cannot connect: no", unreachable=True),
            "locked": remote.Reply(ok=False, status=1, reason="status 1: sudo: a password is required"),
            "late": remote.CANCELLED,
        },
    )
    assert found["gone"] == Result(ok=False, reason="unreachable: cannot connect: no", unreachable=True)
    assert found["locked"].reason == "the host could not be read: status 1: sudo: a password is required"
    assert found["late"].cancelled
