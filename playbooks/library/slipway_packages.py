"""Ansible module: packages of the distribution, exact versions where they are pinned."""

from __future__ import annotations

import os
import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError

DOCUMENTATION = r"""
module: slipway_packages
short_description: Install packages with apt, cheap when they are there
description:
  - Reads dpkg's own status file, so a run that finds everything in place starts no process and needs no python3-apt.
  - Otherwise installs with apt-get, waiting for another apt to finish; package lists are fetched when the lists at
    hand do not do.
  - A pinned version is installed also when that is a downgrade.
options:
  packages:
    description: Packages as C(name), or C(name=version) where the exact version matters.
    type: list
    elements: str
    required: true
  lock_seconds: {description: How long to wait for another apt or dpkg., type: int, default: 600}
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
"""


def installed_versions(status: str) -> dict[str, str]:
    """Name → version of the packages that are fully installed, from the text of dpkg's status file."""
    found: dict[str, str] = {}
    for paragraph in status.split("\n\n"):
        name = version = ""
        installed = False
        for line in paragraph.splitlines():
            if line.startswith("Package: "):
                name = line[9:].strip()
            elif line.startswith("Version: "):
                version = line[9:].strip()
            elif line.startswith("Status: "):
                installed = line.endswith(" ok installed")
        if name and installed:
            found[name] = version
    return found


def outstanding(packages: list[str], found: dict[str, str]) -> list[str]:
    """The packages that are missing or have another version."""
    wanted = [package.partition("=") for package in packages]
    return [
        name + pin + version for name, pin, version in wanted if name not in found or (pin and found[name] != version)
    ]


def apt_get(arguments: list[str], lock_seconds: int) -> str | None:
    """Run apt-get; returns None when it worked, else what it said, on one line."""
    argv = ["apt-get", "-q", "-y", "-o", f"DPkg::Lock::Timeout={lock_seconds}", "-o", "Dpkg::Use-Pty=0", *arguments]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8")
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            umask=0o022,  # packages' scripts count on it
        )
    except FileNotFoundError:
        raise SlipwayError("apt-get is not on this host; expected Debian or Ubuntu") from None
    if done.returncode == 0:
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if line.startswith(("E:", "Err:"))] or lines[-3:]
    return "; ".join(dict.fromkeys(errors[:2] + errors[-1:])) or f"exit {done.returncode}"


def install(packages: list[str], lock_seconds: int) -> None:
    """Install with the package lists at hand, or else with new ones."""
    arguments = ["install", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
    arguments += ["-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold", "--", *packages]
    if apt_get(arguments, lock_seconds) is None:
        return
    said = apt_get(["update"], lock_seconds) or apt_get(arguments, lock_seconds)
    if said is not None:
        raise SlipwayError(f"{' '.join(packages)}: apt-get fails: {said}")


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""

    def missing() -> list[str]:
        with open(params["status_file"], encoding="utf-8", errors="replace") as file:
            found = installed_versions(file.read())
        before.update({name: found.get(name, "(none)") for name in names})
        return outstanding(params["packages"], found)

    before: dict[str, str] = {}
    names = [package.partition("=")[0] for package in params["packages"]]
    wanted = missing()
    old_lines = [f"{package.partition('=')[0]}={before[package.partition('=')[0]]}\n" for package in wanted]
    if wanted and not check:
        install(wanted, params["lock_seconds"])
        left = missing()
        if left:
            raise SlipwayError(
                f"{' '.join(left)}: still not there after apt-get said it was done; look at /var/log/apt/term.log"
            )
    return {
        "changed": bool(wanted),
        "installed": wanted,
        "diff": {"before": "".join(old_lines), "after": "".join(f"{package}\n" for package in wanted)},
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
