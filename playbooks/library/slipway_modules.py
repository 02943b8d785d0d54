"""Ansible module: kernel modules loaded now and at boot, in the version that is installed."""

from __future__ import annotations

import os
import subprocess
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError, attributes, keep_file

DOCUMENTATION = r"""
module: slipway_modules
short_description: Kernel modules loaded now and at boot, in the version that is installed
description:
  - Writes C(/etc/modules-load.d/90-slipway-<name>.conf), so that the modules are loaded at boot, and loads those that
    are not.
  - A module that is loaded in another version than the one installed (by C(srcversion) and C(version)) is loaded anew
    when nothing uses it. One in use is a failure that names its users; the host must boot, as nothing else changes it.
  - Built-in modules are fine as they are. On a host that may load none (a container, or one without C(/lib/modules) of
    its kernel) nothing is done, and RV(msg) says so.
options:
  name: {description: Name of the drop-in., type: str, required: true}
  modules: {description: Names of modules., type: list, elements: str, required: true}
  directory: {description: Folder of the drop-in., type: path, default: /etc/modules-load.d}
  sysfs: {description: Where the kernel shows its modules., type: path, default: /sys/module}
  installed: {description: Where modules lie - in a folder for each kernel., type: path, default: /lib/modules}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Load kernel modules
  slipway_modules:
    name: host
    modules: [br_netfilter, nf_conntrack, overlay]
"""

RETURN = r"""
changed_modules:
  description: Modules that were (would be) loaded, or loaded anew.
  returned: always
  type: list
msg: {description: Why there is nothing to do on this host., returned: where that is so, type: str}
"""

CAP_SYS_MODULE = 16


class Version(NamedTuple):
    """What tells one build of a module from another; empty where the module does not say."""

    version: str = ""
    srcversion: str = ""

    def __str__(self) -> str:
        """Such as `570.86.15 (srcversion 1A2B…)`."""
        details = f"srcversion {self.srcversion}" if self.srcversion else ""
        return f"{self.version} ({details})" if self.version and details else self.version or details

    def differs(self, other: Version) -> bool:
        """Whether both say something, and not the same."""
        return any(ours and theirs and ours != theirs for ours, theirs in zip(self, other))


def first_line(path: str) -> str:
    """The first line of a file without its end; empty when there is no such file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip()
    except OSError:
        return ""


def why_not(installed: str) -> str:
    """Why no modules can be loaded on this host; empty when they can."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        capabilities = next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)
    folder = os.path.join(installed, os.uname().release)
    if not capabilities >> CAP_SYS_MODULE & 1:
        return "not applicable: kernel modules belong to the machine around this host"
    return "" if os.path.isdir(folder) else f"not applicable: this kernel has no modules ({folder} is not there)"


def program(*command: str) -> str:
    """Output of modinfo or modprobe. Raises SlipwayError with what it complains about."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SlipwayError(f"{command[0]} is not on this host; expected it from package kmod") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
        raise SlipwayError(f"{' '.join(command)}: {said}; expected the module from the kernel's or a driver's package")
    return done.stdout


class Kernel:
    """The kernel's view of its modules. Files are named with `_` where modules may be written with `-`."""

    def __init__(self, sysfs: str) -> None:
        self._sysfs = sysfs

    def path(self, module: str, *names: str) -> str:
        """Path of something that the kernel shows of a module."""
        return os.path.join(self._sysfs, module.replace("-", "_"), *names)

    def is_there(self, module: str) -> bool:
        """Whether the module is loaded or built in."""
        return os.path.isdir(self.path(module))

    def loaded(self, module: str) -> Version | None:
        """Version of a loaded module, None for one that is built in."""
        if not os.path.exists(self.path(module, "initstate")):
            return None
        return Version(first_line(self.path(module, "version")), first_line(self.path(module, "srcversion")))

    def users(self, module: str) -> str:
        """Who uses a loaded module: modules that build on it, or a number of others; empty when nobody does."""
        try:
            holders = sorted(os.listdir(self.path(module, "holders")))
        except OSError:
            holders = []
        count = first_line(self.path(module, "refcnt")) or "0"
        return ", ".join(holders) or ("" if count == "0" else f"{count} users")


def installed_version(module: str) -> Version:
    """Version of the module that modprobe would load."""
    lines = [line.partition(":") for line in program("modinfo", module).splitlines()]
    said = {key: value.strip() for key, _, value in lines}
    return Version(said.get("version", ""), said.get("srcversion", ""))


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""
    if reason := why_not(params["installed"]):
        return {"changed": False, "changed_modules": [], "msg": reason}
    kernel = Kernel(params["sysfs"])
    missing = [module for module in params["modules"] if not kernel.is_there(module)]
    stale: dict[str, tuple[Version, Version]] = {}
    for module in params["modules"]:
        live = kernel.loaded(module)
        if live and live.differs(wanted := installed_version(module)):
            stale[module] = (live, wanted)

    target = os.path.join(params["directory"], f"90-slipway-{params['name']}.conf")
    text = "".join(f"{module}\n" for module in params["modules"])
    old, file_changed = keep_file(target, text.encode(), attributes("root", "root", "0644", check), check)
    if not check:
        if missing:
            program("modprobe", "--all", *missing)
        for module, (live, wanted) in stale.items():
            if users := kernel.users(module):
                raise SlipwayError(
                    f"{module} is loaded in version {live}, installed in {wanted}, and in use by {users}; "
                    "reboot the host to change it"
                )
            program("modprobe", "--remove", module)
            program("modprobe", module)
    return {
        "changed": bool(file_changed or missing or stale),
        "changed_modules": [*missing, *stale],
        "diff": [
            {
                "before": (old or b"").decode("utf-8", "replace"),
                "after": text,
                "before_header": target,
                "after_header": target,
            },
            {
                "before": "".join(f"{module} {live}\n" for module, (live, _) in stale.items()),
                "after": "".join(f"{module}\n" for module in missing)
                + "".join(f"{module} {wanted}\n" for module, (_, wanted) in stale.items()),
                "before_header": "live kernel",
                "after_header": "live kernel",
            },
        ],
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "modules": {"type": "list", "elements": "str", "required": True},
            "directory": {"type": "path", "default": "/etc/modules-load.d"},
            "sysfs": {"type": "path", "default": "/sys/module"},
            "installed": {"type": "path", "default": "/lib/modules"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=f"kernel modules of {module.params['name']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
