"""A playbook brought to a set of hosts."""

from __future__ import annotations

import datetime as dt
import getpass
import socket
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from slipway import paths, pki
from slipway.node import bundle
from slipway.play import drain, drain_rule, manifest, runner, tokens
from slipway.play import rollout as rollouts
from slipway.play.broker import BrokerError, Event, Order, TokenMaker, declared
from slipway.provider import leaving
from slipway.provider.log import Log, stamp
from slipway.provider.resource import Call, InitFailed, Inputs, Resource, ResourceError, State, in_thread
from slipway.provider.serving import Serving

REVIEW_DAYS = 60
"""A host that was converged longer ago than this is gone through again by the next `up`, whatever its digest: so
certificates are renewed in time (they last a year, and are renewed for the last 120 days of it) and drift is mended."""

_SLACK_SECONDS = 120
"""What a wave may take on top of what its slowest host may."""


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

    def waves(self, converged: Set[str]) -> rollouts.Waves:
        """Return the names of hosts in the order in which they are converged."""
        return rollouts.plan(
            self.rollout.mode,
            [host.name for host in self.hosts],
            converged,
            failure_domains={host.name: host.failure_domain or "" for host in self.hosts},
            limits=rollouts.Limits(**self.rollout.model_dump(exclude={"mode", "drain_seconds"})),
        )

    def wanted(self, host: PlayHost) -> str:
        """Return the digest of what a host is to be."""
        return manifest.wanted_digest(
            content=self.digest, release=self.release, variables=self.variables(host), secrets=self.secrets
        )


class Play(Resource[PlayInputs]):
    """Converges hosts side by side. It is done when every host is at the digest that its inputs amount to.

    A host that fails is left behind, not the others: the resource is saved with one reason a failed host, and the next
    update takes up there. Nothing happens on hosts that leave a play, or when a play is deleted; nodes among them are
    drained and their Node objects removed (see `slipway.provider.leaving`), unless the whole cluster goes.
    """

    kind = "slipway:index:Play"
    inputs = PlayInputs
    outputs = frozenset({"results", "failedHosts"})
    volatile = outputs
    replaces = frozenset({"playbook"})

    def check(self, inputs: PlayInputs) -> Mapping[str, str]:
        """Check what hosts declare to have signed."""
        problems: dict[str, str] = {}
        for index, host in enumerate(inputs.hosts):
            try:
                declarations = declared(inputs.variables(host))
            except BrokerError as error:
                problems[f"hosts[{index}].vars"] = f"{host.name}: {error}"
                continue
            missing = {each.authority for each in declarations.values()} - inputs.authorities.keys()
            if missing:
                names = ", ".join(sorted(missing))
                problems[f"hosts[{index}].vars"] = f"{host.name}: pki_certificates name {names}, not in authorities"
        return problems

    async def drift(self, state: State, inputs: PlayInputs) -> frozenset[str]:
        """Say that a play with failed hosts, or with hosts due for review, needs an update."""
        due = {"results"} if any(_is_due(result) for result in _results(state).values()) else set()
        failed = {"failedHosts"} if state.outputs.get("failedHosts") else set()
        return frozenset(due | failed)

    async def create(self, call: Call, inputs: PlayInputs) -> State:
        """Converge all hosts."""
        state = State(f"{inputs.playbook}-{call.name}", {})
        return await _converge(call, inputs, state, inputs.waves(set()))

    async def update(self, call: Call, old: PlayInputs, inputs: PlayInputs, state: State) -> State:
        """Converge all hosts; those that are at their digest cost one look."""
        # A host with another key is another machine, whatever the one of its name was.
        known = {host.name: host.host_key for host in old.hosts}
        same = {host.name for host in inputs.hosts if known.get(host.name) == host.host_key}
        results = _results(state)
        converged = {name for name, result in results.items() if result.get("digest")} & same
        waves = inputs.waves(converged)
        leavers = leaving.leavers(old.hosts, inputs.hosts, results)
        returning = leaving.returning(inputs.hosts, results)
        to_drain = await in_thread(_to_drain, old, inputs, state)
        unsettled = [host.name for host in inputs.hosts if not results.get(host.name, {}).get("ok", True)]
        if not inputs.kubeconfig or not (leavers or returning or to_drain or unsettled):
            return await _converge(call, inputs, state, waves)
        async with leaving.api(inputs.kubeconfig) as nodes:
            await leaving.come_back(nodes, returning)
            seconds = inputs.rollout.drain_seconds
            departure = await leaving.begin(call, nodes, leavers, seconds=seconds, results=results)
            try:
                serving = Serving(call, nodes, to_drain, seconds, unsettled)
                updated = await _converge(call, inputs, state, waves, serving)
            except InitFailed as error:
                raise departure.and_failed(error) from None
            return await leaving.finish(nodes, departure, updated)

    async def delete(self, call: Call, inputs: PlayInputs, state: State) -> None:
        """Drain the nodes of a pool that is taken from a cluster which stays; else leave hosts alone."""
        leavers = leaving.leavers(inputs.hosts, (), _results(state))
        if inputs.kubeconfig and call.left_out and leavers:
            await leaving.remove_all(call, inputs.kubeconfig, leavers, inputs.rollout.drain_seconds)


