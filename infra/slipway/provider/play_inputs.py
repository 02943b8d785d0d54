"""What a play is given: hosts, content, secrets and the order in which hosts are converged."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from slipway.play import findings, manifest, runner
from slipway.play import rollout as rollouts
from slipway.provider.resource import Inputs


def _is_key_line(line: str) -> str:
    if len(line.split()) < 2:
        raise ValueError("expected a public key line such as `ssh-ed25519 AAAA…`")
    return line


class PlayHost(Inputs):
    """One host of a play.

    Args:
        name: its name; the inventory's and the cluster's.
        address: where its SSH server listens.
        port: likewise.
        user: root, or a user that may use sudo without a password.
        host_key: its public SSH key, one line; no other is accepted.
        group: what it is there for, such as `etcd`.
        pool: the node pool it belongs to.
        failure_domain: what it shares its fate with.
        vars: variables of this host. They go over those of the play.
    """

    name: Annotated[str, Field(min_length=1)]
    address: Annotated[str, Field(min_length=1)]
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    user: str = "root"
    host_key: Annotated[str, AfterValidator(_is_key_line)]
    group: str | None = None
    pool: str | None = None
    failure_domain: str | None = None
    vars: dict[str, Any] = {}

    def target(self) -> runner.Target:
        """Return how it is reached."""
        return runner.Target(self.name, self.address, self.port, self.user, self.host_key)


class Authority(Inputs):
    """Who signs certificates that hosts ask for.

    Args:
        certificate: PEM.
        key: PEM.
    """

    certificate: str
    key: Annotated[str, Field(repr=False)]


class Rollout(Inputs):
    """In which order hosts are converged: see `slipway.play.rollout`. After a wave with a failed host no other begins.

    Args:
        mode: `together`, `quorum` or `waves`.
        canary: hosts in the first wave.
        growth: how many times larger each wave may be than the one before.
        hosts: hosts in the largest wave.
        percent: the same as a share of all hosts.
        drain_seconds: how long a node may take to be empty of pods, before its host leaves or is changed in a way that
            pods do not outlive.
    """

    mode: rollouts.Mode = "together"
    canary: Annotated[int, Field(ge=1)] = 1
    growth: Annotated[int, Field(ge=1)] = 2
    hosts: Annotated[int, Field(ge=1)] = 50
    percent: Annotated[int, Field(ge=1, le=100)] = 100
    drain_seconds: Annotated[int, Field(ge=0)] = 300


class PlayInputs(Inputs):
    """Inputs of a play.

    Args:
        playbook: its name in `playbooks/`, without `.yml`.
        hosts: the hosts.
        digest: the digest of the playbook's content, so that a changed role is a change here.
        release: the release's id.
        ssh_key: the private key that the hosts accept.
        vars: variables of all hosts.
        secrets: secret variables of all hosts.
        authorities: who signs the certificates that hosts ask for, by name.
        kubeconfig: an administrator's kubeconfig, for plays whose hosts join the cluster.
        rollout: the order.
        preview: how hosts are looked at in previews and refreshes (`slipway.play.findings`); if not given, by `check`
            up to 20 hosts, else by `digest`.
        timeout_seconds: how long one host may take.
    """

    playbook: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    hosts: tuple[PlayHost, ...]
    digest: str
    release: str
    ssh_key: Annotated[str, Field(repr=False)]
    vars: dict[str, Any] = {}
    secrets: Annotated[dict[str, Any], Field(repr=False)] = {}
    authorities: Annotated[dict[str, Authority], Field(repr=False)] = {}
    kubeconfig: Annotated[str | None, Field(repr=False)] = None
    rollout: Rollout = Rollout()
    preview: findings.Means | None = None
    timeout_seconds: Annotated[int, Field(ge=10)] = 900

    @model_validator(mode="after")
    def _names_are_unique(self) -> PlayInputs:
        names = [host.name for host in self.hosts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"hosts: {', '.join(twice)} is there more than once")
        return self

    def variables(self, host: PlayHost) -> dict[str, Any]:
        """Return all variables of a host that are not secret."""
        return self.vars | host.vars

    def waves(self, hosts: Sequence[str], converged: Set[str]) -> rollouts.Waves:
        """Return the names of `hosts` in the waves in which they are converged."""
        return rollouts.plan(
            self.rollout.mode,
            hosts,
            converged,
            failure_domains={host.name: host.failure_domain or "" for host in self.hosts},
            limits=rollouts.Limits(**self.rollout.model_dump(exclude={"mode", "drain_seconds"})),
        )

    def wanted(self, host: PlayHost) -> str:
        """Return the digest of what a host is to be."""
        return manifest.wanted_digest(
            content=self.digest, release=self.release, variables=self.variables(host), secrets=self.secrets
        )
