"""Ansible as a child process: what it is given, and what it says."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from slipway.node.host import places
from slipway.node.host.controller import Lines

OUTPUT_KEPT = 16_384
"""Bytes of Ansible's own output that are kept to say why it did not start."""


class Ansible:
    """One `ansible-playbook` against this host, in a process group of its own.

    Args:
        inputs: what the controller sent.
        on_event: called with each event of our callback plugin.
    """

    def __init__(self, inputs: dict[str, Any], on_event: Callable[[dict[str, Any]], None]) -> None:
        self._inputs = inputs
        self._on_event = on_event
        self._inventory = places.run("inputs.json")
        self._cancel = places.run("cancel")
        self._output = b""

    def give_inputs(self) -> None:
        """Write the file with variables and secrets that Ansible reads at its start."""
        places.write(self._inventory, json.dumps(inventory(self._inputs)))

    def start(self, lock: int, selector: selectors.BaseSelector) -> None:
        """Start it; what it says is read through the selector.

        Args:
            lock: the lock's file descriptor, which it holds as well.
            selector: its entries carry a function to call when something is there.
        """
        self._remove(self._cancel)
        events, events_end = os.pipe()
        output, output_end = os.pipe()
        for fd in (events, output):
            os.set_blocking(fd, False)
        self._selector = selector
        self._events, self._output_fd = Lines(events), output
        runtime = os.path.join(places.BUNDLES, self._inputs["bundles"]["runtime"]["digest"])
        self._process = subprocess.Popen(
            self._command(runtime),
            cwd=places.CONTENT,
            env=self._environment(runtime, events_end, lock),
            stdin=subprocess.DEVNULL,
            umask=0o022,  # what modules make without a mode is for service users too
            stdout=output_end,
            stderr=output_end,
            pass_fds=(events_end, lock),
            start_new_session=True,
        )
        os.close(events_end)
        os.close(output_end)
        selector.register(events, selectors.EVENT_READ, self._read_events)
        selector.register(output, selectors.EVENT_READ, self._read_output)

    def status(self) -> int | None:
        """Return its exit status, None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._read_events()
            self._read_output()
        return status

    def stop(self) -> None:
        """Ask it to stop before its next task."""
        with open(self._cancel, "w", encoding="utf-8"):
            pass

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to it and all it started, except services: those are systemd's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def forget_inputs(self) -> None:
        """Take the file with variables and secrets away: Ansible has read it."""
        self._remove(self._inventory)

    def clean_up(self) -> None:
        """Leave no process and no file behind."""
        self.kill(signal.SIGKILL)
        self.forget_inputs()
        self._remove(self._cancel)

    def last_words(self) -> str:
        """Return the line of its own output that says why it ended."""
        lines = [line.strip() for line in self._output.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))]
        said = (errors or lines or ["no output"])[-1].removeprefix("[ERROR]: ")
        return f"ansible-playbook ended with status {self._process.returncode}: {said}"

    def _command(self, runtime: str) -> list[str]:
        entry = places.content("slipway", "node", "host", "ansible_playbook.py")
        command = [sys.executable, "-I", entry, runtime, "-i", self._inventory]
        command += [f"--{option}" for option in ("check", "diff") if self._inputs.get(option)]
        return [*command, places.content("playbooks", f"{self._inputs['playbook']}.yml")]

    def _environment(self, runtime: str, events: int, lock: int) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_CONFIG": places.content("ansible.cfg"),
            "ANSIBLE_STRATEGY": self._inputs.get("strategy", "mitogen_linear"),
            "ANSIBLE_STRATEGY_PLUGINS": os.path.join(runtime, "ansible_mitogen", "plugins", "strategy"),
            "ANSIBLE_CALLBACK_PLUGINS": places.content("slipway", "node", "host", "callback_plugins"),
            "ANSIBLE_HOME": places.run("ansible"),
            "ANSIBLE_LOCAL_TEMP": places.run("ansible/tmp"),
            "ANSIBLE_REMOTE_TEMP": places.run("ansible/tmp"),
            "SLIPWAY_EVENTS_FD": str(events),
            "SLIPWAY_LOCK_FD": str(lock),
            "SLIPWAY_CANCEL": self._cancel,
            # A check run notifies handlers, too, but changes nothing.
            "SLIPWAY_PENDING": "" if self._inputs.get("check") else places.state("pending.json"),
            "SLIPWAY_PLAYBOOK": self._inputs["playbook"],
            "SLIPWAY_BROKER": places.run("broker.sock"),
        }

    def _read_events(self) -> None:
        for line in self._events.read():
            with contextlib.suppress(ValueError):
                self._on_event(json.loads(line))
        if self._events.ended:
            self._unregister(self._events.fd)

    def _read_output(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output_fd, 65536)
            self._output = (self._output + data)[-OUTPUT_KEPT:]
            if not data:
                self._unregister(self._output_fd)

    def _unregister(self, fd: int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    @staticmethod
    def _remove(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def inventory(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return Ansible's inventory of one host: its variables and groups."""
    host = inputs["host"]
    variables = data_only({**(inputs.get("vars") or {}), **(inputs.get("secrets") or {})})
    variables.update(ansible_connection="local", ansible_python_interpreter=sys.executable)
    groups = {group: {"hosts": {host: None}} for group in inputs.get("groups") or []}
    return {**groups, "all": {"hosts": {host: variables}}}


def data_only(value: Any) -> Any:
    """Return a value in which Ansible expands no string: what the controller sends is data, not templates."""
    if isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#")):
        return {"__ansible_unsafe": value}
    if isinstance(value, dict):
        return {key: data_only(each) for key, each in value.items()}
    if isinstance(value, list):
        return [data_only(each) for each in value]
    return value
