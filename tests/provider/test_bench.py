"""The bench of converges, with figures of few hosts: that it still measures, not how fast anything is."""

import re
import sys

import pytest

import tools
from bench import converge

pytestmark = [pytest.mark.root, pytest.mark.engines, pytest.mark.slow]


def test_the_bench_of_converges_measures_every_part():
    small = ["--hosts", "1", "--reads", "20", "--synthetic", "20,40", "--engine", "10"]
    # As people run it: in a process of its own, whose home it moves.
    shown = tools.run(sys.executable, converge.__file__, *small, env=tools.environment(), timeout=600).stdout
    rows = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in shown.splitlines() if "│" in line]
    figures = {row[0]: row[1:] for row in rows}
    number = re.compile(r"\d+\.\d+$")
    for name, column in {
        converge.FIRST: 1,
        converge.NOTHING: 1,
        converge.LINE: 1,
        converge.PLAIN: 1,
        "20": 2,
        "SSH of one read a host": 1,
        "an up": 1,
        "a refresh": 1,
        "up at no change": 0,
        "refresh by digest": 0,
    }.items():
        assert number.match(figures[name][column]), (name, shown)
