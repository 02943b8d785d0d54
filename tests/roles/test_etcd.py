"""Both etcd clusters as their role leaves them: unit, files, listening addresses, who gets in."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipway.release import Release

GROUPS = ("etcd", "etcd_events")
PKI = "/etc/slipway/pki"

Hosts = Callable[[str], list[Any]]


@pytest.fixture(params=GROUPS)
def members(request: pytest.FixtureRequest, hosts: Hosts) -> list[Any]:
    """All members of one cluster."""
    return hosts(request.param)


def address(host: Any) -> str:
    """The address a member serves at."""
    urls = json.loads(host.check_output("etcdctl member list -w json"))["members"]
    name = host.check_output("hostname")
    url = next(member["clientURLs"][0] for member in urls if member["name"] == name)
    return str(url.removeprefix("https://").rsplit(":", 1)[0])


def test_unit(members: list[Any]) -> None:
    for host in members:
        unit = host.service("etcd")
        assert unit.is_running
        assert unit.is_enabled
        shown = host.check_output("systemctl show etcd -p User -p Restart -p RequiresMountsFor").splitlines()
        assert {"User=etcd", "Restart=always"} <= set(shown)
        assert any(line.startswith("RequiresMountsFor=") and "/mnt/local" in line for line in shown)


def test_versions(members: list[Any], release: Release) -> None:
    version = release.version("etcd")
    for host in members:
        assert f"etcd Version: {version}" in host.check_output("/usr/local/bin/etcd --version")
        assert f"etcdctl version: {version}" in host.check_output("etcdctl version")
        assert f"etcdutl version: {version}" in host.check_output("etcdutl version")
        running = host.check_output("readlink /proc/$(pidof etcd)/exe")
        assert running == f"/opt/slipway/etcd/{version}/etcd"


def test_listening_addresses(members: list[Any]) -> None:
    for host in members:
        listening = set()
        for line in host.check_output("ss -Hltnp").splitlines():
            if '"etcd"' in line:
                listening.add(line.split()[3])
        own = address(host)
        assert listening == {
            f"{own}:2379",
            f"{own}:2380",
            "127.0.0.1:2379",
            "127.0.0.1:2381",
            "127.0.0.1:2382",
        }


def test_members_agree(members: list[Any]) -> None:
    status = json.loads(members[0].check_output("etcdctl endpoint status --cluster -w json"))
    assert len(status) == len(members)
    assert len({each["Status"]["leader"] for each in status}) == 1
    assert not any(each["Status"].get("errors") for each in status)
    assert {each["Status"]["dbSizeQuota"] for each in status} == {8 * 2**30}


def test_the_two_clusters_are_two(hosts: Hosts) -> None:
    ids = set()
    for group in GROUPS:
        listed = json.loads(hosts(group)[0].check_output("etcdctl member list -w json"))
        assert sorted(member["name"] for member in listed["members"]) == sorted(
            host.check_output("hostname") for host in hosts(group)
        )
        ids.add(listed["header"]["cluster_id"])
    assert len(ids) == 2


def test_files(members: list[Any]) -> None:
    for host in members:
        for path, mode in (("/etc/etcd/etcd.yaml", 0o644), ("/etc/systemd/system/etcd.service", 0o644)):
            file = host.file(path)
            assert (file.user, file.mode) == ("root", mode)
        assert host.file(f"{PKI}/etcd/server.key").mode == 0o600


@pytest.mark.parametrize("port", [2379, 2380])
def test_plain_clients_are_refused(members: list[Any], port: int) -> None:
    host = members[0]
    url = f"http://{address(host)}:{port}/version"
    program = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=5).read())"
    refused = host.run(f"python3 -c {shlex.quote(program)}")
    assert refused.rc != 0
    assert "etcdserver" not in refused.stdout


def test_metrics_stay_on_the_host(members: list[Any]) -> None:
    program = "import urllib.request; print(urllib.request.urlopen('http://{}:2381/metrics', timeout=5).status)"
    host = members[0]
    assert host.check_output(f"python3 -c {shlex.quote(program.format('127.0.0.1'))}") == "200"
    assert host.run(f"python3 -c {shlex.quote(program.format(address(host)))}").rc != 0


@pytest.fixture
def stranger(members: list[Any]) -> Iterator[tuple[Any, str]]:
    """A member's host and a folder there with a client certificate of an authority that nobody knows."""
    host = members[0]
    folder = host.check_output("mktemp -d")
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    # The authority bears the name of the real one: only its key is another.
    host.check_output(
        f"cd {folder} && name=$(openssl x509 -noout -subject -nameopt RFC2253 -in {PKI}/authorities/etcd*.crt "
        "| sed -n 's/.*CN=\\([^,]*\\).*/\\1/p') && "
        f'openssl req -x509 {curve} -keyout ca.key -out ca.crt -subj "/CN=$name" 2>/dev/null && '
        f"openssl req {curve} -keyout key -out csr -subj /CN=stranger 2>/dev/null && "
        "openssl x509 -req -in csr -CA ca.crt -CAkey ca.key -CAcreateserial -out crt 2>/dev/null"
    )
    yield host, folder
    host.check_output(f"rm -r {folder}")


def test_a_client_needs_a_certificate(members: list[Any]) -> None:
    host = members[0]
    authority = host.check_output("sed -n 's/.*ETCDCTL_CACERT:-\\([^}]*\\).*/\\1/p' /usr/local/sbin/etcdctl")
    own = f"/usr/local/bin/etcdctl --endpoints https://{address(host)}:2379 --cacert {authority} --command-timeout 3s"
    assert host.run(f"{own} get x").rc != 0
    assert host.run(f"{own} --cert {PKI}/etcd/client.crt --key {PKI}/etcd/client.key get x").rc == 0


def test_a_client_of_another_authority_is_refused(stranger: tuple[Any, str]) -> None:
    host, folder = stranger
    files = f"--cert {folder}/crt --key {folder}/key"
    assert host.run(f"etcdctl --command-timeout 3s {files} get x").rc != 0
    assert host.run("etcdctl --command-timeout 3s get x").rc == 0


def test_a_peer_of_another_authority_is_refused(stranger: tuple[Any, str]) -> None:
    host, folder = stranger

    def peer(certificate: str, key: str) -> str:
        request = "GET /version HTTP/1.0\\r\\n\\r\\n"
        client = f"timeout 10 openssl s_client -quiet -connect {address(host)}:2380 -cert {certificate} -key {key}"
        return str(host.run(f"printf '{request}' | {client} 2>/dev/null").stdout)

    assert "etcdserver" in peer(f"{PKI}/etcd/peer.crt", f"{PKI}/etcd/peer.key")
    assert "etcdserver" not in peer(f"{folder}/crt", f"{folder}/key")


def test_a_killed_member_comes_back(members: list[Any]) -> None:
    host = members[-1]
    before = host.check_output("pidof etcd")
    host.check_output("kill -KILL $(pidof etcd)")
    healthy = "etcdctl --command-timeout 1s endpoint health >/dev/null 2>&1"
    assert host.run(f"for i in $(seq 60); do {healthy} && exit 0; sleep 0.5; done; exit 1").rc == 0
    assert host.check_output("pidof etcd") != before
