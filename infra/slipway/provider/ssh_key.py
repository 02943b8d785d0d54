"""The key with which the controller reaches its hosts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slipway import pki
from slipway.provider.resource import Call, Inputs, Resource, State, in_thread


class SshKeyInputs(Inputs):
    """Inputs of an SSH key.

    Args:
        comment: what `authorized_keys` says about it.
    """

    comment: Annotated[str, Field(pattern=r"^[^\n]*$")] = "slipway"


class SshKey(Resource[SshKeyInputs]):
    """An Ed25519 key."""

    kind = "slipway:index:SshKey"
    inputs = SshKeyInputs
    outputs = frozenset({"publicKey", "privateKey"})
    secrets = frozenset({"privateKey"})
    replaces = frozenset({"comment"})

    async def create(self, call: Call, inputs: SshKeyInputs) -> State:
        """Make the key."""
        public, private = await in_thread(pki.make_ssh_key, inputs.comment)
        return State(inputs.comment or call.name, {"publicKey": public, "privateKey": private})
