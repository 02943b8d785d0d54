"""ansible-runner in a process of its own: `python -m slipway.play.child FOLDER`.

Not in the provider: ansible-runner forks, which a process full of threads must not do. This way, too, the whole run can
be stopped by a signal to one process, and ends by itself when the provider dies. What it has to say goes to standard
output as JSON lines: `{"host", "unreachable", "msg"}` for a host that failed, at the end `{"status", "rc", "tail",
"tasks"}`, where `tasks` says how many tasks the controller ran for each host.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_FAILURES = {"runner_on_failed", "runner_on_unreachable"}


def main() -> int:
    """Run the play that a folder describes; return 0 when the run itself took place, whatever became of its hosts."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    parent, folder = int(sys.argv[1]), Path(sys.argv[2])
    if os.getppid() != parent:
        return 1
    import ansible_runner

    job = json.loads((folder / "job.json").read_text())
    tail: deque[str] = deque(maxlen=8)
    tasks: Counter[str] = Counter()
    # Whatever prints in here must not get between our lines.
    with contextlib.redirect_stdout(sys.stderr):
        run = ansible_runner.run(
            private_data_dir=str(folder),
            playbook=job["playbook"],
            inventory=job["inventory"],
            envvars=job["environment"],
            settings={"pexpect_timeout": 1, "job_timeout": job["timeout_seconds"], "suppress_output_file": True},
            forks=job["forks"],
            suppress_env_files=True,
            quiet=True,
            event_handler=lambda event: _handle(event, tail, tasks),
        )
    _say({"status": run.status, "rc": run.rc, "tail": list(tail), "tasks": tasks})
    return 0


def _handle(event: dict[str, Any], tail: deque[str], tasks: Counter[str]) -> bool:
    """Keep what matters of an event. Returning False keeps it out of ansible-runner's files."""
    data = event.get("event_data", {})
    if event["event"] == "runner_on_start":
        tasks[data["host"]] += 1
    if event["event"] in _FAILURES and not data.get("ignore_errors"):
        result = data.get("res", {})
        unreachable = event["event"] == "runner_on_unreachable"
        _say({"host": data.get("host"), "unreachable": unreachable, "msg": str(result.get("msg", ""))})
    tail.extend(line for line in str(event.get("stdout", "")).splitlines() if line.strip())
    return False


def _say(line: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(line) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    sys.exit(main())
