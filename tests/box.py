"""A lab host of its own for the converge action, driven without Pulumi: this test is the provider."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipway import paths
from slipway.fleet.lab import network as lab_network
from slipway.node import bundle

NETWORK = lab_network.NetworkSpec(name="converge-test", cidr="10.94.8.0/24", bridge="slipway-conv")
ADDRESS = "10.94.8.10"
PLAYBOOK = "- name: Box\n  hosts: all\n  gather_facts: false\n  roles: [box]\n"
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
- name: Install
  slipway_packages:
    packages: "{{ box_packages }}"
    lock_seconds: "{{ box_lock_seconds | default(60) }}"
  when: box_packages is defined
- name: Write a file
  slipway_files:
    files: "{{ box_files }}"
  when: box_files is defined
  notify: Note
- name: Break
  ansible.builtin.fail:
    msg: told to fail
  when: box_break | default(false)
"""
HANDLERS = """
- name: Note
  ansible.builtin.shell: echo noted >> /etc/box.notes
  changed_when: true
"""


class Controller:
    """Stands in for the provider: gives the inputs, keeps the lines."""

    def __init__(self, folder: Path, root: Path, key: Path, known_hosts: Path) -> None:
        self.folder, self.key, self.known_hosts = folder, key, known_hosts
        self.lines: list[dict[str, Any]] = []
        self.bundles = bundle.ensure(root).as_dict()
        self.connections: list[socket.socket] = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(folder / "broker"))
        self.socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        for text in connection.makefile():
            line = json.loads(text)
            self.lines.append(line)
            if line["event"] == "inputs":
                connection.sendall(json.dumps({"ok": True, "inputs": self.inputs}).encode() + b"\n")

    def start(self, address: str = ADDRESS, **inputs: Any) -> subprocess.Popen[str]:
        """Start a converge."""
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

    def converge(self, **inputs: Any) -> tuple[dict[str, Any], str]:
        """Run to the end; returns the result line and what Ansible printed."""
        process = self.start(**inputs)
        output, _ = process.communicate(timeout=120)
        results = [line for line in self.lines if line["event"] == "result"]
        assert len(results) == 1, output
        return results[0], output

    def states(self) -> list[str]:
        """The states that the host went through."""
        return [line["state"] for line in self.lines if line["event"] == "state"]

    def on_host(self, command: str) -> str:
        """Run a shell command on the host; returns what it prints."""
        trust = ["-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "StrictHostKeyChecking=yes"]
        said = subprocess.run(
            ["ssh", "-q", "-i", self.key, *trust, f"root@{ADDRESS}", command],
            capture_output=True,
            text=True,
            check=False,
        )
        return said.stdout.strip()

    def wait_for(self, command: str) -> None:
        """Wait until a command on the host prints yes."""
        self.wait_until(lambda: self.on_host(command) == "yes")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, self.lines
            time.sleep(0.2)

    def until_held(self) -> None:
        """Wait until the task Hold runs."""
        self.wait_for("test -e /run/holding && echo yes")

    def let_go(self) -> None:
        """Let the task Hold end."""
        self.on_host("touch /run/go")

    def manifest(self) -> dict[str, Any]:
        """What the host says of the playbook."""
        entry: dict[str, Any] = json.loads(self.on_host("cat /var/lib/slipway/manifest.json"))["playbooks"]["box"]
        return entry
