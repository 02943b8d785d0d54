"""What each host of a stack is, against what the last `up` declared. Pure: what was read comes in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from slipway.play.manifest import DONE, Entry, Manifest

State = Literal["as declared", "behind", "drifted", "failed", "interrupted", "running", "new", "unreachable"]
"""How a host stands:

* `as declared`: its manifest is at the digest of the last `up`.
* `behind`: it is at another digest; the next `up` converges it.
* `drifted`: the last refresh found changes on it.
* `failed`: its last run failed; the reason says at what.
* `interrupted`: its last run neither ended nor goes on, or steps are left: the last that is done is said.
* `running`: a run is at work on it.
* `new`: it was never converged.
* `unreachable`: it does not answer, so nothing is known.
"""

ORDER: tuple[State, ...] = (
    "failed",
    "unreachable",
    "interrupted",
    "drifted",
    "behind",
    "new",
    "running",
    "as declared",
)
"""The worst first."""


@dataclass(frozen=True)
class Declared:
    """A host as the last `up` declared it.

    Args:
        name: its name.
        group: its node pool, else its group.
        play: the resource that converges it.
        playbook: what is run on it.
        release: what it should be.
        digest: the wanted digest.
        failed: why the last `up` left it, one line; "" when it did not.
        drift: what the last refresh found changed, a line each.
    """

    name: str
    group: str
    play: str
    playbook: str
    release: str
    digest: str
    failed: str = ""
    drift: Sequence[str] = ()


@dataclass(frozen=True)
class Seen:
    """What was read of a host.

    Args:
        manifest: what it says, nothing when that is none; None when the host does not answer.
        reason: why it does not, or why what it says is no manifest, one line.
        busy: a run is at work on it.
    """

    manifest: Manifest | None
    reason: str = ""
    busy: bool = False


@dataclass(frozen=True)
class HostStatus:
    """One host: what a row of the table says.

    Args:
        name: its name.
        group: its node pool, else its group.
        release: the release of its last run; "" when there was none.
        release_digest: SHA-256 (hex) of that release.
        state: how it stands.
        at: when its last run ended, UTC; "" when none did.
        by: who ran it: user@controller.
        step: the last step that is done when some are left (`slipway.node.host.steps`), or the task that failed.
        reason: one line when it is not as declared.
        digest: what it is at; "" for nothing finished.
        wanted: the digest that it should be at.
    """

    name: str
    group: str
    release: str
    state: State
    at: str
    by: str
    step: str
    reason: str
    digest: str
    wanted: str
    release_digest: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def of(declared: Sequence[Declared], seen: Mapping[str, Seen]) -> list[HostStatus]:
    """Return a row a host, in the order of the declaration."""
    return [_row(host, seen.get(host.name, Seen(None, "not read"))) for host in declared]


def counts(rows: Sequence[HostStatus]) -> dict[State, int]:
    """Return how many hosts are in each state, the worst first."""
    found = Counter(row.state for row in rows)
    return {state: found[state] for state in ORDER if found[state]}


def _row(host: Declared, seen: Seen) -> HostStatus:
    entry = (seen.manifest or Manifest()).playbooks.get(host.playbook)
    state, step, reason = _state(host, seen, entry)
    return HostStatus(
        name=host.name,
        group=host.group,
        release=entry.release if entry else "",
        state=state,
        at=(entry.finished or "") if entry else "",
        by=entry.by if entry else "",
        step=step,
        reason=reason,
        digest=entry.digest if entry and entry.result == "ok" else "",
        wanted=host.digest,
        release_digest=entry.release_digest if entry else "",
    )


def _state(host: Declared, seen: Seen, entry: Entry | None) -> tuple[State, str, str]:
    """Return a host's state, step and reason."""
    if seen.manifest is None:
        return "unreachable", "", seen.reason
    if seen.busy:
        return "running", "converging", ""
    if seen.reason:
        return "behind", "", seen.reason
    if entry is None:
        return "new", "", host.failed or "never converged"
    return _after_run(host, entry)


def _after_run(host: Declared, entry: Entry) -> tuple[State, str, str]:
    """Return the same of a host whose last run is known."""
    match entry.result:
        case "failed":
            return "failed", entry.failed_task or "", entry.reason or "failed without saying why"
        case "cancelled":
            return "interrupted", "", entry.reason or "stopped"
        case "running":
            return "interrupted", "", f"its run of {entry.started} did not come to its end"
    if entry.digest != host.digest:
        was = f" (release {entry.release}, wanted {host.release})" if entry.release != host.release else ""
        return "behind", "", host.failed or f"at {entry.digest[:12]}, wanted {host.digest[:12]}{was}"
    if entry.step != DONE:
        return "interrupted", entry.step, host.failed or "not brought to the last step; the next up goes on"
    if host.drift:
        return "drifted", "", "; ".join(host.drift)
    if host.failed:  # changed, but not back in service
        return "failed", "", host.failed
    return "as declared", "", ""
