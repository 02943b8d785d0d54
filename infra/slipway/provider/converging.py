"""Hosts converged wave after wave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any, Protocol

from slipway import pki
from slipway.node import bundle
from slipway.play import runner, tokens
from slipway.play.broker import BrokerError, Order, TokenMaker, declared
from slipway.provider import play_state, progress
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

    async def after(self, results: Mapping[str, runner.Result]) -> Mapping[str, runner.Result]:
        """Bring the changed hosts of a wave back into service; return all results, failed where one did not come."""


async def converge(
    call: Call, inputs: PlayInputs, state: State, converged: Set[str], gate: Gate | None = None
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
    waves = inputs.waves(await gate.order(names) if gate else names, converged)
    try:
        wanted = await in_thread(orders, inputs, play_state.forced(state))
    except (bundle.BundleError, BrokerError) as error:
        raise ResourceError(f"play {call.name}: {error}") from None
    targets = {host.name: host.target() for host in inputs.hosts}
    authorities = {name: pki.KeyPair(each.certificate, each.key) for name, each in inputs.authorities.items()}
    shown = progress.Progress(call.log, len(targets))
    results: dict[str, runner.Result] = {}
    with runner.private_folder() as scratch:
        make_token = _token_maker(inputs.kubeconfig, scratch)
        for wave in waves:
            if call.cancelled.is_set() or any(not result.ok and not result.deferred for result in results.values()):
                break
            deferred = await gate.before(wave) if gate else {}
            results |= deferred
            going = [name for name in wave if name not in deferred]
            if not going:
                continue
            outcomes = await runner.converge(
                [targets[name] for name in going],
                {name: wanted[name] for name in going},
                ssh_key=inputs.ssh_key,
                authorities=authorities,
                make_token=make_token,
                listener=shown,
                cancelled=call.cancelled,
                timeout_seconds=inputs.timeout_seconds + SLACK_SECONDS,
            )
            results |= await gate.after(outcomes) if gate else outcomes
    await call.views.publish([progress.row(call, name, results.get(name)) for name in targets])
    return play_state.outcome(call, state, list(targets), results)


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
