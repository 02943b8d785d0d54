"""Figures of `slipway release check` on 100 releases, after start.

    python tests/bench/lint.py [COUNT]

Writes COUNT copies of the largest release that comes with Slipway, reads and judges each as the command does, and
prints seconds of wall clock and of CPU: for reading, for judging, and for both. Wanted: 100 in less than 2 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "infra"))

from slipway import lint, paths, release


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    largest = max(paths.releases().glob("*.yaml"), key=lambda file: file.stat().st_size)
    data = yaml.safe_load(largest.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            text = largest.read_text().replace(f'id: "{data["id"]}"', f'id: "{number}"', 1)
            (Path(folder) / f"{number}.yaml").write_text(text)
        marks = [(time.perf_counter(), time.process_time())]
        loaded = [release.load(str(number), Path(folder)) for number in range(count)]
        marks.append((time.perf_counter(), time.process_time()))
        found = sum(len(lint.check(lint.Case(release=one))) for one in loaded)
        marks.append((time.perf_counter(), time.process_time()))
    table = Table("", "wall s", "CPU s", title=f"{count} releases like {data['id']}, {len(lint.RULES)} rules")
    for name, first, last in (("read", 0, 1), ("judged", 1, 2), ("both", 0, 2)):
        table.add_row(name, *(f"{marks[last][clock] - marks[first][clock]:.2f}" for clock in (0, 1)))
    console = Console()
    console.print(table)
    console.print(f"{found} findings")


if __name__ == "__main__":
    main()
