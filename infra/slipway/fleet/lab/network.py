"""A lab network: a bridge with an address, and a way out of it through the machine's own connection."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from slipway import paths
from slipway.fleet.lab import machine, packages, tools
from slipway.fleet.lab.errors import LabError

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=40)]
"""Name of a network or a host: a DNS label."""


class NetworkSpec(BaseModel):
    """What a lab network shall be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    cidr: ipaddress.IPv4Network
    """Addresses of the hosts; the first one is the machine's own, the hosts' gateway."""
    bridge: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=15)]

    @property
    def gateway(self) -> ipaddress.IPv4Address:
        """Address of the machine in the network."""
        return self.cidr[1]


class NetworkState(BaseModel):
    """What a lab network is."""

    model_config = ConfigDict(frozen=True)

    name: str
    bridge: str
    gateway: str
    prefix: int
    up: bool


def folder(name: str) -> Path:
    """Return the folder that holds all of a network and its hosts."""
    return paths.lab() / name


def names() -> list[str]:
    """Return the names of all lab networks of this user."""
    return sorted(path.parent.name for path in paths.lab().glob("*/network.json"))


def machine_name(network_name: str, host: str) -> str:
    """Return a host's name among all containers of this machine."""
    return f"{network_name}-{host}"[:64]


def link_name(network_name: str, host: str) -> str:
    """Return the name of a host's link on the bridge: nspawn's own, or an alternative name where that is shortened."""
    return f"vb-{machine_name(network_name, host)}"


def inspect(name: str) -> NetworkState | None:
    """Return what is there of a network, None if there is none of that name."""
    spec = load(name)
    return None if spec is None else _state(spec)


def load(name: str) -> NetworkSpec | None:
    """Return what a network was made from, None if there is none of that name."""
    try:
        return NetworkSpec.model_validate_json((folder(name) / "network.json").read_text())
    except FileNotFoundError:
        return None


def ensure(spec: NetworkSpec) -> NetworkState:
    """Make a network, or mend what is missing of it (after a reboot: all but its record).

    Raises:
        LabError: not root; or name, bridge or addresses are in use by something else.
    """
    if os.geteuid() != 0:
        raise LabError("the lab needs root: it makes network links and mounts; run: sudo slipway up")
    packages.ensure()
    with tools.lock("networks"):
        known = load(spec.name)
        if known and known != spec:
            raise LabError(
                f"lab network {spec.name} exists with {known.cidr} on bridge {known.bridge}, not {spec.cidr} on "
                f"{spec.bridge}; run: slipway lab destroy {spec.name}"
            )
        if known is None:
            _check_free(spec)
        machine.take(spec.name)
        paths.lab().chmod(0o700)  # hosts' trees have files that are secret there, and programs with set-user-id bits
        tools.write(folder(spec.name) / "network.json", spec.model_dump_json(indent=2))
        _ensure_bridge(spec)
        _ensure_way_out(spec)
    return _state(spec)


def mend(spec: NetworkSpec) -> None:
    """Make a known network again where the machine lost it: it was rebooted, or someone removed part of it."""
    if not _state(spec).up:
        ensure(spec)


def destroy(name: str) -> None:
    """Remove a network and everything it changed on the machine; one that is not there is no error.

    Raises:
        LabError: hosts are left in it.
    """
    with tools.lock("networks"):
        spec = load(name)
        if spec is None:
            return
        if hosts := sorted(path.parent.name for path in folder(name).glob("*/host.json")):
            raise LabError(f"lab network {name} still has hosts: {', '.join(hosts)}; run: slipway lab destroy {name}")
        subprocess.run(["nft", "delete", "table", "ip", _table(spec)], capture_output=True, check=False)
        for rule in _forward_rules(spec):
            while _iptables("-D", *rule):  # as often as it was put in
                pass
        if _has_link(spec.bridge):
            tools.run(["ip", "link", "delete", spec.bridge])
        tools.remove_tree(folder(name))
        machine.give_back(name)


def name_servers() -> list[str]:
    """Return the machine's name servers that hosts can reach; none is a machine without any."""
    for source in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"):
        try:
            text = Path(source).read_text()
        except OSError:
            continue
        if servers := usable_servers(text):
            return servers
    return []


def usable_servers(resolv_conf: str) -> list[str]:
    """Return at most three name servers: none on a loopback address, which is each host's own, and IPv4 only."""
    servers = [words[1] for line in resolv_conf.splitlines() if (words := line.split())[:1] == ["nameserver"]]
    addresses = [server for server in servers if ":" not in server]
    return [server for server in addresses if not ipaddress.ip_address(server).is_loopback][:3]


def _state(spec: NetworkSpec) -> NetworkState:
    return NetworkState(
        name=spec.name,
        bridge=spec.bridge,
        gateway=str(spec.gateway),
        prefix=spec.cidr.prefixlen,
        up=_has_link(spec.bridge) and _has_table(spec) and not _loose_links(spec) and machine.settled(),
    )


