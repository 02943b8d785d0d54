"""Ansible module: the few facts about a host that roles decide by."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: slipway_host_facts
short_description: A handful of cheap facts
description:
  - Reads a few files under /proc, /sys and /etc and starts no process. The facts are in C(ansible_facts.slipway_host).
author: [Slipway]
"""

EXAMPLES = r"""
- name: Look at the host
  slipway_host_facts:
- name: Use it
  ansible.builtin.debug:
    msg: "{{ ansible_facts.slipway_host.cgroup_version }}"
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  returned: always
  type: dict
  contains:
    slipway_host:
      description: >-
        cgroup_version (1 or 2), cap_sys_resource (services of this host may hold it), container (bool), swap (bool),
        cpus (int), memory_mib (int), kernel (release), architecture (amd64, arm64 ...), os_id and os_version (of
        os-release).
      type: dict
"""

CAP_SYS_RESOURCE = 24
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def key_values(text: str, separator: str) -> dict[str, str]:
    """Lines of ``key<separator>value`` as a dict; quotes around values are dropped."""
    pairs = (line.partition(separator) for line in text.splitlines())
    return {key.strip(): value.strip().strip("\"'") for key, found, value in pairs if found}


def collect(root: str = "/") -> dict[str, Any]:
    """The facts of the host whose files are under ``root``."""

    def read(path: str) -> str:
        try:
            with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    # Services get their capabilities from process 1, whatever this session may have dropped.
    bounding = int(key_values(read("proc/1/status"), ":").get("CapBnd") or "0", 16)
    memory_kib = key_values(read("proc/meminfo"), ":").get("MemTotal", "0 kB").split()[0]
    release = key_values(read("etc/os-release"), "=")
    kernel = os.uname()
    container = bool(read("run/systemd/container").strip()) or "container=" in read("proc/1/environ")
    return {
        "cgroup_version": 2 if os.path.exists(os.path.join(root, "sys/fs/cgroup/cgroup.controllers")) else 1,
        "cap_sys_resource": bool(bounding >> CAP_SYS_RESOURCE & 1),
        "container": container,
        "swap": len(read("proc/swaps").splitlines()) > 1,
        "cpus": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory_kib) // 1024,
        "kernel": kernel.release,
        "architecture": ARCHITECTURES.get(kernel.machine, kernel.machine),
        "os_id": release.get("ID", ""),
        "os_version": release.get("VERSION_ID", ""),
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, ansible_facts={"slipway_host": collect()})


if __name__ == "__main__":
    main()
