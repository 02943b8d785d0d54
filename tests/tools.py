"""What tests share: a stack driven by the commands that a user has, and the machine's state for before and after."""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import testinfra

from slipway import paths

ROOT = paths.root()
SLIPWAY = str(ROOT / "slipway")


def run(*command: str, timeout: float = 120, check: bool = True, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; on failure show what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **kwargs)
    if check and done.returncode:
        raise AssertionError(
            f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done


@functools.cache
def environment() -> dict[str, str]:
    """The environment that `eval "$(./slipway env)"` gives."""
    shown = run("sh", "-c", f'eval "$({shlex.quote(SLIPWAY)} env)"; env -0', timeout=600)
    return dict(line.split("=", 1) for line in shown.stdout.split("\0") if "=" in line)


def our_processes() -> list[str]:
    """Command lines of what a run may leave: the engine, our provider, Ansible, containers of hosts."""
    marks = ("pulumi-resource-slipway", "slipway.provider", "ansible-playbook", "pulumi-language-", "systemd-nspawn")
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = cmdline.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # gone meanwhile
            continue
        if any(mark in line for mark in marks):
            found.append(line)
    return sorted(found)


def copy_checkout(folder: Path) -> Path:
    """Copy the files that Git knows or would take to a new folder, in no repository; return it."""
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).stdout
    for file in filter(None, listed.split("\0")):
        if (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, folder / file)
    return folder


class Stack:
    """A stack, driven from outside."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.destroyed = False
        self.ours = not self._has_resources()

    def up(self, timeout: float = 1200) -> str:
        """`./slipway up`; returns what it printed."""
        self.destroyed = False
        self.forget_hosts()
        return run(SLIPWAY, "up", self.name, timeout=timeout).stdout

    def forget_hosts(self) -> None:
        """Ask anew which hosts there are: somebody has changed them."""
        self._outputs.cache_clear()
        self.__dict__.pop("ssh_config", None)

    def _has_resources(self) -> bool:
        """Whether the stack was up before these tests."""
        exported = self.pulumi("stack", "export", check=False)
        return exported.returncode == 0 and bool(json.loads(exported.stdout)["deployment"].get("resources"))

    def destroy(self, timeout: float = 300) -> str:
        """`./slipway destroy`; returns what it printed."""
        shown = run(SLIPWAY, "destroy", self.name, timeout=timeout).stdout
        self.destroyed = True
        return shown

    def pulumi(self, *arguments: str, check: bool = True, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Plain pulumi in the checkout, as after `eval "$(./slipway env)"`."""
        command = ["pulumi", *arguments, "--stack", self.name, "--non-interactive"]
        return run(*command, env=environment(), cwd=ROOT, check=check, timeout=timeout)

    @functools.cache  # noqa: B019  (one stack a session)
    def _outputs(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.pulumi("stack", "output", "--json", "--show-secrets").stdout)
        return loaded

    @property
    def hosts(self) -> list[dict[str, Any]]:
        """name, address, group, pool and hostKey of each host."""
        return [{"name": name, **host} for name, host in self._outputs()["hosts"].items()]

    def host(self, name: str) -> dict[str, Any]:
        """One host by name."""
        return next(host for host in self.hosts if host["name"] == name)

    def named(self, group: str) -> list[str]:
        """Names of the hosts of a group or pool."""
        return [host["name"] for host in self.hosts if group in (host["group"], host["pool"])]

    @functools.cached_property
    def ssh_config(self) -> Path:
        """An OpenSSH configuration for all hosts, with their keys pinned."""
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_text(self._outputs()["sshPrivateKey"])
        known = self.folder / "known_hosts"
        known.write_text("".join(f"{host['name']},{host['address']} {host['hostKey']}\n" for host in self.hosts))
        config = self.folder / "ssh_config"
        common = {
            "User": "root",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ControlMaster": "auto",
            "ControlPersist": "60",
            "IdentityFile": f'"{key}"',
            "UserKnownHostsFile": f'"{known}"',
            "ControlPath": f'"{self.folder}/%C"',
            "LogLevel": "ERROR",
        }
        lines = [f"Host {host['name']}\n  HostName {host['address']}\n" for host in self.hosts]
        lines += ["Host *\n", *(f"  {name} {value}\n" for name, value in common.items())]
        config.write_text("".join(lines))
        return config

    def ssh(self, host: str, command: str, check: bool = True, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a host."""
        return run("ssh", "-F", str(self.ssh_config), host, command, check=check, timeout=timeout)

    def testinfra(self, group: str) -> list[object]:
        """testinfra hosts of a group or pool."""
        names = self.named(group)
        assert names, f"no host in {group}"
        return [testinfra.get_host(f"ssh://{name}", ssh_config=str(self.ssh_config)) for name in names]

    @functools.cached_property
    def kubeconfig(self) -> Path:
        """The file with what `./slipway kubeconfig` prints."""
        file = self.folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_text(run(SLIPWAY, "kubeconfig", self.name).stdout)
        return file

    def kubectl(
        self, *arguments: str, check: bool = True, timeout: float = 60, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl through the load balancer as the administrator."""
        env = {**environment(), "KUBECONFIG": str(self.kubeconfig)}
        return run("kubectl", *arguments, env=env, check=check, timeout=timeout, **kwargs)

    def get(self, *arguments: str) -> Any:
        """`kubectl get … -o json`."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)

    def lab(self, *arguments: str, timeout: float = 120) -> str:
        """`./slipway lab …`."""
        return run(SLIPWAY, "lab", *arguments, timeout=timeout).stdout


def eventually(what: str, check: Any, deadline: float = 120, pause: float = 1.0) -> Any:
    """Call `check` until it returns something true; fail with `what` and the last outcome at the deadline (seconds)."""
    end = time.monotonic() + deadline
    while True:
        last: Any
        try:
            last = check()
            if last:
                return last
        except (AssertionError, subprocess.SubprocessError, json.JSONDecodeError) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {deadline} s; last seen: {last}")
        time.sleep(pause)
