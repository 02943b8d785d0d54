"""Previews by host and drift, under the real engine with real hosts. One story: tests go on where the last ended."""

from __future__ import annotations

import getpass
import json
import re
import socket
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from probe import Project, standing

pytestmark = [pytest.mark.root, pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(300)]

HOSTS = ("probe-0", "probe-1")
UNIT = "roles/service/tasks/main.yml"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A stack in a network of its own, up."""
    project = Project(
        tmp_path_factory.mktemp("preview"),
        network="preview-test",
        subnet="10.95.7",
        bridge="slipway-test-v",
        playbook="service",
    )
    with standing(project, *HOSTS):
        project.up()
        yield project


def rows(shown: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Host → operation and what its row says, of `pulumi preview --json`."""
    steps = [step for step in json.loads(shown)["steps"] if "slipway:index:Host::" in step["urn"]]
    return {step["urn"].rpartition("::")[2]: (step["op"], step["newState"]["inputs"]) for step in steps}


def done(shown: str) -> dict[str, set[str]]:
    """Host → tasks that an `up` says it changed something with."""
    found: dict[str, set[str]] = defaultdict(set)
    for host, task in re.findall(r"(probe-\d) (\S.*?) … changed", shown):
        found[host].add(task)
    return found


def manifests(project: Project) -> list[str]:
    return [project.on_host(name, "sha256sum /var/lib/slipway/manifest.json /etc/probe") for name in HOSTS]


def test_one_edited_line_is_shown_with_its_hosts_file_and_disruption_and_up_does_just_that(project: Project) -> None:
    tasks = project.folder / UNIT
    tasks.write_text(tasks.read_text().replace("Description=Probe", "Description=The probe"))
    before = manifests(project)

    shown = project.pulumi("preview", "--diff").stdout
    for name in HOSTS:
        assert f"slipway:index:Play$slipway:index:Host::{name}]" in shown
    assert shown.count('disrupts   : "restart:probe"') == 2
    assert (
        shown.count("/etc/systemd/system/probe.service\\n-Description=Probe first\\n+Description=The probe first") == 2
    )
    told = rows(project.pulumi("preview", "--json").stdout)
    assert manifests(project) == before

    did = done(project.up().stdout)
    assert {name: set(says["wouldChange"]) for name, (_, says) in told.items()} == did
    assert did == {name: {"service : Write the unit", "service : Restart the probe"} for name in HOSTS}


def test_a_host_that_cannot_be_reached_says_so_and_is_no_error(project: Project) -> None:
    project.configure(text="second", root="/data")
    project.on_host("probe-1", "systemctl stop ssh.socket ssh.service")
    try:
        told = rows(project.pulumi("preview", "--json").stdout)
    finally:
        project.on_host("probe-1", "systemctl start ssh.service")
    assert told["probe-1"][1]["wouldChange"].startswith("unreachable: cannot connect")
    changes = told["probe-0"][1]["wouldChange"]
    assert changes["service : Move the data"] == "/etc/service-root\n-/srv\n+/data"
    assert changes["probe : Write what was told"] == "/etc/probe\n-first ********\n+second ********"
    assert told["probe-0"][1]["disrupts"] == "drain"  # the variable service_root is a part of its own


def test_manifests_alone_can_be_read(project: Project) -> None:
    project.configure(text="second", preview="digest")
    told = rows(project.pulumi("preview", "--json").stdout)
    for name in HOSTS:
        assert re.fullmatch(r"its manifest is at \w{12}, wanted \w{12}", told[name][1]["wouldChange"])


def test_a_host_that_is_not_there_yet_is_known_after_apply_and_the_others_would_not_change(project: Project) -> None:
    project.configure(count="3", preview="sample")
    told = rows(project.pulumi("preview", "--json").stdout)
    assert told == {"probe-2": ("create", {"wouldChange": "known after apply"})}  # without rows that stay the same


def test_drift_is_shown_by_host_and_file_and_the_next_up_mends_that_host_only(project: Project) -> None:
    project.configure(preview="check")  # which alone is no change
    drifted = (
        "sysctl -q -w net.ipv4.tcp_keepalive_time=700; systemctl stop probe.service; "
        "sed -i s/Nice=5/Nice=7/ /etc/systemd/system/probe.service.d/10-slipway.conf; "
        "echo '# mine' >> /etc/systemd/system/probe.service; apt-mark unhold tzdata"
    )
    project.on_host("probe-0", drifted)
    drift = [
        "service : Write the unit: /etc/systemd/system/probe.service",
        "service : Write the drop-in: /etc/systemd/system/probe.service.d/10-slipway.conf",
        "service : Set kernel settings: net.ipv4.tcp_keepalive_time = 600",
        "service : Keep a package at its version: tzdata",
        "service : Keep the probe running: probe.service",
        "service : Restart the probe: probe.service",
    ]
    before = manifests(project)
    shown = project.pulumi("refresh", "--preview-only", "--diff")
    for line in drift:
        assert f'"{line}"' in shown.stdout
    assert "probe-0 has drifted: " in shown.stderr
    assert "1 drifted, 1 as it should be" in shown.stderr
    assert "12 unchanged" in project.up("--expect-no-changes").stdout  # only looked at: nothing is kept in mind

    project.pulumi("refresh", "--yes", "--skip-preview")
    assert manifests(project) == before
    assert project.play()["drifted"] == {"probe-0": drift}
    told = rows(project.pulumi("preview", "--json").stdout)
    assert set(told) == {"probe-0"}
    shown = project.up().stdout
    assert done(shown) == {"probe-0": set(told["probe-0"][1]["wouldChange"])}
    assert "1 of 2 hosts are at their digest already" in shown

    assert project.on_host("probe-0", "cat /proc/sys/net/ipv4/tcp_keepalive_time").strip() == "600"
    assert project.on_host("probe-0", "systemctl is-active probe; systemctl show -P Nice probe").split() == [
        "active",
        "5",
    ]
    assert project.on_host("probe-0", "apt-mark showhold").strip() == "tzdata"
    assert project.play()["drifted"] == {}
    assert "12 unchanged" in project.up("--expect-no-changes").stdout


def test_the_state_has_small_rows_and_the_manifest_says_who_converged(project: Project) -> None:
    exported = json.loads(project.pulumi("stack", "export").stdout)["deployment"]["resources"]
    found = {each["urn"].rpartition("::")[2]: each for each in exported if each["type"] == "slipway:index:Host"}
    assert set(found) == set(HOSTS)
    manifest = json.loads(project.on_host("probe-0", "cat /var/lib/slipway/manifest.json"))["playbooks"]["service"]
    assert manifest["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    assert found["probe-0"]["inputs"] == {
        "status": "converged",
        "changed": 6,
        "at": manifest["finished"],
        "by": manifest["by"],
    }


def test_destroy_takes_the_rows_along(project: Project) -> None:
    assert "12 deleted" in project.pulumi("destroy", "--yes", "--skip-preview").stdout
    assert "resources" not in json.loads(project.pulumi("stack", "export").stdout)["deployment"]
