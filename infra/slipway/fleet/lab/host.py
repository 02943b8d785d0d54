"""Lab hosts: systemd in a container of its own, reachable by SSH like any other machine.

A host is the folder `<home>/lab/<network>/<host>/`:

    host.json     what it was made from, and its public SSH host key; written last
    upper, work   its own changes over the base tree (overlay)
    root          where its tree is mounted, seen by its own processes only
    ssd           /mnt/local in the host: the local SSD
    console.log   what systemd-nspawn and the host's systemd printed
    groups        its control groups on this machine, one a line
    pid           boot id, process id and start time of its supervisor (`launch.sh`)

A host runs when its supervisor does and its systemd too. What else is found in its control groups is left over.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from slipway import paths
from slipway.fleet.lab import base, cgroups, files, machine, network, tools
from slipway.fleet.lab.errors import LabError

_LAUNCHER = Path(__file__).with_name("launch.sh")
_OWN_FOLDERS = ("upper", "work", "root", "ssd")
_POWER_OFF = signal.SIGRTMIN + 4  # systemd's "power off", as PID 1 understands it

# What a container may not do by default and these hosts must: kernel keyrings (kubelet, runc), BPF (runc's device rules
# on cgroup v2, networking), performance counters.
_SYSTEM_CALLS = "@keyring bpf perf_event_open"
# The clock is the machine's: a time service must see that it has nothing to set.
_DROPPED_CAPABILITY = "CAP_SYS_TIME"


Work = Callable[[str, str], object]
"""Something done to one host: takes network and host."""


class HostSpec(BaseModel):
    """What a lab host shall be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: network.Name
    network: network.Name
    address: ipaddress.IPv4Address
    os: str = "debian13"
    authorized_key: str = Field(pattern=r"^(ssh|ecdsa|sk)-\S+ \S+( .*)?$")
    """One public key line that root may log in with."""


class HostState(BaseModel):
    """What a lab host is."""

    model_config = ConfigDict(frozen=True)

    name: str
    network: str
    address: str
    os: str
    user: str = "root"
    host_key: str
    """Its public SSH host key, `ssh-ed25519 AAAA…`: what a client pins."""
    running: bool
    leader: int | None = None
    """Process id of its systemd on this machine."""
    started: dt.datetime | None = None
    memory: int | None = None
    """Bytes in use, without page cache that can be dropped."""


class _Record(BaseModel):
    """What host.json holds."""

    spec: HostSpec
    host_key: str
    base: Path


def folder(network_name: str, name: str) -> Path:
    """Return the folder that holds all of a host."""
    return network.folder(network_name) / name


def names(network_name: str) -> list[str]:
    """Return the names of a network's hosts."""
    return sorted(path.parent.name for path in network.folder(network_name).glob("*/host.json"))


def find(name: str) -> tuple[str, str]:
    """Return (network, host) for what a person typed: `host`, or `network/host` where two networks have it.

    Raises:
        LabError: no such host, or more than one.
    """
    wanted_network, _, wanted = name.rpartition("/")
    found = [
        (candidate, wanted)
        for candidate in network.names()
        if wanted_network in ("", candidate) and wanted in names(candidate)
    ]
    if not found:
        raise LabError(f"there is no lab host {name}; run: slipway lab list")
    if len(found) > 1:
        choices = ", ".join("/".join(pair) for pair in found)
        raise LabError(f"more than one lab host is called {name}; say which: {choices}")
    return found[0]


def inspect(network_name: str, name: str) -> HostState | None:
    """Return what is there of a host, None if there is none of that name."""
    record = _load(network_name, name)
    if record is None:
        return None
    leader = _leader(network_name, name)
    groups = _groups(network_name, name)
    return HostState(
        name=name,
        network=network_name,
        address=str(record.spec.address),
        os=record.spec.os,
        host_key=record.host_key,
        running=leader is not None,
        leader=leader,
        started=_started(leader) if leader else None,
        memory=cgroups.memory(groups) if leader else None,
    )


