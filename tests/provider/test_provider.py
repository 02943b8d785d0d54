"""The provider under the real engine, with real hosts. The tests are one story: each goes on where the last ended."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

import browser
from probe import Project, abandoned_keys, interrupt, wait_for

pytestmark = [pytest.mark.root, pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = ("probe-0", "probe-1")


def test_a_preview_touches_nothing(project: Project):
    shown = project.pulumi("preview").stdout
    assert "12 to create" in shown
    assert not (project.home / "lab").exists()


def test_up_makes_hosts_and_converges_them(project: Project):
    shown = project.up().stdout
    assert "12 created" in shown
    for name in HOSTS:
        assert re.search(rf"{name} probe : Write what was told … changed", shown)
        assert re.search(rf"{name} done, 3 changed, \d+ s", shown)
        assert project.on_host(name, "cat /etc/probe").startswith("first ")
        modes = project.on_host(
            name, "stat -c '%a %U' /etc/slipway/pki/probe/server.key /etc/slipway/pki/probe/server.crt"
        )
        assert modes.split() == ["600", "root", "644", "root"]


def test_nothing_secret_is_plain_in_the_state_or_the_output(project: Project):
    outputs = json.loads(project.pulumi("stack", "output", "--json", "--show-secrets").stdout)
    exported = project.pulumi("stack", "export").stdout
    assert "PRIVATE KEY" not in exported
    secret = outputs["keys"][-1]
    assert len(secret) == 44
    assert secret not in exported
    assert secret in project.on_host("probe-0", "cat /etc/probe")
    assert "PRIVATE KEY" in project.pulumi("stack", "export", "--show-secrets").stdout


def test_a_second_up_changes_nothing(project: Project):
    assert "12 unchanged" in project.up("--expect-no-changes").stdout


def test_a_new_value_is_shown_in_the_preview_and_reaches_the_hosts(project: Project):
    project.configure(text="second")
    shown = project.pulumi("preview", "--diff").stdout
    assert re.search(r'probe_text: "first" => "second"', shown)
    assert "3 to update" in shown  # the play and its two hosts
    assert project.on_host("probe-0", "cat /etc/probe").startswith("first ")
    project.up()
    assert project.on_host("probe-0", "cat /etc/probe").startswith("second ")


def test_one_failed_host_leaves_the_other_done_and_the_next_up_goes_on_there(project: Project):
    project.configure(text="third", fails="probe-1")
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert "* probe-1: probe : Fail when told to: told to fail" in failed.stdout
    assert "* probe-0" not in failed.stdout
    results = project.results()
    assert results["probe-0"]["ok"]
    assert results["probe-1"]["reason"] == "probe : Fail when told to: told to fail"
    the_report_tells_of_it(project)

    again = project.up(check=False)
    assert again.returncode != 0
    assert "1 of 2 hosts are at their digest already" in again.stdout

    project.configure(text="third")
    mended = project.up()
    assert "1 of 2 hosts are at their digest already" in mended.stdout
    assert project.results()["probe-1"]["ok"]
    assert "12 unchanged" in project.up("--expect-no-changes").stdout


def the_report_tells_of_it(project: Project) -> None:
    newest = max((project.home / "runs/test").glob("*.json"))
    [play] = json.loads(newest.read_text())["plays"]
    hosts = {host["name"]: host for host in play["hosts"]}
    assert {name: host["outcome"] for name, host in hosts.items()} == {"probe-0": "converged", "probe-1": "failed"}
    assert (hosts["probe-1"]["task"], hosts["probe-1"]["wave"]) == ("probe : Fail when told to", 1)
    assert "told to fail" in hosts["probe-1"]["reason"]
    page = browser.dom(newest.with_suffix(".html"))
    table = re.search(r'<table class="bad">.*?</table>', page, re.DOTALL)
    assert table
    assert re.findall(r'data-host="([^"]+)"', table[0]) == ["probe-1"]
    assert "told to fail" in table[0]
    assert page.count("<rect ") == 2


def test_refresh_keeps_a_failure_in_mind(project: Project):
    project.configure(text="third", fails="probe-1")
    project.up(check=False)
    project.pulumi("refresh", "--yes", "--skip-preview")
    shown = project.pulumi("preview").stdout
    assert "2 to update" in shown  # the play and the host that fails
    assert "probe-1 would fail: probe : Fail when told to: told to fail" in shown
    project.configure(text="third")
    project.up()


def test_ctrl_c_stops_at_the_next_safe_point(project: Project):
    project.configure(text="fourth", seconds="25")
    up = project.start_up()
    wait_for(lambda: "fourth" in project.on_host("probe-0", "cat /etc/probe"), 60, "the play began")
    began = time.monotonic()
    interrupt(up)
    shown, _ = up.communicate(timeout=40)
    assert time.monotonic() - began < 30
    assert up.returncode != 0
    assert re.search(r"\* probe-0: cancelled", shown)
    wait_for(lambda: not project.processes(), 10, "no process is left")
    assert not abandoned_keys()
    project.configure(text="fourth")
    project.up()
    assert project.results()["probe-0"]["ok"]


def test_a_killed_engine_takes_everything_with_it_and_the_next_up_goes_on(project: Project):
    project.configure(text="fifth", seconds="20")
    up = project.start_up()
    wait_for(lambda: "fifth" in project.on_host("probe-1", "cat /etc/probe"), 60, "the play began")
    up.kill()
    up.communicate()
    wait_for(lambda: not project.processes(), 30, "no process is left")
    assert not abandoned_keys()
    project.configure(text="fifth")
    project.pulumi("cancel", "--yes", check=False)  # the dead engine's lock on the state
    project.up()
    assert project.on_host("probe-1", "cat /etc/probe").startswith("fifth ")
    assert project.on_host("probe-1", "grep -c fifth /etc/probe.count").strip() == "1"


def test_a_killed_provider_leaves_hosts_as_they_are_and_the_next_up_goes_on(project: Project):
    project.configure(text="sixth", seconds="10")
    up = project.start_up()
    for name in HOSTS:
        wait_for(lambda name=name: "sixth" in project.on_host(name, "cat /etc/probe"), 60, "the play began")
    written = [project.on_host(name, "stat -c %i,%Z /etc/probe") for name in HOSTS]
    project.kill(" slipway.p")  # slipway.provider and its slipway.play.child at once
    shown, _ = up.communicate(timeout=60)
    assert up.returncode != 0
    assert "Traceback" not in shown
    wait_for(lambda: not project.processes(), 30, "no process is left")
    project.configure(text="sixth")
    project.up()
    assert [project.on_host(name, "stat -c %i,%Z /etc/probe") for name in HOSTS] == written  # each was changed once
    assert not abandoned_keys()
    assert "12 unchanged" in project.up("--expect-no-changes").stdout


def test_a_host_that_reboots_in_the_middle_fails_alone_and_the_next_up_goes_on_there(project: Project):
    project.configure(text="seventh", seconds="8")
    up = project.start_up()
    wait_for(lambda: "seventh" in project.on_host("probe-1", "cat /etc/probe"), 60, "the play began")
    project.on_host("probe-1", "systemctl reboot")
    shown, _ = up.communicate(timeout=60)
    assert up.returncode != 0
    assert re.search(
        r"\* probe-1: unreachable: connection lost during the run: .*; a host that is still up goes on", shown
    )
    assert "* probe-0" not in shown
    assert project.results()["probe-0"]["ok"]
    project.lab("host.wait('provider-test', 'probe-1')")
    left = json.loads(project.on_host("probe-1", "cat /var/lib/slipway/manifest.json"))["playbooks"]["probe"]
    assert left["result"] in {"running", "cancelled"}
    before = project.on_host("probe-0", "cat /var/lib/slipway/manifest.json")

    project.up()
    assert project.results()["probe-1"]["ok"]
    assert project.on_host("probe-0", "cat /var/lib/slipway/manifest.json") == before


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("cidr", "10.96.0.0/99", "LabNetwork resource 'network': property cidr value {10.96.0.0/99} has a problem"),
        ("mode", "sideways", "rollout.mode"),
    ],
)
def test_an_input_that_does_not_fit_is_one_line_with_its_name(project: Project, name: str, value: str, error: str):
    project.configure(text="fifth", **{name: value})
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert error in failed.stdout
    assert "Traceback" not in failed.stdout + failed.stderr


def test_a_stopped_host_is_started_and_a_lost_one_made_anew(project: Project):
    project.configure(text="fifth")
    project.lab("host.stop('provider-test', 'probe-0'); host.destroy('provider-test', 'probe-1')")
    refreshed = project.pulumi("refresh", "--yes", "--skip-preview").stdout
    assert "1 deleted" in refreshed
    shown = project.up().stdout
    assert "1 created" in shown
    assert project.on_host("probe-0", "cat /etc/probe").startswith("fifth ")
    assert project.on_host("probe-1", "cat /etc/probe").startswith("fifth ")


def test_destroy_leaves_nothing(project: Project):
    project.lab("host.destroy('provider-test', 'probe-1')")  # gone already: no error
    project.configure()
    shown = project.pulumi("destroy", "--yes", "--skip-preview").stdout
    assert "12 deleted" in shown
    assert not list((project.home / "lab").glob("*"))
    assert not Path("/sys/class/net/slipway-test-p").exists()
    assert not project.processes()
