"""The on-host runner with the real Ansible of the runtime bundle, against this machine, in temporary folders."""

import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from local_host import Host, tasks, unpacked_bundles
from slipway.play import manifest

TASKS = """
- name: Write
  ansible.builtin.copy:
    dest: "{{ box_folder }}/text"
    content: "{{ box_text }}\\n"
    mode: "0644"
  notify: Restart
- name: Hold
  ansible.builtin.shell: "touch holding; while [ ! -e go ]; do sleep 0.2; done"
  args:
    chdir: "{{ box_folder }}"
  when: box_hold
  changed_when: false
- name: After
  ansible.builtin.command: "true"
  changed_when: false
- name: Ask
  ask:
  when: box_ask
- name: Break
  ansible.builtin.fail:
    msg: "the password is {{ box_password | default('none') }}"
  when: box_break
"""
HANDLERS = """
- name: Restart
  ansible.builtin.shell: "echo restarted >> {{ box_folder }}/restarts"
  changed_when: true
"""
DEFAULTS = """
box_text: hello
box_hold: false
box_ask: false
box_break: false
"""
ASK = """
import json, os, socket
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({}, supports_check_mode=True)
with socket.socket(socket.AF_UNIX) as broker:
    broker.connect(os.environ["SLIPWAY_BROKER"])
    broker.sendall(json.dumps({"kind": "certificate", "name": "a/b", "csr": "C", "authority": "x"}).encode() + b"\\n")
    answer = json.loads(broker.makefile().readline())
if not answer["ok"]:
    module.fail_json(msg=answer["error"])
module.exit_json(changed=True, certificate=answer["certificate"])
"""


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """The bundles of a small checkout with one role."""
    return unpacked_bundles(
        tmp_path_factory,
        {
            "playbooks/box.yml": "- name: Box\n  hosts: boxes\n  gather_facts: false\n  roles: [box]\n",
            "playbooks/bad.yml": "- name: Bad\n  hosts: all\n  roles: [nowhere]\n",
            "playbooks/library/ask.py": ASK,
            "roles/box/tasks/main.yml": TASKS,
            "roles/box/handlers/main.yml": HANDLERS,
            "roles/box/defaults/main.yml": DEFAULTS,
        },
    )


@pytest.fixture
def host(tmp_path, bundles):
    return Host(tmp_path, bundles)


def test_a_host_is_converged_once_and_says_what_it_is(host):
    result, session = host.converge()
    assert result["ok"], result
    assert session.status == 0
    assert result["changed"] == 2
    assert tasks(session)[0] == ("Write", "changed")
    assert tasks(session)[-1] == ("Restart", "changed")
    assert (host.folder / "text").read_text() == "hello\n"
    assert host.entry.is_at("d1")
    assert host.entry.by == "a test"
    assert host.entry.roles["box"].changed == 2
    assert len(host.entry.roles["box"].digest) == 64
    assert stat.S_IMODE((host.state / "manifest.json").stat().st_mode) == 0o600
    assert not (host.run_folder / "inputs.json").exists()
    assert not (host.run_folder / "broker.sock").exists()

    again, session = host.converge()
    assert again["ok"]
    assert again["unchanged"]
    assert not tasks(session)


def test_a_new_digest_runs_again_and_changes_nothing(host):
    host.converge()
    result, session = host.converge(digest="d2")
    assert result["changed"] == 0
    assert ("Write", "ok") in tasks(session)
    assert host.restarts == 1
    assert host.entry.is_at("d2")


def test_the_plain_strategy_does_the_same(host):
    result, session = host.converge(more={"strategy": "linear"})
    assert result["ok"], result
    assert result["changed"] == 2
    assert tasks(session)[0] == ("Write", "changed")


def test_values_are_data_and_not_templates(host):
    assert host.converge(box_text="{{ 1 + 1 }} {% if %}")[0]["ok"]
    assert (host.folder / "text").read_text() == "{{ 1 + 1 }} {% if %}\n"


def test_a_check_run_says_what_would_change_and_changes_nothing(host):
    result, session = host.converge(more={"check": True, "diff": True})
    assert result["ok"], result
    assert result["changed"] >= 1
    written = next(line for line in session.lines if line.get("name") == "Write")
    assert written["status"] == "changed"
    assert "+hello" in written["diff"]
    assert not (host.folder / "text").exists()
    assert not (host.state / "manifest.json").exists()
    assert not (host.state / "pending.json").exists()


def test_a_failure_has_one_line_without_secrets_and_the_next_run_restarts_what_changed(host):
    result, session = host.converge(box_break=True, more={"secrets": {"box_password": "correct horse battery"}})
    assert session.status == 1
    assert result["failed_task"] == "box : Break"
    assert result["msg"] == "the password is ********"
    assert "correct horse" not in json.dumps(session.lines) + (host.state / "manifest.json").read_text()
    assert host.entry.result == "failed"
    assert host.restarts == 0

    result, _ = host.converge()
    assert result["ok"]
    assert host.restarts == 1, "the handler that the failed run had notified has run"
    host.converge(digest="d2")
    assert host.restarts == 1


