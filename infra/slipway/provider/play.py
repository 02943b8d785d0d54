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
from slipway.play import disruption, drain, drain_rule, findings, manifest, runner, tokens
from slipway.play import rollout as rollouts
from slipway.play.broker import BrokerError, Event, Order, TokenMaker, declared
from slipway.play.findings import Finding
from slipway.provider import leaving, wire
from slipway.provider.log import Log, stamp
from slipway.provider.look import look
from slipway.provider.resource import Call, InitFailed, Inputs, Resource, ResourceError, State, in_thread
from slipway.provider.serving import Serving
from slipway.provider.views import Row

REVIEW_DAYS = 60
"""A host that was converged longer ago than this is gone through again by the next `up`, whatever its digest: so
certificates are renewed in time (they last a year, and are renewed for the last 120 days of it) and drift is mended."""

_LINES = 20
"""Hosts that a preview or refresh also tells about in a line of its own."""

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
    outputs = frozenset({"results", "failedHosts", "drifted"})
    volatile = outputs
    replaces = frozenset({"playbook"})
    quiet = frozenset({"preview"})

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
        """Say that a play with failed or drifted hosts, or with hosts due for review, needs an update."""
        due = {"results"} if any(_is_due(result) for result in _results(state).values()) else set()
        return frozenset(due | {name for name in ("failedHosts", "drifted") if state.outputs.get(name)})

    async def preview(self, call: Call, old: PlayInputs | None, news: Mapping[str, Any], state: State | None) -> None:
        """Look at the hosts that can be reached already, and show a row a host."""
        hosts = [host for host in news["hosts"] if host != wire.UNKNOWN] if news["hosts"] != wire.UNKNOWN else []
        about = {name: value for name, value in news.items() if name != "hosts"}
        known = [] if wire.has_unknown(about) else [host for host in hosts if not wire.has_unknown(host)]
        found: dict[str, Finding] = {}
        if known:
            inputs = PlayInputs.model_validate(about | {"hosts": known}, extra="ignore")
            forced = _forced(state) if state else set()
            found = await _look(call, inputs, forced, _means(inputs, len(hosts)), old)
        rows = []
        for name in (host["name"] for host in hosts if host.get("name") not in (None, wire.UNKNOWN)):
            before = call.views.old(name)
            would = findings.would(found[name]) if name in found else {"wouldChange": "known after apply"}
            says = before | would or {"status": "as it should be"}
            rows.append(Row(name, says, changed=bool(would)))
        _tell(call, found)
        await call.views.publish(rows)

    async def create(self, call: Call, inputs: PlayInputs) -> State:
        """Converge all hosts."""
        state = State(_id(inputs, call), {})
        return await _converge(call, inputs, state, inputs.waves(set()))

    async def read(self, call: Call, inputs: PlayInputs, state: State) -> State:
        """Look for drift, and keep what is found in mind for the next `up`."""
        means = _means(inputs, len(inputs.hosts))
        if means != "digest" and await in_thread(bundle.playbook_digest, inputs.playbook) != inputs.digest:
            call.log.warning(
                f"roles of playbook {inputs.playbook} are not those of the last up: only manifests are compared; "
                "for what an up would change run: pulumi preview --diff"
            )
            means = "digest"
        found = await _look(call, inputs, {host.name for host in inputs.hosts}, means)
        drifted: dict[str, list[str]] = {}
        rows = []
        failed = set(state.outputs.get("failedHosts") or ())
        for name, finding in found.items():
            before = call.views.old(name)
            says = {key: value for key, value in before.items() if key not in ("drift", "seen")}
            if by := finding.before.get("by"):
                says |= {"at": finding.before.get("finished") or "", "by": by}
            match finding.kind:
                case "change" | "failed" | "unlike" | "unseen" if name not in failed:
                    drifted[name] = says["drift"] = finding.short
                case "unreachable":
                    says["seen"] = finding.note
                    if name in _drifted(state):
                        drifted[name] = says["drift"] = _drifted(state)[name]
            rows.append(Row(name, says or {"status": "as it should be"}, says != before))
        _tell(call, found, drift=True)
        await call.views.publish(rows)
        return State(state.id, state.outputs | {"drifted": drifted})

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
        orders = await in_thread(_orders, inputs, _forced(state))
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
    await call.views.publish([_row(call, name, results.get(name)) for name in targets])
    return _outcome(call, state, list(targets), results)


