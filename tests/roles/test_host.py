"""What role host leaves on every host of the lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

GROUPS = ("etcd", "etcd_events", "apiservers", "load_balancers", "cpu", "gpu")

Hosts = Callable[[str], list[Any]]


@pytest.fixture(params=GROUPS)
def host(request: pytest.FixtureRequest, hosts: Hosts) -> Any:
    """The first host of each group."""
    return hosts(request.param)[0]


def test_nothing_failed(host: Any) -> None:
    assert host.run("systemctl list-units --failed --no-legend --plain").stdout.strip() == ""


def test_drop_ins_are_roots(host: Any) -> None:
    paths = (
        "/etc/apt/apt.conf.d/90-slipway",
        "/etc/sysusers.d/90-slipway.conf",
        "/etc/systemd/journald.conf.d/90-slipway.conf",
        "/etc/sysctl.d/90-slipway-host.conf",
    )
    for path in paths:
        file = host.file(path)
        assert file.is_file, path
        assert (file.user, file.group, file.mode) == ("root", "root", 0o644), path


def test_apt_does_nothing_on_its_own(host: Any) -> None:
    shown = host.check_output("apt-config dump")
    assert 'APT::Periodic::Unattended-Upgrade "0";' in shown
    assert 'APT::Periodic::Enable "0";' in shown
    assert 'DPkg::Lock::Timeout "600";' in shown


def test_kernel_settings_of_the_host_are_live(host: Any) -> None:
    written = host.file("/etc/sysctl.d/90-slipway-host.conf").content_string
    assert "net.ipv4.neigh.default.gc_thresh3 = 100000" in written
    # A network setting that every network namespace has of its own.
    assert "net.core.somaxconn = 32768" in written
    assert host.check_output("cat /proc/sys/net/core/somaxconn") == "32768"


def test_the_journal_is_bounded(host: Any) -> None:
    shown = host.check_output("systemd-analyze cat-config systemd/journald.conf")
    assert "SystemMaxUse=" in [line.strip()[:13] for line in shown.splitlines()]
    assert host.service("systemd-journald").is_running


def test_services_have_users_without_logins(hosts: Hosts) -> None:
    user = hosts("etcd")[0].user("etcd")
    assert user.exists
    assert user.uid < 1000
    assert user.shell == "/usr/sbin/nologin"
