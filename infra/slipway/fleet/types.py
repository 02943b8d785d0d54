"""What a fleet gives to the plays: machines that can be reached, whoever made them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pulumi

from slipway.fleet.addresses import Host


@dataclasses.dataclass(frozen=True)
class Machine:
    """A host that is there, or will be: `host_key` is its SSH key line, known once it has been made."""

    host: Host
    user: str
    host_key: pulumi.Output[str]
    resource: pulumi.Resource


@dataclasses.dataclass(frozen=True)
class Fleet:
    """All machines of a cluster, and where they find engines and images.

    `engines` and `images` are URLs of folders as a host sees them. `storage` and `nodes` are variables that follow from
    the kind of machine: of the role `storage`, and of nodes' roles.
    """

    machines: Sequence[Machine]
    engines: str
    images: str
    storage: Mapping[str, object]
    nodes: Mapping[str, object]

    def group(self, name: str) -> list[Machine]:
        """The machines of a group of fixed hosts."""
        return [machine for machine in self.machines if machine.host.group == name]

    def pool(self, name: str) -> list[Machine]:
        """The machines of a node pool."""
        return [machine for machine in self.machines if machine.host.pool == name]
