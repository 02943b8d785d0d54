"""The cluster's keys and authorities, as resources. Private keys are nowhere but in the stack's encrypted state.

| Authority | Signs | Its key |
|---|---|---|
| kubernetes | API servers, their clients, administrators | state |
| kubelet | kubelets' client and serving certificates | state, and the controller managers, which sign for kubelets |
| etcd | members of the main etcd and their own clients | state |
| etcd-events | members of the events etcd and their own clients | state |
| etcd-client | the API servers' one client certificate, which both etcds accept (it takes but one) | state |
| front-proxy | the API servers' certificate towards aggregated APIs | state |
"""

from __future__ import annotations

import base64
import dataclasses

import pulumi
import yaml

from slipway import resources
from slipway.fleet import addresses
from slipway.spec import Cluster

AUTHORITIES = ("kubernetes", "kubelet", "etcd", "etcd-events", "etcd-client", "front-proxy")


@dataclasses.dataclass(frozen=True)
class Trust:
    """Who is trusted in a cluster, and the secrets that its API servers share."""

    authorities: dict[str, resources.CertificateAuthority]
    ssh_key: resources.SshKey
    service_account: resources.SigningKey
    encryption_key: resources.RandomSecret
    administrator: resources.Certificate

    def certificate(self, authority: str) -> pulumi.Output[str]:
        """An authority's certificate, PEM."""
        return self.authorities[authority].certificate

    def signing(self, *names: str) -> dict[str, dict[str, pulumi.Output[str]]]:
        """Certificate and key of the named authorities, as a Play signs with them."""
        chosen = {name: self.authorities[name] for name in names}
        return {name: {"certificate": ca.certificate, "key": ca.private_key} for name, ca in chosen.items()}


def create(cluster: Cluster) -> Trust:
    """Make the authorities and keys of a cluster."""
    authorities = {
        name: resources.CertificateAuthority(name, common_name=f"{cluster.name}-{name}") for name in AUTHORITIES
    }
    return Trust(
        authorities=authorities,
        ssh_key=resources.SshKey("controller", comment=f"slipway {cluster.name}"),
        service_account=resources.SigningKey("service-account"),
        encryption_key=resources.RandomSecret("encryption-at-rest", bytes=32),
        administrator=resources.Certificate(
            "administrator",
            authority=authorities["kubernetes"],
            common_name="slipway-administrator",
            organizations=["system:masters"],
            usages=["client"],
        ),
    )


def kubeconfig(cluster: Cluster, trust: Trust) -> pulumi.Output[str]:
    """The administrator's kubeconfig, through the load balancer; secret."""
    parts = pulumi.Output.all(
        authority=trust.certificate("kubernetes"),
        certificate=trust.administrator.certificate,
        key=trust.administrator.private_key,
    )
    return pulumi.Output.secret(parts.apply(lambda known: _kubeconfig(cluster, known)))


def _kubeconfig(cluster: Cluster, known: dict[str, str]) -> str:
    name = cluster.name
    server = f"https://{addresses.api_endpoint(cluster)}:6443"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _base64(known["authority"])}}
        ],
        "users": [
            {
                "name": f"{name}-administrator",
                "user": {
                    "client-certificate-data": _base64(known["certificate"]),
                    "client-key-data": _base64(known["key"]),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": f"{name}-administrator"}}],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
