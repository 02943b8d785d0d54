"""Hosts looked at without changing them: a check run of the playbook on them, or only their manifests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from slipway.play import findings, manifest, runner, survey
from slipway.play.broker import Event, Order
from slipway.play.findings import Change, Finding
from slipway.provider.orders import Orders
from slipway.provider.resource import Call, in_thread

_CHECK = {"check": True, "diff": True, "lock_seconds": 30}
"""Inputs of a check run: among them how long it waits for a run that is at work on the host."""


async def look(
    call: Call,
    targets: Sequence[runner.Target],
    orders: Orders,
    pools: Mapping[str, str],
    *,
    means: findings.Means,
    timeout_seconds: int,
) -> dict[str, Finding]:
    """Return what is found on each host. Hosts that cannot be reached are findings, too.

    Args:
        call: the request.
        targets: the hosts.
        orders: what each is to become. A host that is at its digest is left alone, unless it is forced.
        pools: host → its pool.
        means: how to look.
        timeout_seconds: how long it may take.

    Raises:
        bundle.BundleError, BrokerError: the hosts cannot be told what they are to become.
    """
    samples = findings.sample(pools) if means == "sample" else {}
    match means:
        case "check":
            checked = set(pools)
        case "sample":
            checked = {host for hosts in samples.values() for host in hosts}
        case "digest":
            checked = set()
    call.log.status(f"looking at {len(targets)} host{'s' * (len(targets) != 1)}")
    ssh_key, playbook = orders.inputs.ssh_key, orders.inputs.playbook
    # A host that is checked whatever its digest need not be asked for it.
    read = [target for target in targets if target.name not in checked & orders.forced]
    seen = await survey.survey(read, playbook, ssh_key=ssh_key, cancelled=call.cancelled)
    untouched = await in_thread(orders.untouched, seen)
    found = {}
    for name, result in seen.items():
        if not result.ok or name in untouched:
            found[name] = _by_check(result, ())
        elif name not in checked:
            found[name] = _by_digest(result, orders.digests[name], samples.get(pools[name], []))
    left = [target for target in targets if target.name not in found]
    if left:
        found |= await _check(call, left, orders, timeout_seconds)
    return {target.name: found[target.name] for target in targets}


async def _check(
    call: Call, targets: Sequence[runner.Target], orders: Orders, timeout_seconds: int
) -> dict[str, Finding]:
    """Run the playbook in check mode."""
    changes: dict[str, list[Change]] = defaultdict(list)

    def listen(host: str, event: Event) -> None:
        if event.get("event") == "task" and event.get("status") == "changed":
            changes[host].append(findings.change(event))

    wanted = await in_thread(orders.of, {target.name for target in targets})
    results = await runner.converge(
        targets,
        {name: Order({**order.inputs, **_CHECK}) for name, order in wanted.items()},
        ssh_key=orders.inputs.ssh_key,
        authorities={},  # nothing is signed while looking
        make_token=None,
        listener=listen,
        cancelled=call.cancelled,
        timeout_seconds=timeout_seconds,
    )
    return {name: _by_check(result, tuple(changes[name])) for name, result in results.items()}


def _by_check(result: runner.Result, changes: tuple[Change, ...]) -> Finding:
    if result.unreachable:
        return Finding("unreachable", result.reason, before=result.before)
    if not result.ok:
        return Finding("failed", result.reason, changes, result.cost, result.before)
    if not changes and (left := _steps_left(result)):
        return Finding("unlike", left, cost=result.cost, before=result.before)
    return Finding("change" if changes else "same", "", changes, result.cost, result.before)


def _steps_left(result: runner.Result) -> str:
    """Return what a host whose last run went well has yet to go through, one line, "" if nothing."""
    step = result.before.get("step", manifest.DONE)
    if step == manifest.DONE or result.before.get("result") != "ok":
        return ""
    why = f" ({'; '.join(result.before['reboot'])})" if result.before.get("reboot") else ""
    return f"an earlier run is not finished: the host is {step} since {result.before.get('since')}{why}"


def _by_digest(result: runner.Result, wanted: str, representatives: Sequence[str]) -> Finding:
    if result.digest == wanted:
        return Finding("same", before=result.before)
    if left := _steps_left(result):
        return Finding("unlike", left, before=result.before)
    is_at = f"its manifest is at {result.digest[:12]}" if result.digest else "its manifest is at nothing finished"
    if representatives:
        names = ", ".join(representatives)
        return Finding("unseen", f"{is_at}, wanted {wanted[:12]}; looked at in its pool: {names}", before=result.before)
    return Finding("unlike", f"{is_at}, wanted {wanted[:12]}", before=result.before)
