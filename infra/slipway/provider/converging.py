"""Hosts converged wave after wave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from slipway import pki
from slipway.node import bundle
from slipway.play import journal as journals
from slipway.play import remote, runner, survey, tokens
from slipway.play.broker import BrokerError, Listener, Order, TokenMaker
from slipway.play.rollout import Plan, RolloutError
from slipway.provider import play_state, progress, rebooting
from slipway.provider.course import Course, Telling
from slipway.provider.log import stamp
from slipway.provider.orders import Orders
from slipway.provider.play_inputs import PlayInputs
from slipway.provider.resource import Call, ResourceError, State, in_thread

SLACK_SECONDS = 120
"""What a wave may take on top of what its slowest host may."""


class Gate(Protocol):
    """What guards those who use the hosts of a play while waves change them."""

    async def order(self, hosts: Sequence[str]) -> Sequence[str]:
        """Return hosts in the order in which it is best to change them."""

    async def before(self, wave: Sequence[str]) -> Mapping[str, runner.Result]:
        """Make the hosts of a wave ready for a change; return a result for each one that cannot take part now."""

    def turns(self, untouched: Collection[str]) -> Collection[str]:
        """Return those of hosts at their digest that have their turn all the same."""

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

    Hosts are read first. Those at their digest are in no wave; those that cannot be reached fail when their wave comes,
    without a second try.

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
    wanted = Orders(inputs, play_state.forced(state))
    seen = await _read(call, inputs, wanted)
    turns = gate.turns(seen.untouched) if gate else ()
    through = {name: result for name, result in seen.untouched.items() if name not in turns}
    left = [name for name in names if name not in through]
    try:
        orders = await in_thread(wanted.of, set(left) - seen.unfit.keys())
        if gate and through:
            through = dict(await gate.after(through))
        # One that cannot even be read is no canary.
        troubled = play_state.troubled(state) | seen.unfit.keys()
        plan = inputs.plan(await gate.order(left) if gate else left, converged, troubled)
    except (bundle.BundleError, BrokerError, RolloutError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    course = Course(plan, through)
    shown = progress.Progress(call.log, plan.waves, tasks=progress.tasks_wanted(len(names)))
    telling = Telling(course, shown, call.journal)
    telling.begins(_begin(call, inputs, plan))
    try:
        with runner.private_folder() as scratch:
            run = Runs(call, inputs, telling, _token_maker(inputs.kubeconfig, scratch))
            async with shown.ticking():
                while wave := course.next(cancelled=call.cancelled.is_set()):
                    telling.wave_begins()
                    course.take(await _wave(wave, orders, seen, run, gate))
                    telling.wave_ended()
    finally:
        telling.ended()
    await call.views.publish([progress.row(call, name, course.results.get(name)) for name in names])
    return play_state.outcome(state, names, course)


@dataclass(frozen=True)
class _Seen:
    """What hosts said before anything ran.

    Args:
        untouched: the results of those at their digest.
        unfit: the results of those that could not be read.
    """

    untouched: Mapping[str, runner.Result]
    unfit: Mapping[str, runner.Result]


async def _read(call: Call, inputs: PlayInputs, wanted: Orders) -> _Seen:
    """Read all hosts but those that are gone through anyway."""
    targets = [host.target() for host in inputs.hosts if host.name not in wanted.forced]
    if targets:
        call.log.status(f"reading {len(targets)} host{'s' * (len(targets) != 1)}")
    said = await survey.survey(targets, inputs.playbook, ssh_key=inputs.ssh_key, cancelled=call.cancelled)
    untouched = await in_thread(wanted.untouched, said)
    if untouched:
        call.log.info(f"{len(untouched)} of {len(inputs.hosts)} hosts are at their digest already")
    return _Seen(untouched, {name: result for name, result in said.items() if not result.ok})


async def _wave(
    wave: Sequence[str], orders: Mapping[str, Order], seen: _Seen, run: Runs, gate: Gate | None
) -> dict[str, runner.Result]:
    """Converge the hosts of one wave; return what came of each."""
    results = {name: seen.unfit[name] for name in wave if name in seen.unfit}
    fit = [name for name in wave if name not in results]
    results |= await gate.before(fit) if gate and fit else {}
    going = {name: gate.adapt(name, orders[name]) if gate else orders[name] for name in fit if name not in results}
    at_digest = {name for name, order in going.items() if name in seen.untouched and not order.inputs["force"]}
    outcomes = await run({name: order for name, order in going.items() if name not in at_digest})
    outcomes |= {name: seen.untouched[name] for name in at_digest}
    settled = await gate.after(outcomes) if gate else outcomes
    await run.returned({name: order for name, order in going.items() if settled[name].ok}, settled)
    return {**results, **settled}


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
        """Bring hosts, side by side, to what each is to become; return what came of them, by name.

        Those that must reboot for it do so once, and go on where they stood.
        """
        results = await self._run(orders)
        due = {name: order for name, order in orders.items() if results[name].ok and results[name].reboot}
        if not due:
            return results
        results |= await rebooting.reboot(self.call, self._targets(due), due, results, inputs=self.inputs)
        back = {name: replace(order, inputs={**order.inputs, "force": False}) for name, order in due.items()}
        again = await self._run({name: order for name, order in back.items() if results[name].ok})
        return results | {name: rebooting.after(results[name], result) for name, result in again.items()}

    async def returned(self, orders: Mapping[str, Order], results: Mapping[str, runner.Result]) -> None:
        """Let hosts that are in service again know, so that no step is left. One that misses it is asked again."""
        back = {name: order for name, order in orders.items() if results[name].entry.get("step") == "proven"}
        if back:
            await remote.run(
                self._targets(back),
                {name: f"{rebooting.program(order)} returned {self.inputs.playbook}" for name, order in back.items()},
                ssh_key=self.inputs.ssh_key,
                cancelled=self.call.cancelled,
                seconds=SLACK_SECONDS,
            )

    def _targets(self, names: Collection[str]) -> list[runner.Target]:
        return [host.target() for host in self.inputs.hosts if host.name in names]

    async def _run(self, orders: Mapping[str, Order]) -> dict[str, runner.Result]:
        """Run the playbook on hosts."""
        if self.call.cancelled.is_set():
            return {name: runner.Result(ok=False, reason="cancelled", cancelled=True) for name in orders}
        targets = self._targets(orders)
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


def _token_maker(kubeconfig: str | None, scratch: Any) -> TokenMaker | None:
    if kubeconfig is None:
        return None
    try:
        cluster = tokens.cluster(kubeconfig, scratch)
    except BrokerError as error:
        raise ResourceError(str(error)) from None
    return partial(tokens.make_token, cluster)
