"""Stacks in the file backend, with a stand-in for pulumi that writes the files that pulumi writes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slipway import paths, stack

DECLARED = "# A comment that stays.\nconfig:\n    demo:a:   1   # odd layout\n"

FAKE_PULUMI = r"""#!/bin/sh
echo "$*" >>"$SLIPWAY_HOME/calls"
case "$1 $2" in
'stack init')
    printf '{"checkpoint":{"latest":{"secrets_providers":{"state":{"salt":"v1:new"}}}}}' >"$CHECKPOINT"
    printf 'config: {rewritten: 1}\nencryptionsalt: v1:new\n' >"stacks/Pulumi.$3.yaml" ;;
'stack export') printf '{"version":3,"deployment":{"resources":[1],"pending_operations":[2]}}' ;;
'stack import') cat >"$SLIPWAY_HOME/imported" ;;
'stack fails') echo 'error: no such thing' >&2; exit 255 ;;
esac
"""


class Place:
    """A checkout with one stack, its home, and pulumi's environment."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "check out"
        self.home = folder / "home"
        (self.root / "stacks").mkdir(parents=True)
        (self.root / "Pulumi.yaml").write_text("name: demo\n")
        (self.root / ".gitattributes").write_text((paths.root() / ".gitattributes").read_text())
        self.file = self.root / "stacks" / "Pulumi.one.yaml"
        self.file.write_text(DECLARED)
        self.checkpoint = self.home / "state" / ".pulumi" / "stacks" / "demo" / "one.json"
        self.checkpoint.parent.mkdir(parents=True)
        self.locks = self.home / "state" / ".pulumi" / "locks" / "organization" / "demo" / "one"
        self.locks.mkdir(parents=True)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "pulumi").write_text(FAKE_PULUMI)
        (bin_folder / "pulumi").chmod(0o755)
        self.environment = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "SLIPWAY_HOME": str(self.home),
            "CHECKPOINT": str(self.checkpoint),
            "PULUMI_BACKEND_URL": f"file://{self.home}/state",
        }

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        done = subprocess.run(["git", *identity, *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout

    def state(self, latest: dict[str, Any]) -> None:
        self.checkpoint.write_text(json.dumps({"checkpoint": {"latest": latest}}))

    def lock(self, **holder: Any) -> Path:
        path = self.locks / "lock.json"
        path.write_text(json.dumps({"hostname": socket.gethostname(), "pid": 1, "timestamp": "then", **holder}))
        return path

    @property
    def calls(self) -> list[str]:
        log = self.home / "calls"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    made = Place(tmp_path)
    monkeypatch.setattr(paths, "root", lambda: made.root)
    monkeypatch.setenv("SLIPWAY_HOME", str(made.home))
    return made


def test_makes_a_missing_stack_and_keeps_the_file_s_layout(place: Place) -> None:
    said = stack.ensure("one", place.environment)
    assert said == [f"stack one: made in {place.home}/state"]
    assert place.file.read_text() == f"{DECLARED}encryptionsalt: v1:new\n"


def test_second_time_does_nothing(place: Place) -> None:
    stack.ensure("one", place.environment)
    assert stack.ensure("one", place.environment) == []
    assert place.calls == ["stack init one --non-interactive"]


def test_salt_of_another_machine_is_replaced(place: Place) -> None:
    place.file.write_text(f"{DECLARED}encryptionsalt: v1:other\n")
    stack.ensure("one", place.environment)
    assert place.file.read_text() == f"{DECLARED}encryptionsalt: v1:new\n"


def test_lost_salt_comes_back_from_the_state(place: Place) -> None:
    place.state({"secrets_providers": {"state": {"salt": "v1:kept"}}})
    place.file.write_text(DECLARED.rstrip("\n"))
    stack.ensure("one", place.environment)
    assert place.file.read_text() == f"{DECLARED}encryptionsalt: v1:kept\n"


def test_work_tree_stays_clean(place: Place) -> None:
    place.git("init", "--quiet")
    place.git("add", "--all")
    place.git("commit", "--quiet", "--message", "first")
    stack.ensure("one", place.environment)
    assert place.git("status", "--porcelain") == ""
    place.file.write_text(place.file.read_text().replace("odd layout", "edited"))
    assert place.git("status", "--porcelain") == " M stacks/Pulumi.one.yaml\n"
    place.git("commit", "--quiet", "--all", "--message", "second")
    assert place.git("show", "HEAD:stacks/Pulumi.one.yaml") == DECLARED.replace("odd layout", "edited")


def test_edits_that_are_not_committed_are_not_staged(place: Place) -> None:
    place.git("init", "--quiet")
    place.git("add", "--all")
    place.git("commit", "--quiet", "--message", "first")
    place.file.write_text(DECLARED + "# more\n")
    stack.ensure("one", place.environment)
    assert place.git("status", "--porcelain") == " M stacks/Pulumi.one.yaml\n"


def test_no_such_stack(place: Place) -> None:
    with pytest.raises(stack.StackError, match=r"^stacks/Pulumi\.two\.yaml is missing; there are: one$"):
        stack.ensure("two", place.environment)


def test_lock_of_a_dead_run_is_removed(place: Place) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    lock = place.lock(pid=ended.pid)
    said = stack.recover("one", place.environment)
    assert not lock.exists()
    assert said == [f"stack one: a run that died (process {ended.pid}) held it; its lock is removed"]


def test_process_number_used_again_by_another_program(place: Place) -> None:
    lock = place.lock(pid=os.getpid())
    stack.recover("one", place.environment)
    assert not lock.exists()


def test_lock_of_a_run_under_way_is_left(place: Place, tmp_path: Path) -> None:
    program = tmp_path / "pulumi"
    program.symlink_to("/bin/sleep")
    running = subprocess.Popen([str(program), "60"])
    try:
        while not Path(f"/proc/{running.pid}/cmdline").read_bytes():
            pass  # not yet the program
        lock = place.lock(pid=running.pid)
        with pytest.raises(stack.StackError, match=rf"another run holds it \(process {running.pid} on .*wait for it$"):
            stack.recover("one", place.environment)
        assert lock.exists()
    finally:
        running.kill()
        running.wait()


def test_lock_of_another_machine_is_left(place: Place) -> None:
    lock = place.lock(hostname="elsewhere")
    with pytest.raises(stack.StackError, match="on elsewhere"):
        stack.recover("one", place.environment)
    assert lock.exists()


def test_pending_operations_are_forgotten_and_told(place: Place) -> None:
    place.state(
        {"pending_operations": [{"resource": {"urn": "urn:pulumi:one::demo::slipway:index:LabHost::lab-cpu-0"}}]}
    )
    assert stack.recover("one", place.environment) == ["stack one: taking up where a run died (lab-cpu-0)"]
    assert json.loads((place.home / "imported").read_text()) == {"version": 3, "deployment": {"resources": [1]}}


def test_nothing_to_recover(place: Place) -> None:
    assert stack.recover("one", place.environment) == []
    assert place.calls == []


def test_failed_pulumi_is_one_line(place: Place) -> None:
    with pytest.raises(stack.StackError, match=r"^pulumi stack fails: no such thing$"):
        stack.pulumi(["stack", "fails"], place.environment)


def test_missing_pulumi_says_what_to_run(place: Place) -> None:
    with pytest.raises(stack.StackError, match=r"run: \./slipway engines --only pulumi$"):
        stack.stream(["up"], {**place.environment, "PATH": "/nonexistent"})
