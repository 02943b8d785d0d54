"""A play whose hosts were converged long ago is due, so that certificates are renewed in time."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from slipway.provider.play import Play
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.play_state import REVIEW_DAYS
from slipway.provider.resource import State

INPUTS = PlayInputs(playbook="etcd", hosts=(), digest="d", release="lab", ssh_key="k")


def drift(**outputs: Any) -> frozenset[str]:
    return asyncio.run(Play().drift(State("etcd", outputs), INPUTS))


def result(days: float) -> dict[str, Any]:
    at = dt.datetime.now(dt.UTC) - dt.timedelta(days=days)
    return {"ok": True, "at": at.strftime("%Y-%m-%dT%H:%M:%SZ")}


@pytest.mark.parametrize(("days", "due"), [(0, False), (REVIEW_DAYS - 1, False), (REVIEW_DAYS + 1, True), (400, True)])
def test_hosts_are_due_after_a_while(days: float, due: bool) -> None:
    found = drift(results={"a": result(0), "b": result(days)}, failedHosts=[])
    assert found == (frozenset({"results"}) if due else frozenset())


def test_failed_hosts_are_taken_up_again() -> None:
    assert drift(results={}, failedHosts=["a"]) == {"failedHosts"}


def test_certificates_outlive_two_reviews() -> None:
    # Renewed when fewer than 120 of 365 days are left; looked at every REVIEW_DAYS by any `up` in that time.
    assert 2 * REVIEW_DAYS <= 120
