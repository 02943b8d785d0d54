"""Ansible module: packages of the distribution, exact versions where they are pinned."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import time
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_broker import say_waiting
from ansible.module_utils.slipway_io import SlipwayError, no_space

DOCUMENTATION = r"""
module: slipway_packages
short_description: Install packages with apt, cheap when they are there
description:
  - Reads dpkg's own status file, so a run that finds everything in place starts no process and needs no python3-apt.
  - Otherwise installs with apt-get; package lists are fetched when the lists at hand do not do. Waits for another apt
    or dpkg to finish, and says which one.
  - A pinned version is installed also when that is a downgrade, and held (as by C(apt-mark hold)), so that nobody's
    upgrade changes it.
  - What a dpkg that was killed left half done is finished first.
options:
  packages:
    description: Packages as C(name), or C(name=version) where the exact version matters.
    type: list
    elements: str
    required: true
  lock_seconds: {description: How long to wait for another apt or dpkg in all., type: int, default: 600}
  status_file: {description: Status file of dpkg., type: path, default: /var/lib/dpkg/status}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Install haproxy
  slipway_packages:
    packages: [haproxy=3.0.11-1+deb13u1]
"""

RETURN = r"""
installed:
  description: Packages that were (would be) installed or brought to another version.
  returned: always
  type: list
held:
  description: Pinned packages that were (would be) held.
  returned: always
  type: list
"""

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
POLL_SECONDS = 1
FLOCK = "hhqqi4x"
"""struct flock of 64-bit Linux: type, whence, start, length, process."""
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
KEEP_OURS = ["--force-confdef", "--force-confold"]
"""dpkg's answers when a package brings a new version of a file that was edited: keep the edited one."""


class Package(NamedTuple):
    """An installed package; held: no upgrade changes it unless told to."""

    version: str
    held: bool


def installed_packages(status: str) -> dict[str, Package]:
    """Packages that are fully installed, from the text of dpkg's status file."""
    found: dict[str, Package] = {}
    for paragraph in status.split("\n\n"):
        name = version = state = ""
        for line in paragraph.splitlines():
            if line.startswith("Package: "):
                name = line[9:].strip()
            elif line.startswith("Version: "):
                version = line[9:].strip()
            elif line.startswith("Status: "):
                state = line[8:].strip()
        if name and state.endswith(" ok installed"):
            found[name] = Package(version, state.startswith("hold "))
    return found


def outstanding(packages: list[str], found: dict[str, Package]) -> list[str]:
    """The packages that are missing or have another version."""
    wanted = [package.partition("=") for package in packages]
    return [
        name + pin + version
        for name, pin, version in wanted
        if name not in found or (pin and found[name].version != version)
    ]


def to_hold(packages: list[str], found: dict[str, Package]) -> list[str]:
    """The pinned packages that are not held."""
    pinned = [package.partition("=")[0] for package in packages if "=" in package]
    return [name for name in pinned if name not in found or not found[name].held]


