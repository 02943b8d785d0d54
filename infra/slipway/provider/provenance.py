"""Nodes carry as labels which release their hosts are at: its id, and the first digits of its digest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from slipway.play.nodes import NodeError, Nodes
from slipway.provider import leaving, play_state
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call, InitFailed, State

RELEASE = "slipway.dev/release"
DIGEST = "slipway.dev/release-digest"

_DIGITS = 12
_AT_ONCE = 16
"""Nodes labelled side by side."""


async def marked(call: Call, inputs: PlayInputs, work: Coroutine[Any, Any, State]) -> State:
    """Do the work of a play, and mark the nodes of the hosts on which it went well; return the play's new state.

    Nodes whose labels are right are left alone. That labels cannot be written is told, and fails nothing.
    """
    try:
        state = await work
    except InitFailed as error:
        await _mark(call, inputs, State(error.id, error.outputs))
        raise
    await _mark(call, inputs, state)
    return state


async def _mark(call: Call, inputs: PlayInputs, state: State) -> None:
    if not inputs.kubeconfig or not inputs.release_digest or call.cancelled.is_set():
        return
    wanted = {RELEASE: inputs.release, DIGEST: inputs.release_digest[:_DIGITS]}
    results = play_state.results(state)
    well = {host.name for host in inputs.hosts if results.get(host.name, {}).get("ok")}
    try:
        async with leaving.api(inputs.kubeconfig) as nodes:
            await _label(nodes, well, wanted)
    except NodeError as error:
        call.log.warning(f"labels of nodes not written: {error}; they follow with the next change of {call.name}")


async def _label(nodes: Nodes, names: set[str], wanted: dict[str, str]) -> None:
    stale = [
        name
        for name, labels in (await nodes.labels()).items()
        if name in names and any(labels.get(key) != value for key, value in wanted.items())
    ]
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with gate:
            await nodes.label(name, wanted)

    await asyncio.gather(*map(one, stale))
