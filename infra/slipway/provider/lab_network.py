"""The network of lab hosts."""

from __future__ import annotations

from slipway.fleet.lab import network
from slipway.fleet.lab.errors import LabError
from slipway.provider.resource import Call, Inputs, Resource, ResourceError, State, in_thread


class LabNetworkInputs(Inputs, network.NetworkSpec):
    """Inputs of a lab network: see `slipway.fleet.lab.network.NetworkSpec`."""

    def spec(self) -> network.NetworkSpec:
        """Return what the lab is to make."""
        return network.NetworkSpec(**self.model_dump())


class LabNetwork(Resource[LabNetworkInputs]):
    """A bridge with address translation. It is put right whenever it is found not to be up, as after a reboot."""

    kind = "slipway:index:LabNetwork"
    inputs = LabNetworkInputs
    outputs = frozenset({"gateway", "prefix", "bridge", "up"})
    volatile = frozenset({"up"})
    replaces = frozenset({"name", "cidr", "bridge"})
    one_at_a_time = True

    async def drift(self, state: State, inputs: LabNetworkInputs) -> frozenset[str]:
        """Say that a network which is not up needs an update."""
        found = await in_thread(network.inspect, inputs.name)
        return frozenset() if found and found.up else frozenset({"up"})

    async def create(self, call: Call, inputs: LabNetworkInputs) -> State:
        """Make the network, or mend it where it is."""
        try:
            return _state(await in_thread(network.ensure, inputs.spec()))
        except LabError as error:
            raise ResourceError(str(error)) from None

    async def read(self, call: Call, inputs: LabNetworkInputs, state: State) -> State | None:
        """Look whether it is there and up."""
        found = await in_thread(network.inspect, inputs.name)
        return _state(found) if found else None

    async def update(self, call: Call, old: LabNetworkInputs, inputs: LabNetworkInputs, state: State) -> State:
        """Mend it."""
        return await self.create(call, inputs)

    async def delete(self, call: Call, inputs: LabNetworkInputs, state: State) -> None:
        """Remove it and all it changed on this machine."""
        try:
            await in_thread(network.destroy, inputs.name)
        except LabError as error:
            raise ResourceError(str(error)) from None


def _state(found: network.NetworkState) -> State:
    outputs = {"gateway": found.gateway, "prefix": found.prefix, "bridge": found.bridge, "up": found.up}
    return State(found.name, outputs)