def lock_holder(path: str) -> str | None:
    """Who holds apt's or dpkg's lock, as "process 812 (apt-get upgrade)"; None when nobody does."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(fd)
    kind, _, _, _, pid = struct.unpack(FLOCK, answer)
    if kind == fcntl.F_UNLCK:
        return None
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            command = file.read().replace("\0", " ")[:100].strip()
    except OSError:
        command = ""
    return f"process {pid} ({command or 'unknown'})"


class Apt:
    """apt-get and dpkg, one at a time with everybody else's."""

    def __init__(self, lock_seconds: int) -> None:
        self._lock_seconds = lock_seconds
        self._end = time.monotonic() + lock_seconds

    def install(self, packages: list[str]) -> None:
        """Install with the package lists at hand, or else with new ones."""
        arguments = ["install", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
        arguments += [word for option in KEEP_OURS for word in ("-o", f"Dpkg::Options::={option}")]
        arguments += ["--", *packages]
        if self._get(*arguments) is None:
            return
        said = self._get("update") or self._get(*arguments)
        if said is not None:
            raise SlipwayError(f"{' '.join(packages)}: apt-get fails: {said}")

    def hold(self, packages: list[str]) -> None:
        """Keep packages at their version, whoever upgrades."""
        said = self._run("apt-mark", "hold", *packages)
        if said is not None:
            raise SlipwayError(f"{' '.join(packages)}: apt-mark hold fails: {said}")

    def _get(self, *arguments: str) -> str | None:
        """Run apt-get; returns None when it worked, else what it said, on one line."""
        command = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=0", "-o", "Dpkg::Use-Pty=0", *arguments]
        said = self._run(*command)
        if said is not None and "dpkg --configure -a" in said:  # a dpkg was killed, by a reboot for one
            said = self._run("dpkg", *KEEP_OURS, "--configure", "-a") or self._run(*command)
        return said

    def _run(self, *command: str) -> str | None:
        """Run a program when nobody else holds a lock; returns None when it worked, else what it said."""
        while True:
            self._wait()
            lines = output_of(list(command))
            # Somebody was quicker: waited for like any other, unless the time is up.
            if lines and is_locked(lines) and time.monotonic() < self._end:
                time.sleep(POLL_SECONDS)
                continue
            return failure(lines) if lines else None

    def _wait(self) -> None:
        """Wait until nobody holds a lock. Raises SlipwayError after the deadline."""
        told = None
        while held := next(((path, who) for path in LOCKS if (who := lock_holder(path))), None):
            said = "{} is held by {}".format(*held)
            if time.monotonic() >= self._end:
                raise SlipwayError(
                    f"apt is locked: {said}, since more than {self._lock_seconds} s; "
                    "wait until it is done or end it, and run it again"
                )
            if said != told:
                say_waiting(f"waits for apt: {said}")
                told = said
            time.sleep(POLL_SECONDS)


def output_of(command: list[str]) -> list[str] | None:
    """Run a program; returns None when it worked, else its output in lines."""
    try:
        done = subprocess.run(
            command,
            env=dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            umask=0o022,  # packages' scripts count on it
        )
    except FileNotFoundError:
        raise SlipwayError(f"{command[0]} is not on this host; expected Debian or Ubuntu") from None
    if done.returncode == 0:
        return None
    return done.stdout.decode("utf-8", "replace").splitlines() or [f"exit {done.returncode}"]


def is_locked(lines: list[str]) -> bool:
    """Whether a program failed because another one was at work."""
    return any("Could not get lock" in line or " lock was locked by " in line for line in lines)


def failure(lines: list[str]) -> str:
    """What apt-get or dpkg said when it failed, on one line. Raises SlipwayError when the disk is full."""
    text = "\n".join(lines)
    if "No space left on device" in text or "enough free space in" in text:
        folder = re.search(r"enough free space in (\S+?)/?\.$", text, re.MULTILINE)
        sizes = re.findall(r"^(?:Need to get|After this operation,) ([\d.,]+) ([kMG]?B)", text, re.MULTILINE)
        needed = sum(float(number.replace(",", "")) * UNITS[unit] for number, unit in sizes)
        raise no_space(folder.group(1) if folder else "/usr", int(needed))
    errors = [line for line in lines if line.startswith(("E:", "Err:"))] or lines[-3:]
    return "; ".join(dict.fromkeys(errors[:2] + errors[-1:]))


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""

    def look() -> dict[str, Package]:
        with open(params["status_file"], encoding="utf-8", errors="replace") as file:
            return installed_packages(file.read())

    def line(name: str, package: Package | None) -> str:
        return f"{name}={package.version}{' held' if package.held else ''}\n" if package else f"{name}=(none)\n"

    packages, before = params["packages"], look()
    missing, loose = outstanding(packages, before), to_hold(packages, before)
    apt = Apt(params["lock_seconds"])
    if missing and not check:
        apt.install(missing)
        if left := outstanding(packages, look()):
            raise SlipwayError(
                f"{' '.join(left)}: still not there after apt-get said it was done; look at /var/log/apt/term.log"
            )
    if loose and not check:
        apt.hold(loose)
    changing = [package for package in packages if package in missing or package.partition("=")[0] in loose]
    names = [package.partition("=")[0] for package in changing]
    return {
        "changed": bool(changing),
        "installed": missing,
        "held": loose,
        "diff": {
            "before": "".join(line(name, before.get(name)) for name in names),
            "after": "".join(f"{package}{' held' if '=' in package else ''}\n" for package in changing),
        },
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "lock_seconds": {"type": "int", "default": 600},
            "status_file": {"type": "path", "default": "/var/lib/dpkg/status"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
