"""The key that signs service account tokens."""

from __future__ import annotations

from slipway import pki
from slipway.provider.resource import Call, Inputs, Resource, State, in_thread


class SigningKeyInputs(Inputs):
    """A signing key has no inputs."""


class SigningKey(Resource[SigningKeyInputs]):
    """An RSA key."""

    kind = "slipway:index:SigningKey"
    inputs = SigningKeyInputs
    outputs = frozenset({"publicKey", "privateKey"})
    secrets = frozenset({"privateKey"})

    async def create(self, call: Call, inputs: SigningKeyInputs) -> State:
        """Make the key."""
        public, private = await in_thread(pki.make_signing_key)
        return State(call.name, {"publicKey": public, "privateKey": private})
