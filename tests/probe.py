"""A project of its own for the provider: this checkout's provider, a tiny program, a tiny role, real hosts."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tools
from slipway import paths

PROJECT = paths.root() / "tests/provider/project"


class Project:
    """A stack of the tiny program, in a folder of its own, driven by plain pulumi.

    Args:
        folder: where it is made.
        overlay: the program, and its playbooks and roles.
        always: configuration that every `configure` keeps, such as a network of the test's own.
    """

    def __init__(self, folder: Path, overlay: Path = PROJECT, **always: str) -> None:
        self.always = always
        self.network = always.get("network", "provider-test")
        self.folder = folder / "project"
        self.home = folder / "home"
        shutil.copytree(paths.root() / "infra", self.folder / "infra", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(paths.root() / "playbooks", self.folder / "playbooks")
        shutil.copy(paths.root() / "ansible.cfg", self.folder)
        shutil.copytree(overlay, self.folder, dirs_exist_ok=True)
        (folder / "state").mkdir()
        self.environment = tools.environment() | {
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "for a test",
            "SLIPWAY_HOME": str(self.home),
        }
        self.environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
        self.pulumi("stack", "init", "test")
        self.configure()

    def pulumi(self, *arguments: str, check: bool = True, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run pulumi to its end."""
        command = ["pulumi", *arguments, "--non-interactive"]
        return tools.run(*command, env=self.environment, cwd=self.folder, check=check, timeout=timeout)

    def configure(self, **values: str) -> None:
        """Set the program's whole configuration; what is not named has its default."""
        file = self.folder / "Pulumi.test.yaml"
        kept = re.findall(r"^encryptionsalt: .*$", file.read_text(), re.MULTILINE) if file.exists() else []
        lines = [f"  provider-test:{name}: {json.dumps(value)}" for name, value in (self.always | values).items()]
        file.write_text("\n".join([*kept, "config:" if lines else "", *lines]) + "\n")

    def up(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Bring the stack up."""
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, check=check)

    def start_up(self) -> subprocess.Popen[str]:
        """Start to bring the stack up."""
        command = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive"]
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def play(self) -> dict[str, Any]:
        """The play's outputs, from the stack's state."""
        exported = json.loads(self.pulumi("stack", "export").stdout)
        plays = [each for each in exported["deployment"]["resources"] if each["type"] == "slipway:index:Play"]
        found: dict[str, Any] = plays[0]["outputs"]
        return found

    def results(self) -> dict[str, Any]:
        """What the play says of each host."""
        found: dict[str, Any] = self.play()["results"]
        return found

    def on_host(self, name: str, command: str) -> str:
        """Run a shell command on a host, not by SSH."""
        script = (
            "import subprocess, sys; from slipway.fleet.lab import host; "
            "sys.exit(subprocess.run(host.shell(sys.argv[1], sys.argv[2], ['sh', '-c', sys.argv[3]])).returncode)"
        )
        environment = self.environment | {"PYTHONPATH": str(self.folder / "infra")}
        return tools.run(
            environment["SLIPWAY_PYTHON"], "-c", script, self.network, name, command, env=environment
        ).stdout

    def lab(self, call: str) -> None:
        """Call a function of the lab library: `host.stop("provider-test", "probe-0")`."""
        environment = self.environment | {"PYTHONPATH": str(self.folder / "infra")}
        tools.run(
            environment["SLIPWAY_PYTHON"], "-c", f"from slipway.fleet.lab import host, network; {call}", env=environment
        )

    def processes(self) -> list[str]:
        """Command lines of processes that were started from this project, hosts aside.

        Not Pulumi's Python host either: after a kill of the engine it idles until it notices, some minutes later.
        """
        return list(self._processes().values())

    def kill(self, part: str) -> None:
        """Kill -9 the processes of this project that have something in their command line."""
        found = [process for process, line in self._processes().items() if part in line]
        assert found, part
        for process in found:
            os.kill(process, signal.SIGKILL)

    def _processes(self) -> dict[int, str]:
        mark = f"SLIPWAY_HOME={self.home}\0".encode()
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                ours = mark in (process / "environ").read_bytes()
            except OSError:  # gone meanwhile
                continue
            if ours and "/pulumi-language-python " not in line and "lab/launch.sh" not in line and "nspawn" not in line:
                found[int(process.name)] = line
        return found


@contextmanager
def standing(project: Project, *hosts: str) -> Iterator[Project]:
    """Give a project, and take it down at the end, with its hosts and its network even where Pulumi cannot."""
    try:
        yield project
    finally:
        project.configure()
        project.pulumi("cancel", "--yes", check=False)
        project.pulumi("destroy", "--yes", "--skip-preview", check=False)
        for name in hosts:
            project.lab(f"host.destroy('{project.network}', '{name}')")
        project.lab(f"network.destroy('{project.network}')")


def abandoned_keys() -> list[Path]:
    """Folders with keys in memory whose process is no more."""
    folders = Path("/run").glob("slipway-play-*")
    return [folder for folder in folders if not Path("/proc", folder.name.split("-")[2]).exists()]


def wait_for(condition: Any, seconds: float, what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C once: the engine alone gets it, as its plugins are in process groups of their own."""
    process.send_signal(signal.SIGINT)
