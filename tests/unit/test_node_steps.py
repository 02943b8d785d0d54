"""The steps of a host, by the on-host runner: what must reboot, what is proven, where an interrupted one goes on."""

import json
import signal
import time

import pytest

from local_host import Host, tasks, unpacked_bundles

TASKS = """
- name: Write
  ansible.builtin.copy: {dest: "{{ box_folder }}/text", content: "{{ box_text }}", mode: "0644"}
- name: Set up the kernel
  ansible.builtin.copy: {dest: "{{ box_folder }}/kernel", content: "{{ box_kernel }}", mode: "0644"}
- name: Look at the driver
  driver:
    wanted: "{{ box_driver }}"
    loaded: "{{ lookup('ansible.builtin.file', box_folder ~ '/boot_id') }}"
- name: Break
  ansible.builtin.fail: {msg: broken}
  when: box_break
"""
DEFAULTS = """
box_text: hello
box_kernel: one
box_driver: ""
box_mode: a
box_break: false
"""
DRIVER = """
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule({"wanted": {"type": "str"}, "loaded": {"type": "str"}}, supports_check_mode=True)
wanted, loaded = module.params["wanted"], module.params["loaded"]
asks = {} if wanted in ("", loaded) else {"reboot_required": f"driver {wanted} is not loaded"}
module.exit_json(changed=False, **asks)
"""
META = """
disruption: {{text: none, kernel: reboot, box_mode: reboot, box_text: drain}}
tasks: {{Write: text, Set up the kernel: kernel}}
proof:
- name: the box holds
  command: [/bin/sh, -c, "while [ -e {folder}/hold ]; do touch {folder}/held; sleep 0.1; done; cat {folder}/proof"]
  expect: good
  seconds: 30
"""
REASON = "box : Set up the kernel"


@pytest.fixture(scope="session")
def proof_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("proof")


@pytest.fixture(scope="session")
def bundles(tmp_path_factory, proof_folder):
    return unpacked_bundles(
        tmp_path_factory,
        {
            "playbooks/box.yml": "- name: Box\n  hosts: boxes\n  gather_facts: false\n  roles: [box]\n",
            "playbooks/library/driver.py": DRIVER,
            "roles/box/tasks/main.yml": TASKS,
            "roles/box/defaults/main.yml": DEFAULTS,
            "roles/box/meta/slipway.yml": META.format(folder=proof_folder).replace("seconds: 30", "seconds: 2"),
        },
    )


@pytest.fixture
def host(tmp_path, bundles, proof_folder):
    for file in proof_folder.iterdir():
        file.unlink()
    (proof_folder / "proof").write_text("good")
    return Host(tmp_path, bundles)


def boot(host, name):
    host.boot_id.write_text(f"{name}\n")


def test_a_new_host_is_proven_and_returned_and_reboots_for_nothing_that_nobody_uses(host):
    result, session = host.converge()
    assert result["ok"], result
    assert {"event": "state", "state": "proving"} in session.lines
    assert result["cost"] == "none"
    assert host.entry.step == "returned"
    assert host.entry.boot_id == "first"
    assert host.converge()[0]["unchanged"]


def test_a_host_in_service_reboots_once_for_a_part_that_costs_it(host):
    host.converge()
    change = {"digest": "d2", "box_kernel": "two"}
    foreseen, _ = host.converge(**change, more={"check": True})
    result, _ = host.converge(**change)
    assert result["ok"]
    assert result["cost"] == foreseen["cost"] == "reboot"
    assert result["reboot"] == [REASON]
    assert host.entry.step == "changed"
    assert not host.entry.is_at("d2")

    again, session = host.converge(**change)  # with another controller, still in the same boot
    assert again["reboot"] == [REASON]
    assert not tasks(session)
    assert host.converge(**change, more={"check": True})[0]["cost"] == "reboot"

    boot(host, "second")
    done, session = host.converge(**change)
    assert done["ok"], done
    assert ("Set up the kernel", "ok") in tasks(session)  # gone through again: some of it may need the boot
    assert "reboot" not in done
    assert host.entry.is_at("d2")
    assert host.converge(**change)[0]["unchanged"]


def test_a_boot_that_nobody_asked_for_counts_as_well(host):
    host.converge()
    host.converge(digest="d2", box_kernel="two")
    boot(host, "by a power cut")
    result, _ = host.converge(digest="d3", box_kernel="three", box_text="new")
    assert result["ok"]
    assert "reboot" not in result
    assert host.entry.is_at("d3")


def test_a_variable_costs_what_its_part_says_when_its_role_changes_anything(host):
    host.converge(box_mode="a")
    assert host.converge(digest="d2", box_mode="b")[0]["cost"] == "none"
    assert host.converge(digest="d3", box_mode="a", box_text="x")[0]["reboot"] == ["box_mode changed"]


