"""The converge action over SSH to a real lab host: what is sent, how often, and what is said when it fails."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

import box
from slipway.play.runner import Target
from slipway.play.survey import survey

pytestmark = [pytest.mark.root, pytest.mark.slow]


def test_the_first_run_sends_both_bundles_and_the_second_nothing(controller):
    result, output = controller.converge()
    assert result["ok"], output
    assert controller.states() == ["sending", "sending", "running", "proving"]
    assert controller.on_host("cat /etc/box") == "hello correct horse"
    assert controller.on_host("stat -c %a /var/lib/slipway /var/lib/slipway/manifest.json").split() == ["700", "600"]
    assert "correct horse" not in output + json.dumps(controller.lines)
    assert output.count("TASK [") <= 5

    result, output = controller.converge()
    assert result["ok"]
    assert result["unchanged"]
    assert controller.states() == ["unchanged"]
    assert output.count("TASK [") <= 5


def test_nothing_secret_is_left_on_the_host(controller):
    controller.converge(force=True)
    folders = "/var/lib/slipway /run/slipway /tmp /var/log"
    assert (
        controller.on_host(f"grep -rl 'correct horse' {folders} 2>/dev/null; journalctl | grep 'correct horse'") == ""
    )


def test_the_plain_strategy_works_as_well(controller):
    result, output = controller.converge(force=True, strategy="linear", vars={"box_text": "plain"})
    assert result["ok"], output
    assert result["changed"] == 1


def test_a_host_that_cannot_be_reached_is_told_from_one_that_failed(controller):
    result, output = controller.converge(address="10.94.8.99")
    assert result["unreachable"]
    assert result["msg"].startswith("cannot connect: ssh: connect to host 10.94.8.99 port 22: ")
    assert "unreachable=1" in output


def test_a_host_with_another_key_is_refused(controller):
    other = controller.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    controller.known_hosts = controller.folder / "known_hosts"
    controller.known_hosts.write_text(f"{box.ADDRESS} {other.with_suffix('.pub').read_text()}")
    result, _ = controller.converge()
    assert result["unreachable"]
    assert result["msg"] == "cannot connect: Host key verification failed."


def test_cancel_stops_at_the_end_of_the_task(controller):
    process = controller.start(digest="d2", vars={"box_text": "x", "box_hold": True})
    controller.until_held()
    controller.connections[0].sendall(b'{"cancel": true}\n')
    time.sleep(1)
    controller.let_go()
    process.communicate(timeout=30)
    result = controller.lines[-1]
    assert result["cancelled"]
    assert "After" not in [line.get("name") for line in controller.lines]
    assert controller.converge(digest="d2")[0]["ok"]


def test_a_killed_controller_is_no_harm(controller):
    process = controller.start(digest="d3", vars={"box_text": "x", "box_hold": True})
    controller.until_held()
    os.killpg(process.pid, signal.SIGKILL)
    controller.connections[0].shutdown(socket.SHUT_RDWR)  # the provider is gone, too
    process.communicate()
    holder = threading.Timer(2, controller.let_go)
    holder.start()
    result, output = controller.converge(digest="d4")
    assert result["ok"], output
    assert "waiting" in controller.states()
    holder.join()
    assert controller.manifest()["digest"] == "d4"


def test_hosts_are_read_beside_ansible_with_the_same_words(controller):
    """Of a root, of a user with sudo, of one without; where nobody answers, and where another key does."""
    controller.converge(digest="d5")
    for user, may in (("admin", "NOPASSWD: ALL"), ("guest", "ALL")):
        controller.on_host(
            f"id {user} || useradd -m {user}; cp -r /root/.ssh /home/{user}/ && chown -R {user}: /home/{user}/.ssh; "
            f"echo '{user} ALL=(ALL) {may}' > /etc/sudoers.d/{user}"
        )
    host_key = controller.known_hosts.read_text().split(maxsplit=1)[1].strip()
    other = Target("other", box.ADDRESS, 22, "root", host_key[:-8] + "AAAAAAAA")
    users = [Target(user, box.ADDRESS, 22, user, host_key) for user in ("root", "admin", "guest")]
    away = Target("away", "10.94.8.99", 22, "root", host_key)
    found = asyncio.run(
        survey([*users, other, away], "box", ssh_key=controller.key.read_text(), cancelled=threading.Event())
    )
    assert [found[user].digest for user in ("root", "admin")] == ["d5", "d5"]
    assert found["guest"].reason == "the host could not be read: status 1: sudo: a password is required"
    assert found["other"].reason == "unreachable: cannot connect: Host key verification failed."
    result, _ = controller.converge(address="10.94.8.99")
    assert found["away"].reason == f"unreachable: {result['msg']}"