def test_what_stops_ansible_before_its_first_task_is_said(host):
    result, _ = host.converge(playbook="bad")
    assert not result["ok"]
    assert "nowhere" in result["msg"]
    assert "\n" not in result["msg"]


def test_a_playbook_for_other_hosts_is_an_error(host):
    result, _ = host.converge(more={"groups": []})
    assert result["msg"] == "playbooks/box.yml has no play for this host"


def test_the_controller_answers_a_module(host):
    session = host.start(box_ask=True)
    request = session.until(event="request")
    assert {**request, "id": ""} == {
        "event": "request",
        "id": "",
        "kind": "certificate",
        "name": "a/b",
        "csr": "C",
        "authority": "x",
    }
    session.send({"id": request["id"], "ok": True, "certificate": "PEM"})
    assert session.result()["ok"]


def test_a_refused_request_is_the_reason_of_the_failure(host):
    session = host.start(box_ask=True)
    session.send({"id": session.until(event="request")["id"], "ok": False, "error": "a/b is not declared"})
    result = session.result()
    assert (result["failed_task"], result["msg"]) == ("box : Ask", "a/b is not declared")


def test_cancelled_it_stops_after_the_current_task(host):
    session = host.start(box_hold=True)
    session.until_held(host)
    session.send({"cancel": True})
    time.sleep(1)
    (host.folder / "go").touch()
    result = session.result()
    assert result["cancelled"]
    assert result["msg"] == "stopped by the controller"
    assert ("Hold", "ok") in tasks(session)
    assert "After" not in dict(tasks(session))
    assert host.entry.result == "cancelled"
    assert host.converge()[0]["ok"]
    assert host.restarts == 1


def test_a_task_that_does_not_end_is_stopped_by_force(host):
    session = host.start(box_hold=True, more={"grace_seconds": 1, "timeout_seconds": 5})
    result = session.result()
    assert result["msg"] == "not done after 5 s"
    assert "cancelled" not in result  # nobody asked for it
    (host.folder / "go").touch()
    assert host.converge()[0]["ok"]


def test_without_a_controller_the_run_goes_on_to_its_end(host):
    session = host.start(box_hold=True)
    session.until_held(host)
    session.hang_up()
    time.sleep(0.5)
    (host.folder / "go").touch()
    assert session.process.wait(timeout=20) == 0
    assert host.entry.is_at("d1")
    assert host.restarts == 1


def test_without_a_controller_a_request_ends_the_run(host):
    session = host.start(box_hold=True, box_ask=True)
    session.until_held(host)
    session.hang_up()
    time.sleep(0.5)
    (host.folder / "go").touch()
    assert session.process.wait(timeout=20) == 1
    assert host.entry.reason == "no controller is connected to give a certificate; run the play again"


def test_the_next_run_stops_an_abandoned_one_and_takes_over(host):
    abandoned = host.start(box_hold=True)
    abandoned.until_held(host)
    abandoned.hang_up()
    time.sleep(0.5)
    session = host.start(digest="d2")
    session.until(state="waiting")
    (host.folder / "go").touch()
    assert session.result()["ok"]
    assert abandoned.process.wait(timeout=10) == 1
    assert host.entry.is_at("d2")
    assert host.restarts == 1


def test_a_run_with_a_controller_is_waited_for(host):
    first = host.start(box_hold=True)
    first.until_held(host)
    result, _ = host.converge(digest="d2", more={"lock_seconds": 1})
    assert result["msg"].startswith("another run (process ")
    (host.folder / "go").touch()
    assert first.result()["ok"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_is_taken_up_by_the_next(host, number):
    session = host.start(box_hold=True)
    session.until_held(host)
    session.process.send_signal(number)
    time.sleep(0.5)
    (host.folder / "go").touch()
    session.process.wait(timeout=10)
    assert host.entry.result == ("running" if number == signal.SIGKILL else "cancelled")
    result, _ = host.converge()
    assert result["ok"], result
    assert host.restarts == 1


def test_inputs_that_are_none_are_said(host):
    session = host.start(more={"digest": ""})
    assert session.result()["msg"] == "the inputs lack digest"


def test_status_prints_the_manifest(host):
    assert manifest.parse(host.command("status").stdout) == manifest.Manifest()
    wrong = host.command("go")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "usage: slipway_node.py run|status|prove, reboot|returned PLAYBOOK\n",
    )


def test_old_bundles_go_after_a_good_run(host, bundles, tmp_path):
    copy = tmp_path / "bundles"
    copy.mkdir()
    for each in (host.made.runtime.digest, host.made.content.digest):
        subprocess.run(["cp", "-r", bundles[0] / each, copy / each], check=True)
    for age in range(4):
        (copy / f"old{age}").mkdir()
        os.utime(copy / f"old{age}", (1_000_000 - age, 1_000_000 - age))
    (copy / ".new-left").mkdir()
    os.utime(copy / ".new-left", (1_000_000, 1_000_000))
    host.bundles = copy
    assert host.converge()[0]["ok"]
    kept = {path.name for path in Path(copy).iterdir()}
    assert kept == {host.made.runtime.digest, host.made.content.digest, "old0", "old1"}