def test_a_drain_is_foreseen_and_is_no_reboot(host):
    host.converge(box_text="a")
    foreseen, _ = host.converge(digest="d2", box_text="b", more={"check": True})
    result, _ = host.converge(digest="d2", box_text="b")
    assert foreseen["cost"] == result["cost"] == "drain"
    assert host.entry.is_at("d2")


def test_a_module_may_ask_for_a_reboot_of_a_new_host_too(host):
    result, _ = host.converge(box_driver="second")
    assert result["reboot"] == ["box : Look at the driver: driver second is not loaded"]
    boot(host, "second")
    assert host.converge(box_driver="second")[0]["ok"]
    assert host.entry.is_at("d1")


def test_one_that_asks_again_after_its_reboot_says_so(host):
    host.converge(box_driver="second")
    boot(host, "third")
    again, _ = host.converge(box_driver="second")
    assert again["reboot"] == ["box : Look at the driver: driver second is not loaded"]
    assert not host.entry.is_at("d1")


def test_what_a_failed_run_changed_is_rebooted_for_by_the_next(host):
    host.converge()
    assert not host.converge(digest="d2", box_kernel="two", box_break=True)[0]["ok"]
    result, session = host.converge(digest="d2", box_kernel="two")
    assert ("Set up the kernel", "ok") in tasks(session)
    assert result["reboot"] == [REASON]


def test_a_host_that_is_not_proven_has_failed_with_the_check(host, proof_folder):
    host.converge()
    (proof_folder / "proof").write_text("bad")
    result, _ = host.converge(digest="d2")
    assert not result["ok"]
    assert result["unproven"] == "box : the box holds"
    reason = "not proven: box : the box holds: /bin/sh prints nothing like 'good': bad (for 2 s)"
    assert result["msg"] == host.entry.reason == reason
    assert not host.entry.is_at("d2")
    (proof_folder / "proof").write_text("good")
    assert host.converge(digest="d2")[0]["ok"]
    assert host.entry.is_at("d2")


def test_a_drained_host_is_not_done_before_it_is_returned(host):
    host.converge()
    result, _ = host.converge(digest="d2", box_text="x", more={"drained": True})
    assert result["ok"]
    assert result["manifest"]["step"] == host.entry.step == "proven"
    again, session = host.converge(digest="d2", box_text="x")
    assert again["manifest"]["step"] == "proven"
    assert "unchanged" not in again
    assert not tasks(session)
    assert host.command("returned", "box").returncode == 0
    assert host.converge(digest="d2", box_text="x")[0]["unchanged"]


def test_a_drained_host_stays_drained_over_a_failure_and_a_reboot(host):
    host.converge()
    host.converge(digest="d2", box_kernel="two", box_break=True, more={"drained": True})
    host.converge(digest="d2", box_kernel="two")
    boot(host, "second")
    assert host.converge(digest="d2", box_kernel="two")[0]["manifest"]["step"] == "proven"


def until_held(proof_folder):
    end = time.monotonic() + 30
    while not (proof_folder / "held").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_killed_in_its_proof_the_next_run_proves_and_does_nothing_else(host, proof_folder):
    (proof_folder / "hold").touch()
    session = host.start()
    until_held(proof_folder)
    session.process.send_signal(signal.SIGKILL)
    session.process.wait()
    assert (host.entry.result, host.entry.step) == ("ok", "changed")
    (proof_folder / "hold").unlink()
    result, session = host.converge()
    assert result["ok"], result
    assert not tasks(session)
    assert host.entry.is_at("d1")


def test_cancelled_in_its_proof_it_stops_at_once(host, proof_folder):
    (proof_folder / "hold").touch()
    session = host.start()
    until_held(proof_folder)
    session.send({"cancel": True})
    result = session.result()
    assert (result["cancelled"], result["msg"]) == (True, "stopped by the controller")
    (proof_folder / "hold").unlink()
    assert host.converge()[0]["ok"]


def test_a_proof_can_be_asked_for(host, proof_folder):
    host.converge()
    assert json.loads(host.command("prove").stdout) == {"ok": True, "checks": ["box : the box holds"]}
    (proof_folder / "proof").write_text("bad")
    failed = host.command("prove")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["check"] == "box : the box holds"


def test_it_reboots_when_asked_only_if_it_must_and_keeps_that_in_mind(host, tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n')
    (fake / "systemctl").chmod(0o755)
    path = f"{fake}:{host.environment['PATH']}"
    host.converge()
    assert host.command("reboot", "box", PATH=path).returncode == 0
    assert not (tmp_path / "asked").exists()
    host.converge(digest="d2", box_kernel="two")
    assert host.command("reboot", "box", PATH=path).returncode == 0
    assert (tmp_path / "asked").read_text() == f"reboot --no-block --no-wall --message=slipway: {REASON}\n"
    assert host.entry.step == "rebooting"
    boot(host, "second")
    assert host.command("reboot", "box", PATH=path).returncode == 0
    assert len((tmp_path / "asked").read_text().splitlines()) == 1
    assert host.converge(digest="d2", box_kernel="two")[0]["ok"]
    assert host.entry.is_at("d2")
