"""What may die without taking the API away, and that it comes back by itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tools import Stack, eventually

pytestmark = pytest.mark.lab


@pytest.fixture
def started(lab: Stack) -> Iterator[None]:
    """Whatever a test stops is started again after it, and the cluster is whole before the next."""
    yield
    for host in lab.hosts:
        lab.lab("start", host["name"])
    eventually("every etcd member is healthy", lambda: all(healthy(lab, name) for name in members(lab)), deadline=90)
    eventually(
        "every API server is ready", lambda: all(ready(lab, name) for name in lab.named("apiservers")), deadline=90
    )


def members(lab: Stack) -> list[str]:
    return lab.named("etcd") + lab.named("etcd_events")


def healthy(lab: Stack, name: str) -> bool:
    return lab.ssh(name, "etcdctl endpoint health", check=False).returncode == 0


def ready(lab: Stack, name: str) -> bool:
    """Asked as anybody may: health is the only thing that the API server tells strangers."""
    try:
        address = f"https://{lab.host(name)['address']}:6443/readyz?exclude=etcd-override-readiness-0"
        return httpx.get(address, verify=False, trust_env=False, timeout=5).text == "ok"  # noqa: S501
    except httpx.TransportError:
        return False


def leads(lab: Stack, name: str) -> bool:
    status = json.loads(lab.ssh(name, "etcdctl endpoint status -w json").stdout)[0]["Status"]
    return bool(status["leader"] == status["header"]["member_id"])


def reads_and_writes(lab: Stack) -> bool:
    """Get and create through the load balancer, as a user."""
    name = f"probe-{uuid.uuid4().hex[:8]}"
    lab.kubectl("create", "configmap", name, "--request-timeout=15s")
    found = lab.kubectl("get", "configmap", name, "-o", "name", "--request-timeout=15s").stdout
    lab.kubectl("delete", "configmap", name, "--wait=false", "--request-timeout=15s")
    return name in found


def works_through(lab: Stack, what: str) -> None:
    """The API may hiccup for the seconds of a fail-over; then it works, three times in a row."""
    eventually(f"the API works again after {what}", lambda: reads_and_writes(lab), deadline=60)
    for _ in range(3):
        assert reads_and_writes(lab)


def test_one_main_etcd_member_dies(lab: Stack, started: None) -> None:
    victim = lab.named("etcd")[0]
    lab.lab("stop", "--kill", victim)
    works_through(lab, f"{victim} died")
    lab.lab("start", victim)
    eventually(f"{victim} rejoins", lambda: healthy(lab, victim), deadline=90)


def test_the_etcd_leader_process_is_killed(lab: Stack, started: None) -> None:
    leader = next(name for name in lab.named("etcd") if leads(lab, name))
    before = lab.ssh(leader, "systemctl show -P MainPID etcd").stdout
    lab.ssh(leader, "systemctl kill -s KILL etcd")
    works_through(lab, f"etcd on {leader} was killed")
    eventually("systemd starts it again", lambda: healthy(lab, leader), deadline=60)
    assert lab.ssh(leader, "systemctl show -P MainPID etcd").stdout != before


def test_all_of_the_events_etcd_dies(lab: Stack, started: None) -> None:
    for name in lab.named("etcd_events"):
        lab.lab("stop", "--kill", name)
    works_through(lab, "all of the events etcd died")
    for name in lab.named("etcd_events"):
        lab.lab("start", name)
    eventually(
        "the events etcd is back", lambda: all(healthy(lab, name) for name in lab.named("etcd_events")), deadline=90
    )
    eventually("events are stored again", lambda: lab.get("events", "-A") is not None, deadline=60)


def test_one_api_server_dies(lab: Stack, started: None) -> None:
    victim = lab.named("apiservers")[0]
    lab.lab("stop", "--kill", victim)
    works_through(lab, f"{victim} died")
    lab.lab("start", victim)
    eventually(f"{victim} is ready", lambda: ready(lab, victim), deadline=120)


def test_a_node_reboots(lab: Stack, started: None) -> None:
    node = lab.named("cpu")[0]
    lab.lab("stop", node)
    lab.lab("start", node)

    def is_ready() -> bool:
        conditions = {c["type"]: c["status"] for c in lab.get("node", node)["status"]["conditions"]}
        return conditions["Ready"] == "True"

    eventually(f"{node} is Ready again", is_ready, deadline=120)
