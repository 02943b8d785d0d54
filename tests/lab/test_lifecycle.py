"""A stack's life: again without changes, interrupted in the middle, gone without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slipway.fleet.lab.machine import MachineState, machine_state
from tools import ROOT, SLIPWAY, Stack, environment, eventually, our_processes

pytestmark = pytest.mark.lab


def test_second_up_changes_nothing(lab: Stack) -> None:
    shown = lab.pulumi("up", "--yes", "--expect-no-changes")
    assert "unchanged" in shown.stdout


def test_preview_after_up_is_empty(lab: Stack) -> None:
    lab.pulumi("preview", "--expect-no-changes")


def test_up_leaves_the_checkout_clean(lab: Stack) -> None:
    del lab
    touched = subprocess.run(
        ["git", "status", "--porcelain", "stacks"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert touched.stdout == ""


def test_no_secret_in_plain_state(lab: Stack) -> None:
    state = lab.pulumi("stack", "export").stdout
    assert "PRIVATE KEY" not in state
    assert "ciphertext" in state
    backend = Path(environment()["PULUMI_BACKEND_URL"].removeprefix("file://"))
    for file in backend.rglob("*"):
        if file.is_file():
            assert b"PRIVATE KEY" not in file.read_bytes(), file
            assert (
                file.stat().st_mode & 0o077 == 0
                or file.parent.stat().st_mode & 0o077 == 0
                or backend.stat().st_mode & 0o077 == 0
            )


def test_a_play_runs_at_most_five_tasks_a_host(lab: Stack) -> None:
    """As counted by the controller's Ansible when the hosts were made."""
    resources = json.loads(lab.pulumi("stack", "export").stdout)["deployment"]["resources"]
    plays = [resource for resource in resources if resource["type"] == "slipway:index:Play"]
    tasks = [result["tasks"] for play in plays for result in play["outputs"]["results"].values()]
    assert len(tasks) == len(lab.hosts)
    assert all(1 <= count <= 5 for count in tasks), tasks


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_up_goes_on(blow: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C, or kill -9, in the middle of the first `up`; the same command again ends in a working cluster."""
    stack = Stack("tiny", tmp_path)
    before, processes = machine_state(), our_processes()
    log = tmp_path / "first"
    with (
        log.open("w") as out,
        subprocess.Popen(
            [SLIPWAY, "up", "tiny"], stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        ) as first,
    ):
        # In the middle: hosts are there and a play is at work.
        eventually("a play is running", lambda: "Play" in log.read_text(), deadline=240, pause=0.5)
        time.sleep(8)
        assert first.poll() is None, log.read_text()[-2000:]
        if blow == signal.SIGINT:
            os.killpg(first.pid, signal.SIGINT)  # as a terminal does: to the whole foreground group
            assert first.wait(timeout=60) != 0
        else:
            os.killpg(first.pid, signal.SIGKILL)
            first.wait(timeout=10)
    try:
        stack.up()
        eventually("the node is Ready", lambda: ready_nodes(stack) == 1, deadline=60)
        assert "Traceback" not in log.read_text()
    finally:
        stack.destroy()
    assert before.difference(machine_state()) == []
    assert [process for process in our_processes() if process not in processes] == []


def ready_nodes(stack: Stack) -> int:
    conditions = [c for node in stack.get("nodes")["items"] for c in node["status"]["conditions"]]
    return sum(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.mark.last
def test_destroy_leaves_nothing(
    lab: Stack, before_lab: MachineState, processes_before_lab: list[str], tmp_path: Path
) -> None:
    stack, before, processes = lab, before_lab, processes_before_lab
    if not lab.ours:  # somebody's lab stays; the small stack stands for it
        stack, before, processes = Stack("tiny", tmp_path), machine_state(), our_processes()
        stack.up()
    stack.pulumi("destroy", "--yes")
    stack.destroyed = True
    assert before.difference(machine_state()) == []
    assert [process for process in our_processes() if process not in processes] == []
    assert f"{stack.name}-" not in stack.lab("list")
