"""The provider's resources by the engine's name for them. A resource's module is loaded with its first use."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

from slipway.provider.resource import Resource, ResourceError

_MODULES = {
    "LabNetwork": "lab_network",
    "LabHost": "lab_host",
    "CertificateAuthority": "certificate_authority",
    "Certificate": "certificate",
    "SshKey": "ssh_key",
    "RandomSecret": "random_secret",
    "SigningKey": "signing_key",
    "Play": "play",
    "Membership": "membership",
}


def resources() -> frozenset[str]:
    """Return the types of all resources."""
    return frozenset(f"slipway:index:{name}" for name in _MODULES)


def resource_of(urn: str) -> Resource[Any]:
    """Return the resource that a URN's type names.

    Raises:
        ResourceError: there is no such type.
    """
    kind = urn.split("::")[2].rpartition("$")[2]
    return _resource(kind)


@cache
def _resource(kind: str) -> Resource[Any]:
    name = kind.rpartition(":")[2]
    if kind not in resources():
        raise ResourceError(f"slipway has no resource {kind}; expected one of {', '.join(sorted(_MODULES))}")
    module = import_module(f"slipway.provider.{_MODULES[name]}")
    resource: Resource[Any] = getattr(module, name)()
    return resource
