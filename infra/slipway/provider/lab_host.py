"""A host of the lab."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated

from pydantic import Field

from slipway.fleet.lab import host
from slipway.fleet.lab.errors import LabError
from slipway.fleet.lab.network import Name
from slipway.provider.resource import Call, Inputs, Resource, ResourceError, State, in_thread


class LabHostInputs(Inputs):
    """Inputs of a lab host.

    Args:
        name: its name.
        network: its network's name.
        bridge: its network's bridge; with `gateway` and `prefix` it ties the host to the network as it is.
        gateway: its network's gateway.
        prefix: how long its network's prefix is.
        address: its address.
        os: what it runs, such as `debian13`.
        authorized_key: the public SSH key that may log in as root.
        group: what it is there for, such as `etcd`.
        pool: the node pool it belongs to.
    """

    name: Name
    network: Name
    bridge: str
    gateway: IPv4Address
    prefix: Annotated[int, Field(ge=8, le=30)]
    address: IPv4Address
    os: str = "debian13"
    authorized_key: Annotated[str, Field(pattern=r"^(ssh|ecdsa|sk)-\S+ \S+( .*)?$")]
    group: str | None = None
    pool: str | None = None

    def spec(self) -> host.HostSpec:
        """Return what the lab is to make."""
        return host.HostSpec(
            name=self.name,
            network=self.network,
            address=self.address,
            os=self.os,
            authorized_key=self.authorized_key,
        )


class LabHost(Resource[LabHostInputs]):
    """A whole Debian with systemd. It is started, or made anew, whenever it is found stopped or gone."""

    kind = "slipway:index:LabHost"
    inputs = LabHostInputs
    outputs = frozenset({"address", "hostKey", "user", "running"})
    volatile = frozenset({"running"})
    replaces = frozenset({"name", "network", "bridge", "gateway", "prefix", "address", "os"})
    one_at_a_time = True

    async def drift(self, state: State, inputs: LabHostInputs) -> frozenset[str]:
        """Say that a host which does not run needs an update."""
        found = await in_thread(host.inspect, inputs.network, inputs.name)
        return frozenset() if found and found.running else frozenset({"running"})

    async def create(self, call: Call, inputs: LabHostInputs) -> State:
        """Make the host, or adopt it where it is, and wait until it answers."""
        try:
            return _state(await in_thread(host.ensure, inputs.spec(), progress=call.log.status))
        except LabError as error:
            raise ResourceError(str(error)) from None

    async def read(self, call: Call, inputs: LabHostInputs, state: State) -> State | None:
        """Look whether it is there and runs."""
        found = await in_thread(host.inspect, inputs.network, inputs.name)
        return _state(found) if found else None

    async def update(self, call: Call, old: LabHostInputs, inputs: LabHostInputs, state: State) -> State:
        """Start it, and let another key in if that changed."""
        return await self.create(call, inputs)

    async def delete(self, call: Call, inputs: LabHostInputs, state: State) -> None:
        """Stop it and remove all of it."""
        try:
            await in_thread(host.destroy, inputs.network, inputs.name)
        except LabError as error:
            raise ResourceError(str(error)) from None


def _state(found: host.HostState) -> State:
    outputs = {
        "address": found.address,
        "hostKey": found.host_key,
        "user": found.user,
        "running": found.running,
    }
    return State(found.name, outputs)