def ensure(spec: HostSpec, *, seconds: float = 120, progress: tools.Progress = tools.silent) -> HostState:
    """Make a host, or adopt it where it is: start it if it is stopped, make it anew if it was left half-made.

    Returns when it answers on port 22 with its own key.

    Args:
        spec: the host; its network must exist (`network.ensure`).
        seconds: how long it may take from its start until it answers.
        progress: gets a line now and then.

    Raises:
        LabError: the host exists and is another one, its network is missing, or it does not come up in time.
    """
    declared = network.load(spec.network)
    if declared is None:
        raise LabError(f"lab host {spec.name}: there is no lab network {spec.network}; run: slipway up")
    if spec.address not in declared.cidr or spec.address == declared.gateway:
        raise LabError(f"lab host {spec.name}: {spec.address} is not a host's address in {declared.cidr}")
    for other in names(spec.network):
        record = _load(spec.network, other)
        if record and other != spec.name and record.spec.address == spec.address:
            raise LabError(f"lab host {spec.name}: its address {spec.address} is host {other}'s")
    tree = base.ensure(spec.os, progress)
    network.mend(declared)
    with _lock(spec.network, spec.name):
        record = _load(spec.network, spec.name)
        if record is None:
            _clear(spec.network, spec.name)
            record = _make(spec, tree)
        elif record.spec != spec:
            record = _adopt(record, spec)
        _start(record, seconds)
    state = inspect(spec.network, spec.name)
    if state is None or not state.running:
        raise LabError(f"lab host {spec.name} stopped again at once: {_cause(spec.network, spec.name)}")
    return state


def start(network_name: str, name: str, *, seconds: float = 120) -> HostState:
    """Start a stopped host, after a reboot of the machine too; one that runs is left alone.

    Raises:
        LabError: there is no such host, or it does not come up in `seconds`.
    """
    declared = network.load(network_name)
    if declared is None:
        raise LabError(f"there is no lab network {network_name}; run: slipway lab list")
    network.mend(declared)
    with _lock(network_name, name):
        _start(_must_load(network_name, name), seconds)
    state = inspect(network_name, name)
    assert state is not None  # noqa: S101
    return state


def stop(network_name: str, name: str, *, seconds: float = 30) -> None:
    """Power a host off; its data stay. What still runs after `seconds` is killed.

    Raises:
        LabError: there is no such host, or a process of it cannot be killed.
    """
    with _lock(network_name, name):
        _must_load(network_name, name)
        leader = _leader(network_name, name)
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, _POWER_OFF)
            deadline = time.monotonic() + seconds
            while cgroups.processes(_groups(network_name, name)) and time.monotonic() < deadline:
                time.sleep(0.1)
        _kill(network_name, name)


def kill(network_name: str, name: str) -> None:
    """End a host as a power cut does; its data stay as they were at that moment.

    Raises:
        LabError: there is no such host, or a process of it cannot be killed.
    """
    with _lock(network_name, name):
        _must_load(network_name, name)
        _kill(network_name, name)


def destroy(network_name: str, name: str) -> None:
    """Remove a host and all its data; one that is not there is no error.

    Raises:
        LabError: a process of it cannot be killed, or something of the machine is mounted in its folder.
    """
    with _lock(network_name, name):
        _clear(network_name, name)


def wait(network_name: str, name: str, *, seconds: float = 120) -> None:
    """Wait until a host answers on port 22 with its own key.

    Raises:
        LabError: it does not in time; the message has the likely cause from its console.
    """
    _wait(_must_load(network_name, name), seconds)


def shell(network_name: str, name: str, command: list[str]) -> list[str]:
    """Return the command line that runs a command (default: a login shell) inside a running host, without SSH.

    Raises:
        LabError: there is no such host, or it does not run.
    """
    _must_load(network_name, name)
    leader = _leader(network_name, name)
    if leader is None:
        raise LabError(f"lab host {name} does not run; run: slipway lab start {name}")
    inside = [
        "nsenter",
        f"--target={leader}",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--pid",
        "--cgroup",
        "--wdns=/root",
    ]
    environment = [
        "HOME=/root",
        "USER=root",
        "LOGNAME=root",
        "SHELL=/bin/bash",
        f"TERM={os.environ.get('TERM', 'dumb')}",
    ]
    environment += ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"]
    return [*inside, "env", "-i", *environment, *(command or ["bash", "--login"])]


