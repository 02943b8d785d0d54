"""An etcd of its own that grows, loses hosts and shrinks, with its controller killed in between; its data live on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.spec import CONFIG_KEY
from tools import ROOT, copy_checkout, environment, eventually, run

pytestmark = pytest.mark.lab

STACK = "members"
DECLARED = {
    "name": STACK,
    "release": "lab",
    "fleet": {"kind": "lab"},
    "network": {"hosts": "10.213.92.0/24", "pods": "10.212.0.0/16", "services": "10.211.0.0/16"},
    "etcd_events": {"count": 1},
    "apiservers": {"count": 1},
    "pools": [],
}


class Etcd:
    """A stack of one etcd, in a checkout of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = copy_checkout(folder)
        shutil.copy(ROOT / "tests/lab/members/__main__.py", self.folder / "infra/__main__.py")

    def slipway(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `./slipway …` there."""
        return run(str(self.folder / "slipway"), *arguments, timeout=400)

    def up(self, count: int) -> str:
        """Bring it up with so many members; return what is said."""
        self.declare(count)
        return self.slipway("up", STACK).stdout

    def start(self, count: int) -> subprocess.Popen[bytes]:
        """Start to bring it up with so many members."""
        self.declare(count)
        command = [str(self.folder / "slipway"), "up", STACK]
        quiet = subprocess.DEVNULL
        return subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)

    def declare(self, count: int) -> None:
        """Write the stack file."""
        file = self.folder / f"stacks/Pulumi.{STACK}.yaml"
        salt = [line for line in file.read_text().splitlines() if "salt" in line] if file.exists() else []
        declared = yaml.safe_dump({"config": {CONFIG_KEY: DECLARED | {"etcd": {"count": count}}}})
        file.write_text("\n".join([declared, *salt, ""]))

    def on(self, member: int, command: str) -> str:
        """Run a command on a member's host."""
        return self.slipway("lab", "shell", f"{STACK}-etcd-{member}", "sh", "-c", command).stdout.strip()

    def members(self) -> dict[str, dict[str, Any]]:
        """The members by name, as the first one has them."""
        listed = json.loads(self.on(0, "etcdctl member list -w json"))["members"]
        return {member.get("name", ""): member for member in listed}

    def data(self) -> str:
        """What was written in the beginning."""
        return self.on(0, "etcdctl get --print-value-only begun")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd of one, with a value in it."""
    etcd = Etcd(tmp_path_factory.mktemp("members") / "checkout")
    try:
        etcd.up(1)
        etcd.on(0, "etcdctl put begun yes")
        yield etcd
    finally:
        etcd.slipway("destroy", STACK)
        run("pulumi", "stack", "rm", STACK, "--yes", "--non-interactive", env=environment(), cwd=etcd.folder)


def names(*members: int) -> set[str]:
    return {f"{STACK}-etcd-{member}" for member in members}


def test_it_grows_though_its_controller_is_killed_while_a_member_joins(etcd: Etcd) -> None:
    with etcd.start(3) as first:
        eventually("a member is added", lambda: len(etcd.members()) == 2, deadline=120, pause=0.3)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(timeout=10)
    said = etcd.up(3)
    steps = ["etcd-1 has its vote", "etcd-2 added to the members", "etcd-2 has its vote"]
    places = [said.index(step) for step in steps]
    assert places == sorted(places)
    assert etcd.members().keys() == names(0, 1, 2)
    assert not any(member.get("isLearner") for member in etcd.members().values())
    assert etcd.data() == "yes"


def test_a_host_that_is_gone_is_made_anew_and_its_member_replaced(etcd: Etcd) -> None:
    before = etcd.members()
    etcd.slipway("lab", "destroy", "--yes", f"{STACK}-etcd-1")
    etcd.up(3)
    after = etcd.members()
    assert after.keys() == names(0, 1, 2)
    kept = {name for name in before if before[name]["ID"] == after[name]["ID"]}
    assert kept == names(0, 2)
    assert not any(member.get("isLearner") for member in after.values())
    assert etcd.on(1, "etcdctl get --print-value-only begun") == "yes"


def test_it_shrinks_with_a_host_that_is_gone(etcd: Etcd) -> None:
    etcd.slipway("lab", "destroy", "--yes", f"{STACK}-etcd-1")
    said = etcd.up(1)
    assert said.index("etcd-1 removed from the members") < said.index("etcd-2 removed from the members")
    assert etcd.members().keys() == names(0)
    assert etcd.data() == "yes"
    assert f"{STACK}-etcd-2" not in etcd.slipway("lab", "list").stdout
