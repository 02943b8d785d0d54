"""The plays of a cluster: for each group of fixed hosts and each pool the playbook, its hosts and their variables."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pulumi

from slipway import artifacts, paths, resources
from slipway.artifacts import images
from slipway.fleet.addresses import Host
from slipway.fleet.types import Fleet, Machine
from slipway.mirror.client import public_key
from slipway.node import bundle
from slipway.play import inventory
from slipway.play.inventory import Sources
from slipway.release import Release
from slipway.spec import Cluster, Pool, Rollout
from slipway.trust import Trust


def sources(cluster: Cluster, release: Release, fleet: Fleet, trust: Trust) -> Sources:
    """Where the hosts of a fleet find the content of a release: in the stack's mirror, else where the fleet has it."""
    mirror = cluster.mirror.url.rstrip("/") if cluster.mirror else None

    def artifact(component: str, *wanted: str) -> dict[str, Any]:
        engine = release.provider(component, wanted[0]) if len(wanted) == 1 else component
        found = artifacts.files(engine, release, f"{mirror}/engines" if mirror else fleet.engines)
        files = [file for file in found["files"] if not wanted or file["name"] in wanted]
        return {**found, "files": files}

    return Sources(
        artifact=artifact,
        mirror_key=public_key(cluster.mirror.url, cluster.mirror.fingerprint) if cluster.mirror else None,
        images=images.files(release, f"{mirror}/images" if mirror else fleet.images),
        sandbox_image=release.image("pause"),
        authorities={name: trust.certificate(name) for name in trust.authorities},
        storage=fleet.storage,
        nodes=fleet.nodes,
    )