def logs(network_name: str, name: str, arguments: list[str]) -> list[str]:
    """Return the command line that shows a host's journal, running or not.

    Raises:
        LabError: there is no such host.
    """
    _must_load(network_name, name)
    if _leader(network_name, name) is not None:
        return shell(network_name, name, ["journalctl", *arguments])
    return ["journalctl", f"--directory={folder(network_name, name)}/upper/var/log/journal", *arguments]


def _make(spec: HostSpec, tree: Path) -> _Record:
    """Write a new host's folder beside its place and move it there whole."""
    place = folder(spec.network, spec.name)
    declared = network.load(spec.network)
    assert declared is not None  # noqa: S101
    unfinished = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{spec.name}.", suffix=".partial"))
    unfinished.chmod(0o755)
    for name in _OWN_FOLDERS:
        (unfinished / name).mkdir(mode=0o755)
    key = files.new_host_key()
    servers = network.name_servers()
    own = {
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/hostname": f"{spec.name}\n",
        "etc/hosts": files.hosts(spec.name, str(spec.address)),
        "etc/resolv.conf": files.resolv_conf(servers),
        "etc/systemd/network/10-lab.network": files.network_unit(
            str(spec.address), declared.cidr.prefixlen, str(declared.gateway)
        ),
        "etc/ssh/ssh_host_ed25519_key.pub": f"{key.public}\n",
    }
    secret = {"etc/ssh/ssh_host_ed25519_key": key.private, "root/.ssh/authorized_keys": f"{spec.authorized_key}\n"}
    upper = unfinished / "upper"
    for contents, mode in ((own, 0o644), (secret, 0o600)):
        for name, content in contents.items():
            _copy_folders(tree, upper, Path(name).parent)
            tools.write(upper / name, content, mode)
    record = _Record(spec=spec, host_key=key.public, base=tree)
    tools.write(unfinished / "host.json", record.model_dump_json(indent=2))
    unfinished.rename(place)
    return record


def _copy_folders(tree: Path, upper: Path, name: Path) -> None:
    """Make a folder of the base tree in a host's layer with the owner and mode it has there: the upper one counts."""
    for part in [*reversed(name.parents), name]:
        target = upper / part
        if not target.is_dir():
            target.mkdir(mode=0o700)
        if (tree / part).is_dir():
            stat = (tree / part).stat()
            os.chown(target, stat.st_uid, stat.st_gid)
            target.chmod(stat.st_mode & 0o7777)


def _adopt(record: _Record, spec: HostSpec) -> _Record:
    """Take over a host that differs in who may log in; anything else makes it another host."""
    name = f"{spec.network}/{spec.name}"
    if record.spec.model_copy(update={"authorized_key": spec.authorized_key}) != spec:
        raise LabError(
            f"lab host {spec.name} exists as {record.spec.os} at {record.spec.address}, not {spec.os} at "
            f"{spec.address}; run: slipway lab destroy {name}"
        )
    leader = _leader(spec.network, spec.name)
    root = Path(f"/proc/{leader}/root") if leader else folder(spec.network, spec.name) / "upper"
    tools.write(root / "root/.ssh/authorized_keys", f"{spec.authorized_key}\n", 0o600)
    record = record.model_copy(update={"spec": spec})
    tools.write(folder(spec.network, spec.name) / "host.json", record.model_dump_json(indent=2))
    return record


def _start(record: _Record, seconds: float) -> None:
    spec = record.spec
    if _leader(spec.network, spec.name) is None:
        _kill(spec.network, spec.name)  # what a killed supervisor may have left
        if not record.base.is_dir():
            raise LabError(
                f"lab host {spec.name}: its base tree {record.base} is gone; run: slipway lab destroy "
                f"{spec.network}/{spec.name}, then slipway up"
            )
        _launch(record)
    _wait(record, seconds)


