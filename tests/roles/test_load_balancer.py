"""The load balancer before the API servers."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest

CONFIG = "/etc/haproxy/slipway.cfg"
STATISTICS = """
import socket
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/run/haproxy/admin.sock")
    s.sendall(b"show stat\\n")
    for line in s.makefile():
        fields = line.split(",")
        if fields[0] == "apiservers" and fields[1] != "BACKEND":
            print(fields[1], fields[17], fields[36])
"""

Hosts = Callable[[str], list[Any]]


@pytest.fixture
def host(hosts: Hosts) -> Any:
    return hosts("load_balancers")[0]


def test_unit(host: Any) -> None:
    unit = host.service("haproxy")
    assert unit.is_running
    assert unit.is_enabled
    assert host.check_output("systemctl show haproxy -p Restart --value") == "always"
    assert "haproxy" in host.check_output("ps -o user= -C haproxy")


def test_the_packages_own_configuration_is_left_alone(host: Any) -> None:
    assert host.run("dpkg --verify haproxy").stdout.strip() == ""
    assert CONFIG in host.check_output("tr '\\0' ' ' < /proc/$(systemctl show haproxy -p MainPID --value)/cmdline")
    file = host.file(CONFIG)
    assert (file.user, file.mode) == ("root", 0o644)
    assert host.run(f"haproxy -c -q -f {CONFIG}").rc == 0


def test_listening(host: Any) -> None:
    listening = [line.split()[3] for line in host.check_output("ss -Hltnp").splitlines() if '"haproxy"' in line]
    assert [each.rsplit(":", 1)[1] for each in listening] == ["6443"]


def test_all_api_servers_are_up_by_their_readiness(host: Any, hosts: Hosts) -> None:
    shown = host.check_output(f"python3 -c {shlex.quote(STATISTICS)}").splitlines()
    assert len(shown) == len(hosts("apiservers"))
    assert all(line.endswith("UP L7OK") for line in shown), shown


def test_health_does_not_hang_on_the_events_etcd(host: Any) -> None:
    assert "exclude=etcd-override-readiness-0" in host.file(CONFIG).content_string


def test_the_api_answers_through_it(host: Any, hosts: Hosts) -> None:
    node = hosts("cpu")[0]
    address = host.check_output("hostname -I").split()[0]
    client = "timeout 10 openssl s_client -quiet -verify_return_error"
    checks = f"-CAfile /etc/slipway/pki/authorities/kubernetes.crt -verify_ip {address}"
    request = "printf 'GET /readyz HTTP/1.0\\r\\n\\r\\n'"
    answer = node.run(f"{request} | {client} {checks} -connect {address}:6443 2>&1").stdout
    assert "200 OK" in answer
