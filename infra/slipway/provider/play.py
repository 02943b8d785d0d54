"""A playbook brought to a set of hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

from slipway.node import bundle
from slipway.play import drain, findings
from slipway.play.broker import BrokerError, declared
from slipway.play.findings import Finding
from slipway.provider import converging, leaving, play_state, provenance, wire
from slipway.provider.balanced import Balanced
from slipway.provider.look import look
from slipway.provider.members import MembersError, members_of
from slipway.provider.orders import Orders
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call, InitFailed, Resource, ResourceError, State, in_thread
from slipway.provider.serving import Serving
from slipway.provider.views import Row

_LINES = 20
"""Hosts that a preview or refresh also tells about in a line of its own."""


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
    quiet = frozenset({"preview", "rollout"})

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
        due = {"results"} if any(play_state.is_due(result) for result in play_state.results(state).values()) else set()
        return frozenset(due | {name for name in ("failedHosts", "drifted") if state.outputs.get(name)})

    async def preview(self, call: Call, old: PlayInputs | None, news: Mapping[str, Any], state: State | None) -> None:
        """Look at the hosts that can be reached already, and show a row a host."""
        hosts = [host for host in news["hosts"] if host != wire.UNKNOWN] if news["hosts"] != wire.UNKNOWN else []
        names = [host["name"] for host in hosts if host.get("name") not in (None, wire.UNKNOWN)]
        about = {name: value for name, value in news.items() if name != "hosts"}
        known = [host for host in hosts if not wire.has_unknown(host)]
        found: dict[str, Finding] = {}
        waves = ""
        rows = []
        if not wire.has_unknown(about):
            inputs = PlayInputs.model_validate(about | {"hosts": known}, extra="ignore")
            if known:
                forced = play_state.forced(state) if state else set()
                found = await _look(call, inputs, forced, _means(inputs, len(hosts)))
            left = [name for name in names if name not in found or found[name].kind != "same"]
            waves = _waves(inputs, old, state, left, len(hosts))
            if old and state and len(names) == len(news["hosts"]):  # else nobody knows who is no longer there
                rows = _leaving(call, old, inputs, leaving.leavers(old.hosts, names, play_state.results(state)))
        for name in names:
            before = call.views.old(name)
            would = findings.would(found[name]) if name in found else {"wouldChange": "known after apply"}
            says = before | would or {"status": "as it should be"}
            rows.append(Row(name, says, changed=bool(would)))
        _tell(call, found, also=waves)
        await call.views.publish(rows)

    async def create(self, call: Call, inputs: PlayInputs) -> State:
        """Converge all hosts."""
        state = State(_id(inputs, call), {})
        if inputs.gate == "etcd":
            return await _converge_members(call, inputs, state)
        if not inputs.kubeconfig:
            return await converging.converge(call, inputs, state, set())
        async with leaving.api(inputs.kubeconfig) as nodes:
            serving = Serving(call, nodes, {}, partial(_check, call, inputs, state), inputs.rollout.drain_seconds)
            return await provenance.marked(call, inputs, converging.converge(call, inputs, state, set(), serving))

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
                    if name in play_state.drifted(state):
                        drifted[name] = says["drift"] = play_state.drifted(state)[name]
            # Of a large play most hosts have no row, which is no news about them.
            news = says != before if before else finding.kind != "same"
            rows.append(Row(name, says or {"status": "as it should be"}, news))
        _tell(call, found, drift=True)
        await call.views.publish(rows)
        return State(state.id, state.outputs | {"drifted": drifted})

    async def update(self, call: Call, old: PlayInputs, inputs: PlayInputs, state: State) -> State:
        """Converge all hosts; those that are at their digest cost one look."""
        return await provenance.marked(call, inputs, self._update(call, old, inputs, state))

    async def _update(self, call: Call, old: PlayInputs, inputs: PlayInputs, state: State) -> State:
        if inputs.gate == "etcd":
            return await _converge_members(call, inputs, state)
        results, converged = play_state.results(state), _converged(old, inputs, state)
        if inputs.gate == "apiservers":
            return await converging.converge(call, inputs, state, converged, Balanced(call, inputs))
        leavers = leaving.leavers(old.hosts, {host.name for host in inputs.hosts}, results)
        returning = leaving.returning(inputs.hosts, results)
        if not inputs.kubeconfig:
            return await converging.converge(call, inputs, state, converged)
        in_service = await in_thread(_in_service, inputs, state, converged)
        unsettled = [host.name for host in inputs.hosts if not results.get(host.name, {}).get("ok", True)]
        async with leaving.api(inputs.kubeconfig) as nodes:
            await leaving.come_back(nodes, returning)
            seconds = inputs.rollout.drain_seconds
            departure = await leaving.begin(call, nodes, leavers, seconds=seconds, results=results)
            try:
                serving = Serving(call, nodes, in_service, partial(_check, call, inputs, state), seconds, unsettled)
                updated = await converging.converge(call, inputs, state, converged, serving)
            except InitFailed as error:
                raise departure.and_failed(error) from None
            return await leaving.finish(nodes, departure, updated)

    async def delete(self, call: Call, inputs: PlayInputs, state: State) -> None:
        """Drain the nodes of a pool that is taken from a cluster which stays; else leave hosts alone."""
        leavers = leaving.leavers(inputs.hosts, (), play_state.results(state))
        if inputs.kubeconfig and call.left_out and leavers:
            await leaving.remove_all(call, inputs.kubeconfig, leavers, inputs.rollout.drain_seconds)


async def _converge_members(call: Call, inputs: PlayInputs, state: State) -> State:
    """Converge members of an etcd: one at a time once there is a majority to lose."""
    due = await in_thread(play_state.due, inputs, state)
    formed = any(result.get("digest") for result in play_state.results(state).values())
    members = members_of(call, inputs, formed=formed, due=due)
    try:
        alone = await members.alone([host.name for host in inputs.hosts])
    except MembersError as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    return await converging.converge(call, inputs, state, alone, members)


def _converged(old: PlayInputs, inputs: PlayInputs, state: State) -> set[str]:
    """Return the hosts on which a run went well before, so that they may be serving."""
    # A host with another key is another machine, whatever the one of its name was.
    known = {host.name: host.host_key for host in old.hosts}
    same = {host.name for host in inputs.hosts if known.get(host.name) == host.host_key}
    return {name for name, result in play_state.results(state).items() if result.get("digest")} & same


def _waves(inputs: PlayInputs, old: PlayInputs | None, state: State | None, left: Sequence[str], total: int) -> str:
    """Return in how many waves an update goes through the hosts that are left for it; "" when it is all at once."""
    converged = _converged(old, inputs, state) if old and state else set()
    waves = inputs.plan(left, converged, play_state.troubled(state) if state else (), total).waves
    if len(waves) < 2:
        return ""
    return (
        f"; up goes in {len(waves)} waves of at most {max(map(len, waves))} host{'s' * any(wave[1:] for wave in waves)}"
    )


def _leaving(call: Call, old: PlayInputs, inputs: PlayInputs, leavers: Sequence[drain.Leaver]) -> list[Row]:
    """Tell of the hosts that leave; return a row for each."""
    told = leaving.foretold(nodes=bool(old.kubeconfig), seconds=inputs.rollout.drain_seconds)
    for leaver in leavers[:_LINES]:
        call.log.info(f"{leaver.name} {told['wouldChange']}")
    return [Row(leaver.name, call.views.old(leaver.name) | told, leaves=True) for leaver in leavers]


def _in_service(inputs: PlayInputs, state: State, converged: Set[str]) -> dict[str, drain.Leaver]:
    """Return the hosts that may serve as nodes and on which something may have to change, by name."""
    results, forced, digests = play_state.results(state), play_state.forced(state), inputs.digests()
    return {
        host.name: drain.Leaver(host.name, host.address, host.port)
        for host in inputs.hosts
        if host.name in converged
        and (host.name in forced or not results[host.name]["ok"] or results[host.name]["digest"] != digests[host.name])
    }


async def _check(call: Call, inputs: PlayInputs, state: State, names: Sequence[str]) -> Mapping[str, Finding]:
    """Find out by check runs what an update would change on some hosts."""
    hosts = tuple(host for host in inputs.hosts if host.name in set(names))
    return await _look(call, inputs.model_copy(update={"hosts": hosts}), play_state.forced(state), "check")


async def _look(call: Call, inputs: PlayInputs, forced: Set[str], means: findings.Means) -> dict[str, Finding]:
    """Look at hosts: at all of them, or only at those not at their digest and those that are forced."""
    try:
        return await look(
            call,
            [host.target() for host in inputs.hosts],
            Orders(inputs, forced),
            {host.name: host.pool or host.group or "" for host in inputs.hosts},
            means=means,
            timeout_seconds=inputs.timeout_seconds + converging.SLACK_SECONDS,
        )
    except (bundle.BundleError, BrokerError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None


def _means(inputs: PlayInputs, hosts: int) -> findings.Means:
    return findings.means_for(inputs.preview, hosts)


def _tell(call: Call, found: Mapping[str, Finding], *, drift: bool = False, also: str = "") -> None:
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
        call.log.status(findings.summary(list(found.values()), drift=drift) + also)


def _id(inputs: PlayInputs, call: Call) -> str:
    return f"{inputs.playbook}-{call.name}"
