"""Figures of one stack on this machine: first up, second up, destroy.

    python tests/bench/lab.py [STACK]       (default: lab; the stack must not be up; engines must be built)

Prints, for each: wall seconds, CPU seconds of the whole machine (from /proc/stat, so run it on a quiet one), and the
largest memory of all hosts together; for the first up its ten slowest steps.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass
class Figures:
    """What one command cost: seconds and MiB."""

    name: str
    wall: float
    cpu: float
    memory: float


def machine_cpu() -> float:
    """CPU seconds that the machine has worked since boot: user, nice, system, irq, softirq."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _wait, irq, softirq = (int(field) for field in fields[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def hosts_memory() -> float:
    """MiB that processes of lab hosts hold: those in a PID namespace of their own. Shared pages count once (PSS)."""
    total = 0
    mine = (Path("/proc/self/ns/pid")).readlink()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").readlink() == mine:
                continue
            rollup = (process / "smaps_rollup").read_text()
        except OSError:  # gone meanwhile
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


class Watch:
    """Samples the hosts' memory while a command runs."""

    def __init__(self) -> None:
        self.peak = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._end.wait(5):
            self.peak = max(self.peak, hosts_memory())

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.peak = max(self.peak, hosts_memory())


def measure(name: str, command: list[str], env: dict[str, str]) -> Figures:
    """Run a command to its end and return what it cost; what it prints goes to standard error."""
    started, cpu = time.monotonic(), machine_cpu()
    with Watch() as watch:
        subprocess.run(command, check=True, cwd=ROOT, env=env, stdout=sys.stderr)
    return Figures(name, time.monotonic() - started, machine_cpu() - cpu, watch.peak)


def slowest(events: Path, most: int = 10) -> list[tuple[float, str]]:
    """(seconds, resource) of the steps that took longest, from the engine's event log."""
    begun: dict[str, float] = {}
    took: list[tuple[float, str]] = []
    for line in events.read_text().splitlines():
        event = json.loads(line)
        at = event["timestamp"]
        if "resourcePreEvent" in event:
            begun[event["resourcePreEvent"]["metadata"]["urn"]] = at
        elif "resOutputsEvent" in event:
            urn = event["resOutputsEvent"]["metadata"]["urn"]
            if urn in begun:
                took.append((at - begun[urn], " ".join(urn.split("::")[-2:])))
    return sorted(took, reverse=True)[:most]


def environment() -> dict[str, str]:
    """The environment that `eval "$(./slipway env)"` gives."""
    shown = subprocess.run(
        ["sh", "-c", 'eval "$(./slipway env)"; env -0'], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return dict(line.split("=", 1) for line in shown.stdout.split("\0") if "=" in line)


def main(stack: str) -> None:
    """Measure one stack."""
    env = environment() | {"PULUMI_DEBUG_COMMANDS": "true"}  # which makes --event-log known
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events.json"
        up = ["pulumi", "up", "--yes", "--skip-preview", "--non-interactive", "--stack", stack]
        figures = [
            measure("first up", [*up, "--event-log", str(log)], env),
            measure("second up", [*up, "--expect-no-changes"], env),
            measure(
                "destroy", ["pulumi", "destroy", "--yes", "--skip-preview", "--non-interactive", "--stack", stack], env
            ),
        ]
        steps = slowest(log)
    console = Console()
    table = Table("", "wall s", "CPU s", "hosts' memory, MiB", title=f"stack {stack}")
    for row in figures:
        table.add_row(row.name, f"{row.wall:.1f}", f"{row.cpu:.1f}", f"{row.memory:.0f}")
    console.print(table)
    table = Table("seconds", "step", title="ten slowest steps of the first up")
    for seconds, step in steps:
        table.add_row(f"{seconds:.1f}", step)
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "lab")
