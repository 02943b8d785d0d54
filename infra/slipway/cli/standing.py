"""How hosts stand: the plays of a stack, and a read of each of their hosts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from slipway import stack as stacks
from slipway import status
from slipway.play import manifest, reading, remote
from slipway.play.manifest import Manifest
from slipway.provider.play_inputs import PlayHost, PlayInputs
from slipway.status import Declared, HostStatus, Seen

READ_SECONDS = 15.0
"""How long one host may take to answer."""

_READ = f"""cd {reading.STATE} 2>/dev/null || exit 0
cat manifest.json 2>/dev/null; echo
[ ! -e run.lock ] || flock --nonblock run.lock true || echo busy"""


def rows(stack: str, environment: dict[str, str]) -> list[HostStatus]:
    """Read state and hosts; return a row a host, none for a stack without hosts."""
    plays = [
        (play, PlayInputs.model_validate(play.inputs, extra="ignore")) for play in stacks.plays(stack, environment)
    ]
    declared = [host for play, inputs in plays for host in _declared(play, inputs)]
    return status.of(declared, asyncio.run(_read([inputs for _, inputs in plays])))


def _declared(play: stacks.PlayState, inputs: PlayInputs) -> list[Declared]:
    results, drifted = play.outputs.get("results") or {}, play.outputs.get("drifted") or {}
    return [
        Declared(
            name=host.name,
            group=host.pool or host.group or play.name,
            play=play.name,
            playbook=inputs.playbook,
            release=inputs.release,
            digest=_wanted(host, inputs, results.get(host.name, {})),
            failed=results.get(host.name, {}).get("reason") or "",
            drift=drifted.get(host.name) or (),
        )
        for host in inputs.hosts
    ]


def _wanted(host: PlayHost, inputs: PlayInputs, result: Mapping[str, Any]) -> str:
    """Return the digest a host should be at: Pulumi keeps old inputs, but new results, when others failed."""
    return str(result["digest"]) if result.get("ok") and result.get("digest") else inputs.wanted(host)


async def _read(plays: list[PlayInputs]) -> dict[str, Seen]:
    """Read the manifest of every host; hosts that do not answer are no error."""
    answers = await asyncio.gather(
        *(
            remote.run(
                [host.target() for host in inputs.hosts],
                _READ,
                ssh_key=inputs.ssh_key,
                cancelled=threading.Event(),
                seconds=READ_SECONDS,
            )
            for inputs in plays
        )
    )
    return {name: _seen(reply) for found in answers for name, reply in found.items()}


def _seen(reply: remote.Reply) -> Seen:
    if not reply.ok:
        return Seen(None, reply.reason)
    first, _, rest = reply.output.partition("\n")
    try:
        return Seen(manifest.parse(first), busy="busy" in rest.split())
    except manifest.ManifestError as error:
        return Seen(Manifest(), f"its manifest cannot be read: {error}")
