"""What a play keeps in its state: a result a host, which hosts failed, which have drifted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from slipway.play import journal as journals
from slipway.provider.course import Course
from slipway.provider.log import stamp
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import InitFailed, State

REVIEW_DAYS = 60
"""A host that was converged longer ago than this is gone through again by the next `up`, whatever its digest: so
certificates are renewed in time (they last a year, and are renewed for the last 120 days of it) and drift is mended."""


def results(state: State) -> dict[str, dict[str, Any]]:
    """Return what came of each host in the last update, and of those that are leaving."""
    return state.outputs.get("results") or {}


def drifted(state: State) -> dict[str, list[str]]:
    """Return what differs on each host that has drifted."""
    return state.outputs.get("drifted") or {}


def is_due(result: Mapping[str, Any]) -> bool:
    """Say whether a host was converged so long ago that it is gone through again."""
    at = dt.datetime.fromisoformat(result["at"])
    return dt.datetime.now(dt.UTC) - at > dt.timedelta(days=REVIEW_DAYS)


def forced(state: State) -> set[str]:
    """Return the hosts that are gone through whatever their digest: those that drifted, those due for review."""
    return {name for name, result in results(state).items() if is_due(result)} | drifted(state).keys()


def due(inputs: PlayInputs, state: State) -> set[str]:
    """Return the hosts on which an update has something to do, as far as the state knows."""
    known, go = results(state), forced(state)
    return {
        name for name, digest in inputs.digests().items() if name in go or known.get(name, {}).get("digest") != digest
    }


def troubled(state: State) -> set[str]:
    """Return the hosts on which the last update failed, or which it did not reach."""
    return {name for name, result in results(state).items() if result.get("outcome") in journals.BAD}


def outcome(state: State, hosts: Sequence[str], course: Course) -> State:
    """Return the new state.

    Raises:
        InitFailed: with one reason for each host that failed, and one why others were not begun.
    """
    before = results(state)
    outputs: dict[str, Any] = {"results": {}, "failedHosts": [], "drifted": {}}
    reasons = [course.stopped] * bool(course.stopped)
    for name in hosts:
        result = course.results.get(name)
        earlier = before.get(name, {})
        wave = {"wave": course.wave(name)} if course.wave(name) else {}
        if result is not None and result.ok:
            outputs["results"][name] = {
                "ok": True,
                "changed": result.changed,
                "digest": result.digest,
                "tasks": result.tasks,
                "at": earlier["at"] if result.untouched and "at" in earlier else stamp(),
                **wave,
            }
            continue
        outputs["results"][name] = {
            "ok": False,
            "digest": earlier.get("digest", ""),
            "at": stamp(),
            "outcome": course.outcome(name),
            "reason": result.reason if result else "not begun",
            **wave,
        }
        if result is None and earlier.get("outcome") in journals.BAD:
            outputs["results"][name] = earlier  # it is as it was
        outputs["failedHosts"].append(name)
        if name in drifted(state):
            outputs["drifted"][name] = drifted(state)[name]
        if result is not None:
            reasons.append(f"{name}: {result.reason}")
    if outputs["failedHosts"]:
        raise InitFailed(state.id, outputs, reasons)
    return State(state.id, outputs)
