"""Keys and certificates on all hosts of the lab."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

PKI = "/etc/slipway/pki"
USERS = {
    "etcd": {"etcd/server": "etcd", "etcd/peer": "etcd"},
    "etcd_events": {"etcd/server": "etcd", "etcd/peer": "etcd"},
    "apiservers": {"kube-apiserver/serving": "kube-apiserver", "kube-apiserver/etcd-client": "kube-apiserver"},
}

Hosts = Callable[[str], list[Any]]


@pytest.mark.parametrize("group", [*USERS, "load_balancers"])
def test_modes(hosts: Hosts, group: str) -> None:
    for host in hosts(group):
        listed = host.check_output(f"find {PKI} -type f -printf '%m %U %p\\n'").splitlines()
        assert listed
        for line in listed:
            mode, _, path = line.split()
            assert mode == ("600" if path.endswith(".key") else "644"), line


@pytest.mark.parametrize("group", USERS)
def test_keys_belong_to_the_service(hosts: Hosts, group: str) -> None:
    for host in hosts(group):
        for name, user in USERS[group].items():
            assert host.file(f"{PKI}/{name}.key").user == user


@pytest.mark.parametrize(("group", "authority"), [("etcd", "etcd"), ("etcd_events", "etcd-events")])
def test_certificates_come_from_the_clusters_own_authority(hosts: Hosts, group: str, authority: str) -> None:
    for host in hosts(group):
        for name in ("server", "peer", "client"):
            verify = f"openssl verify -no-CApath -no-CAstore -CAfile {PKI}/authorities/{authority}.crt"
            assert host.run(f"{verify} {PKI}/etcd/{name}.crt").rc == 0
        # The key of an authority is on no host.
        assert host.run(f"grep -l PRIVATE {PKI}/authorities/*").stdout == ""


def test_every_host_made_keys_of_its_own(hosts: Hosts) -> None:
    members = [*hosts("etcd"), *hosts("etcd_events")]
    digests = {host.check_output(f"sha256sum {PKI}/etcd/server.key").split()[0] for host in members}
    assert len(digests) == len(members)
    assert "256 bit" in members[0].check_output(f"openssl pkey -in {PKI}/etcd/server.key -text -noout")
