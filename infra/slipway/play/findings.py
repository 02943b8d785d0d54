"""What was found out about hosts without changing them: by which means, what, and how it is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Means = Literal["check", "sample", "digest"]
"""`check` runs the playbook in check mode on every host; `sample` does so on a few a pool; `digest` only reads what the
hosts' manifests say."""

Kind = Literal["same", "change", "unlike", "failed", "unreachable", "unseen"]
"""Nothing would change; tasks would; its manifest says that it is at another digest; the check run failed; it could not
be reached; it was left out of a sample."""

CHECKED_HOSTS = 20
"""With no means given, a play with more hosts than this is looked at by digest."""

SAMPLE = 2
"""Hosts of a pool in a sample."""

_DIFF_LINES = 12
_LINE_LENGTH = 160
_SHORT = 10


@dataclass(frozen=True)
class Change:
    """A task that would change something: what it names, and lines of its diff."""

    role: str
    task: str
    what: tuple[str, ...] = ()
    diff: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """`role : task`, as in the lines of a run."""
        return " : ".join(part for part in (self.role, self.task) if part)

    @property
    def line(self) -> str:
        """All but the diff in one line of at most 200 characters."""
        text = f"{self.title}: {', '.join(self.what)}" if self.what else self.title
        return text if len(text) <= 200 else text[:199] + "…"

    @property
    def text(self) -> str:
        """What changes, in lines: what the task names, then its shortened diff."""
        return "\n".join([", ".join(self.what), *self.diff] if self.what else self.diff) or "would change"


@dataclass(frozen=True)
class Finding:
    """What was found out about a host.

    Args:
        kind: see `Kind`.
        note: one line about it; for `failed` the task and its message.
        changes: what a run would change.
        cost: what that would disrupt, such as `restart:etcd,kubelet` (`slipway.node.host.costs`).
        before: what its manifest says of the last run (`slipway.play.manifest.Entry` as a dict); empty if nothing.
    """

    kind: Kind
    note: str = ""
    changes: tuple[Change, ...] = ()
    cost: str = "none"
    before: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def short(self) -> list[str]:
        """One line a change, at most ten and a last one that counts the others; what else was found comes last."""
        lines = [change.line for change in self.changes[:_SHORT]]
        if len(self.changes) > _SHORT:
            lines.append(f"and {len(self.changes) - _SHORT} more")
        return lines + [self.note] * bool(self.note)


def means_for(wanted: Means | None, hosts: int) -> Means:
    """Return how a play with so many hosts is looked at."""
    return wanted or ("check" if hosts <= CHECKED_HOSTS else "digest")


def sample(pools: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts that stand for their pool: the first and the last of each.

    Args:
        pools: host → its pool, in the play's order.
    """
    found: dict[str, list[str]] = {}
    for pool in dict.fromkeys(pools.values()):
        members = [host for host, its in pools.items() if its == pool]
        found[pool] = members if len(members) <= SAMPLE else [*members[: SAMPLE - 1], members[-1]]
    return found


def change(event: Mapping[str, Any]) -> Change:
    """Return the change that a task line of a host tells."""
    return Change(
        str(event.get("role") or ""),
        str(event.get("name") or ""),
        tuple(str(each) for each in event.get("what") or ()),
        tuple(shortened(str(event.get("diff") or ""))),
    )


def shortened(diff: str) -> list[str]:
    """Return the first lines of a diff that were removed or added."""
    lines = [
        line if len(line) <= _LINE_LENGTH else line[: _LINE_LENGTH - 1] + "…"
        for line in diff.splitlines()
        if line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- "))
    ]
    return lines if len(lines) <= _DIFF_LINES else [*lines[:_DIFF_LINES], f"… {len(lines) - _DIFF_LINES} more lines"]


def would(finding: Finding) -> dict[str, Any]:
    """Return what a preview's row says about a host: `{}` when nothing would change."""
    match finding.kind:
        case "same":
            return {}
        case "change":
            told: dict[str, Any] = {"wouldChange": {each.title: each.text for each in merged(finding.changes)}}
            return told | {"disrupts": finding.cost}
        case "failed":
            told = {"wouldFail": finding.note}
            if finding.changes:
                told["wouldChange"] = {each.title: each.text for each in merged(finding.changes)}
            return told | {"disrupts": finding.cost}
        case _:
            return {"wouldChange": finding.note} | ({"disrupts": finding.cost} if finding.cost != "none" else {})


def merged(changes: Iterable[Change]) -> list[Change]:
    """Return changes with those of one title made one: a task may come several times."""
    found: dict[str, Change] = {}
    for each in changes:
        before = found.get(each.title, Change(each.role, each.task))
        found[each.title] = Change(each.role, each.task, (*before.what, *each.what), (*before.diff, *each.diff))
    return list(found.values())


def summary(findings: Sequence[Finding], *, drift: bool = False) -> str:
    """Return how many hosts are what: `3 would change, 1 unreachable, 7 would not change`."""
    names: dict[Kind, str] = {
        "change": "drifted" if drift else "would change",
        "unlike": "at another digest",
        "failed": "would fail",
        "unreachable": "unreachable",
        "unseen": "not looked at",
        "same": "as it should be" if drift else "would not change",
    }
    counts = {kind: sum(finding.kind == kind for finding in findings) for kind in names}
    return ", ".join(f"{count} {names[kind]}" for kind, count in counts.items() if count) or "no hosts"
