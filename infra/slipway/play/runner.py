"""One wave of hosts converged: the controller's side, from the inventory to a result a host."""

from __future__ import annotations

import asyncio
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slipway import paths, pki, private
from slipway.play.broker import Broker, Event, Listener, Order, TokenMaker

PLAYBOOK = "playbooks/controller/converge.yml"
AT_ONCE = 50
"""Hosts that are converged side by side; those beyond wait for their turn."""

_GRACE_SECONDS = 20.0
"""After Ctrl-C, how long hosts may take to come to the end of their current task."""


@dataclass(frozen=True)
class Target:
    """How a host is reached.

    Args:
        name: its name in the inventory.
        address: where its SSH server listens.
        port: likewise.
        user: root, or a user that may use sudo without a password.
        host_key: its public key, one line; no other is accepted.
    """

    name: str
    address: str
    port: int
    user: str
    host_key: str

    def known_hosts_line(self) -> str:
        """Return the line that pins the host's key."""
        where = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        kind, key = self.host_key.split()[:2]
        return f"{where} {kind} {key}"


@dataclass(frozen=True)
class Result:
    """What came of a host.

    Args:
        ok: it is as it should be.
        changed: how many tasks changed something.
        digest: what it now is; empty if it is not what it should be.
        reason: one line when not ok.
        task: the task that failed, if one did.
        cancelled: it was stopped, and there is nothing wrong with it.
        tasks: how many tasks the controller ran for it.
        unreachable: it does not answer, or not as the host that it should be.
        untouched: it was at its digest already; nothing ran on it.
        deferred: it could not be made ready for a change, which is no reason to stop the others.
        cost: what its changes cost those who use it (`slipway.node.host.costs`).
        reboot: why it must reboot before it is done, one line each.
        unproven: the check that does not hold, `role : check`, when that is what is wrong.
        before: what the host's manifest said of this playbook before the run; empty if nothing.
        entry: the same after the run; of a check run what it would say.
    """

    ok: bool
    changed: int = 0
    digest: str = ""
    reason: str = ""
    task: str = ""
    cancelled: bool = False
    tasks: int = 0
    untouched: bool = False
    deferred: bool = False
    unreachable: bool = False
    cost: str = "none"
    reboot: tuple[str, ...] = ()
    unproven: str = ""
    before: Mapping[str, Any] = field(default_factory=dict, repr=False)
    entry: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def failure(cls, reason: str, *, cancelled: bool) -> Result:
        """Return what came of a host that is not as it should be, or may only be so as it was not waited for."""
        return cls(ok=False, reason="cancelled" if cancelled else reason, cancelled=cancelled)


@dataclass
class _Run:
    """What is learned while a wave runs."""

    results: dict[str, Result] = field(default_factory=dict)
    ansible: dict[str, Result] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    untouched: set[str] = field(default_factory=set)


