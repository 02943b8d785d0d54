"""The routed pod network: who announces what, who takes what, and that restarts lose no route."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from typing import Any

import pytest

from slipway.spec import Cluster

CONFLIST = "/etc/cni/net.d/10-slipway.conflist"

Hosts = Callable[[str], list[Any]]
Network = ipaddress.IPv4Network


@pytest.fixture
def nodes(hosts: Hosts) -> list[Any]:
    return hosts("nodes")


@pytest.fixture
def reflector(hosts: Hosts) -> Any:
    return hosts("load_balancers")[0]


def bird_routes(host: Any) -> dict[Network, str]:
    """Routes in the kernel that BIRD put there: network → next hop, or the kind of a route without one."""
    listed = json.loads(host.check_output("ip -json -4 route show proto bird"))
    return {ipaddress.IPv4Network(each["dst"]): each.get("gateway", each.get("type", "")) for each in listed}


def pod_network(host: Any) -> Network:
    """The network that the host gives to its pods."""
    plugins = json.loads(host.file(CONFLIST).content_string)["plugins"]
    return ipaddress.IPv4Network(plugins[0]["ipam"]["ranges"][0][0]["subnet"])


def address(host: Any) -> str:
    shown: str = host.check_output("hostname -I").split()[0]
    return shown


def test_units(nodes: list[Any], reflector: Any, hosts: Hosts) -> None:
    for host in [*nodes, reflector, *hosts("apiservers")]:
        assert host.service("bird").is_running
        assert host.service("bird").is_enabled
    for host in nodes:
        assert host.service("slipway-pod-network").is_running
        assert host.service("slipway-pod-network").is_enabled


def test_the_packages_own_configuration_is_left_alone(nodes: list[Any], reflector: Any) -> None:
    for host in [*nodes, reflector]:
        assert host.run("dpkg --verify bird2").stdout.strip() == ""
        file = host.file("/etc/bird/slipway.conf")
        assert (file.user, file.group, file.mode) == ("root", "bird", 0o640)
        assert host.check_output("ps -o user= -C bird") == "bird"


def test_cni_network_is_that_of_the_node(lab: Any, nodes: list[Any], cluster: Cluster) -> None:
    given = {node["metadata"]["name"]: node["spec"]["podCIDR"] for node in lab.get("nodes")["items"]}
    for host in nodes:
        network = pod_network(host)
        assert str(network) == given[host.check_output("hostname")]
        assert network.prefixlen == cluster.network.pod_prefix
        assert network.subnet_of(cluster.network.pods)
        plugins = json.loads(host.file(CONFLIST).content_string)["plugins"]
        assert plugins[0]["mtu"] == int(host.check_output("cat /sys/class/net/host0/mtu"))


def test_every_host_that_takes_part_knows_the_way_to_all_pods(nodes: list[Any], reflector: Any, hosts: Hosts) -> None:
    wanted = {pod_network(host): address(host) for host in nodes}
    assert len(wanted) == len(nodes)
    for host in [*nodes, reflector, *hosts("apiservers")]:
        routes = bird_routes(host)
        assert routes.keys() == wanted.keys()
        for network, gateway in wanted.items():
            assert routes[network] == ("unreachable" if gateway == address(host) else gateway)


def test_takes_nothing_but_networks_of_nodes(reflector: Any, nodes: list[Any], cluster: Cluster) -> None:
    network = cluster.network
    wanted = f"net ~ [ {network.pods}{{{network.pod_prefix},{network.pod_prefix}}} ]"
    for host in [reflector, *nodes]:
        assert wanted in host.file("/etc/bird/slipway.conf").content_string


def test_host_ports_and_masquerade_by_nftables(nodes: list[Any]) -> None:
    for host in nodes:
        rules = host.check_output("nft list table ip slipway_pod_network")
        assert "masquerade" in rules
        assert host.check_output("cat /proc/sys/net/ipv4/ip_forward") == "1"


def test_a_restart_of_bird_loses_no_route(nodes: list[Any]) -> None:
    host = nodes[0]
    before = bird_routes(host)
    watched = "timeout 12 ip -4 monitor route > /run/slipway-test-routes & sleep 1; systemctl restart bird; wait"
    host.run(watched)
    seen = host.check_output("cat /run/slipway-test-routes; rm /run/slipway-test-routes")
    assert "Deleted" not in seen
    assert bird_routes(host) == before


def test_routes_outlive_the_reflector_on_nodes(nodes: list[Any], reflector: Any) -> None:
    before = [bird_routes(host) for host in nodes]
    reflector.check_output("systemctl stop bird")
    try:
        assert [bird_routes(host) for host in nodes] == before
    finally:
        reflector.check_output("systemctl start bird")
