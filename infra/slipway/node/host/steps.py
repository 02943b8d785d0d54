"""The steps that a change takes a host through: drained → changed → rebooted → proven → returned.

The manifest's entry of a playbook keeps the last one that is done, so that whoever comes next, after a reboot or with
another controller, goes on there:

    step      the last step that is done; `rebooting` once the reboot was asked for
    since     when that was
    boot_id   the boot in which the host was changed; another one now means that it has rebooted since
    reboot    why it must reboot, one line each
    drained   it was emptied for the change, so that its controller must return it
    served    it was proven before, so that somebody may be using it
"""

from __future__ import annotations

import subprocess
from typing import Any

from slipway.node.host import manifest, places
from slipway.node.host.lock import Lock

Entry = dict[str, Any]

_LAST = "returned"
_LOCK_SECONDS = 10


def boot_id() -> str:
    """Return the id of this boot; each boot has another."""
    with open(places.BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def is_at(entry: Entry, digest: str) -> bool:
    """Say whether the last run was for this digest and went well; steps may be left."""
    return bool(entry.get("result") == "ok" and entry.get("digest") == digest)


def unfinished(entry: Entry) -> bool:
    """Say whether steps are left after a run that went well."""
    return bool(entry.get("step", _LAST) != _LAST)


def left_reasons(before: Entry) -> list[str]:
    """Return why the host must reboot, of what earlier runs said and no boot has met."""
    return list(before.get("reboot") or ()) if before.get("boot_id") == boot_id() else []


def has_rebooted(before: Entry) -> bool:
    """Say whether the reboot that an earlier run asked for has come."""
    return bool(before.get("reboot")) and before.get("boot_id") != boot_id()


def begun(before: Entry, *, drained: bool) -> Entry:
    """Return the fields of an entry whose run begins."""
    after_boot = has_rebooted(before)
    waiting = before.get("result") != "ok" or unfinished(before)
    drained = drained or bool(waiting and before.get("drained"))
    return {
        "step": "rebooted" if after_boot else "drained" if drained else "",
        "since": manifest.now(),
        "boot_id": boot_id(),
        "reboot": left_reasons(before),
        "drained": drained,
        "served": bool(before.get("served")) or (before.get("result") == "ok" and not unfinished(before)),
    }


def done(entry: Entry, step: str) -> Entry:
    """Return an entry with a step done."""
    return {**entry, "step": step, "since": manifest.now()}


def proven(entry: Entry) -> Entry:
    """Return an entry of a host that is proven: one that was not drained is in service at once."""
    return done(entry, "proven" if entry.get("drained") else _LAST)


def mark_returned(playbook: str) -> int:
    """Keep in mind that the host is back in service; returns the exit status."""
    entry = manifest.entry(playbook)
    if entry.get("step") == "proven":
        manifest.write(playbook, done(entry, _LAST))
    return 0


def reboot(playbook: str) -> int:
    """Reboot the host if this playbook's last run asks for it and no boot has come since; returns the exit status.

    It returns before the host goes down.

    Raises:
        LockError: a run is at work.
    """
    lock = Lock()
    lock.take(_LOCK_SECONDS, lambda _: None)
    entry = manifest.entry(playbook)
    if not left_reasons(entry):
        return 0
    manifest.write(playbook, done(entry, "rebooting"))
    command = ["systemctl", "reboot", "--no-block", "--no-wall", f"--message=slipway: {'; '.join(entry['reboot'])}"]
    return subprocess.run(command, check=False).returncode
