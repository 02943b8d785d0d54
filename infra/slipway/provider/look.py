"""Hosts looked at without changing them: a check run of the playbook on them, or only their manifests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set

from slipway.play import disruption, findings, runner
from slipway.play.broker import Event, Order
from slipway.play.findings import Change, Finding
from slipway.provider.resource import Call

_LOCK_SECONDS = 30
"""How long a look waits for a run that is at work on the host."""


async def look(
    call: Call,
    targets: Sequence[runner.Target],
    orders: Mapping[str, Order],
    pools: Mapping[str, str],
    *,
    means: findings.Means,
    costs: Mapping[str, disruption.Role],
    variables: Mapping[str, Set[str]],
    ssh_key: str,
    timeout_seconds: int,
) -> dict[str, Finding]:
    """Return what is found on each host. Hosts that cannot be reached are findings, too.

    Args:
        call: the request.
        targets: the hosts.
        orders: what each is to become. A host that is at its digest is left alone, unless its order has `force`.
        pools: host → its pool.
        means: how to look.
        costs: what changes cost, by role.
        variables: host → names of its variables that have another value than before.
        ssh_key: the private key that hosts accept.
        timeout_seconds: how long it may take.
    """
    if not targets:
        return {}
    samples = findings.sample(pools) if means == "sample" else {}
    checked = {host for hosts in samples.values() for host in hosts} if samples else set(orders)
    if means == "digest":
        checked = set()
    changes: dict[str, list[Change]] = defaultdict(list)

    def listen(host: str, event: Event) -> None:
        if event.get("event") == "task" and event.get("status") == "changed":
            changes[host].append(findings.change(event))

    call.log.status(f"looking at {len(targets)} host{'s' * (len(targets) != 1)}")
    results = await runner.converge(
        targets,
        {name: _looking(order, check=name in checked) for name, order in orders.items()},
        ssh_key=ssh_key,
        authorities={},  # nothing is signed while looking
        make_token=None,
        listener=listen,
        cancelled=call.cancelled,
        timeout_seconds=timeout_seconds,
    )
    found = {}
    for name, result in results.items():
        own = tuple(changes[name])
        changed = [(change.role, change.task) for change in own]
        cost = disruption.total(costs, changed, variables.get(name, frozenset()))
        if result.ok and name not in checked:
            representatives = samples.get(pools[name], [])
            found[name] = _by_digest(result, str(orders[name].inputs["digest"]), representatives)
        else:
            found[name] = _by_check(result, own, cost)
    return found


def _looking(order: Order, *, check: bool) -> Order:
    how = {"check": True, "diff": True, "lock_seconds": _LOCK_SECONDS} if check else {"look": True, "secrets": {}}
    return Order({**order.inputs, **how})


def _by_check(result: runner.Result, changes: tuple[Change, ...], cost: disruption.Cost) -> Finding:
    if result.unreachable:
        return Finding("unreachable", result.reason, before=result.before)
    if not result.ok:
        return Finding("failed", result.reason, changes, cost, result.before)
    return Finding("change" if changes else "same", "", changes, cost, result.before)


def _by_digest(result: runner.Result, wanted: str, representatives: Sequence[str]) -> Finding:
    if result.digest == wanted:
        return Finding("same", before=result.before)
    is_at = f"its manifest is at {result.digest[:12]}" if result.digest else "its manifest is at nothing finished"
    if representatives:
        names = ", ".join(representatives)
        return Finding("unseen", f"{is_at}, wanted {wanted[:12]}; looked at in its pool: {names}", before=result.before)
    return Finding("unlike", f"{is_at}, wanted {wanted[:12]}", before=result.before)