@dataclasses.dataclass(frozen=True)
class Plays:
    """Makes the plays. Each returns its resource, which is done when its hosts are what they should be.

    `after` are resources that a play needs besides its own machines.
    """

    cluster: Cluster
    release: Release
    fleet: Fleet
    trust: Trust
    sources: Sources

    def etcd(self, group: str) -> resources.Play:
        """The play of one etcd cluster: `group` is etcd or etcd_events."""
        variables = inventory.etcd(self.cluster, group, self.sources)
        return self._play(
            group,
            "etcd",
            self.fleet.group(group),
            variables,
            functools.partial(inventory.etcd_host, group),
            rollout={"mode": "quorum"},
            gate="etcd",
            authorities=self.trust.signing(variables["etcd_authority"]),
        )

    def leavers(
        self, etcds: Sequence[pulumi.Resource], balancers: Sequence[pulumi.Resource]
    ) -> list[resources.Membership]:
        """What takes hosts out of the services of a cluster that goes on, once nobody uses them any more.

        Args:
            etcds: resources that must have forgotten members of an etcd.
            balancers: resources that must have forgotten API servers.
        """
        found = [
            resources.Membership(
                group,
                service="etcd",
                hosts=[_reached(machine) for machine in self.fleet.group(group)],
                peers={each["name"]: each["peer_url"] for each in inventory.etcd_members(self.cluster, group)},
                ssh_key=self.trust.ssh_key.private_key,
                opts=pulumi.ResourceOptions(depends_on=etcds),
            )
            for group in ("etcd", "etcd_events")
        ]
        return [
            *found,
            resources.Membership(
                "apiservers",
                service="apiservers",
                hosts=[_reached(machine) for machine in self.fleet.group("apiservers")],
                balancers=[_reached(machine) for machine in self.fleet.group("load_balancers")],
                ssh_key=self.trust.ssh_key.private_key,
                opts=pulumi.ResourceOptions(depends_on=balancers),
            ),
        ]

    def load_balancers(self, after: Sequence[pulumi.Resource]) -> resources.Play:
        """The play of the load balancers."""
        return self._play(
            "load_balancers",
            "load_balancer",
            self.fleet.group("load_balancers"),
            inventory.load_balancer(self.cluster, self.sources),
            inventory.load_balancer_host,
            rollout={"mode": "quorum"},
            after=after,
        )

    def apiservers(self, after: Sequence[pulumi.Resource]) -> resources.Play:
        """The play of the API server hosts."""
        return self._play(
            "apiservers",
            "apiserver",
            self.fleet.group("apiservers"),
            inventory.apiserver(self.cluster, self.sources),
            functools.partial(inventory.apiserver_host, self.cluster),
            rollout={"mode": "quorum"},
            gate="apiservers",
            balancers=[_reached(machine) for machine in self.fleet.group("load_balancers")],
            after=after,
            authorities=self.trust.signing("kubernetes", "front-proxy", "etcd-client"),
            secrets=self._control_plane_secrets(),
        )

    def pool(self, pool: Pool, kubeconfig: pulumi.Output[str], after: Sequence[pulumi.Resource]) -> resources.Play:
        """The play of one node pool; its hosts join with tokens that `kubeconfig` lets the play make."""
        return self._play(
            pool.name,
            "node",
            self.fleet.pool(pool.name),
            inventory.node(self.cluster, pool, self.sources),
            functools.partial(inventory.node_host, pool),
            rollout=_waves(self.cluster.rollout.of(pool), pool),
            after=after,
            kubeconfig=kubeconfig,
        )

    def _control_plane_secrets(self) -> dict[str, Any]:
        trust = self.trust
        return {
            "apiserver_service_account_key": trust.service_account.private_key,
            "apiserver_service_account_public_keys": [trust.service_account.public_key],
            "apiserver_encryption_keys": [{"name": "key1", "secret": trust.encryption_key.value}],
            "controllers_service_account_key": trust.service_account.private_key,
            "controllers_kubelet_authority_key": trust.authorities["kubelet"].private_key,
        }

    def _play(
        self,
        name: str,
        playbook: str,
        machines: Sequence[Machine],
        variables: Mapping[str, Any],
        own: Callable[[Host], dict[str, Any]],
        *,
        rollout: Mapping[str, Any],
        gate: Literal["etcd", "apiservers"] | None = None,
        balancers: Sequence[Mapping[str, Any]] | None = None,
        after: Sequence[pulumi.Resource] = (),
        secrets: Mapping[str, Any] | None = None,
        authorities: Mapping[str, Any] | None = None,
        kubeconfig: pulumi.Output[str] | None = None,
    ) -> resources.Play:
        return resources.Play(
            name,
            playbook=playbook,
            hosts=[_host(machine, own(machine.host)) for machine in machines],
            digest=bundle.playbook_digest(playbook, paths.root()),
            release=self.release.id,
            release_digest=self.release.digest(),
            ssh_key=self.trust.ssh_key.private_key,
            variables=variables,
            secrets=secrets,
            authorities=authorities,
            kubeconfig=kubeconfig,
            rollout={**rollout, "rebootSeconds": self.cluster.rollout.reboot_seconds},
            gate=gate,
            balancers=balancers,
            preview=self.cluster.rollout.preview,
            opts=pulumi.ResourceOptions(depends_on=[*after, *(machine.resource for machine in machines)]),
        )


def _host(machine: Machine, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a host as a play has it."""
    host = machine.host
    places = {"failureDomain": host.failure_domain, "unit": host.unit}
    return {
        **_reached(machine),
        "group": host.group,
        "pool": host.pool,
        **{name: place for name, place in places.items() if place},
        "vars": own,
    }


def _reached(machine: Machine) -> dict[str, Any]:
    """Return how a host is reached."""
    return {
        "name": machine.host.name,
        "address": str(machine.host.address),
        "user": machine.user,
        "hostKey": machine.host_key,
    }


def _waves(rollout: Rollout, pool: Pool) -> dict[str, Any]:
    """Return the rollout of a pool's play."""
    return {
        "mode": "waves",
        "canary": rollout.canary,
        "growth": rollout.growth,
        "hosts": rollout.hosts,
        "percent": rollout.percent,
        "budget": rollout.budget.model_dump(exclude_none=True),
        "drainSeconds": pool.drain_seconds,
    }
