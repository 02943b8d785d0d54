"""Ansible module: wait until an etcd member takes part in its cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError

DOCUMENTATION = r"""
module: slipway_etcd_health
short_description: Wait until the etcd member of this host serves, or say which member is missing
description:
  - Asks the member's metrics listener until it is ready - the unit has no job pending, the cluster has a leader
    and answers a linearizable read.
  - After the deadline it fails with one line that names the members whose peer port does not answer, or else what
    the unit last said.
  - Changes nothing. Returns at once in check mode.
options:
  name: {description: Name of this host's member., type: str, required: true}
  members:
    description: All members of the cluster.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Name of the member., type: str, required: true}
      peer_url: {description: Its peer URL., type: str, required: true}
      client_url: {description: Its client URL., type: str}
  url: {description: This member's readiness., type: str, default: "http://127.0.0.1:2381/readyz"}
  unit: {description: Its systemd unit., type: str, default: etcd.service}
  seconds: {description: Deadline; 0 looks once., type: float, default: 120}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Wait for the member
  slipway_etcd_health:
    name: "{{ inventory_hostname }}"
    members: "{{ etcd_members }}"
"""

RETURN = r"""
waited_seconds: {description: How long it took., returned: always, type: float}
"""

POLL_SECONDS = 0.3
REQUEST_SECONDS = 5.0


def not_ready(url: str) -> str | None:
    """None when the member says it is ready, else why not."""
    try:
        with urllib.request.urlopen(url, timeout=REQUEST_SECONDS):  # noqa: S310 from the role
            return None
    except urllib.error.HTTPError as error:
        failing = [line for line in error.read().decode("utf-8", "replace").splitlines() if line.startswith("[-]")]
        return "; ".join(failing) or f"answers {error.code}"
    except (OSError, urllib.error.URLError) as error:
        return str(getattr(error, "reason", error))


def unit_state(unit: str) -> dict[str, str]:
    """ActiveState, Job and Result of a unit."""
    argv = ["systemctl", "show", "--property=ActiveState,Job,Result", unit]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    pairs = (line.partition("=") for line in done.stdout.decode().splitlines())
    return {key: value for key, _, value in pairs}


def last_words(unit: str) -> str:
    """What the unit's journal says last about its trouble; empty when it says nothing."""
    argv = ["journalctl", "--unit", unit, "--lines", "60", "--output", "cat", "--no-pager"]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        if "Failed to execute" in line:
            return line
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal", "panic"):
            return f"{entry.get('msg')} {entry.get('error', '')}".strip()
    return lines[-1] if lines else ""


def unreachable(members: list[dict[str, Any]], name: str) -> list[str]:
    """The other members whose peer port takes no connection, each with the reason."""
    missing = []
    for member in members:
        if member["name"] == name:
            continue
        parts = urllib.parse.urlsplit(member["peer_url"])
        try:
            socket.create_connection((parts.hostname or "", parts.port or 2380), timeout=2).close()
        except OSError as error:
            missing.append(f"{member['name']} ({member['peer_url']}: {error.strerror or error})")
    return missing


def wait(params: dict[str, Any]) -> float:
    """Wait; returns the seconds it took. Raises SlipwayError after the deadline."""
    begin = time.monotonic()
    while True:
        state = unit_state(params["unit"])
        reason: str | None = None
        if state.get("Job"):
            reason = "its unit is being started"
        elif state.get("ActiveState") != "active":
            reason = f"its unit is {state.get('ActiveState', 'unknown')} ({state.get('Result', '')})"
        # While a member waits for others its unit is still starting and nothing listens yet.
        reason = reason or not_ready(params["url"])
        waited = time.monotonic() - begin
        if reason is None:
            return waited
        if waited >= params["seconds"]:
            break
        time.sleep(POLL_SECONDS)
    message = f"etcd member {params['name']} is not ready after {waited:.0f} s: {reason}"
    missing = unreachable(params["members"], params["name"])
    if missing:
        raise SlipwayError(f"{message}; no answer from {', '.join(missing)}")
    said = last_words(params["unit"])
    raise SlipwayError(
        f"{message}; all other members answer; it last said: {said or 'nothing'} (journalctl -u {params['unit']})"
    )


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "members": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "peer_url": {"type": "str", "required": True},
                    "client_url": {"type": "str"},
                },
            },
            "url": {"type": "str", "default": "http://127.0.0.1:2381/readyz"},
            "unit": {"type": "str", "default": "etcd.service"},
            "seconds": {"type": "float", "default": 120},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, waited_seconds=0.0)
    try:
        waited = wait(module.params)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, waited_seconds=round(waited, 1))


if __name__ == "__main__":
    main()