async def _look(
    call: Call, inputs: PlayInputs, forced: Set[str], means: findings.Means, old: PlayInputs | None = None
) -> dict[str, Finding]:
    """Look at hosts: at all of them, or only at those not at their digest and those that are forced."""
    try:
        orders = await in_thread(_orders, inputs, forced)
        costs = await in_thread(disruption.load, paths.root() / "roles")
    except (bundle.BundleError, BrokerError, disruption.DisruptionError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    earlier = {host.name: old.variables(host) for host in old.hosts} if old else {}
    return await look(
        call,
        [host.target() for host in inputs.hosts],
        orders,
        {host.name: host.pool or host.group or "" for host in inputs.hosts},
        means=means,
        costs=costs,
        variables={
            host.name: {_top(path) for path in wire.difference(earlier[host.name], inputs.variables(host))}
            for host in inputs.hosts
            if host.name in earlier
        },
        ssh_key=inputs.ssh_key,
        timeout_seconds=inputs.timeout_seconds + _SLACK_SECONDS,
    )


def _means(inputs: PlayInputs, hosts: int) -> findings.Means:
    return findings.means_for(inputs.preview, hosts)


def _top(path: str) -> str:
    return path.split(".", 1)[0].split("[", 1)[0]


def _tell(call: Call, found: Mapping[str, Finding], *, drift: bool = False) -> None:
    """Say in a line a host what was found, and in one line how many hosts are what."""
    verb = "has drifted" if drift else "would change"
    told = [(name, finding) for name, finding in found.items() if finding.kind != "same"]
    for name, finding in told[:_LINES]:
        match finding.kind:
            case "change":
                call.log.info(f"{name} {verb}: {'; '.join(finding.short)} (disrupts: {finding.cost})")
            case "failed":
                call.log.info(f"{name} would fail: {'; '.join(finding.short)}")
            case _:
                call.log.info(f"{name}: {finding.note}")
    if found:
        call.log.status(findings.summary(list(found.values()), drift=drift))


def _row(call: Call, name: str, result: runner.Result | None) -> Row:
    """Return what a host's row says after a run: `{status, changed, at, by}`."""
    before = call.views.old(name)
    if result is None:
        return Row(name, before or {"status": "not begun"}, changed=False)
    if not result.ok:
        status = result.reason if result.deferred else f"failed: {result.reason}"
        return Row(name, {**before, "status": status[:300]})
    settled = before.get("status") == "converged" and not before.keys() & {"drift", "seen"}
    if settled and (result.untouched or not result.changed):
        return Row(name, before, changed=False)
    at, by = result.entry.get("finished") or stamp(), result.entry.get("by") or _by()
    return Row(name, {"status": "converged", "changed": result.changed, "at": at, "by": by})


def _by() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _id(inputs: PlayInputs, call: Call) -> str:
    return f"{inputs.playbook}-{call.name}"


def _forced(state: State) -> set[str]:
    """Return the hosts that are gone through whatever their digest: those that drifted, those due for review."""
    return {name for name, result in _results(state).items() if _is_due(result)} | _drifted(state).keys()


def _drifted(state: State) -> dict[str, list[str]]:
    return state.outputs.get("drifted") or {}


def _results(state: State) -> dict[str, dict[str, Any]]:
    return state.outputs.get("results") or {}


def _orders(inputs: PlayInputs, forced: Set[str]) -> dict[str, Order]:
    bundles = bundle.ensure()
    return {host.name: _order(inputs, host, bundles, force=host.name in forced) for host in inputs.hosts}


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
        "by": _by(),
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
    outputs: dict[str, Any] = {"results": {}, "failedHosts": [], "drifted": {}}
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
        if name in _drifted(state):
            outputs["drifted"][name] = _drifted(state)[name]
        reasons.append(f"{name}: {reason}")
    if reasons:
        raise InitFailed(state.id, outputs, reasons)
    return State(state.id, outputs)


def _one_line(text: str) -> str:
    return " ".join(text.split())
