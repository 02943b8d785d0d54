"""The machine under the lab: the few kernel settings that hosts share with it, and a picture of it for tests."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

from pydantic import BaseModel

from slipway import paths
from slipway.fleet.lab import cgroups, tools

# kubelet wants the first five exactly so and cannot write them itself: /proc/sys is read-only in a host.
_EXACT = {
    "vm.overcommit_memory": 1,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "net.ipv4.ip_forward": 1,
}
# Limits that all hosts share: raised where they are lower.
_AT_LEAST = {
    "kernel.keys.root_maxkeys": 1_000_000,
    "kernel.keys.root_maxbytes": 25_000_000,
    "kernel.pid_max": 4_194_304,
    "fs.inotify.max_user_instances": 8_192,
    "fs.inotify.max_user_watches": 1_048_576,
    "fs.aio-max-nr": 1_048_576,
}
SHARED_SYSCTLS = (*_EXACT, *_AT_LEAST)


class _Record(BaseModel):
    """What machine.json holds: the networks that are there, and settings as they were before the first of them."""

    boot_id: str
    networks: list[str] = []
    before: dict[str, str] = {}


def boot_id() -> str:
    """Return the id of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_sysctl(key: str) -> str | None:
    """Return a kernel setting, None where this kernel has none of that name."""
    try:
        return _sysctl(key).read_text().strip()
    except OSError:
        return None


def take(network: str) -> None:
    """Set the machine's kernel settings for a lab network; what was there before is kept on disk first."""
    with tools.lock("machine"):
        record = _load()
        record.networks = sorted({*record.networks, network})
        wanted = _unset()
        for key in wanted:
            record.before.setdefault(key, read_sysctl(key) or "")
        _save(record)
        for key, value in wanted.items():
            _sysctl(key).write_text(f"{value}\n")


def settled() -> bool:
    """Return whether the machine's kernel settings are (still) those that hosts need."""
    return not _unset()


def _unset() -> dict[str, int]:
    """Return the settings that the machine does not have yet, as they must be."""
    wanted = {key: value for key, value in _EXACT.items() if read_sysctl(key) not in (None, str(value))}
    for key, value in _AT_LEAST.items():
        now = read_sysctl(key)
        if now is not None and int(now) < value:
            wanted[key] = value
    return wanted


def give_back(network: str) -> None:
    """Forget a lab network; the last one gone restores the machine's kernel settings."""
    with tools.lock("machine"):
        record = _load()
        record.networks = sorted({*record.networks} - {network})
        if record.networks:
            _save(record)
            return
        # ip_forward first: writing it resets other settings of net.ipv4.conf.
        for key, value in sorted(record.before.items(), reverse=True):
            if read_sysctl(key) != value:
                _sysctl(key).write_text(f"{value}\n")
        _file().unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class MachineState:
    """What a lab may change on a machine and must leave as it was. Each part is sorted text."""

    mounts: tuple[str, ...]
    links: tuple[str, ...]
    rules: tuple[str, ...]
    processes: tuple[str, ...]
    sysctls: tuple[str, ...]
    cgroups: tuple[str, ...]

    def difference(self, after: MachineState) -> list[str]:
        """Return one line for each thing that appeared (+) or went (-) between this state and a later one."""
        lines = []
        for field in dataclasses.fields(self):
            before, now = set(getattr(self, field.name)), set(getattr(after, field.name))
            lines += [f"{field.name} - {gone}" for gone in sorted(before - now)]
            lines += [f"{field.name} + {new}" for new in sorted(now - before)]
        return lines


def machine_state() -> MachineState:
    """Take a picture of the machine, to be compared before and after a lab.

    Processes are those of lab hosts, by host, so that unrelated work on the machine does not show.
    """
    links = [link["ifname"] for link in json.loads(tools.run(["ip", "-json", "link"]))]
    routes = [line.strip() for line in tools.run(["ip", "-oneline", "-4", "route"]).splitlines()]
    hosts = cgroups.all_hosts()
    busy = {"/".join(path.parts[-2:]) for path in hosts if cgroups.processes([path])}
    return MachineState(
        mounts=tuple(sorted(_mounts())),
        links=tuple(sorted([*links, *routes])),
        rules=tuple(sorted(_rules())),
        processes=tuple(sorted({*busy, *_containers()})),
        sysctls=tuple(f"{key} = {read_sysctl(key)}" for key in SHARED_SYSCTLS),
        cgroups=tuple(sorted(map(str, hosts))),
    )


def _mounts() -> list[str]:
    """Return this machine's mounts without ids and peer groups, which change with every mount namespace."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        found.append(f"{' '.join(left.split()[3:6])} {right}")
    return found


def _rules() -> list[str]:
    """Return the packet filter's rules with a context of table and chain, counters left out."""
    lines, table, chain = [], "", ""
    for line in _output("nft", "--stateless", "list", "ruleset"):
        text = line.strip()
        if text.startswith("table "):
            table = text.removesuffix(" {")
        elif text.startswith("chain "):
            chain = text.removesuffix(" {")
        elif text and text != "}":
            lines.append(f"{table} {chain}: {text}")
        if text.startswith(("table ", "chain ")):
            lines.append(f"{table} {chain}")
    return lines


def _output(*command: str) -> list[str]:
    """Return the lines of a command's output, none where the command is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return []


def _containers() -> list[str]:
    """Return the names of containers that systemd-nspawn runs."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_text().split("\0")
        except OSError:  # gone meanwhile
            continue
        if Path(words[0]).name == "systemd-nspawn":
            found += [word for word in words if word.startswith("--machine=")]
    return found


def _load() -> _Record:
    """Return the record of networks and earlier settings; what an earlier boot left counts for nothing."""
    try:
        record = _Record.model_validate_json(_file().read_text())
    except FileNotFoundError:
        return _Record(boot_id=boot_id())
    return record if record.boot_id == boot_id() else _Record(boot_id=boot_id(), networks=record.networks)


def _save(record: _Record) -> None:
    tools.write(_file(), record.model_dump_json(indent=2))


def _file() -> Path:
    return paths.lab() / "machine.json"


def _sysctl(key: str) -> Path:
    return Path("/proc/sys") / key.replace(".", "/")
