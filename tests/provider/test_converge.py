"""The converge action over SSH to a real lab host: what is sent, how often, and what is said when it fails."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from slipway import paths
from slipway.fleet.lab import host as lab_host
from slipway.fleet.lab import network as lab_network
from slipway.node import bundle

pytestmark = [pytest.mark.root, pytest.mark.slow]

NETWORK = lab_network.NetworkSpec(name="converge-test", cidr="10.94.8.0/24", bridge="slipway-conv")
ADDRESS = "10.94.8.10"
TASKS = """
- name: Write
  ansible.builtin.copy:
    dest: /etc/box
    content: "{{ box_text }} {{ box_password }}\\n"
    mode: "0600"
  no_log: true
- name: Hold
  ansible.builtin.shell: "touch /run/holding; while [ ! -e /run/go ]; do sleep 0.2; done"
  when: box_hold | default(false)
  changed_when: false
- name: After
  ansible.builtin.command: "true"
  changed_when: false
"""


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    file = tmp_path_factory.mktemp("ssh") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


@pytest.fixture(scope="module")
def known_hosts(key, tmp_path_factory):
    """A lab host is up; the file with its pinned key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_HOME", str(tmp_path_factory.mktemp("home")))
        lab_network.ensure(NETWORK)
        try:
            public = key.with_suffix(".pub").read_text().strip()
            spec = lab_host.HostSpec(name="box", network=NETWORK.name, address=ADDRESS, authorized_key=public)
            state = lab_host.ensure(spec, progress=lambda _: None)
            file = key.with_name("known_hosts")
            file.write_text(f"{ADDRESS} {state.host_key}\n")
            yield file
        finally:
            lab_host.destroy(NETWORK.name, "box")
            lab_network.destroy(NETWORK.name)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    (root / "playbooks").mkdir()
    (root / "roles/box/tasks").mkdir(parents=True)
    (root / "playbooks/box.yml").write_text("- name: Box\n  hosts: all\n  gather_facts: false\n  roles: [box]\n")
    (root / "roles/box/tasks/main.yml").write_text(TASKS)
    return root


class Controller:
    """Stands in for the provider: gives the inputs, keeps the lines."""

    def __init__(self, folder, root, key, known_hosts):
        self.lines, self.folder, self.key, self.known_hosts = [], folder, key, known_hosts
        self.bundles = bundle.ensure(root).as_dict()
        self.connections = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "broker"))
        self.socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        for text in connection.makefile():
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == "inputs":
                connection.sendall(json.dumps({"ok": True, "inputs": self.inputs}).encode() + b"\n")

    def start(self, address=ADDRESS, **inputs):
        self.lines.clear()
        self.connections.clear()
        self.inputs = {
            "playbook": "box",
            "digest": "d1",
            "vars": {"box_text": "hello"},
            "secrets": {"box_password": "correct horse"},
            "bundles": self.bundles,
            **inputs,
        }
        inventory = self.folder / "hosts.json"
        trust = f"-o UserKnownHostsFile={self.known_hosts} -o StrictHostKeyChecking=yes -o ControlPath={self.folder}/%C"
        variables = {
            "ansible_host": address,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(self.key),
            "ansible_ssh_common_args": trust,
        }
        inventory.write_text(json.dumps({"all": {"hosts": {"box": variables}}}))
        environment = {
            **os.environ,
            "PYTHONPATH": str(paths.root() / "infra"),
            "SLIPWAY_BROKER": str(self.folder / "broker"),
            "ANSIBLE_CONFIG": str(paths.root() / "ansible.cfg"),
            "ANSIBLE_INVENTORY_ENABLED": "yaml",
            "ANSIBLE_YAML_FILENAME_EXT": ".json",
        }
        playbook = paths.root() / "playbooks/controller/converge.yml"
        program = Path(sys.executable).with_name("ansible-playbook")
        return subprocess.Popen(
            [program, "-i", inventory, playbook],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def converge(self, **inputs):
        """Run to the end; returns the result line and what Ansible printed."""
        process = self.start(**inputs)
        output, _ = process.communicate(timeout=120)
        results = [line for line in self.lines if line["event"] == "result"]
        assert len(results) == 1, output
        return results[0], output

    def states(self):
        return [line["state"] for line in self.lines if line["event"] == "state"]

    def on_host(self, command):
        trust = ["-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
        said = subprocess.run(
            ["ssh", "-q", "-i", self.key, *trust, f"root@{ADDRESS}", command],
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout.strip()

    def wait_for(self, command):
        end = time.monotonic() + 30
        while self.on_host(command) != "yes":
            assert time.monotonic() < end, command
            time.sleep(0.2)


@pytest.fixture
def controller(root, key, known_hosts):
    # Paths of sockets are short: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        controller = Controller(folder, root, key, known_hosts)
        controller.on_host("rm -f /run/holding /run/go")
        yield controller
        controller.socket.close()
        for connection in folder.glob("?" * 40):
            subprocess.run(
                ["ssh", "-O", "exit", "-o", f"ControlPath={connection}", "-"], capture_output=True, check=False
            )


def test_the_first_run_sends_both_bundles_and_the_second_nothing(controller):
    result, output = controller.converge()
    assert result["ok"], output
    assert controller.states() == ["sending", "sending", "running"]
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
    controller.known_hosts.write_text(f"{ADDRESS} {other.with_suffix('.pub').read_text()}")
    result, _ = controller.converge()
    assert result["unreachable"]
    assert result["msg"] == "cannot connect: Host key verification failed."


def test_cancel_stops_at_the_end_of_the_task(controller):
    process = controller.start(digest="d2", vars={"box_text": "x", "box_hold": True})
    controller.wait_for("test -e /run/holding && echo yes")
    controller.connections[0].sendall(b'{"cancel": true}\n')
    time.sleep(1)
    controller.on_host("touch /run/go")
    process.communicate(timeout=30)
    result = controller.lines[-1]
    assert result["cancelled"]
    assert "After" not in [line.get("name") for line in controller.lines]
    assert controller.converge(digest="d2")[0]["ok"]


def test_a_killed_controller_is_no_harm(controller):
    process = controller.start(digest="d3", vars={"box_text": "x", "box_hold": True})
    controller.wait_for("test -e /run/holding && echo yes")
    os.killpg(process.pid, signal.SIGKILL)
    controller.connections[0].shutdown(socket.SHUT_RDWR)  # the provider is gone, too
    process.communicate()
    holder = threading.Timer(2, controller.on_host, ["touch /run/go"])
    holder.start()
    result, output = controller.converge(digest="d4")
    assert result["ok"], output
    assert "waiting" in controller.states()
    holder.join()
    manifest = json.loads(controller.on_host("cat /var/lib/slipway/manifest.json"))
    assert manifest["playbooks"]["box"]["digest"] == "d4"
