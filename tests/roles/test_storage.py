"""Local storage of the hosts that keep data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Hosts = Callable[[str], list[Any]]


@pytest.mark.parametrize("group", ["etcd", "etcd_events", "cpu", "gpu"])
def test_local_storage_is_a_disk_of_its_own(hosts: Hosts, group: str) -> None:
    for host in hosts(group):
        assert host.mount_point("/mnt/local").exists
        assert host.check_output("stat -c %d /mnt/local") != host.check_output("stat -c %d /")


@pytest.mark.parametrize("group", ["etcd", "etcd_events"])
def test_data_is_the_users_alone(hosts: Hosts, group: str) -> None:
    for host in hosts(group):
        folder = host.file("/mnt/local/etcd")
        assert folder.is_directory
        assert (folder.user, folder.group, folder.mode) == ("etcd", "etcd", 0o700)