def _launch(record: _Record) -> None:
    """Start a host's supervisor as a process of its own: no child, no terminal, no open files of the caller."""
    spec = record.spec
    place = folder(spec.network, spec.name)
    if any(character in str(place) + str(record.base) for character in ":,\\"):
        raise LabError(f"overlays cannot be made in {place}: ':', ',' or '\\' in the name; set SLIPWAY_HOME")
    (place / "pid").unlink(missing_ok=True)
    groups = cgroups.plan(spec.network, spec.name)
    tools.write(place / "groups", "".join(f"{group}\n" for group in groups if group != "self"))
    cgroups.make(groups)
    command = [str(_LAUNCHER), str(place), str(record.base), *groups, "--", *_nspawn(record)]
    if groups == ["self"]:
        command = [
            *("systemd-run", "--quiet", "--collect", f"--unit={cgroups.unit(spec.network, spec.name)}"),
            *("--property=Type=exec", "--property=Delegate=yes", "--property=KillMode=mixed"),
            *("--property=TasksMax=infinity", "--property=OOMPolicy=continue"),
            *(f"--property=StandardOutput=append:{place}/console.log", "--property=StandardError=inherit"),
            *(f"--description=Slipway lab host {spec.name}", "--", *command),
        ]
        tools.run(command)
    else:
        with (place / "console.log").open("ab") as console:
            subprocess.run(
                ["setsid", "--fork", *command],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                check=True,
            )


