"""Hosts that must reboot before they are done: asked to, waited for, and taken up again where they stood."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from slipway.play import reading, remote
from slipway.play.broker import Order
from slipway.play.runner import Result, Target
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call

UNPROVEN = "reboot"
"""What a host lacks that did not come back: see `slipway.play.runner.Result`."""

_ASK_SECONDS = 60
_BOOT_SECONDS = 120
"""How long services may take to start once SSH answers; those that are late are the roles' and proofs' to find."""

_PAUSE = 3.0

# A host that has booted answers once its services had time to start: the run after it should meet none half-started.
_LOOK = f"""id=$(cat /proc/sys/kernel/random/boot_id); echo $id; [ $id = BEFORE ] && exit
timeout {_BOOT_SECONDS} systemctl is-system-running --wait >/dev/null 2>&1; true"""


def program(order: Order) -> str:
    """Return the command that runs the on-host program of an order's bundle, which the host has."""
    content = order.inputs["bundles"]["content"]["digest"]
    return f"/usr/bin/python3 -I {reading.STATE}/bundles/{content}/slipway_node.py"


async def reboot(
    call: Call,
    targets: Sequence[Target],
    orders: Mapping[str, Order],
    results: Mapping[str, Result],
    *,
    inputs: PlayInputs,
) -> dict[str, Result]:
    """Reboot hosts side by side; return a result for each one that is not back, all others are.

    A host is back when it answers with its own key in another boot than that in which it was changed. It keeps in its
    manifest that it was asked to, and what comes then, so that whoever comes next can take up there.

    Args:
        call: the request.
        targets: the hosts.
        orders: what each is to become.
        results: what came of each; `reboot` says why it must.
        inputs: the play.
    """
    ssh_key, seconds = inputs.ssh_key, inputs.rollout.reboot_seconds
    waiting = {target.name: target for target in targets}
    for name in waiting:
        call.log.info(f"{name} reboots: {'; '.join(results[name].reboot)}")
    asked = await remote.run(
        targets,
        {name: f"exec {program(orders[name])} reboot {inputs.playbook}" for name in waiting},
        ssh_key=ssh_key,
        cancelled=call.cancelled,
        seconds=_ASK_SECONDS,
    )
    failed: dict[str, Result] = {}
    for name, reply in asked.items():
        # A connection that breaks may well be the reboot.
        if reply is not remote.CANCELLED and not reply.ok and not reply.unreachable:
            failed[name] = _failed(results[name], f"could not be rebooted: {reply.reason}")
            del waiting[name]
    last = dict.fromkeys(waiting, "it did not go down")
    looks = {name: _LOOK.replace("BEFORE", str(results[name].entry["boot_id"])) for name in waiting}
    end = time.monotonic() + seconds
    while waiting and time.monotonic() < end and not call.cancelled.is_set():
        await asyncio.sleep(_PAUSE)
        replies = await remote.run(
            list(waiting.values()),
            looks,
            ssh_key=ssh_key,
            cancelled=call.cancelled,
            seconds=_BOOT_SECONDS + _ASK_SECONDS,
        )
        for name, reply in replies.items():
            if reply.ok and reply.output.strip() != results[name].entry["boot_id"]:
                call.log.info(f"{name} is back from its reboot")
                del waiting[name]
            elif not reply.ok:
                last[name] = reply.reason
    for name in waiting:
        if call.cancelled.is_set():
            failed[name] = Result(ok=False, reason="cancelled while it reboots", cancelled=True)
        else:
            failed[name] = _failed(results[name], f"not back {seconds} s after its reboot: {last[name]}")
    return failed


def after(before: Result, result: Result) -> Result:
    """Return the result of a host that was rebooted for a run, `before`, and gone through again: at most once."""
    result = replace(result, changed=before.changed + result.changed)
    if not (result.ok and result.reboot):
        return result
    reason = f"must reboot again, which only the next up does: {'; '.join(result.reboot)}"
    return replace(result, ok=False, digest="", reason=reason)


def _failed(result: Result, reason: str) -> Result:
    return replace(result, ok=False, digest="", reason=reason, unproven=UNPROVEN)
