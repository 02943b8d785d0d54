"""The live line of a wave, and the lines that stay."""

from __future__ import annotations

import pytest

from slipway.play.runner import Result
from slipway.provider import progress
from slipway.provider.progress import Progress
from slipway.switches import TASKS

WAVES = [["a"], ["b", "c"], ["d", "e", "f", "g"]]
OK = Result(ok=True, changed=1)


class Clock:
    """A clock that the test turns."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Lines:
    """Keeps the lines that stay, and the last of those that do not."""

    def __init__(self) -> None:
        self.stay: list[str] = []
        self.live = ""

    def info(self, line: str) -> None:
        self.stay.append(line)

    def status(self, line: str) -> None:
        self.live = line


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lines():
    return Lines()


@pytest.fixture
def shown(lines, clock):
    return Progress(lines, WAVES, clock=clock)


def state(shown, host):
    shown(host, {"event": "state", "state": "running"})


def result(shown, host, **more):
    shown(host, {"event": "result", "ok": True, "changed": 1, **more})


def test_a_rollout_from_wave_to_wave(shown, lines, clock):
    shown.begin(1)
    assert lines.live == "wave 1 of 3: 0 done, 7 left, 0 s so far"
    state(shown, "a")
    shown.tick()
    assert lines.live == "wave 1 of 3: 0 done, 7 left, 0 s so far"  # not so soon after the last
    clock.now += 2
    shown.tick()
    assert lines.live == "wave 1 of 3: 0 done, 1 running, 6 left, 2 s so far"
    clock.now += 8
    shown.tick()
    assert lines.live.endswith("2 s so far")  # no host came further
    result(shown, "a")
    shown.settle({"a": OK})
    assert lines.live == "wave 1 of 3: 1 done, 6 left, 10 s so far, about 20 s to go"

    shown.begin(2)
    clock.now += 4
    state(shown, "b")
    state(shown, "c")
    clock.now += 1
    assert shown.line() == "wave 2 of 3: 1 done, 2 running, 4 left, 15 s so far, about 15 s to go"
    clock.now += 6
    result(shown, "b", ok=False, failed_task="role : task")
    result(shown, "c")
    shown.settle({"b": Result(ok=False, reason="role : task: no"), "c": OK})
    assert lines.live == "wave 2 of 3: 2 done, 1 failed, 4 left, 21 s so far, about 10 s to go"

    shown.begin(3)
    shown.settle({"d": OK, "e": OK, "f": Result(ok=False, deferred=True, reason="deferred: no"), "g": OK})
    shown.end()
    assert lines.live == "5 of 7 hosts done, 1 failed, 1 deferred, 21 s"
    assert lines.stay == ["a done, 1 changed, 10 s", "c done, 1 changed, 7 s", "f deferred: no"]


def test_a_single_wave_has_no_number(lines, clock):
    shown = Progress(lines, [["a", "b"]], clock=clock)
    shown.begin(1)
    assert lines.live == "0 done, 2 left, 0 s so far"


def test_what_a_gate_finds_in_the_end_counts(shown, lines):
    shown.begin(1)
    result(shown, "a")
    shown.settle({"a": Result(ok=False, reason="changed, but its kubelet was not ready")})
    shown.end()
    assert lines.live == "0 of 7 hosts done, 1 failed, 6 left, 0 s"
    assert lines.stay[-1] == "a changed, but its kubelet was not ready"


def test_a_large_play_shows_failed_tasks_only(lines, clock, monkeypatch):
    monkeypatch.delenv(TASKS, raising=False)
    assert progress.tasks_wanted(20)
    assert not progress.tasks_wanted(21)
    monkeypatch.setenv(TASKS, "1")
    assert progress.tasks_wanted(5_000)

    shown = Progress(lines, WAVES, tasks=False, clock=clock)
    shown.begin(1)
    shown("a", {"event": "task", "role": "etcd", "name": "Write", "status": "changed"})
    shown("a", {"event": "task", "role": "etcd", "name": "Start", "status": "failed", "msg": "it\ndoes not"})
    result(shown, "a", ok=False, failed_task="etcd : Start")
    assert lines.stay == ["a etcd : Start … failed: it does not"]


def test_what_a_host_waits_for_is_told(shown, lines):
    shown.begin(1)
    shown("a", {"event": "state", "state": "waiting", "msg": "waits for apt: … is held by process 812 (apt)"})
    assert lines.stay == ["a waits for apt: … is held by process 812 (apt)"]