async def converge(
    targets: Sequence[Target],
    orders: Mapping[str, Order],
    *,
    ssh_key: str,
    authorities: Mapping[str, pki.KeyPair],
    make_token: TokenMaker | None,
    listener: Listener,
    cancelled: threading.Event,
    timeout_seconds: int,
) -> dict[str, Result]:
    """Converge hosts side by side and return a result for each of them.

    Args:
        targets: the hosts.
        orders: what each is to become.
        ssh_key: the private key that they accept.
        authorities: who signs the certificates that they ask for.
        make_token: see `Broker`.
        listener: see `Broker`.
        cancelled: when it is set, hosts stop at the end of their current task, within 20 s.
        timeout_seconds: how long the wave may take, for each `AT_ONCE` of its hosts.
    """
    run = _Run()

    def listen(host: str, event: Event) -> None:
        if event.get("event") == "state" and event.get("state") == "unchanged":
            run.untouched.add(host)
        if event.get("event") == "result":
            run.results[host] = _result(event)
        listener(host, event)

    with private_folder() as folder:
        job = _prepare(folder, targets, ssh_key, timeout_seconds)
        (folder / "job.json").write_text(json.dumps(job))
        async with Broker(folder / "broker.sock", orders, authorities, make_token, listen) as broker:
            await _run_child(folder, run, broker, cancelled)
    tasks = run.end.get("tasks", {})
    return {
        target.name: replace(
            _final(target, run, cancelled=cancelled.is_set()),
            tasks=tasks.get(target.name, 0),
            untouched=target.name in run.untouched,
        )
        for target in targets
    }


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder (0700) in memory, for keys, and remove it afterwards. Those of dead processes go too."""
    private.remove_left()
    folder = private.make()
    try:
        yield folder
    finally:
        for connection in folder.glob("ssh/*"):
            # Shared connections stay behind for a while, each a process that holds the key.
            subprocess.run(
                ["ssh", "-O", "exit", "-o", f"ControlPath={connection}", "any"], capture_output=True, check=False
            )
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path, targets: Sequence[Target], ssh_key: str, timeout_seconds: int) -> dict[str, Any]:
    """Write what ansible-runner and SSH read; return the job. No variable of a role and no secret is in any of it."""
    key, known_hosts = folder / "ssh_key", folder / "known_hosts"
    key.touch(mode=0o600)
    key.write_text(ssh_key if ssh_key.endswith("\n") else ssh_key + "\n")
    known_hosts.write_text("".join(f"{target.known_hosts_line()}\n" for target in targets))
    options = f"-o UserKnownHostsFile={known_hosts} -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes"
    hosts = {
        target.name: {
            "ansible_host": target.address,
            "ansible_port": target.port,
            "ansible_user": target.user,
            "ansible_ssh_private_key_file": str(key),
            "ansible_ssh_common_args": options,
        }
        for target in targets
    }
    inventory = folder / "inventory.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    (folder / "ssh").mkdir(mode=0o700)
    return {
        "playbook": str(paths.root() / PLAYBOOK),
        "inventory": str(inventory),
        "environment": {
            "ANSIBLE_CONFIG": str(paths.root() / "ansible.cfg"),
            "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "ssh"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "SLIPWAY_BROKER": str(folder / "broker.sock"),
        },
        "forks": min(len(targets), AT_ONCE),
        "timeout_seconds": timeout_seconds * math.ceil(len(targets) / AT_ONCE),
    }


async def _run_child(folder: Path, run: _Run, broker: Broker, cancelled: threading.Event) -> None:
    """Run ansible-runner until it ends; stop it when asked to."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "slipway.play.child",
        str(os.getpid()),
        str(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=16 * 1024 * 1024,
        start_new_session=True,
        env=_environment(),
    )
    stopper = asyncio.create_task(_stop_when(cancelled, broker, child))
    try:
        assert child.stdout is not None  # noqa: S101  (it was asked for)
        async for line in child.stdout:
            said = json.loads(line)
            if "host" in said:
                reason = ("unreachable: " if said["unreachable"] else "") + _one_line(said["msg"])
                run.ansible[said["host"]] = Result(ok=False, reason=reason, unreachable=said["unreachable"])
            else:
                run.end = said
        await child.wait()
    finally:
        stopper.cancel()
        if child.returncode is None:
            child.send_signal(signal.SIGTERM)


async def _stop_when(cancelled: threading.Event, broker: Broker, child: asyncio.subprocess.Process) -> None:
    while not cancelled.is_set():
        await asyncio.sleep(0.2)
    broker.cancel()
    await asyncio.sleep(_GRACE_SECONDS)
    child.send_signal(signal.SIGTERM)  # ends Ansible at once; hosts stop when their connection has gone


def _environment() -> dict[str, str]:
    """Return the environment for ansible-runner, which writes all of it to a file: without Pulumi's secrets."""
    package = str(Path(__file__).resolve().parents[2])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULUMI_", "ANSIBLE_"))}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, [package, kept.get("PYTHONPATH")]))}


def _result(event: Event) -> Result:
    """Return the result that a host told."""
    ok = bool(event.get("ok"))
    reason = ": ".join(filter(None, [event.get("failed_task"), event.get("msg")])) or "failed without saying why"
    if event.get("unreachable"):
        reason = f"unreachable: {event.get('msg')}"
    return Result(
        ok=ok,
        changed=int(event.get("changed") or 0),
        digest=str(event.get("digest") or "") if ok else "",
        reason="" if ok else _one_line(reason),
        task="" if ok else str(event.get("failed_task") or ""),
        cancelled=bool(event.get("cancelled")),
        unreachable=bool(event.get("unreachable")),
        cost=str(event.get("cost") or "none"),
        reboot=tuple(str(each) for each in event.get("reboot") or ()),
        unproven=str(event.get("unproven") or ""),
        before=event.get("before") or {},
        entry=event.get("manifest") or {},
    )


def _final(target: Target, run: _Run, *, cancelled: bool) -> Result:
    """Return a host's own result, else what Ansible says about it, else what is wrong with the whole run."""
    found = run.results.get(target.name)
    if found and (found.ok or found.task or not (cancelled or found.cancelled)):
        return found
    if cancelled or (found and found.cancelled):
        return Result(ok=False, reason="cancelled", cancelled=True)
    if found := run.ansible.get(target.name):
        return found
    status = run.end.get("status", "ended without a word")
    tail = _one_line(" ".join(run.end.get("tail", ())))[-400:]
    return Result(ok=False, reason=f"no result; ansible {status}: {tail}")


def _one_line(text: str) -> str:
    return " ".join(text.split())
