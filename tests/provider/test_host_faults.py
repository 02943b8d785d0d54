"""What goes wrong on a host itself: each fault is told in one line, and the next run goes on from there."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

import pytest

from box import Controller

pytestmark = [pytest.mark.root, pytest.mark.slow]

PACKAGE = "hello"
FAKETIME = "/usr/lib/*/faketime/libfaketimeMT.so.1"
HOLD_LOCK = (
    "systemd-run --quiet --unit=holder python3 -c "
    "\"import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
    "open('/run/locked', 'w'); time.sleep(600)\""
)
STATE = "/var/lib/slipway"
FILL = "cat /dev/zero > {}/filling 2>/dev/null; df --output=avail {} | tail -n 1"


@pytest.fixture
def without_package(controller: Controller) -> Controller:
    """The host lacks the package that a test installs."""
    controller.on_host(f"apt-get -q -y purge {PACKAGE}; rm -rf /etc/box*")
    return controller


@pytest.fixture
def state_mounted(controller: Controller) -> Iterator[Controller]:
    """The runner's folder is a file system of its own of 4 MiB, empty."""
    controller.on_host(f"mkdir -p {STATE}; mount -t tmpfs -o size=4m,mode=700 small {STATE}; rm -f /etc/box*")
    yield controller
    controller.on_host(f"umount -l {STATE}")


def test_a_clock_that_is_off_is_told_before_anything_is_sent(controller: Controller) -> None:
    controller.on_host("apt-get -q -y install libfaketime; rm -rf /var/lib/slipway")
    for shift, seconds in (("+3h", 10_800), ("-40d", -3_456_000)):
        controller.on_host(f"echo {shift} > /etc/faketimerc; ls {FAKETIME} > /etc/ld.so.preload")
        try:
            result, _ = controller.converge(digest="clock")
        finally:
            controller.on_host("rm /etc/ld.so.preload")
        told = re.fullmatch(
            r"the clock is off: (.*) UTC on the host, (.*) UTC on the controller; expected at most 60 s between them; "
            r"set the wrong one, for example with: timedatectl set-ntp true",
            result["msg"],
        )
        assert told, result
        theirs, ours = (dt.datetime.fromisoformat(each) for each in told.groups())
        assert abs((theirs - ours).total_seconds() - seconds) <= 2
        assert controller.states() == []
        assert controller.on_host(f"ls {STATE}") == ""

    result, output = controller.converge(digest="clock")
    assert result["ok"], output


def test_a_locked_apt_is_waited_for_by_name(without_package: Controller) -> None:
    controller = without_package
    controller.on_host(HOLD_LOCK)
    controller.wait_for("test -e /run/locked && echo yes")
    process = controller.start(digest="apt", vars={"box_text": "x", "box_packages": [PACKAGE]})
    try:
        controller.wait_until(lambda: any("msg" in line for line in controller.lines if line["event"] == "state"))
    finally:
        controller.on_host("systemctl stop holder; rm /run/locked")
    output, _ = process.communicate(timeout=60)
    (waiting,) = [line["msg"] for line in controller.lines if line["event"] == "state" and "msg" in line]
    assert re.fullmatch(
        r"waits for apt: /var/lib/dpkg/lock-frontend is held by process \d+ \(/usr/bin/python3 -c import fcntl.*\)",
        waiting,
    )
    assert controller.lines[-1]["ok"], output
    assert controller.on_host(f"dpkg-query -W -f '${{Status}}' {PACKAGE}") == "install ok installed"


def test_a_lock_that_stays_ends_the_run_in_time_and_the_next_goes_on(without_package: Controller) -> None:
    controller = without_package
    controller.on_host(HOLD_LOCK)
    controller.wait_for("test -e /run/locked && echo yes")
    variables = {"box_text": "x", "box_packages": [PACKAGE], "box_lock_seconds": 2}
    try:
        result, _ = controller.converge(digest="apt2", vars=variables)
    finally:
        controller.on_host("systemctl stop holder; rm /run/locked")
    assert result["failed_task"] == "box : Install"
    assert re.fullmatch(
        r"apt is locked: /var/lib/dpkg/lock-frontend is held by process \d+ \(.*\), since more than 2 s; "
        r"wait until it is done or end it, and run it again",
        result["msg"],
    )
    assert controller.converge(digest="apt2", vars=variables)[0]["ok"]


