"""Ansible module: the local disk a host keeps its data on. Refuses on any doubt."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError

DOCUMENTATION = r"""
module: slipway_storage
short_description: Make sure that local storage is mounted where it is expected
description:
  - In mode V(bound) the mount is made by the machine (image, cloud-init or lab). It must be a mount point of its
    own, writable, on another file
    system than the root and with enough free space. Nothing is changed.
options:
  mode: {description: Who makes the mount., type: str, choices: [bound], required: true}
  mount: {description: Mount point., type: path, required: true}
  minimum_free_gib: {description: Free space that must be left., type: float, default: 0}
  mountinfo: {description: The kernel's list of mounts., type: path, default: /proc/self/mountinfo}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Find local storage
  slipway_storage: {mode: bound, mount: /mnt/local, minimum_free_gib: 20}
"""

RETURN = r"""
device: {description: Device number of the file system., returned: success, type: str}
filesystem: {description: Type of the file system., returned: success, type: str}
free_gib: {description: Free space., returned: success, type: float}
"""


class Mount(NamedTuple):
    """One line of mountinfo."""

    device: str
    point: str
    writable: bool
    filesystem: str


def parse_mounts(text: str) -> list[Mount]:
    """Mounts in the kernel's order; a later one hides an earlier one at the same point."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, more = left.split(" "), right.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[4])
        read_only = "ro" in fields[5].split(",") or "ro" in more[2].split(",")
        mounts.append(Mount(fields[2], point, not read_only, more[0]))
    return mounts


def find_bound(mounts: list[Mount], point: str) -> Mount:
    """The mount at ``point``. Raises SlipwayError when it is not what data may be put on."""
    at = {mount.point: mount for mount in mounts}
    found = at.get(point)
    where = f"storage {point}"
    if found is None:
        raise SlipwayError(f"{where}: is not a mount point; expected local storage mounted there before this role runs")
    if "/" in at and found.device == at["/"].device:
        raise SlipwayError(f"{where}: lies on the root file system; expected a disk of its own")
    if not found.writable:
        raise SlipwayError(f"{where}: is mounted read-only; expected it writable (look at `dmesg` for disk errors)")
    return found


def run(params: dict[str, Any]) -> dict[str, Any]:
    """Do the work; returns the module's result."""
    with open(params["mountinfo"], encoding="utf-8", errors="replace") as file:
        mount = find_bound(parse_mounts(file.read()), os.path.normpath(params["mount"]))
    space = os.statvfs(params["mount"])
    free_gib = space.f_bavail * space.f_frsize / 2**30
    if free_gib < params["minimum_free_gib"]:
        raise SlipwayError(
            f"storage {params['mount']}: {free_gib:.1f} GiB are free; "
            f"expected at least {params['minimum_free_gib']:g} GiB"
        )
    return {"changed": False, "device": mount.device, "filesystem": mount.filesystem, "free_gib": round(free_gib, 1)}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "mode": {"type": "str", "choices": ["bound"], "required": True},
            "mount": {"type": "path", "required": True},
            "minimum_free_gib": {"type": "float", "default": 0},
            "mountinfo": {"type": "path", "default": "/proc/self/mountinfo"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
