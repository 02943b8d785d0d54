"""A certificate authority. Its key is nowhere but in the stack's encrypted state."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from slipway import pki
from slipway.provider.resource import Call, Inputs, Resource, State, in_thread


class AuthorityInputs(Inputs):
    """Inputs of a certificate authority.

    Args:
        common_name: its name in the certificates that it signs.
        days: how long it is valid.
    """

    common_name: Annotated[str, Field(min_length=1, max_length=64)]
    days: Annotated[int, Field(ge=1, le=36_500)] = 3650


class CertificateAuthority(Resource[AuthorityInputs]):
    """Made once. A new name or time makes a new authority, and with it new certificates everywhere."""

    kind = "slipway:index:CertificateAuthority"
    inputs = AuthorityInputs
    outputs = frozenset({"certificate", "privateKey"})
    secrets = frozenset({"privateKey"})
    replaces = frozenset({"commonName", "days"})

    async def create(self, call: Call, inputs: AuthorityInputs) -> State:
        """Make the authority."""
        pair = await in_thread(pki.make_authority, inputs.common_name, inputs.days)
        return State(inputs.common_name, {"certificate": pair.certificate, "privateKey": pair.key})
