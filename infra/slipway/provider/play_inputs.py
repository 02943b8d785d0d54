"""What a play is given: hosts, content, secrets and the order in which hosts are converged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

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
        failure_domain: what it shares its fate with, such as a zone or a rack.
        unit: what it goes together with, such as an NVLink rack; all hosts of a unit are in one failure domain.
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
    unit: str | None = None
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


class Budget(Inputs):
    """How many hosts may fail before no other wave begins; see `slipway.play.rollout`.

    Args:
        hosts: so many.
        percent: a share of all hosts.
    """

    hosts: Annotated[int, Field(ge=0)] | None = None
    percent: Annotated[int, Field(ge=0, le=100)] | None = None


class Rollout(Inputs):
    """In which order hosts are converged: see `slipway.play.rollout`.

    Args:
        mode: `together`, `quorum` or `waves`.
        canary: hosts in the first wave.
        growth: how many times larger each wave may be than the one before.
        hosts: hosts in the largest wave.
        percent: the same as a share of all hosts.
        budget: how many hosts may fail; none if not given.
        drain_seconds: how long a node may take to be empty of pods, before its host leaves or is changed in a way that
            pods do not outlive.
        reboot_seconds: how long a host may take to be back from a reboot.
    """

    mode: rollouts.Mode = "together"
    canary: Annotated[int, Field(ge=1)] = 1
    growth: Annotated[int, Field(ge=1)] = 2
    hosts: Annotated[int, Field(ge=1)] = 50
    percent: Annotated[int, Field(ge=1, le=100)] = 100
    budget: Budget = Budget()
    drain_seconds: Annotated[int, Field(ge=0)] = 300
    reboot_seconds: Annotated[int, Field(ge=1)] = 1200

    def limits(self) -> rollouts.Limits:
        """Return how fast it goes."""
        return rollouts.Limits(self.canary, self.growth, self.hosts, self.percent)


class PlayInputs(Inputs):
    """Inputs of a play.

    Args:
        playbook: its name in `playbooks/`, without `.yml`.
        hosts: the hosts.
        digest: the digest of the playbook's content, so that a changed role is a change here.
        release: the release's id.
        release_digest: SHA-256 (hex) of the release; hosts and nodes are marked with it.
        ssh_key: the private key that the hosts accept.
        vars: variables of all hosts.
        secrets: secret variables of all hosts.
        authorities: who signs the certificates that hosts ask for, by name.
        kubeconfig: an administrator's kubeconfig, for plays whose hosts join the cluster.
        rollout: the order.
        gate: what the hosts are for those who use them, where a change of one must not be felt by them: members of an
            `etcd`, or `apiservers` behind `balancers`. Hosts of plays with a kubeconfig are nodes.
        balancers: hosts of the load balancers before API servers.
        preview: how hosts are looked at in previews and refreshes (`slipway.play.findings`); if not given, by `check`
            up to 20 hosts, else by `digest`.
        timeout_seconds: how long one host may take.
    """

    playbook: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    hosts: tuple[PlayHost, ...]
    digest: str
    release: str
    release_digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    ssh_key: Annotated[str, Field(repr=False)]
    vars: dict[str, Any] = {}
    secrets: Annotated[dict[str, Any], Field(repr=False)] = {}
    authorities: Annotated[dict[str, Authority], Field(repr=False)] = {}
    kubeconfig: Annotated[str | None, Field(repr=False)] = None
    rollout: Rollout = Rollout()
    gate: Literal["etcd", "apiservers"] | None = None
    balancers: tuple[PlayHost, ...] = ()
    preview: findings.Means | None = None
    timeout_seconds: Annotated[int, Field(ge=10)] = 900

    @model_validator(mode="after")
    def _names_are_unique(self) -> PlayInputs:
        count = Counter(host.name for host in self.hosts)
        if twice := sorted(name for name, times in count.items() if times > 1):
            raise ValueError(f"hosts: {', '.join(twice)} is there more than once")
        return self

    @model_validator(mode="after")
    def _units_lie_in_one_failure_domain(self) -> PlayInputs:
        domains: dict[str, str | None] = {}
        for host in self.hosts:
            if host.unit and domains.setdefault(host.unit, host.failure_domain) != host.failure_domain:
                raise ValueError(f"hosts: unit {host.unit} lies in more than one failure domain (see {host.name})")
        return self

    def variables(self, host: PlayHost) -> dict[str, Any]:
        """Return all variables of a host that are not secret."""
        return self.vars | host.vars

    def plan(
        self,
        hosts: Sequence[str],
        converged: Collection[str],
        troubled: Collection[str] = (),
        total: int | None = None,
    ) -> rollouts.Plan:
        """Return in which order `hosts`, which may be some of the play's, are converged.

        Args:
            hosts: names, in the order that is best for them.
            converged: those of the whole play that were converged before, so that they may be serving.
            troubled: those on which the last update failed.
            total: how many hosts the whole play has, when not all of them are known.
        """
        return rollouts.plan(
            self.rollout.mode,
            hosts,
            converged,
            failure_domains={host.name: host.failure_domain or "" for host in self.hosts},
            units={host.name: host.unit for host in self.hosts if host.unit},
            troubled=troubled,
            limits=self.rollout.limits(),
            budget=rollouts.Budget(self.rollout.budget.hosts, self.rollout.budget.percent),
            total=len(self.hosts) if total is None else total,
        )

    def wanted(self, host: PlayHost) -> str:
        """Return the digest of what a host is to be. Of many hosts: `digests`."""
        return self._digests([host])[host.name]

    def digests(self) -> dict[str, str]:
        """Return the digest of what each host is to be, by name."""
        return self._digests(self.hosts)

    def _digests(self, hosts: Sequence[PlayHost]) -> dict[str, str]:
        return manifest.wanted_digests(
            content=self.digest,
            release=self.release,
            common=self.vars,
            own={host.name: host.vars for host in hosts},
            secrets=self.secrets,
        )
