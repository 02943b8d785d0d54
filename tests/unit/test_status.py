"""What `slipway status` says of hosts."""

import dataclasses
import json

import pytest

from slipway import stack, status
from slipway.cli import standing
from slipway.play import remote
from slipway.play.manifest import Entry, Manifest
from slipway.status import Declared, Seen

HOST = Declared(name="h0", group="gpu", play="gpu", playbook="node", release="2026.11", digest="d" * 64)
ENTRY = Entry(
    release="2026.11", digest="d" * 64, result="ok", finished="2026-01-31T12:00:00Z", by="me@here", started="before"
)


def seen(**changes):
    return Seen(Manifest({"node": dataclasses.replace(ENTRY, **changes)}))


CASES = {
    "at its digest": (HOST, seen(), "as declared", "", ""),
    "another digest": (
        HOST,
        seen(digest="e" * 64, release="2026.08"),
        "behind",
        "",
        f"at {'e' * 12}, wanted {'d' * 12} (release 2026.08, wanted 2026.11)",
    ),
    "a failed run": (
        HOST,
        seen(result="failed", failed_task="etcd : Start", reason="no"),
        "failed",
        "etcd : Start",
        "no",
    ),
    "a stopped run": (
        HOST,
        seen(result="cancelled", reason="stopped by SIGTERM"),
        "interrupted",
        "",
        "stopped by SIGTERM",
    ),
    "a killed run": (HOST, seen(result="running"), "interrupted", "", "its run of before did not come to its end"),
    "a run at work": (
        HOST,
        dataclasses.replace(seen(result="running"), busy=True),
        "running",
        "converging",
        "",
    ),
    "no run yet": (HOST, Seen(Manifest()), "new", "", "never converged"),
    "another playbook's run only": (HOST, Seen(Manifest({"etcd": ENTRY})), "new", "", "never converged"),
    "no answer": (HOST, Seen(None, "cannot connect: refused"), "unreachable", "", "cannot connect: refused"),
    "steps are left": (
        dataclasses.replace(HOST, failed="not back within 5 s"),
        seen(step="rebooting"),
        "interrupted",
        "rebooting",
        "not back within 5 s",
    ),
    "garbage": (HOST, Seen(Manifest(), "its manifest cannot be read"), "behind", "", "its manifest cannot be read"),
    "not read": (HOST, None, "unreachable", "", "not read"),
    "drift": (dataclasses.replace(HOST, drift=["a", "b"]), seen(), "drifted", "", "a; b"),
    "changed but cordoned": (
        dataclasses.replace(HOST, failed="still cordoned"),
        seen(),
        "failed",
        "",
        "still cordoned",
    ),
    "deferred": (
        dataclasses.replace(HOST, failed="deferred: a budget"),
        seen(digest="e" * 64),
        "behind",
        "",
        "deferred: a budget",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_states(case):
    host, found, state, step, reason = CASES[case]
    [row] = status.of([host], {} if found is None else {"h0": found})
    assert (row.state, row.step, row.reason) == (state, step, reason)


def test_every_state_has_a_case_and_a_place():
    states = {state for _, _, state, _, _ in CASES.values()}
    assert states == set(status.ORDER)


def test_a_row_has_what_the_manifest_says():
    [row] = status.of([HOST], {"h0": seen()})
    assert (row.release, row.at, row.by, row.digest) == ("2026.11", "2026-01-31T12:00:00Z", "me@here", "d" * 64)


def test_counts_put_the_worst_first():
    rows = status.of(
        [dataclasses.replace(HOST, name=name) for name in ("a", "b", "c")],
        {"a": seen(), "b": Seen(None, "gone"), "c": seen()},
    )
    assert list(status.counts(rows).items()) == [("unreachable", 1), ("as declared", 2)]


def test_hosts_that_an_update_changed_before_another_failed_are_as_declared(monkeypatch):
    """Pulumi keeps the inputs of the update before when some hosts failed."""
    hosts = [{"name": name, "address": "::1", "host_key": "ssh-ed25519 AAAA"} for name in ("done", "left")]
    old = {"playbook": "node", "hosts": hosts, "digest": "d", "release": "lab", "ssh_key": "k"}
    results = {
        "done": {"ok": True, "digest": "e" * 64},
        "left": {"ok": False, "digest": "f" * 64, "reason": "deferred: not drained"},
    }
    entry = {"version": 1, "playbooks": {"node": {**dataclasses.asdict(ENTRY), "digest": "e" * 64, "roles": {}}}}

    async def run(targets, script, **options):
        return {target.name: remote.Reply(ok=True, output=json.dumps(entry)) for target in targets}

    monkeypatch.setattr(stack, "plays", lambda name, environment: [stack.PlayState("gpu", old, {"results": results})])
    monkeypatch.setattr(remote, "run", run)
    states = {row.name: (row.state, row.reason) for row in standing.rows("s", {})}
    assert states == {"done": ("as declared", ""), "left": ("behind", "deferred: not drained")}


def test_plays_of_an_exported_state(tmp_path, monkeypatch):
    mark = {stack._SECRET: "1b47061264138c4ac30d75fd1eb44270"}
    resources = [
        {"type": "slipway:index:SshKey", "urn": "urn:pulumi:s::slipway::slipway:index:SshKey::ssh"},
        {
            "type": "slipway:index:Play",
            "urn": "urn:pulumi:s::slipway::slipway:index:Play::gpu",
            "inputs": {"sshKey": {**mark, "plaintext": json.dumps("KEY")}, "hosts": [{"name": "h0"}]},
            "outputs": {"results": {"h0": {"ok": True}}},
        },
    ]
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    stack._checkpoint("s").parent.mkdir(parents=True)
    stack._checkpoint("s").write_text("{}")
    exported = json.dumps({"deployment": {"resources": resources}})
    monkeypatch.setattr(stack, "pulumi", lambda arguments, environment: exported)
    [play] = stack.plays("s", {})
    assert (play.name, play.inputs["sshKey"], play.inputs["hosts"]) == ("gpu", "KEY", [{"name": "h0"}])
    assert play.outputs["results"]["h0"]["ok"]
    assert "KEY" not in repr(play)


def test_a_stack_that_is_not_there_has_no_plays(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert stack.plays("nothing", {}) == []
