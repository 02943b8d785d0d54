"""containerd on the nodes: unit, configuration, images, versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from slipway.release import Release

Hosts = Callable[[str], list[Any]]


@pytest.fixture
def nodes(hosts: Hosts) -> list[Any]:
    return hosts("nodes")


def test_unit(nodes: list[Any]) -> None:
    wanted = {"KillMode=process", "Delegate=yes", "Restart=always", "LimitNOFILE=1048576"}
    for host in nodes:
        unit = host.service("containerd")
        assert unit.is_running
        assert unit.is_enabled
        shown = host.check_output(
            "systemctl show containerd -p KillMode -p Delegate -p Restart -p LimitNOFILE -p RequiresMountsFor"
        ).splitlines()
        assert wanted <= set(shown)
        assert any(line.startswith("RequiresMountsFor=") and "/mnt/local/containerd" in line for line in shown)


def test_versions(nodes: list[Any], release: Release) -> None:
    for host in nodes:
        assert f" v{release.version('containerd')} " in host.check_output("containerd --version")
        assert f"runc version {release.version('runc')}" in host.check_output("runc --version")
        running = host.check_output("readlink /proc/$(systemctl show containerd -p MainPID --value)/exe")
        assert running == f"/opt/slipway/containerd/{release.version('containerd')}/containerd"
        for plugin in ("loopback", "ptp", "host-local", "portmap"):
            link = host.file(f"/opt/cni/bin/{plugin}")
            assert link.linked_to == f"/opt/slipway/cni-plugins/{release.version('cni-plugins')}/{plugin}"


def test_files(nodes: list[Any]) -> None:
    for host in nodes:
        for path, mode in {
            "/etc/containerd/config.toml": 0o644,
            "/etc/containerd/conf.d/10-slipway.toml": 0o644,
            "/mnt/local/containerd": 0o700,
        }.items():
            file = host.file(path)
            assert (file.user, file.group, file.mode) == ("root", "root", mode), path
        assert "plugins" not in host.file("/etc/containerd/config.toml").content_string


def test_settings_in_force(nodes: list[Any]) -> None:
    for host in nodes:
        shown = [line.strip() for line in host.check_output("containerd config dump").splitlines()]
        assert "root = '/mnt/local/containerd'" in shown
        assert "max_concurrent_downloads = 10" in shown
        assert "image_pull_progress_timeout = '30m'" in shown
        assert "enable_cdi = true" in shown
        unified = host.file("/sys/fs/cgroup/cgroup.controllers").exists
        assert f"SystemdCgroup = {str(unified).lower()}" in shown
        bounding = int(host.check_output("awk '/CapBnd/ {print $2}' /proc/1/status"), 16)
        assert f"restrict_oom_score_adj = {str(not bounding >> 24 & 1).lower()}" in shown


def test_images_are_preloaded_and_pinned(nodes: list[Any], release: Release) -> None:
    for host in nodes:
        listed = host.check_output("ctr -n k8s.io images ls").splitlines()
        for name in ("pause", "coredns"):
            reference = release.image(name)
            line = next((line for line in listed if line.startswith(f"{reference} ")), "")
            assert "io.cri-containerd.pinned=pinned" in line, reference


def test_metrics_only_for_the_host_itself(nodes: list[Any]) -> None:
    for host in nodes:
        listening = [line.split()[3] for line in host.check_output("ss -Hltnp").splitlines() if '"containerd"' in line]
        assert "127.0.0.1:1338" in listening
        assert all(address.startswith("127.0.0.1:") for address in listening)


def test_a_restart_leaves_pods_alone(nodes: list[Any]) -> None:
    host = nodes[0]
    before = set(host.check_output("pgrep -f containerd-shim-runc-v2").split())
    assert before
    host.check_output("systemctl restart containerd")
    assert before <= set(host.check_output("pgrep -f containerd-shim-runc-v2").split())
    assert host.service("containerd").is_running