def _is_due(result: Mapping[str, Any]) -> bool:
    """Say whether a host was converged so long ago that it is gone through again."""
    at = dt.datetime.fromisoformat(result["at"])
    return dt.datetime.now(dt.UTC) - at > dt.timedelta(days=REVIEW_DAYS)


@dataclass
class _Progress:
    """Turns what hosts tell into lines under the play's row."""

    log: Log
    total: int
    started: float = field(default_factory=time.monotonic)
    running: set[str] = field(default_factory=set)
    done: int = 0
    shown: str = ""

    def __call__(self, host: str, event: Event) -> None:
        match event.get("event"):
            case "task" if event.get("status") in {"changed", "failed"}:
                parts = [event.get("role"), event.get("name")]
                task = " : ".join(part for part in parts if part)
                item = f" ({event['item']})" if event.get("item") else ""
                message = f": {event['msg']}" if event["status"] == "failed" and event.get("msg") else ""
                self.log.info(f"{host} {task}{item} … {event['status']}{_one_line(message)}")
            case "state":
                self.running.add(host)
                self._count()
            case "result":
                self.running.discard(host)
                self.done += 1
                seconds = round(time.monotonic() - self.started)
                changed = event.get("changed") or 0
                if event.get("ok"):
                    self.log.info(f"{host} done, {changed} changed, {seconds} s")
                self._count()

    def _count(self) -> None:
        line = f"{self.done} of {self.total} hosts done, {len(self.running)} running"
        if line != self.shown:
            self.shown = line
            self.log.status(line)


def _to_drain(old: PlayInputs, inputs: PlayInputs, state: State) -> dict[str, drain.Leaver]:
    """Return the hosts that serve as nodes and whose change needs them to be empty, by name."""
    if not inputs.kubeconfig:
        return {}
    try:
        roles = bundle.playbook_roles(inputs.playbook)
    except bundle.BundleError as error:
        raise ResourceError(str(error)) from None
    draining = drain_rule.draining_variables(roles, paths.root() / "roles")
    earlier, results = {host.name: host for host in old.hosts}, _results(state)
    return {
        host.name: drain.Leaver(host.name, host.address, host.port)
        for host in inputs.hosts
        if (was := earlier.get(host.name))
        and was.host_key == host.host_key
        and drain_rule.needs_drain(
            is_at=results.get(host.name, {}).get("digest", ""),
            was_to_be=old.wanted(was),
            is_to_be=inputs.wanted(host),
            before=old.variables(was),
            after=inputs.variables(host),
            draining=draining,
        )
    }


