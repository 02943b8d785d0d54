"""Gives a node's pod network to the CNI plugins and to BIRD.

The pod network stands in the node's own Node object; nothing else is read. What was written stays, so that a node that
boots while the API is away has its pod network nevertheless.

usage: pod_network_agent.py CONFIG, a JSON object with:
  node_name, api_server, authority_file, client_certificate   how to read the Node
  address       IPv4 address of the host, whose interface gives the MTU when mtu is 0
  mtu           MTU of pods' interfaces
  conflist      CNI configuration to write; other *slipway* ones beside it are removed
  bird_include  file with the announced prefixes, read by BIRD's own configuration
  recheck_seconds   how often to look again, give or take a fifth, so that nodes do not come all at once
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from slipway_node_api import ApiError, get_node, pod_networks

LOG = logging.getLogger("pod-network")
FIRST_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 30.0
CNI_VERSION = "1.0.0"


def conflist(networks: list[str], mtu: int) -> str:
    """The CNI configuration: a routed veth for each pod, addresses from this node's networks, host ports."""
    plugins: list[dict[str, Any]] = [
        {
            "type": "ptp",
            "mtu": mtu,
            "ipMasq": False,  # done once for the node, by nftables
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": network}] for network in networks],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": "/run/cni/networks",  # addresses in use end with a reboot, as the pods do
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True, "backend": "nftables"},
    ]
    return json.dumps({"cniVersion": CNI_VERSION, "name": "slipway", "plugins": plugins}, indent=2) + "\n"


def bird_include(networks: list[str]) -> str:
    """The announced prefixes. Addresses that no pod has are unreachable here, so they never loop to the gateway."""
    routes = "".join(f"  route {network} unreachable;\n" for network in networks)
    return f"protocol static slipway_pods {{\n  ipv4;\n{routes}}}\n"


def usable(networks: list[str]) -> list[str]:
    """The IPv4 ones; the pod network has no IPv6 yet."""
    return [network for network in networks if ipaddress.ip_network(network).version == 4]


def interface_mtu(address: str) -> int:
    """MTU of the interface that has the address; 1500 where none has it."""
    output = subprocess.run(["ip", "-json", "-4", "address", "show"], capture_output=True, text=True, check=True).stdout
    for link in json.loads(output):
        if any(entry.get("local") == address for entry in link.get("addr_info", [])):
            return int(link["mtu"])
    return 1500


def write_if_different(path: Path, text: str) -> bool:
    """Replace the file in one rename when its text differs. Returns whether it did."""
    if path.exists() and path.read_text() == text:
        return False
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    Path(temporary).replace(path)
    return True


def reload_bird() -> None:
    """Let BIRD read its files again; one that is not running reads them when it starts."""
    done = subprocess.run(["birdc", "configure"], capture_output=True, text=True, check=False)
    if done.returncode:
        LOG.warning("birdc configure: %s", (done.stderr or done.stdout).strip().replace("\n", "; "))


def apply(config: dict[str, Any], networks: list[str]) -> None:
    """Write what follows from the networks. The route is announced before a pod can have an address of it."""
    mtu = config["mtu"] or interface_mtu(config["address"])
    target = Path(config["conflist"])
    if write_if_different(Path(config["bird_include"]), bird_include(networks)):
        LOG.info("announcing %s", ", ".join(networks))
        reload_bird()
    if write_if_different(target, conflist(networks, mtu)):
        LOG.info("pods get addresses of %s, MTU %d", ", ".join(networks), mtu)
    for stale in target.parent.glob("*slipway*.conflist"):
        if stale != target:
            stale.unlink()
            LOG.info("removed %s, of an earlier release", stale)


def look(config: dict[str, Any]) -> list[str]:
    """The node's networks; empty while it has none. Raises ApiError."""
    node = get_node(config["api_server"], config["authority_file"], config["client_certificate"], config["node_name"])
    return usable(pod_networks(node))


def run(config: dict[str, Any]) -> None:
    """Look and apply for ever."""
    said = ""
    retry = FIRST_SECONDS
    while True:
        try:
            networks = look(config)
            problem = "" if networks else f"Node {config['node_name']} has no pod network yet"
        except ApiError as error:
            networks, problem = [], str(error)
        if networks:
            apply(config, networks)
            retry = FIRST_SECONDS
            wait = config["recheck_seconds"] * random.uniform(0.8, 1.2)  # noqa: S311 (spreads load)
        else:
            wait = retry
            retry = min(retry * 1.5, LONGEST_RETRY_SECONDS)
        if problem and problem != said:
            LOG.warning("%s", problem)
        said = problem
        time.sleep(wait)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    run(json.loads(Path(sys.argv[1]).read_text()))


if __name__ == "__main__":
    main()