def _loose_links(spec: NetworkSpec) -> list[str]:
    """Return the links of running hosts that are not on the bridge: one that is made anew has none of them."""
    hosts = {link_name(spec.name, path.parent.name) for path in folder(spec.name).glob("*/host.json")}
    return [
        link["ifname"]
        for link in json.loads(tools.run(["ip", "-json", "link"]))
        if hosts & {link["ifname"], *link.get("altnames", ())} and link.get("master") != spec.bridge
    ]


def _has_table(spec: NetworkSpec) -> bool:
    # Firewalls that restart flush every rule, ours too.
    listed = subprocess.run(["nft", "list", "table", "ip", _table(spec)], capture_output=True, check=False)
    return listed.returncode == 0


def _check_free(spec: NetworkSpec) -> None:
    """Refuse addresses and a bridge that are not ours to use."""
    for route in json.loads(tools.run(["ip", "-json", "-4", "route"])):
        if route["dst"] == "default" or route.get("dev") == spec.bridge:
            continue
        if ipaddress.ip_network(route["dst"], strict=False).overlaps(spec.cidr):
            raise LabError(
                f"lab network {spec.name}: {spec.cidr} overlaps {route['dst']} on {route.get('dev')} of this machine; "
                "choose another in the stack file: network.hosts"
            )
    for server in name_servers():
        if ipaddress.ip_address(server) in spec.cidr:
            raise LabError(
                f"lab network {spec.name}: {spec.cidr} hides this machine's name server {server}; "
                "choose another in the stack file: network.hosts"
            )
    alias = Path(f"/sys/class/net/{spec.bridge}/ifalias")
    if alias.exists() and alias.read_text().strip() != _alias(spec):
        raise LabError(
            f"lab network {spec.name}: this machine has a link {spec.bridge} that is not ours; "
            "choose another in the stack file: fleet.bridge"
        )


def _ensure_bridge(spec: NetworkSpec) -> None:
    if not _has_link(spec.bridge):
        tools.run(["ip", "link", "add", "name", spec.bridge, "type", "bridge"])
        tools.run(["ip", "link", "set", spec.bridge, "alias", _alias(spec)])
    tools.run(["ip", "address", "replace", f"{spec.gateway}/{spec.cidr.prefixlen}", "dev", spec.bridge])
    tools.run(["ip", "link", "set", spec.bridge, "up"])
    for link in _loose_links(spec):
        # Of a host that stops at this moment the link may be gone already.
        with contextlib.suppress(LabError):
            tools.run(["ip", "link", "set", link, "master", spec.bridge, "up"])


def _ensure_way_out(spec: NetworkSpec) -> None:
    """Hide the hosts behind the machine's address, in a table of our own that goes as a whole."""
    tools.run(
        ["nft", "-f", "-"],
        data=f"""
            table ip {_table(spec)} {{}}
            delete table ip {_table(spec)}
            table ip {_table(spec)} {{
                comment "{_alias(spec)}"
                chain postrouting {{
                    type nat hook postrouting priority srcnat; policy accept;
                    ip saddr {spec.cidr} ip daddr != {spec.cidr} oifname != "{spec.bridge}" masquerade
                }}
            }}
        """,
    )
    # Where something (Docker, a firewall) drops forwarded packets by default, its own chain has to let ours through:
    # no table of ours can overrule a drop. Where nothing does, no rule is added and nothing is left behind.
    if _forwarding_is_dropped():
        for rule in _forward_rules(spec):
            if not _iptables("-C", *rule):
                tools.run(["iptables", "--wait", "-I", *rule])


def _forwarding_is_dropped() -> bool:
    listing = json.loads(tools.run(["nft", "--json", "list", "chains"]))
    chains = (entry["chain"] for entry in listing["nftables"] if "chain" in entry)
    if any(chain.get("hook") == "forward" and chain.get("policy") == "drop" for chain in chains):
        return True
    legacy = Path("/proc/net/ip_tables_names")  # listing this variant's rules would load its modules
    return legacy.exists() and "filter" in legacy.read_text().split() and shutil.which("iptables-legacy") is not None


def _forward_rules(spec: NetworkSpec) -> list[list[str]]:
    tag = ["-m", "comment", "--comment", _alias(spec), "-j", "ACCEPT"]
    return [["FORWARD", "-i", spec.bridge, *tag], ["FORWARD", "-o", spec.bridge, *tag]]


def _iptables(*arguments: str) -> bool:
    """Say whether iptables did it; where no table of its kind is in use, nothing is asked of it."""
    if not _iptables_in_use():
        return False
    return subprocess.run(["iptables", "--wait", *arguments], capture_output=True, check=False).returncode == 0


def _iptables_in_use() -> bool:
    tables = subprocess.run(["nft", "list", "tables", "ip"], capture_output=True, text=True, check=False).stdout
    return "table ip filter" in tables.splitlines() or Path("/proc/net/ip_tables_names").exists()


def _table(spec: NetworkSpec) -> str:
    return f"slipway-lab-{spec.name}"


def _alias(spec: NetworkSpec) -> str:
    return f"slipway lab {spec.name}"


def _has_link(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()
