"""Hosts read before anything runs on them, one read a host and without Ansible: most need nothing else."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slipway.play import reading, remote
from slipway.play.runner import Result, Target

READ_SECONDS = 30.0
"""How long a host may take to say what it is."""


async def survey(
    targets: Sequence[Target], playbook: str, *, ssh_key: str, cancelled: threading.Event
) -> dict[str, Result]:
    """Return a result for each host, as of a run that changed nothing.

    That of a host which could be read is ok, has the digest that the playbook's last run brought it to (empty if that
    did not end well), and as `before` and `entry` what its manifest says of that run, but not of each role.

    Args:
        targets: the hosts.
        playbook: whose runs are looked for.
        ssh_key: the private key that hosts accept.
        cancelled: see `remote.run`.
    """
    replies = await remote.run(targets, reading.SCRIPT, ssh_key=ssh_key, cancelled=cancelled, seconds=READ_SECONDS)
    return {name: _result(reply, playbook) for name, reply in replies.items()}


def _result(reply: remote.Reply, playbook: str) -> Result:
    if reply is remote.CANCELLED:
        return Result(ok=False, reason=reply.reason, cancelled=True)
    if reply.unreachable:
        return Result(ok=False, reason=reply.reason, unreachable=True)
    if not reply.ok:
        return Result(ok=False, reason=f"the host could not be read: {reply.reason}")
    found = reading.parse(reply.output)
    entry = {name: value for name, value in found.entry(playbook).items() if name != "roles"}
    return Result(ok=True, digest=found.finished(playbook), before=entry, entry=entry)
