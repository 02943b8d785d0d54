"""`slipway status` and `slipway report` on a cluster that is up."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import browser
from slipway.report import store
from tools import SLIPWAY, Stack, run

pytestmark = pytest.mark.lab


def status(stack: Stack, *, expect: int) -> dict[str, dict[str, str]]:
    done = run(SLIPWAY, "status", stack.name, "--json", check=False)
    assert done.returncode == expect, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_every_host_is_as_declared(lab: Stack) -> None:
    rows = status(lab, expect=0)
    assert set(rows) == {host["name"] for host in lab.hosts}
    assert {row["state"] for row in rows.values()} == {"as declared"}
    assert all(row["digest"] == row["wanted"] and len(row["digest"]) == 64 and row["at"] for row in rows.values())
    assert {row["release"] for row in rows.values()} == {"lab"}


@pytest.fixture
def deaf(lab: Stack) -> Iterator[str]:
    """A host that takes no connection."""
    host = lab.named("gpu")[0]
    lab.lab("shell", host, "systemctl", "stop", "ssh.service", "ssh.socket")
    yield host
    lab.lab("shell", host, "systemctl", "start", "ssh.service")


def test_hosts_that_are_not_as_declared(lab: Stack, deaf: str) -> None:
    other = lab.named("cpu")[0]
    path = "/var/lib/slipway/manifest.json"
    before = lab.ssh(other, f"cat {path}").stdout
    manifest = json.loads(before)
    manifest["playbooks"]["node"] |= {"result": "failed", "failed_task": "kubelet : Start", "reason": "[no] room"}
    try:
        lab.ssh(other, f"cat > {path} << 'END'\n{json.dumps(manifest)}\nEND")
        rows = status(lab, expect=1)
        said = run(SLIPWAY, "status", lab.name, check=False)
    finally:
        lab.ssh(other, f"cat > {path} << 'END'\n{before}\nEND")
    assert (rows[deaf]["state"], rows[other]["state"]) == ("unreachable", "failed")
    assert (rows[other]["step"], rows[other]["reason"]) == ("kubelet : Start", "[no] room")
    assert "Connection refused" in rows[deaf]["reason"]
    assert said.returncode == 1
    assert "1 failed, 1 unreachable" in said.stdout
    assert "[no] room" in said.stdout  # no markup, whatever a host says


def test_the_report_of_an_up(lab: Stack) -> None:
    """All that this lab's hosts went through is there, and its page opens."""
    reports = [store.read(path) for path in store.every(lab.name)]
    told = {host.name for report in reports for play in report.plays for host in play.hosts if host.wave}
    assert {host["name"] for host in lab.hosts} <= told
    said = run(SLIPWAY, "report", lab.name, check=False).stdout
    path, report = store.latest(lab.name)
    assert f"page: {path.with_suffix('.html')}" in said
    page = browser.dom(path.with_suffix(".html"))
    for play in report.plays:
        assert f'<section data-play="{play.name}">' in page
