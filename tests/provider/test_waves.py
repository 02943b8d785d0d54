"""A rollout in four waves under the real engine with real hosts: killed, interrupted, stopped by a host that fails.

One story: tests go on where the last ended.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from probe import Project, interrupt, standing, wait_for

pytestmark = [pytest.mark.root, pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = ("probe-0", "probe-1", "probe-2", "probe-3")
ONE_AT_A_TIME = json.dumps({"growth": 1})
WITH_BUDGET = json.dumps({"growth": 1, "budget": {"hosts": 1}})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A stack in a network of its own, up."""
    project = Project(
        tmp_path_factory.mktemp("waves"),
        network="waves-test",
        subnet="10.95.8",
        bridge="slipway-test-w",
        count="4",
        mode="waves",
        rollout=ONE_AT_A_TIME,
    )
    with standing(project, *HOSTS):
        project.up()
        yield project


def writes(project: Project, text: str) -> list[int]:
    """How often each host was changed to a text."""
    return [project.on_host(name, "cat /etc/probe.writes").split().count(text) for name in HOSTS]


def is_at_work(project: Project, name: str, text: str) -> bool:
    return text in project.on_host(name, "cat /etc/probe")


def test_a_preview_says_in_how_many_waves_it_goes_and_who_leaves(project: Project) -> None:
    project.configure(text="second", seconds="8", slow="probe-1", count="3")
    shown = project.pulumi("preview", "--diff")
    assert "3 would change; up goes in 3 waves of at most 1 host" in shown.stdout + shown.stderr
    assert "probe-3 leaves this play" in shown.stdout + shown.stderr
    row = shown.stdout.partition("slipway:index:Host::probe-3]")[2].partition("slipway:index:Host::")[0]
    assert 'wouldChange: "leaves this play"' in row


def test_a_runner_killed_in_the_second_of_four_waves_and_up_again_change_each_host_once(project: Project) -> None:
    project.configure(text="second", seconds="8", slow="probe-1")
    up = project.start_up()
    wait_for(lambda: is_at_work(project, "probe-1", "second"), 60, "the second wave began")
    project.kill("slipway.play.child")
    shown, _ = up.communicate(timeout=60)
    assert up.returncode != 0
    assert "* stopped after wave 2 of 4: 1 of 4 hosts failed (probe-1), the budget is 0; " in shown
    assert "not begun: probe-2, probe-3" in shown
    assert writes(project, "second") == [1, 1, 0, 0]
    manifest = project.on_host("probe-0", "cat /var/lib/slipway/manifest.json")

    shown = project.up().stdout
    assert re.search(r"(\d) of \1 hosts done", shown)
    assert "probe-0 done" not in shown
    assert writes(project, "second") == [1, 1, 1, 1]
    assert project.on_host("probe-0", "cat /var/lib/slipway/manifest.json") == manifest
    assert "unchanged" in project.up("--expect-no-changes").stdout


def test_ctrl_c_says_where_it_stopped(project: Project) -> None:
    project.configure(text="third", seconds="25", slow="probe-1")
    up = project.start_up()
    wait_for(lambda: is_at_work(project, "probe-1", "third"), 60, "the second wave began")
    began = time.monotonic()
    interrupt(up)
    shown, _ = up.communicate(timeout=40)
    assert time.monotonic() - began < 30
    assert "* cancelled in wave 2 of 4: 1 host done, 3 left" in shown
    assert "* probe-1: cancelled" in shown
    assert writes(project, "third") == [1, 1, 0, 0]


def test_a_canary_that_fails_stops_the_rollout_and_does_not_lead_the_next(project: Project) -> None:
    project.configure(text="fourth", fails="probe-0", rollout=WITH_BUDGET)
    stopped = project.up(check=False)
    assert stopped.returncode != 0
    assert "* stopped after wave 1 of 4: the canary failed (probe-0); not begun: probe-1, " in stopped.stdout
    assert "* probe-0: probe : Fail when told to: told to fail" in stopped.stdout
    assert writes(project, "fourth") == [1, 0, 0, 0]

    within = project.up(check=False)
    assert within.returncode != 0
    assert "stopped" not in within.stdout
    assert re.findall(r"\* (probe-\d): ", within.stdout) == ["probe-0"]
    assert "3 of 4 hosts done, 1 failed" in within.stdout
    results = project.results()
    assert {name: results[name]["wave"] for name in HOSTS} == {"probe-1": 1, "probe-2": 2, "probe-3": 3, "probe-0": 4}
    assert writes(project, "fourth") == [1, 1, 1, 1]
