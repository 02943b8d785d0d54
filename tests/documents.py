"""The pages that users read, taken apart: shell blocks, commands, links, paths."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from slipway import paths

ROOT = paths.root()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_PLACES = ("infra/", "playbooks/", "roles/", "stacks/", "tests/", "docs/", ".ci/")

CHANGES = {
    "./slipway up": "tests/lab/test_docs.py::test_up_says_what_to_do_next",
    "./slipway up tiny": "tests/lab/test_lifecycle.py::test_interrupted_up_goes_on",
    "./slipway destroy lab": "tests/lab/test_lifecycle.py::test_interrupted_up_goes_on",
    "./slipway test": "tests/lab/test_docs.py::test_tests_run_by_the_command",
    "./slipway test --fast": "tests/lab/test_docs.py::test_tests_run_by_the_command",
    "./slipway test --only unit": "tests/lab/test_docs.py::test_tests_run_by_the_command",
    "./slipway test tests/roles -k etcd": "tests/lab/test_docs.py::test_tests_run_by_the_command",
    "SLIPWAY_KEEP_LAB=1 ./slipway test tests/lab/test_cluster.py": (
        "tests/lab/test_docs.py::test_tests_run_by_the_command"
    ),
    "./slipway lab stop lab-etcd-0": "tests/lab/test_docs.py::test_a_host_stops_and_starts",
    "./slipway lab start lab-etcd-0": "tests/lab/test_docs.py::test_a_host_stops_and_starts",
    "./slipway lab start lab": "tests/lab/test_docs.py::test_a_host_stops_and_starts",
    "./slipway lab destroy --yes lab": "tests/lab/test_docs.py::test_a_network_goes",
    "mv /var/lib/slipway/state /var/lib/slipway/state.lost": "tests/lab/test_docs.py::test_a_lost_passphrase",
    "./slipway refresh lab": "tests/lab/test_docs.py::test_refresh_changes_nothing",
    "./slipway engines": "tests/lab/test_docs.py::test_engines_are_there",
    "./slipway engines --only etcd": "tests/lab/test_docs.py::test_engines_are_there",
    "./slipway mirror build lab --for debian13/amd64 /srv/mirror": (
        "tests/lab/test_mirror.py::test_a_cluster_comes_up_from_a_mirror_alone"
    ),
    "./slipway mirror verify /srv/mirror": "tests/lab/test_mirror.py::test_a_cluster_comes_up_from_a_mirror_alone",
    "./slipway mirror serve /srv/mirror --listen 0.0.0.0:8080": (
        "tests/lab/test_mirror.py::test_a_cluster_comes_up_from_a_mirror_alone"
    ),
    "./slipway release lock 2026.11": "tests/unit/test_lock.py::test_fills_in_and_touches_nothing_else",
    "./slipway release lock 2026.11 --check": "tests/unit/test_lock.py::test_fills_in_and_touches_nothing_else",
    "kubectl --kubeconfig lab.kubeconfig label node -l slipway.dev/pool=gpu example.com/team=vision": (
        "tests/lab/test_docs.py::test_nodes_get_labels_and_taints"
    ),
    "kubectl --kubeconfig lab.kubeconfig taint node -l slipway.dev/pool=gpu example.com/team=vision:NoSchedule": (
        "tests/lab/test_docs.py::test_nodes_get_labels_and_taints"
    ),
    "pulumi up --stack lab --yes": "tests/lab/test_lifecycle.py::test_second_up_changes_nothing",
    "pulumi destroy --stack lab --yes": "tests/lab/test_lifecycle.py::test_destroy_leaves_nothing",
}
"""Command lines of pages that change something: each by itself, with the test that runs it or the same command on
another stack or host. All other lines of `sh` blocks only look, and tests/lab/test_docs.py runs them as they stand."""


def name(page: Path) -> str:
    """Return a page's path in the checkout."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return [text for kind, text in _FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[str]:
    """Return the command lines of all `sh` blocks, in order; comments and empty lines are left out."""
    lines = "".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def slipway_calls(page: Path) -> Iterator[list[str]]:
    """Yield the arguments of every `./slipway …` in shell blocks and in running text."""
    prose = _FENCE.sub("", page.read_text())
    for line in [*commands(page), *(code for code in _CODE.findall(prose) if code.startswith("./slipway "))]:
        for call in re.findall(r"\./slipway((?: +(?:'[^']*'|[\w./<>=:*-]+))*)", line):
            yield shlex.split(call.partition(" > ")[0].partition(" >")[0])


def links(page: Path) -> list[str]:
    """Return where the links of a page lead to."""
    return _LINK.findall(_FENCE.sub("", page.read_text()))


def paths_named(page: Path) -> Iterator[str]:
    """Yield what looks like a path in the checkout, in running text; `<x>` stands for any name."""
    for code in _CODE.findall(_FENCE.sub("", page.read_text())):
        if code.startswith(_PLACES) and " " not in code and "…" not in code:
            yield re.sub(r"<[^>]*>", "*", code.partition("::")[0])
