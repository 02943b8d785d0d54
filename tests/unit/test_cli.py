"""The command line: exit codes, and every problem in one line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from slipway import release
from slipway.cli import tests as checks
from slipway.cli.app import app
from slipway.cli.problems import Problem, describe, guarded
from slipway.timing import elapsed


def call(*arguments: str) -> Callable[[], object]:
    return lambda: app(list(arguments), standalone_mode=False, prog_name="slipway")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["version"], 0, ""),
        ([], 2, ""),
        (["lab"], 2, ""),
        (["bogus"], 2, "slipway: No such command 'bogus'; see: ./slipway --help\n"),
        (["up", "--bogus"], 2, "slipway: No such option: --bogus; see: ./slipway up --help\n"),
        (["engines", "--only", "etdc"], 2, "slipway: release lab: no component 'etdc'; nearest: etcd\n"),
    ],
)
def test_exit_code_and_message(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(call(*arguments)) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("verb", "next_command"),
    [
        ("up", "./slipway report novice"),
        ("preview", "nothing was changed"),
        ("refresh", "./slipway up novice mends it"),
        ("destroy", "the same command goes on"),
    ],
)
def test_what_to_do_after_pulumi_failed(
    verb: str, next_command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slipway.cli.stacks.case", lambda _: None)
    monkeypatch.setattr("slipway.cli.stacks.lint.refuse", lambda _: None)
    monkeypatch.setattr("slipway.cli.setup.stack_ready", lambda _: (None, {}))
    monkeypatch.setattr("slipway.stack.recover", lambda *_: [])
    monkeypatch.setattr("slipway.stack.stream", lambda *_: 255)
    assert guarded(call(verb, "novice")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"slipway: {verb} of novice did not finish; ")
    assert next_command in line


def test_a_watch_without_a_terminal_prints_each_look(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def look(*_: object) -> list[object]:
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt
        return []

    looks: list[int] = []
    monkeypatch.setattr("slipway.cli.setup.stack_ready", lambda _: (None, {}))
    for name in ("file", "is_there"):
        monkeypatch.setattr(f"slipway.stack.{name}", lambda _: True)
    monkeypatch.setattr("slipway.cli.status._rows", look)
    monkeypatch.setattr("slipway.cli.status.WATCH_SECONDS", 0)
    assert guarded(call("status", "novice", "--watch")) == 130
    assert capsys.readouterr().out.count("novice: 0 hosts") == 2


def test_looking_at_a_stack_that_is_not_there_makes_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    assert guarded(call("status", "tiny")) == 2
    assert capsys.readouterr().err == "slipway: stack tiny has no hosts yet; run: ./slipway up tiny\n"
    assert not (tmp_path / "home").exists()


def raising(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Problem("two hosts failed", 1), 1, "two hosts failed"),
        (release.ReleaseError("a: x\na: y"), 2, "a: x\nslipway: a: y"),
        (PermissionError(13, "Permission denied", "/some/file"), 2, "/some/file: Permission denied"),
        (
            subprocess.CalledProcessError(3, ["/bin/tool", "x"], stderr="first\nlast"),
            2,
            "tool failed with exit code 3: last",
        ),
        (KeyboardInterrupt(), 130, "interrupted; the same command goes on where this one stopped"),
        (typer.Exit(1), 1, None),
    ],
)
def test_every_exception_is_told(
    error: BaseException, code: int, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising(error)) == code
    assert capsys.readouterr().err == ("" if said is None else f"slipway: {said}\n")


def test_unexpected_exception_is_one_line_with_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLIPWAY_DEBUG", raising=False)
    assert guarded(raising(KeyError("x\ny"))) == 2
    message = capsys.readouterr().err
    assert message.startswith("slipway: unexpected KeyError: ")
    assert "test_cli.py:" in message
    assert message.count("\n") == 1


def test_traceback_only_when_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_DEBUG", "1")
    guarded(raising(KeyError("x")))
    assert "Traceback" in capsys.readouterr().err


def test_exit_code_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: 1) == 1
    assert guarded(lambda: None) == 0


def test_describe_never_has_a_line_break() -> None:
    assert describe(ValueError("a\n  b")).startswith("unexpected ValueError: a b (")


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0 s"), (59, "59 s"), (60, "1:00"), (187, "3:07")])
def test_elapsed(seconds: float, shown: str) -> None:
    assert elapsed(seconds) == shown


def names(chosen: set[str], extra: list[str]) -> list[str]:
    return [check.name for check in checks._checks(chosen, extra)]


def test_cheap_checks_come_first() -> None:
    assert names(set(), []) == ["ruff", "mypy", "ansible-lint", "pytest"]


def test_chosen_checks() -> None:
    assert names({"mypy"}, []) == ["mypy"]
    (check,) = checks._checks({"unit"}, [])
    assert check.command[-1] == "tests/unit"


def test_arguments_go_to_pytest(tmp_path: Path) -> None:
    (check,) = checks._checks(set(), ["-k", "faults"])
    assert check.command[-2:] == ("-k", "faults")
    assert "tests/unit" in check.command
    (check,) = checks._checks(set(), ["tests/unit/test_cli.py::test_elapsed"])
    assert "tests/unit" not in check.command
