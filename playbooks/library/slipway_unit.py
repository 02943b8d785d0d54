#!/usr/bin/python
"""Ansible module: keep systemd units running, or restart them; in check mode right about units not yet there."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: slipway_unit
short_description: Keep systemd units enabled and running
description:
  - Like M(ansible.builtin.systemd_service) for several units in one task. In check mode a unit whose file an earlier
    task would write counts as a change instead of an error.
  - Unit files are read anew (daemon-reload) when systemd says that they changed.
  - Does not wait until a unit is up; M(slipway_health) does, and says what is wrong.
options:
  names: {description: Units., type: list, elements: str, required: true}
  state:
    description: V(started) starts what is not running, V(restarted) restarts (which starts, too), V(stopped) stops.
    type: str
    choices: [started, restarted, stopped]
    default: started
  enabled: {description: Whether the units start at boot; left as it is when left out., type: bool}
author: [Slipway]
"""
EXAMPLES = r"""
- name: Restart etcd
  slipway_unit: {names: [etcd], state: restarted}
"""
RETURN = r"""
changed_units: {description: Units that were (would be) changed in any way., returned: always, type: list}
"""

RUNNING = {"active", "activating", "reloading"}
ENABLED = {"enabled", "enabled-runtime", "static", "indirect", "generated", "alias"}


class UnitError(Exception):
    """systemctl refused; the text is one line."""


@dataclass(frozen=True)
class State:
    """What systemd knows of a unit."""

    found: bool
    running: bool
    enabled: bool
    stale: bool


def systemctl(*arguments: str) -> str:
    """Output of systemctl; raises UnitError with its last line."""
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise UnitError(f"systemctl {' '.join(arguments)}: {said}")
    return done.stdout


def parse(text: str, starting: frozenset[str] = frozenset()) -> State:
    """A block of `systemctl show` as a State; `starting` are units on their way up, a restart's stop included."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return State(
        found=values.get("LoadState") != "not-found",
        running=values.get("ActiveState") in RUNNING or values.get("Id") in starting,
        enabled=values.get("UnitFileState") in ENABLED,
        stale=values.get("NeedDaemonReload") == "yes",
    )


def look(names: list[str]) -> dict[str, State]:
    """State of each unit, in one call."""
    shown = systemctl("show", "--property=Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload", *names)
    starting = (
        starting_units(systemctl("list-jobs", "--no-legend", "--plain")) if "=deactivating" in shown else frozenset()
    )
    return {name: parse(block, starting) for name, block in zip(names, shown.strip("\n").split("\n\n"), strict=True)}


def starting_units(jobs: str) -> frozenset[str]:
    """Units with a job that starts them, from lines `id unit type state` of `systemctl list-jobs`."""
    rows = [line.split() for line in jobs.splitlines()]
    return frozenset(row[1] for row in rows if len(row) == 4 and row[2] in {"start", "restart"})


def to_switch(states: dict[str, State], enabled: bool | None) -> list[str]:
    """Units to enable or disable."""
    return [] if enabled is None else [name for name, state in states.items() if state.enabled != enabled]


def to_change(states: dict[str, State], wanted: str) -> list[str]:
    """Units to start, restart or stop."""
    if wanted == "restarted":
        return list(states)
    return [name for name, state in states.items() if state.running != (wanted == "started")]


def apply(names: list[str], wanted: str, enabled: bool | None, check: bool) -> list[str]:
    """Bring units to the wanted state; returns those that change."""
    states = look(names)
    if not check and any(state.stale or not state.found for state in states.values()):
        systemctl("daemon-reload")
        states = look(names)
    missing = [name for name, state in states.items() if not state.found]
    if missing and not check and wanted != "stopped":
        raise UnitError(f"there is no unit {', '.join(missing)} in /etc/systemd/system or /usr/lib/systemd/system")
    switched, changing = to_switch(states, enabled), to_change(states, wanted)
    if not check:
        if switched:
            systemctl("enable" if enabled else "disable", *switched)
        if changing:
            systemctl({"started": "start", "restarted": "restart", "stopped": "stop"}[wanted], "--no-block", *changing)
    return [name for name in names if name in switched or name in changing]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "restarted", "stopped"], "default": "started"},
            "enabled": {"type": "bool"},
        },
        supports_check_mode=True,
    )
    try:
        units = apply(module.params["names"], module.params["state"], module.params["enabled"], module.check_mode)
    except (UnitError, OSError) as error:
        module.fail_json(msg=str(error), changed=False, changed_units=[])
    module.exit_json(changed=bool(units), changed_units=units)


if __name__ == "__main__":
    main()