async def _converge(
    call: Call, inputs: PlayInputs, state: State, waves: rollouts.Waves, serving: Serving | None = None
) -> State:
    try:
        due = {name for name, result in _results(state).items() if _is_due(result)}
        orders = await in_thread(_orders, inputs, due)
    except (bundle.BundleError, BrokerError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    targets = {host.name: host.target() for host in inputs.hosts}
    authorities = {name: pki.KeyPair(each.certificate, each.key) for name, each in inputs.authorities.items()}
    progress = _Progress(call.log, len(targets))
    results: dict[str, runner.Result] = {}
    with runner.private_folder() as scratch:
        make_token = _token_maker(inputs.kubeconfig, scratch)
        for wave in waves:
            if call.cancelled.is_set() or any(not result.ok and not result.deferred for result in results.values()):
                break
            deferred = await serving.before(wave) if serving else {}
            results |= deferred
            going = [name for name in wave if name not in deferred]
            if not going:
                continue
            converged = await runner.converge(
                [targets[name] for name in going],
                {name: orders[name] for name in going},
                ssh_key=inputs.ssh_key,
                authorities=authorities,
                make_token=make_token,
                listener=progress,
                cancelled=call.cancelled,
                timeout_seconds=inputs.timeout_seconds + _SLACK_SECONDS,
            )
            results |= await serving.after(converged) if serving else converged
    return _outcome(call, state, list(targets), results)


def _results(state: State) -> dict[str, dict[str, Any]]:
    return state.outputs.get("results") or {}


def _orders(inputs: PlayInputs, due: Set[str]) -> dict[str, Order]:
    bundles = bundle.ensure()
    return {host.name: _order(inputs, host, bundles, force=host.name in due) for host in inputs.hosts}


def _order(inputs: PlayInputs, host: PlayHost, bundles: bundle.Bundles, *, force: bool) -> Order:
    variables = inputs.variables(host)
    told = {
        "playbook": inputs.playbook,
        "groups": [group for group in (host.group, host.pool) if group],
        "release": inputs.release,
        "digest": inputs.wanted(host),
        "vars": variables,
        "secrets": inputs.secrets,
        "bundles": bundles.as_dict(),
        "force": force,
        "by": f"{getpass.getuser()}@{socket.gethostname()}",
        "timeout_seconds": inputs.timeout_seconds,
    }
    return Order(told, declared(variables))


def _token_maker(kubeconfig: str | None, scratch: Any) -> TokenMaker | None:
    if kubeconfig is None:
        return None
    try:
        cluster = tokens.cluster(kubeconfig, scratch)
    except BrokerError as error:
        raise ResourceError(str(error)) from None
    return partial(tokens.make_token, cluster)


def _outcome(
    call: Call,
    state: State,
    hosts: list[str],
    results: Mapping[str, runner.Result],
) -> State:
    """Return the new state.

    Raises:
        InitFailed: with one reason for each host that is not as it should be.
    """
    before = _results(state)
    outputs: dict[str, Any] = {"results": {}, "failedHosts": []}
    reasons: list[str] = []
    failed = [name for name, result in results.items() if not result.ok and not result.deferred]
    for name in hosts:
        result = results.get(name)
        earlier = before.get(name, {})
        if result is not None and result.ok:
            outputs["results"][name] = {
                "ok": True,
                "changed": result.changed,
                "digest": result.digest,
                "tasks": result.tasks,
                "at": earlier["at"] if result.untouched and "at" in earlier else stamp(),
            }
            continue
        if result is None:
            cause = "cancelled" if call.cancelled.is_set() else f"the rollout stopped at {', '.join(failed)}"
            reason = f"not begun: {cause}"
        else:
            reason = result.reason
        outputs["results"][name] = {"ok": False, "digest": earlier.get("digest", ""), "at": stamp(), "reason": reason}
        outputs["failedHosts"].append(name)
        reasons.append(f"{name}: {reason}")
    if reasons:
        raise InitFailed(state.id, outputs, reasons)
    return State(state.id, outputs)


def _one_line(text: str) -> str:
    return " ".join(text.split())
