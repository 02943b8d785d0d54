"""Random bytes, such as the key that encrypts a cluster's Secrets at rest."""

from __future__ import annotations

import base64
import secrets
from typing import Annotated

from pydantic import Field

from slipway.provider.resource import Call, Inputs, Resource, State


class RandomSecretInputs(Inputs):
    """Inputs of a random secret.

    Args:
        bytes: how many.
    """

    bytes: Annotated[int, Field(ge=16, le=1024)] = 32


class RandomSecret(Resource[RandomSecretInputs]):
    """Random bytes in base64."""

    kind = "slipway:index:RandomSecret"
    inputs = RandomSecretInputs
    outputs = frozenset({"value"})
    secrets = frozenset({"value"})
    replaces = frozenset({"bytes"})

    async def create(self, call: Call, inputs: RandomSecretInputs) -> State:
        """Draw the bytes."""
        return State(call.name, {"value": base64.b64encode(secrets.token_bytes(inputs.bytes)).decode()})
