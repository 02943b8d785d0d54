"""A certificate for somebody who is no host of the cluster, such as its administrator."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from pydantic import Field, model_validator

from slipway import pki
from slipway.provider.resource import Call, Inputs, Resource, State, in_thread


class CertificateInputs(Inputs):
    """Inputs of a certificate.

    Args:
        authority_certificate: the authority's certificate, PEM.
        authority_key: its key, PEM.
        common_name: the user's or server's name.
        organizations: the user's groups.
        dns_names: names that a server answers to.
        ip_addresses: addresses that a server answers to.
        usages: `server`, `client` or both.
        days: how long it is valid.
        renew_before_days: an `up` this long before its end, or later, makes a new one; a third of `days` if not given.
    """

    authority_certificate: str
    authority_key: Annotated[str, Field(repr=False)]
    common_name: Annotated[str, Field(min_length=1, max_length=64)]
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[IPv4Address | IPv6Address, ...] = ()
    usages: Annotated[tuple[pki.Usage, ...], Field(min_length=1)] = ("client",)
    days: Annotated[int, Field(ge=1)] = 365
    renew_before_days: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _renews_before_its_end(self) -> CertificateInputs:
        if self.renew_before_days is not None and self.renew_before_days >= self.days:
            raise ValueError(f"renewBeforeDays must be less than days ({self.days}), or every up would make a new one")
        return self

    @property
    def margin_days(self) -> float:
        """How many days before its end the certificate is made anew."""
        return self.days / 3 if self.renew_before_days is None else self.renew_before_days


class Certificate(Resource[CertificateInputs]):
    """A key and its certificate. Any change makes new ones in place."""

    kind = "slipway:index:Certificate"
    inputs = CertificateInputs
    outputs = frozenset({"certificate", "privateKey"})
    secrets = frozenset({"privateKey"})
    volatile = outputs

    async def drift(self, state: State, inputs: CertificateInputs) -> frozenset[str]:
        """Say that a certificate near its end needs an update."""
        certificate = state.outputs.get("certificate")
        if not certificate or not pki.expires_within(certificate, inputs.margin_days):
            return frozenset()
        # An authority at its own end cannot sign a longer one: renewing would never end.
        if pki.not_after(certificate) >= pki.not_after(inputs.authority_certificate):
            return frozenset()
        return frozenset({"certificate"})

    async def create(self, call: Call, inputs: CertificateInputs) -> State:
        """Make the key and sign the certificate."""
        return await in_thread(_issue, inputs)

    async def update(self, call: Call, old: CertificateInputs, inputs: CertificateInputs, state: State) -> State:
        """Make both anew."""
        return await in_thread(_issue, inputs)


def _issue(inputs: CertificateInputs) -> State:
    spec = pki.CertificateRequestSpec(
        common_name=inputs.common_name,
        organizations=inputs.organizations,
        dns_names=inputs.dns_names,
        ip_addresses=tuple(str(address) for address in inputs.ip_addresses),
        usages=inputs.usages,
        days=inputs.days,
    )
    pair = pki.issue(pki.KeyPair(inputs.authority_certificate, inputs.authority_key), spec)
    return State(inputs.common_name, {"certificate": pair.certificate, "privateKey": pair.key})
