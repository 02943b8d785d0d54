"""Hosts that must reboot, under the real engine. One story: tests go on where the last ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from probe import Project, standing, wait_for

pytestmark = [pytest.mark.root, pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "probe-0"
REASON = "boots : Set up the kernel"
SLOW = """[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
ExecStop=sleep {seconds}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A stack with one host in a network of its own, up."""
    project = Project(
        tmp_path_factory.mktemp("steps"),
        network="steps-test",
        subnet="10.95.9",
        bridge="slipway-test-s",
        playbook="boots",
        count="1",
    )
    with standing(project, HOST):
        project.up()
        yield project


def entry(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.on_host(HOST, "cat /var/lib/slipway/manifest.json"))["playbooks"][
        "boots"
    ]
    return found


def boot(project: Project) -> str:
    return project.on_host(HOST, "cat /proc/sys/kernel/random/boot_id").strip()


def boots(project: Project) -> int:
    """How often the host has booted."""
    return len(project.on_host(HOST, "journalctl --list-boots --quiet").splitlines())


def goes_down_slowly(project: Project, seconds: int) -> None:
    """Make the host take its time at the next shutdown."""
    unit = SLOW.format(seconds=seconds)
    project.on_host(HOST, f"printf '{unit}' > /run/systemd/system/slow.service; systemctl start slow.service")


def kill_all(project: Project, up: subprocess.Popen[str]) -> None:
    """Kill the engine and everything below it at once, as when the controller's power fails."""
    project.kill("")
    up.communicate()
    project.pulumi("cancel", "--yes", check=False)  # the dead engine's lock on the state


def wait_for_another_boot(project: Project, before: str) -> None:
    def is_another() -> bool:
        try:
            return boot(project) != before
        except AssertionError:  # on its way
            return False

    wait_for(is_another, 60, "the host is up again")
    project.lab(f"host.wait('steps-test', '{HOST}')")


def test_a_new_host_reboots_for_nothing(project: Project) -> None:
    assert entry(project)["step"] == "returned"
    assert entry(project)["boot_id"] == boot(project)


def test_a_change_that_costs_a_reboot_reboots_the_host_once_and_proves_it(project: Project) -> None:
    before, count = boot(project), boots(project)
    project.configure(text="second")
    steps = json.loads(project.pulumi("preview", "--json").stdout)["steps"]
    (row,) = [step["newState"]["inputs"] for step in steps if step["urn"].endswith(f"Host::{HOST}")]
    assert row["disrupts"] == "reboot"
    assert boot(project) == before

    shown = project.up().stdout
    assert f"{HOST} reboots: {REASON}" in shown
    assert f"{HOST} is back from its reboot" in shown
    assert boot(project) != before
    assert boots(project) == count + 1
    found = entry(project)
    assert (found["step"], found["reboot"], found["boot_id"]) == ("returned", [], boot(project))
    assert project.results()[HOST]["ok"]
    assert project.results()[HOST]["changed"] == 3
    project.up("--expect-no-changes")


def test_killed_after_the_change_the_next_up_reboots(project: Project) -> None:
    before, count = boot(project), boots(project)
    project.configure(text="third", seconds="8")
    up = project.start_up()
    wait_for(lambda: "third" in project.on_host(HOST, "cat /etc/boots"), 60, "the host is changed")
    kill_all(project, up)
    wait_for(lambda: entry(project)["step"] == "changed", 30, "the run ends by itself")
    assert boot(project) == before

    shown = project.up().stdout
    assert f"{HOST} reboots: {REASON}" in shown
    assert boots(project) == count + 1
    assert entry(project)["step"] == "returned"


def test_killed_during_the_reboot_the_next_up_proves_and_reboots_no_more(project: Project) -> None:
    before = boot(project)
    goes_down_slowly(project, 5)
    project.configure(text="fourth")
    up = project.start_up()
    wait_for(lambda: entry(project)["step"] == "rebooting", 60, "the host was asked to reboot")
    kill_all(project, up)
    wait_for_another_boot(project, before)
    after = boot(project)
    assert entry(project)["step"] == "rebooting"

    shown = project.up().stdout
    assert f"{HOST} reboots" not in shown
    assert boot(project) == after
    assert entry(project)["step"] == "returned"
    assert entry(project)["boot_id"] == after


def test_one_that_is_not_back_in_time_has_failed_and_the_next_up_goes_on(project: Project) -> None:
    before = boot(project)
    goes_down_slowly(project, 12)
    project.configure(text="fifth", rollout='{"rebootSeconds": 5}')
    failed = project.up(check=False)
    assert failed.returncode != 0
    assert f"* {HOST}: not back 5 s after its reboot: " in failed.stdout
    wait_for_another_boot(project, before)
    after = boot(project)
    assert f"{HOST} reboots" not in project.up().stdout
    assert boot(project) == after
    assert entry(project)["step"] == "returned"


def test_one_that_is_not_proven_has_failed_until_it_is(project: Project) -> None:
    project.on_host(HOST, "touch /etc/in-the-way")
    project.configure(text="fifth", root="/data")
    failed = project.up(check=False)
    assert failed.returncode != 0
    reason = "not proven: boots : nothing is in the way: test ended with status 1: no output (for 1 s)"
    assert f"* {HOST}: {reason}" in failed.stdout
    assert project.results()[HOST]["reason"] == entry(project)["reason"] == reason
    project.on_host(HOST, "rm /etc/in-the-way")
    project.up()
    assert project.results()[HOST]["ok"]
