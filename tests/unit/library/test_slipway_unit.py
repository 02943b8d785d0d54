"""slipway_unit: what changes, from what systemd says."""

from __future__ import annotations

import pytest
from library import slipway_unit
from library.slipway_unit import State, UnitError, parse, to_change, to_switch

UP = State(found=True, running=True, enabled=True, stale=False)
DOWN = State(found=True, running=False, enabled=False, stale=False)
MISSING = State(found=False, running=False, enabled=False, stale=False)


def shown(state: State) -> str:
    return (
        f"LoadState={'loaded' if state.found else 'not-found'}\n"
        f"ActiveState={'active' if state.running else 'inactive'}\n"
        f"UnitFileState={'enabled' if state.enabled else 'disabled'}\n"
        f"NeedDaemonReload={'yes' if state.stale else 'no'}\n"
    )


class Systemd:
    """Answers systemctl from a table and keeps what was asked."""

    def __init__(self, states: dict[str, State], after_reload: dict[str, State] | None = None) -> None:
        self.states = states
        self.after_reload = after_reload or {}
        self.calls: list[list[str]] = []

    def __call__(self, *arguments: str) -> str:
        if arguments[0] == "show":
            return "\n".join(shown(self.states[name]) for name in arguments[2:])
        self.calls.append(list(arguments))
        if arguments == ("daemon-reload",):
            self.states = {**self.states, **self.after_reload}
        return ""


@pytest.mark.parametrize("state", [UP, DOWN, MISSING])
def test_parse_reads_what_systemctl_shows(state: State) -> None:
    assert parse(shown(state)) == state


def test_a_failed_unit_is_started_again() -> None:
    assert to_change({"a": parse("LoadState=loaded\nActiveState=failed\n")}, "started") == ["a"]


def test_only_what_differs_is_changed() -> None:
    states = {"a": UP, "b": DOWN}
    assert to_change(states, "started") == ["b"]
    assert to_change(states, "stopped") == ["a"]
    assert to_change(states, "restarted") == ["a", "b"]
    assert to_switch(states, True) == ["b"]
    assert to_switch(states, None) == []


def test_nothing_to_do_calls_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd({"a": UP, "b": UP})
    monkeypatch.setattr(slipway_unit, "systemctl", systemd)
    assert slipway_unit.apply(["a", "b"], "started", True, check=False) == []
    assert systemd.calls == []


def test_a_new_unit_file_is_read_then_enabled_and_started(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd({"a": MISSING, "b": UP}, {"a": DOWN})
    monkeypatch.setattr(slipway_unit, "systemctl", systemd)
    assert slipway_unit.apply(["a", "b"], "started", True, check=False) == ["a"]
    assert systemd.calls == [["daemon-reload"], ["enable", "a"], ["start", "--no-block", "a"]]


def test_check_mode_reports_a_unit_that_is_not_written_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    systemd = Systemd({"a": MISSING})
    monkeypatch.setattr(slipway_unit, "systemctl", systemd)
    assert slipway_unit.apply(["a"], "restarted", None, check=True) == ["a"]
    assert systemd.calls == []


def test_a_unit_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slipway_unit, "systemctl", Systemd({"a": MISSING}))
    with pytest.raises(UnitError, match="there is no unit a"):
        slipway_unit.apply(["a"], "started", None, check=False)


def test_a_unit_in_the_middle_of_a_restart_counts_as_running() -> None:
    jobs = "93 a.service restart waiting\n94 b.service stop   running\n"
    starting = slipway_unit.starting_units(jobs)
    assert starting == {"a.service"}
    assert parse("Id=a.service\nActiveState=deactivating\n", starting).running
    assert not parse("Id=b.service\nActiveState=deactivating\n", starting).running
