"""Control groups of hosts: where they are, which version, how much a host uses.

A host sees its own group as its root. The group lies below the one this process was started in, never above it:
`<hierarchy>/<own group>/slipway-lab/<network>/<host>/{supervisor,host}`. On cgroup v1 there is one such group in each
hierarchy; on cgroup v2 under systemd the host is a unit of its own that delegates, instead.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import os
import signal
import time
from pathlib import Path

from slipway.fleet.lab.errors import LabError

ROOT = Path("/sys/fs/cgroup")
FOLDER = "slipway-lab"
ASIDE = "slipway-aside"
"""Where the processes of a cgroup v2 group go while it hands its controllers to hosts (see `_delegate`)."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """How this machine mounts control groups: `groups` maps a hierarchy's mount point to this process's group in it."""

    version: int
    groups: dict[Path, str]
    systemd: bool
    """Whether systemd is PID 1 and can make units."""


def layout(mountinfo: str | None = None, own: str | None = None) -> Layout:
    """Look how control groups are mounted here; the two texts are those of /proc/self/{mountinfo,cgroup}."""
    mountinfo = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths = {}
    for line in own.splitlines():
        _, controllers, group = line.split(":", 2)
        paths[frozenset(controllers.split(",")) if controllers else frozenset({""})] = group
    groups: dict[Path, str] = {}
    version = 1
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, point = left.split()[3:5]
        if not Path(point).is_relative_to(ROOT):
            continue
        if kind == "cgroup2":
            key = frozenset({""})
            version = 2 if Path(point) == ROOT else version
        elif kind == "cgroup":
            known = {name for names in paths for name in names}
            key = frozenset(option for option in options.split(",") if option in known)
        else:
            continue
        if key in paths:
            # A container may see only a part of the hierarchy (root) at the mount point.
            group = "/" + os.path.relpath(paths[key], root) if root != "/" else paths[key]
            groups[Path(point)] = "" if group in ("/", "/.") else group
    if not groups:
        raise LabError(f"no control groups are mounted at {ROOT}; the lab needs them (version 1 or 2)")
    return Layout(version, groups, Path("/run/systemd/system").is_dir())


def unit(network: str, name: str) -> str:
    """Return the name of a host's systemd unit (cgroup v2 under systemd)."""
    return f"slipway-lab-{network}-{name}.service"


def plan(network: str, name: str) -> list[str]:
    """Return the groups that a host started from this process gets, one a hierarchy; `self` where systemd makes it."""
    here = layout()
    if here.version == 2 and here.systemd:
        return ["self"]
    return [f"{point}{own.removesuffix(f'/{ASIDE}')}/{FOLDER}/{network}/{name}" for point, own in here.groups.items()]


def make(groups: list[str]) -> None:
    """Make a host's groups, and in each `supervisor` and `host`.

    Raises:
        LabError: cgroup v2 without systemd, and a controller cannot be handed on.
    """
    for group in (Path(group) for group in groups if group != "self"):
        above = group.parents[2]  # the group that this process is in
        for parent, child in itertools.pairwise((above, *reversed(group.parents[:2]), group)):
            _delegate(parent)
            child.mkdir(exist_ok=True)
            _inherit_cpuset(child)
        _delegate(group)
        for leaf in (group / "supervisor", group / "host"):
            leaf.mkdir(exist_ok=True)
            _inherit_cpuset(leaf)


def all_hosts() -> list[Path]:
    """Return the groups of all lab hosts on this machine, of whichever user and network."""
    found = []
    for point in layout().groups:
        for path, folders, _ in os.walk(point):
            found += [Path(path) / name for name in folders if name.startswith("slipway-lab-")]  # units
            if FOLDER in folders:
                found += (file.parent for file in (Path(path) / FOLDER).glob("*/*/cgroup.procs"))
            folders[:] = [name for name in folders if not name.startswith("slipway-lab")]
    return found


def processes(groups: list[Path]) -> set[int]:
    """Return the ids of all processes in groups and below them."""
    ids: set[int] = set()
    for group in groups:
        for path, _, _ in os.walk(group):  # not rglob: groups vanish while we look, and os.walk does not mind
            with contextlib.suppress(OSError):
                ids |= {int(line) for line in (Path(path) / "cgroup.procs").read_text().split()}
    return ids - {0}


def kill(groups: list[Path], *, seconds: float = 10) -> None:
    """Kill every process in groups and wait until none is left.

    Raises:
        LabError: some process does not die (it hangs in the kernel).
    """
    deadline = time.monotonic() + seconds
    while left := processes(groups):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LabError(
                f"processes {sorted(left)} do not die after {seconds:.0f} s; look at: ps -o pid,stat,wchan,cmd"
            )
        time.sleep(0.05)


def remove(groups: list[Path]) -> None:
    """Remove groups without processes, and the folders above them that are ours and empty now."""
    for group in groups:
        if group.name.endswith(".service"):  # systemd's own to remove
            continue
        for path, _, _ in os.walk(group, topdown=False):
            _rmdir(Path(path))
        with contextlib.suppress(OSError):
            group.parents[0].rmdir()
            group.parents[1].rmdir()
            _take_back(group.parents[2])


def memory(groups: list[Path]) -> int | None:
    """Return the bytes of memory a host uses, without page cache that can be dropped; None where nobody counts."""
    for group in groups:
        for usage, inactive in (
            ("memory.usage_in_bytes", "total_inactive_file"),
            ("memory.current", "inactive_file"),
        ):
            try:
                used = int((group / usage).read_text())
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            except OSError:
                continue
            return max(0, used - int(stat.get(inactive, 0)))
    return None


def _rmdir(path: Path) -> None:
    # The kernel lets go of a group a moment after its last process.
    deadline = time.monotonic() + 3
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise LabError(f"control group {path} cannot be removed: {error.strerror}") from error
            time.sleep(0.02)
        else:
            return


def _inherit_cpuset(group: Path) -> None:
    """Give a new v1 cpuset the processors of the group above: it starts with none, and then takes no process."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = group / name
        if file.exists() and (group / "cgroup.clone_children").exists() and not file.read_text().strip():
            file.write_text((group.parent / name).read_text())


def _delegate(group: Path) -> None:
    """Hand all controllers of a v2 group on to the groups below it; nothing to do on v1.

    A v2 group other than the root may do so only while it has no processes itself. The group that we were started in
    has at least us: all of them step aside into a group below it, until the last host is gone.
    """
    if not (ROOT / "cgroup.controllers").exists():
        return
    switch = group / "cgroup.subtree_control"
    missing = set((group / "cgroup.controllers").read_text().split()) - set(switch.read_text().split())
    for controller in sorted(missing):
        try:
            switch.write_text(f"+{controller}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise LabError(f"control group {group} cannot hand {controller} to hosts: {error.strerror}") from error
            (group / ASIDE).mkdir(exist_ok=True)
            _move_processes(group, group / ASIDE)
            switch.write_text(f"+{controller}")


def _take_back(group: Path) -> None:
    """Undo `_delegate` in the group that hosts were started from, if its processes had stepped aside for it."""
    aside = group / ASIDE
    if not aside.is_dir():
        return
    for controller in (group / "cgroup.subtree_control").read_text().split():
        (group / "cgroup.subtree_control").write_text(f"-{controller}")
    _move_processes(aside, group)
    _rmdir(aside)


def _move_processes(source: Path, target: Path) -> None:
    """Move all processes of a group, those too that are forked meanwhile."""
    for _ in range(100):
        processes = (source / "cgroup.procs").read_text().split()
        if not processes:
            return
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                (target / "cgroup.procs").write_text(process)
