"""The lab's side of the Pulumi program: a network and its hosts as resources."""

from __future__ import annotations

import pulumi

from slipway import paths, resources
from slipway.fleet import addresses
from slipway.fleet.types import Fleet, Machine
from slipway.spec import Cluster

_LONGEST_BRIDGE = 15  # IFNAMSIZ without its end


def build(cluster: Cluster, authorized_key: pulumi.Input[str]) -> Fleet:
    """Declare the network and all hosts of a cluster; `authorized_key` may log in to each."""
    network = resources.LabNetwork(
        "network",
        name=cluster.name,
        cidr=str(cluster.network.hosts),
        bridge=cluster.fleet.bridge or f"slipway-{cluster.name}"[:_LONGEST_BRIDGE],
    )
    machines = []
    for host in addresses.everything(cluster):
        resource = resources.LabHost(
            host.name,
            name=host.name,
            network=cluster.name,
            bridge=network.bridge,
            gateway=network.gateway,
            prefix=network.prefix,
            address=str(host.address),
            os=cluster.fleet.os,
            authorized_key=authorized_key,
            group=host.group,
            pool=host.pool,
            opts=pulumi.ResourceOptions(depends_on=[network]),
        )
        machines.append(Machine(host, "root", resource.host_key, resource))
    return Fleet(
        machines=machines,
        engines=f"file://{paths.ENGINES_ON_HOST}",
        images=f"file://{paths.IMAGES_ON_HOST}",
        # The lab binds a folder of this machine where a rack has its local SSDs.
        storage={"storage_mode": "bound"},
        nodes={
            # The disk is this machine's, and mostly other people's: what counts is how much is left, not which share.
            "kubelet_eviction_hard": {
                "memory.available": "100Mi",
                "nodefs.available": "1Gi",
                "imagefs.available": "1Gi",
            },
            "kubelet_image_gc_high_percent": 98,
            "kubelet_image_gc_low_percent": 97,
            # Nothing outside the lab's nodes has a route to its pods.
            "pod_network_masquerade_hosts": True,
        },
    )