def _nspawn(record: _Record) -> list[str]:
    """Return the command that runs a host in the foreground."""
    spec = record.spec
    place = folder(spec.network, spec.name)
    declared = network.load(spec.network)
    assert declared is not None  # noqa: S101
    command = [
        "systemd-nspawn",
        "--quiet",
        "--boot",
        # No machined and no scope unit: there may be no systemd on this machine, and reboots stay the supervisor's.
        "--register=no",
        "--keep-unit",
        f"--directory={place}/root",
        f"--machine={network.machine_name(spec.network, spec.name)}",
        f"--hostname={spec.name}",
        f"--network-bridge={declared.bridge}",
        "--capability=all",
        f"--drop-capability={_DROPPED_CAPABILITY}",
        f"--system-call-filter={_SYSTEM_CALLS}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
        f"--bind={place}/ssd:/mnt/local",
    ]
    for source, target in ((paths.engines(), paths.ENGINES_ON_HOST), (paths.images(), paths.IMAGES_ON_HOST)):
        source.mkdir(parents=True, exist_ok=True)
        command.append(f"--bind-ro={source}:{target}")
    if Path("/dev/kmsg").exists():
        command.append("--bind=/dev/kmsg")
    if Path("/lib/modules").is_dir():
        command.append("--bind-ro=/lib/modules:/usr/lib/modules")
    if cgroups.layout().version == 1:
        # systemd 256 and later refuses cgroup v1 unless its command line says this.
        command.append("SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
    return command


def _wait(record: _Record, seconds: float) -> None:
    spec = record.spec
    deadline = time.monotonic() + seconds
    running = False
    while time.monotonic() < deadline:
        alive = bool(cgroups.processes(_groups(spec.network, spec.name)))
        if running and not alive:
            raise LabError(f"lab host {spec.name} stopped while it was starting: {_cause(spec.network, spec.name)}")
        running = alive
        if _answers(spec.address):
            _check_key(record, deadline)
            return
        time.sleep(0.2)
    raise LabError(
        f"lab host {spec.name} ({spec.address}) does not answer on port 22 after {seconds:.0f} s: "
        f"{_cause(spec.network, spec.name)}; run: slipway lab logs {spec.name}"
    )


def _answers(address: ipaddress.IPv4Address) -> bool:
    """Say whether an SSH server greets us."""
    try:
        with socket.create_connection((str(address), 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _check_key(record: _Record, deadline: float) -> None:
    """Make sure that it is this host that answers, and none that took its address."""
    spec = record.spec
    while True:
        try:
            seen = tools.run(["ssh-keyscan", "-T", "5", "-t", "ed25519", str(spec.address)], timeout=10)
        except LabError:
            seen = ""
        keys = [" ".join(line.split()[1:3]) for line in seen.splitlines() if not line.startswith("#")]
        if record.host_key in keys:
            return
        if keys:
            raise LabError(
                f"lab host {spec.name}: something else answers at {spec.address} with another host key; "
                "is the address in use?"
            )
        if time.monotonic() > deadline:
            raise LabError(f"lab host {spec.name} ({spec.address}) answers on port 22 but shows no host key")
        time.sleep(0.2)


def _leader(network_name: str, name: str) -> int | None:
    """Return the process id of a running host's systemd: PID 1 of a namespace below ours. None if it is stopped."""
    if not _is_supervised(network_name, name):
        return None
    # Each hierarchy has all of a host's processes, so one will do.
    for process in sorted(cgroups.processes(_groups(network_name, name)[:1])):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        # Two levels: containers in the host are PID 1 of a third one.
        if fields["State"][0] not in "ZX" and _levels(fields) == 2 and fields["NSpid"].split()[-1] == "1":
            return process
    return None


def _groups(network_name: str, name: str) -> list[Path]:
    """Return a host's control groups that are there."""
    try:
        lines = (folder(network_name, name) / "groups").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [path for path in map(Path, lines) if path.is_dir()]


def _is_supervised(network_name: str, name: str) -> bool:
    """Say whether a host's supervisor runs: the very process, not another one that got its id since."""
    try:
        boot, process, started = (folder(network_name, name) / "pid").read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    return boot == machine.boot_id() and _start_ticks(int(process)) == int(started)


def _start_ticks(process: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if there is none, or it is dead already."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _levels(fields: dict[str, str]) -> int:
    """Return how many PID namespaces a process is in, counted from ours."""
    return len(fields.get("NSpid", "").split())


def _kill(network_name: str, name: str) -> None:
    """Kill all processes of a host, and remove its control groups and what nspawn keeps about it in /run."""
    groups = _groups(network_name, name)
    left = [
        Path(f"/run/systemd/nspawn/{kept}") / network.machine_name(network_name, name)
        for kept in ("propagate", "unix-export")
    ]
    if leader := _leader(network_name, name):
        with contextlib.suppress(OSError):
            root = Path(f"/proc/{leader}/root").stat()
            left.append(Path(f"/run/systemd/nspawn/locks/inode-{root.st_dev}:{root.st_ino}"))
    cgroups.kill(groups)
    cgroups.remove(groups)
    # The kernel takes its time to remove a network namespace, and the link with it.
    link = network.link_name(network_name, name)
    subprocess.run(["ip", "link", "delete", "dev", link], capture_output=True, check=False)
    for name_of in ("pid", "groups"):
        (folder(network_name, name) / name_of).unlink(missing_ok=True)
    for path in left:
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()


def _clear(network_name: str, name: str) -> None:
    """Remove all there is of a host, whole or half-made."""
    _kill(network_name, name)
    place = folder(network_name, name)
    (place / "host.json").unlink(missing_ok=True)  # first: what a kill leaves behind now is no host any more
    tools.remove_tree(place)
    for left in place.parent.glob(f".{name}.*.partial"):
        tools.remove_tree(left)


def _cause(network_name: str, name: str) -> str:
    """Return the line of a host's console that most likely says what went wrong."""
    place = folder(network_name, name) / "console.log"
    try:
        lines = [line.strip() for line in place.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return "it printed nothing"
    telling = [
        line for line in lines[-40:] if any(word in line.lower() for word in ("fail", "error", "refus", "denied"))
    ]
    return (telling or lines or ["it printed nothing"])[-1]


def _started(process: int) -> dt.datetime | None:
    """Return when a process was started."""
    ticks = _start_ticks(process)
    if ticks is None:
        return None
    boot = dt.datetime.now(dt.UTC).timestamp() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return dt.datetime.fromtimestamp(boot + ticks / os.sysconf("SC_CLK_TCK"), dt.UTC)


def _load(network_name: str, name: str) -> _Record | None:
    try:
        return _Record.model_validate_json((folder(network_name, name) / "host.json").read_text())
    except FileNotFoundError:
        return None


def _must_load(network_name: str, name: str) -> _Record:
    record = _load(network_name, name)
    if record is None:
        raise LabError(f"there is no lab host {network_name}/{name}; run: slipway lab list")
    return record


def _lock(network_name: str, name: str) -> contextlib.AbstractContextManager[None]:
    return tools.lock(f"host-{network_name}-{name}")
