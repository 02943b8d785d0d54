"""The pages' commands work as they stand: a page a shell, in a copy of the checkout whose path has a space in it."""

from __future__ import annotations

import ipaddress
import os
import subprocess
from pathlib import Path

import pytest

import documents
from documents import CHANGES, PAGES, name
from slipway.fleet.lab import network
from tools import SLIPWAY, Stack, copy_checkout, eventually, run

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout."""
    return copy_checkout(tmp_path_factory.mktemp("docs") / "check out")


def looking(page: Path) -> list[str]:
    """The command lines of a page that change nothing."""
    return [line for line in documents.commands(page) if line not in CHANGES]


@pytest.mark.parametrize("page", [page for page in PAGES if looking(page)], ids=name)
def test_what_a_page_shows_can_be_done(lab: Stack, checkout: Path, page: Path) -> None:
    del lab
    # Doctor exits with 1 where something is missing: so it may, on a machine that is not Debian or is short of space.
    script = "\n".join(f"{line} || [ $? = 1 ]" if line == "./slipway doctor" else line for line in looking(page))
    done = subprocess.run(
        ["sh", "-exc", script],
        cwd=checkout,
        env={key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{name(page)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_up_says_what_to_do_next(lab: Stack) -> None:
    del lab
    said = run(SLIPWAY, "up", timeout=600).stdout
    following = said[said.index("Next:") :].splitlines()[1:]
    assert [line.split()[0] for line in following[:3]] == ["./slipway", "eval", "./slipway"]


def test_refresh_changes_nothing(lab: Stack) -> None:
    run(SLIPWAY, "refresh", "lab", timeout=300)
    lab.pulumi("preview", "--expect-no-changes")


def test_engines_are_there(lab: Stack) -> None:
    del lab
    assert run(SLIPWAY, "engines", "--only", "etcd").stdout.startswith("etcd ")
    assert "kubernetes " in run(SLIPWAY, "engines").stdout


def test_tests_run_by_the_command(lab: Stack) -> None:
    """Not all of them, of which this is one."""
    del lab
    said = run(SLIPWAY, "test", "tests/unit/test_paths.py", "-q", timeout=300).stdout
    assert "slipway test: pytest ok" in said


def test_a_host_stops_and_starts(lab: Stack) -> None:
    assert lab.lab("stop", "lab-etcd-0") == "lab-etcd-0 stopped\n"
    assert lab.lab("start", "lab-etcd-0") == "lab-etcd-0 started\n"
    assert len(lab.lab("start", "lab").splitlines()) == len(lab.hosts)  # those that run are left alone
    eventually(
        "the member rejoins", lambda: not lab.ssh("lab-etcd-0", "etcdctl endpoint health").returncode, deadline=90
    )


def test_a_network_goes(lab: Stack) -> None:
    del lab
    network.ensure(
        network.NetworkSpec(name="docs", cidr=ipaddress.IPv4Network("10.213.96.0/24"), bridge="slipway-docs")
    )
    assert run(SLIPWAY, "lab", "destroy", "--yes", "docs").stdout == "network docs removed\n"
    assert network.load("docs") is None


def test_a_lost_passphrase(checkout: Path, tmp_path: Path) -> None:
    script = """
        eval "$(./slipway env tiny)"
        rm "$PULUMI_CONFIG_PASSPHRASE_FILE"
        ! ./slipway env tiny || exit 1
        mv "$SLIPWAY_HOME/state" "$SLIPWAY_HOME/state.lost"
        eval "$(./slipway env tiny)"
        pulumi stack ls
    """
    home = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
    shown = run("sh", "-ec", script, cwd=checkout, env=home | {"SLIPWAY_HOME": str(tmp_path / "home")}, timeout=300)
    assert "passphrase is gone, and the secrets of tiny" in shown.stderr
    assert "tiny" in shown.stdout


def test_nodes_get_labels_and_taints(lab: Stack) -> None:
    try:
        lab.kubectl("label", "node", "-l", "slipway.dev/pool=gpu", "example.com/team=vision")
        lab.kubectl("taint", "node", "-l", "slipway.dev/pool=gpu", "example.com/team=vision:NoSchedule")
        (node,) = lab.get("nodes", "-l", "example.com/team=vision")["items"]
        assert {"key": "example.com/team", "value": "vision", "effect": "NoSchedule"} in node["spec"]["taints"]
    finally:
        lab.kubectl("taint", "node", "-l", "slipway.dev/pool=gpu", "example.com/team-", check=False)
        lab.kubectl("label", "node", "-l", "slipway.dev/pool=gpu", "example.com/team-", check=False)
