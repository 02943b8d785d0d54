"""Changes that nobody feels: etcd members and API servers restarted, and taken away, under a client that never stops.

The last thing that happens to the lab before it goes, so that nothing has to be changed back.
"""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.artifacts import engines, gobuild
from slipway.release import Release
from slipway.spec import CONFIG_KEY
from tools import ROOT, Stack, copy_checkout, eventually, run

pytestmark = [pytest.mark.lab, pytest.mark.last]

LOAD = ROOT / "tests/lab/load/main.go"


@pytest.fixture(scope="module")
def checkout(lab: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the checkout, in which the stack is changed."""
    yield copy_checkout(tmp_path_factory.mktemp("changes") / "checkout")
    if not lab.ours:
        lab.up()


def change(checkout: Path, lab: Stack, **sections: dict[str, Any]) -> None:
    """Bring the stack up with values of some sections changed."""
    file = checkout / f"stacks/Pulumi.{lab.name}.yaml"
    declared = yaml.safe_load(file.read_text())
    for section, values in sections.items():
        declared["config"][CONFIG_KEY].setdefault(section, {}).update(values)
    file.write_text(yaml.safe_dump(declared))
    run(str(checkout / "slipway"), "up", lab.name, timeout=600)


@pytest.fixture(scope="module")
def program(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client: it writes, reads, connects and watches."""
    built = tmp_path_factory.mktemp("load") / "load"
    run(str(gobuild.find_go(release.toolchain, engines.arch())), "build", "-o", str(built), str(LOAD), timeout=300)
    return built


@contextmanager
def load(program: Path, lab: Stack, folder: Path) -> Iterator[dict[str, Any]]:
    """Use the API through the load balancer meanwhile; what came of it is in the dict at the end."""
    known = yaml.safe_load(lab.kubeconfig.read_text())
    cluster, user = known["clusters"][0]["cluster"], known["users"][0]["user"]
    files = {
        "ca": cluster["certificate-authority-data"],
        "crt": user["client-certificate-data"],
        "key": user["client-key-data"],
    }
    for name, content in files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(base64.b64decode(content))
    command = [str(program), cluster["server"], *(str(folder / name) for name in files)]
    report: dict[str, Any] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            yield report
        finally:
            said, _ = client.communicate(timeout=60)
    report |= json.loads(said)
    logging.getLogger(__name__).info("the client: %s", said)


def show(lab: Stack, host: str, unit: str, name: str) -> str:
    return lab.ssh(host, f"systemctl show {unit} -P {name}").stdout.strip()


def starts(lab: Stack, host: str, unit: str, since: float) -> int:
    lines = lab.ssh(host, f"journalctl -u {unit} --since @{since:.0f} -o cat").stdout.splitlines()
    return sum(line.startswith("Started ") for line in lines)


def status(lab: Stack, host: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.ssh(host, "etcdctl endpoint status -w json").stdout)[0]["Status"]
    return found


def leads(lab: Stack, host: str) -> bool:
    said = status(lab, host)
    return bool(said["leader"] == said["header"]["member_id"])


def test_etcd_and_api_servers_restart_one_at_a_time_and_nobody_feels_it(
    lab: Stack, checkout: Path, program: Path, tmp_path: Path
) -> None:
    etcd, events, servers = lab.named("etcd"), lab.named("etcd_events"), lab.named("apiservers")
    leader = next(name for name in etcd if leads(lab, name))
    term = int(status(lab, leader)["raftTerm"])
    since = time.time()
    with load(program, lab, tmp_path) as report:
        change(
            checkout,
            lab,
            etcd={"heartbeat_ms": 110},
            etcd_events={"count": 1},
            apiservers={"flags": {"event-ttl": "1h1m"}},
        )

    assert report["failed"] == []
    assert report["written"] == report["read"] == report["seen"] > 100
    assert report["fresh"] > 100

    assert {host: starts(lab, host, "etcd", since) for host in etcd} == dict.fromkeys(etcd, 1)
    started = {host: int(show(lab, host, "etcd", "ExecMainStartTimestampMonotonic")) for host in etcd}
    assert max(started, key=lambda host: started[host]) == leader
    # The leader handed over, once; no other election.
    assert {int(status(lab, host)["raftTerm"]) for host in etcd} == {term + 1}
    assert {host: starts(lab, host, "kube-apiserver", since) for host in servers} == dict.fromkeys(servers, 1)

    listed = json.loads(lab.ssh(events[0], "etcdctl member list -w json").stdout)["members"]
    assert [member["name"] for member in listed] == events[:1]
    assert not set(events[1:]) & set(lab.lab("list").split())


def test_an_api_server_leaves_and_nobody_feels_it(lab: Stack, checkout: Path, program: Path, tmp_path: Path) -> None:
    *staying, leaving = (lab.host(name) for name in lab.named("apiservers"))
    with load(program, lab, tmp_path) as report:
        change(checkout, lab, apiservers={"count": len(staying)})
    assert report["failed"] == []
    assert report["written"] == report["seen"] > 50

    def addresses() -> set[str]:
        subsets = lab.get("endpoints", "kubernetes")["subsets"]
        return {each["ip"] for subset in subsets for each in subset["addresses"]}

    eventually("the Service lists those that stay", lambda: addresses() == {host["address"] for host in staying}, 30)
    assert leaving["name"] not in lab.ssh(lab.named("load_balancers")[0], "cat /etc/haproxy/slipway.cfg").stdout
    assert leaving["name"] not in lab.lab("list").split()
