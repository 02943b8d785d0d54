"""Hosts converged wave after wave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from slipway import pki
from slipway.node import bundle
from slipway.play import journal as journals
from slipway.play import runner, tokens
from slipway.play.broker import BrokerError, Listener, Order, TokenMaker, declared
from slipway.play.rollout import Plan, RolloutError
from slipway.provider import play_state, progress
from slipway.provider.course import Course, Telling
from slipway.provider.log import stamp
from slipway.provider.play_inputs import PlayHost, PlayInputs
from slipway.provider.resource import Call, ResourceError, State, in_thread

SLACK_SECONDS = 120
"""What a wave may take on top of what its slowest host may."""


class Gate(Protocol):
    """What guards those who use the hosts of a play while waves change them."""

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Return hosts in the order in which it is best to change them."""

    async def before(self, wave: Sequence[str]) -> Mapping[str, runner.Result]:
        """Make the hosts of a wave ready for a change; return a result for each one that cannot take part now."""

    def adapt(self, host: str, order: Order) -> Order:
        """Return the order of a host as it is carried out in its wave; its digest stays what it is."""

    async def after(self, results: Mapping[str, runner.Result]) -> Mapping[str, runner.Result]:
        """Bring the changed hosts of a wave back into service; return all results, failed where one did not come."""


async def converge(
    call: Call,
    inputs: PlayInputs,
    state: State,
    converged: Set[str],
    gate: Gate | None = None,
) -> State:
    """Converge all hosts of a play and return its new state.

    Args:
        call: the request.
        inputs: the play.
        state: what is known of it.
        converged: hosts that were converged before, so that they may be serving.
        gate: who guards their users.

    Raises:
        InitFailed: some hosts are not as they should be; one reason each.
        ResourceError: the play could not begin.
    """
    names = [host.name for host in inputs.hosts]
    try:
        plan = inputs.plan(await gate.order(names) if gate else names, converged, play_state.troubled(state))
        wanted = await in_thread(orders, inputs, play_state.forced(state))
    except (bundle.BundleError, BrokerError, RolloutError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    course = Course(plan)
    shown = progress.Progress(call.log, plan.waves, tasks=progress.tasks_wanted(len(names)))
    telling = Telling(course, shown, call.journal)
    telling.journal.begin(_begin(call, inputs, plan))
    try:
        with runner.private_folder() as scratch:
            run = Runs(call, inputs, telling, _token_maker(inputs.kubeconfig, scratch))
            async with shown.ticking():
                while wave := course.next(cancelled=call.cancelled.is_set()):
                    telling.wave_begins()
                    course.take(await _wave(wave, wanted, run, gate))
                    telling.wave_ended()
    finally:
        telling.ended()
    await call.views.publish([progress.row(call, name, course.results.get(name)) for name in names])
    return play_state.outcome(state, names, course)


async def _wave(
    wave: Sequence[str], wanted: Mapping[str, Order], run: Runs, gate: Gate | None
) -> dict[str, runner.Result]:
    """Converge the hosts of one wave; return what came of each."""
    deferred = await gate.before(wave) if gate else {}
    outcomes = await run(
        {name: gate.adapt(name, wanted[name]) if gate else wanted[name] for name in wave if name not in deferred}
    )
    return {**deferred, **(await gate.after(outcomes) if gate else outcomes)}


@dataclass(frozen=True)
class Runs:
    """Runs of a play's playbook on some of its hosts.

    Args:
        call: the request.
        inputs: the play.
        listener: gets what hosts tell.
        make_token: makes the tokens with which hosts join.
    """

    call: Call
    inputs: PlayInputs
    listener: Listener
    make_token: TokenMaker | None

    async def __call__(self, orders: Mapping[str, Order]) -> dict[str, runner.Result]:
        """Bring hosts, side by side, to what each is to become; return what came of them, by name."""
        if self.call.cancelled.is_set():
            return {name: runner.Result(ok=False, reason="cancelled", cancelled=True) for name in orders}
        targets = [host.target() for host in self.inputs.hosts if host.name in orders]
        if not targets:
            return {}
        authorities = self.inputs.authorities.items()
        return await runner.converge(
            targets,
            orders,
            ssh_key=self.inputs.ssh_key,
            authorities={name: pki.KeyPair(each.certificate, each.key) for name, each in authorities},
            make_token=self.make_token,
            listener=self.listener,
            cancelled=self.call.cancelled,
            timeout_seconds=self.inputs.timeout_seconds + SLACK_SECONDS,
        )


def _begin(call: Call, inputs: PlayInputs, plan: Plan) -> journals.Begin:
    return journals.Begin(
        play=call.name,
        playbook=inputs.playbook,
        release=inputs.release,
        by=progress.by(),
        at=stamp(),
        waves=plan.waves,
        pools={host.name: host.pool or host.group or "" for host in inputs.hosts},
        may_fail=plan.may_fail,
    )


def orders(inputs: PlayInputs, forced: Set[str]) -> dict[str, Order]:
    """Return what each host is to become; those in `forced` are gone through even at their digest."""
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
        "by": progress.by(),
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