def test_a_dpkg_that_was_killed_is_finished_first(without_package: Controller) -> None:
    controller = without_package
    # As after a power cut between two steps of dpkg: its journal of changed packages is not in the status file yet.
    controller.on_host("cp /var/lib/dpkg/status /tmp/status; sed '/^$/q' /tmp/status > /var/lib/dpkg/updates/0000")
    assert "dpkg was interrupted" in controller.on_host(f"apt-get -q -y install {PACKAGE} 2>&1")
    result, output = controller.converge(digest="dpkg", vars={"box_text": "x", "box_packages": [PACKAGE]})
    assert result["ok"], output
    assert controller.on_host("ls /var/lib/dpkg/updates") == ""


def test_a_full_disk_takes_no_bundle_and_says_what_it_lacks(state_mounted: Controller) -> None:
    controller = state_mounted
    result, _ = controller.converge(digest="full")
    told = re.fullmatch(
        rf"no space left on {STATE} \((\d) MiB free, (\d+) needed\); make room and run it again", result["msg"]
    )
    assert told, result
    assert controller.on_host(f"ls -A {STATE}") == ""
    controller.on_host(f"mount -o remount,size={int(told[2]) + 2}m {STATE}")
    result, output = controller.converge(digest="full")
    assert result["ok"], output  # what it says is needed is enough


def test_a_disk_that_fills_during_a_run_costs_neither_manifest_nor_restart(state_mounted: Controller) -> None:
    controller = state_mounted
    controller.on_host(f"mount -o remount,size=64m {STATE}")
    variables = {"box_text": "x", "box_hold": True, "box_files": [{"path": "/etc/box.conf", "content": "new\n"}]}
    process = controller.start(digest="fills", vars={**variables, "box_break": True})
    controller.until_held()
    assert controller.on_host(FILL.format(STATE, STATE)) == "0"
    controller.let_go()
    process.communicate(timeout=60)
    assert controller.lines[-1]["msg"] == "told to fail"
    entry = controller.manifest()
    assert (entry["result"], entry["failed_task"]) == ("failed", "box : Break")

    controller.on_host(FILL.format(STATE, STATE))  # what was set aside is used up now
    result, _ = controller.converge(digest="fills", vars=variables)
    assert result["msg"] == f"no space left on {STATE} (0 MiB free, 1 needed); make room and run it again"
    assert controller.manifest() == entry

    controller.on_host(f"rm {STATE}/filling")
    result, output = controller.converge(digest="fills", vars=variables)
    assert result["ok"], output
    assert controller.on_host("cat /etc/box.notes") == "noted"  # the handler that the failed run had notified


def test_a_full_disk_elsewhere_fails_the_task_that_needs_it(without_package: Controller) -> None:
    controller = without_package
    archives = "/var/cache/apt/archives"
    controller.on_host("mkdir -p /srv/full; mount -t tmpfs -o size=64k small /srv/full")
    controller.on_host(f"apt-get clean; mount -t tmpfs -o size=64k small {archives}; mkdir -p {archives}/partial")
    controller.on_host(FILL.format(archives, archives))
    files = [{"path": "/srv/full/large", "content": "x" * 100_000}]
    try:
        written, _ = controller.converge(digest="file", vars={"box_text": "x", "box_files": files})
        installed, _ = controller.converge(digest="apt3", vars={"box_text": "x", "box_packages": [PACKAGE]})
        left = controller.on_host("ls -A /srv/full")
    finally:
        controller.on_host(f"umount -l /srv/full {archives}")
    assert written["failed_task"] == "box : Write a file"
    assert "no space left on /srv/full (0 MiB free, 1 needed); make room and run it again" in written["msg"]
    assert left == ""
    assert installed["failed_task"] == "box : Install"
    assert re.fullmatch(
        rf"no space left on {archives} \(0 MiB free, \d needed\); make room and run it again", installed["msg"]
    )
    variables = {"box_text": "x", "box_files": files, "box_packages": [PACKAGE]}
    assert controller.converge(digest="both", vars=variables)[0]["ok"]
