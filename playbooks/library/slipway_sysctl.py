"""Ansible module: a sysctl drop-in, applied as far as this host owns the settings."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError, attributes, keep_file

DOCUMENTATION = r"""
module: slipway_sysctl
short_description: Kernel settings as one drop-in, applied where the host may set them
description:
  - Always writes C(/etc/sysctl.d/90-slipway-<name>.conf), so that the settings hold after a boot.
  - Applies what differs from the live kernel. Settings that this kernel does not have, or that belong to the
    machine around a container,
    are not an error - they are named in RV(not_applied).
options:
  name: {description: Name of the drop-in., type: str, required: true}
  settings: {description: Setting to value., type: dict, required: true}
  directory: {description: Folder of the drop-in., type: path, default: /etc/sysctl.d}
  proc: {description: Where the kernel shows its settings., type: path, default: /proc/sys}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Room for many neighbours
  slipway_sysctl:
    name: network
    settings:
      net.ipv4.neigh.default.gc_thresh3: 100000
"""

RETURN = r"""
applied: {description: Setting to new value - as changed in the live kernel., returned: always, type: dict}
not_applied:
  description: Setting to the reason why the live kernel does not have the value.
  returned: always
  type: dict
msg: {description: The settings not applied in one line., returned: when there are any, type: str}
"""


def setting_path(proc: str, key: str) -> str:
    """Path of a setting. As sysctl(8): the first of '.' and '/' found is the separator and swaps with the other."""
    dot, slash = key.find("."), key.find("/")
    if slash != -1 and (dot == -1 or slash < dot):
        return os.path.join(proc, key)
    return os.path.join(proc, key.translate(str.maketrans("./", "/.")))


def read_live(path: str) -> str | None:
    """The live value with single spaces, None when this kernel does not show it."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return " ".join(file.read().split())
    except OSError:
        return None


def apply_setting(path: str, value: str, live: str, check: bool) -> str | None:
    """Set one live value; returns the reason when the kernel does not take it."""
    if not os.access(path, os.W_OK):
        return f"belongs to the machine around this host (read-only here, is {live})"
    if check:
        return None
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(value)
    except OSError as error:
        return f"the kernel refuses it ({error.strerror}, is {live})"
    kept = read_live(path)
    return None if kept == value else f"the kernel keeps {kept}"


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""
    settings = {key: " ".join(str(value).split()) for key, value in params["settings"].items()}
    before_lines: list[str] = []
    after_lines: list[str] = []
    applied: dict[str, str] = {}
    not_applied: dict[str, str] = {}

    target = os.path.join(params["directory"], f"90-slipway-{params['name']}.conf")
    text = "".join(f"{key} = {value}\n" for key, value in sorted(settings.items()))
    old, file_changed = keep_file(target, text.encode(), attributes("root", "root", "0644", check), check)

    for key, value in sorted(settings.items()):
        path = setting_path(params["proc"], key)
        live = read_live(path)
        if live is None:
            not_applied[key] = "this kernel does not show it"
        elif live != value:
            reason = apply_setting(path, value, live, check)
            if reason is not None:
                not_applied[key] = reason
                continue
            applied[key] = value
            before_lines.append(f"{key} = {live}\n")
            after_lines.append(f"{key} = {value}\n")
    message = (
        {"msg": "written but not live: " + "; ".join(f"{key}: {reason}" for key, reason in not_applied.items())}
        if not_applied
        else {}
    )
    return {
        **message,
        "changed": bool(file_changed or applied),
        "applied": applied,
        "not_applied": not_applied,
        "diff": [
            {
                "before": (old or b"").decode("utf-8", "replace"),
                "after": text,
                "before_header": target,
                "after_header": target,
            },
            {
                "before": "".join(before_lines),
                "after": "".join(after_lines),
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
            "settings": {"type": "dict", "required": True},
            "directory": {"type": "path", "default": "/etc/sysctl.d"},
            "proc": {"type": "path", "default": "/proc/sys"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=f"sysctl {module.params['name']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
