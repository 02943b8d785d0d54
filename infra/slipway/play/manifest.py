"""What a host is, and what it should be.

A host keeps a manifest, `/var/lib/slipway/manifest.json`: for each playbook that was run on it the digest it was
brought to and how that went. The *wanted digest* stands for everything that decides what a playbook makes of a host:
content, release, variables and secrets. A host whose entry says `ok` at the wanted digest has nothing to do.

Pure: reads nothing but its arguments.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

VERSION = 1
"""The version of the manifest's form; a host writes it, another version counts as no manifest."""

DONE = "returned"
"""The last of the steps of a host (`slipway.node.host.steps`)."""

Result = Literal["ok", "failed", "cancelled", "running"]
"""How a run ended; `running` stays behind when the host or the run was killed."""

_SCRYPT_COST = 2**14


class ManifestError(ValueError):
    """A manifest cannot be understood; the message is one line."""


@dataclass(frozen=True)
class Role:
    """What one role did in the last run: digest of its files, `ok` or `failed`, number of changed tasks, how long."""

    digest: str
    result: str
    changed: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Entry:
    """The last run of one playbook on a host.

    Attributes:
        digest: the wanted digest that the run was for.
        result: how it ended.
        reason: one line; None when it went well.
        failed_task: `role : task`; None when no task failed.
        changed: number of tasks that changed something.
        roles: by name, those the run reached.
        started: UTC, such as 2026-01-31T12:00:00Z.
        finished: the same; None while it runs or when it was killed.
        seconds: how long it took.
        by: who ran it: user, controller and version.
        release_digest: SHA-256 (hex) of the release as it was; "" from before this was kept.
        step: the last step that is done (`slipway.node.host.steps`); "returned" when none is left.
        since: when that was.
        reboot: why the host must reboot, one line each; settled by any boot but `boot_id`.
        boot_id: the boot of the last run.
    """

    release: str
    digest: str
    result: Result
    reason: str | None = None
    failed_task: str | None = None
    changed: int = 0
    roles: Mapping[str, Role] = field(default_factory=dict)
    started: str = ""
    finished: str | None = None
    seconds: float = 0.0
    by: str = ""
    release_digest: str = ""
    step: str = DONE
    since: str = ""
    reboot: tuple[str, ...] = ()
    boot_id: str = ""

    def is_at(self, digest: str) -> bool:
        """Return whether nothing is to do for this wanted digest: neither to change nor steps that are left."""
        return self.result == "ok" and self.digest == digest and self.step == DONE


@dataclass(frozen=True)
class Manifest:
    """All a host says about itself: the last run of each playbook, by the playbook's name."""

    playbooks: Mapping[str, Entry] = field(default_factory=dict)

    def is_at(self, playbook: str, digest: str) -> bool:
        """Return whether the host needs no run of this playbook."""
        entry = self.playbooks.get(playbook)
        return entry is not None and entry.is_at(digest)


def parse(text: str) -> Manifest:
    """Read a manifest as a host wrote it; empty text is an empty manifest.

    Raises:
        ManifestError: the text is not a manifest of this version.
    """
    if not text.strip():
        return Manifest()
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ManifestError(f"expected a manifest of version {VERSION}")
    try:
        return Manifest({name: parse_entry(entry) for name, entry in data["playbooks"].items()})
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ManifestError(f"not a manifest: {error!r}") from error


def parse_entry(data: Mapping[str, Any]) -> Entry:
    """Read one entry, as it also comes in the result line of a run.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: something is missing or of the wrong kind.
    """
    if data["result"] not in ("ok", "failed", "cancelled", "running"):
        raise ValueError(f"unknown result {data['result']!r}")
    return Entry(
        release=str(data["release"]),
        digest=str(data["digest"]),
        result=data["result"],
        reason=_text(data, "reason"),
        failed_task=_text(data, "failed_task"),
        changed=int(data.get("changed", 0)),
        roles={
            name: Role(
                str(role.get("digest", "")),
                str(role.get("result", "")),
                int(role.get("changed", 0)),
                float(role.get("seconds", 0)),
            )
            for name, role in data.get("roles", {}).items()
        },
        started=str(data.get("started", "")),
        finished=_time(data, "finished"),
        seconds=float(data.get("seconds", 0)),
        by=str(data.get("by", "")),
        release_digest=str(data.get("release_digest", "")),
        step=str(data.get("step", DONE)),
        since=str(data.get("since", "")),
        reboot=tuple(str(each) for each in data.get("reboot") or ()),
        boot_id=str(data.get("boot_id", "")),
    )


def _text(data: Mapping[str, Any], name: str) -> str | None:
    value = data.get(name)
    return None if value is None else str(value)


def _time(data: Mapping[str, Any], name: str) -> str | None:
    """Return a time as it is written, when it is one with a zone.

    Raises:
        ValueError: it is none.
    """
    value = _text(data, name)
    if value and dt.datetime.fromisoformat(value).tzinfo is None:
        raise ValueError(f"{name} has no time zone: {value!r}")
    return value


def wanted_digests(
    *,
    content: str,
    release: str,
    common: Mapping[str, Any],
    own: Mapping[str, Mapping[str, Any]],
    secrets: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return for each host the digest of everything that decides what a playbook makes of it.

    What hosts have in common is worked through once: some 20 µs a host, whatever it is.

    Args:
        content: digest of the playbook and its roles (`bundle.playbook_digest`).
        release: digest of the release.
        common: variables of all hosts; artifacts are in them with their sha256.
        own: host → its own variables. They go over the common ones.
        secrets: what all hosts get besides; they cannot be found out from the digest, even short ones.

    Raises:
        TypeError: a value is none that JSON knows.
    """
    before = "\0".join([str(VERSION), content, release, ""])
    after = "\0" + fingerprint(secrets or {})
    shared = _members(common)
    digests = {}
    for host, variables in own.items():
        members = shared | _members(variables)
        text = ",".join(members[name] for name in sorted(members))
        digests[host] = hashlib.sha256(f"{before}{{{text}}}{after}".encode()).hexdigest()
    return digests


def wanted_digest(
    *, content: str, release: str, variables: Mapping[str, Any], secrets: Mapping[str, Any] | None = None
) -> str:
    """Return the same for one host: `variables` are all that it gets."""
    return wanted_digests(content=content, release=release, common={}, own={"": variables}, secrets=secrets)[""]


def fingerprint(secrets: Mapping[str, Any]) -> str:
    """Return a digest of secrets that is too slow to compute for guessing them; the same secrets give the same one."""
    return _fingerprint(_canonical(secrets)) if secrets else ""


@lru_cache(maxsize=64)
def _fingerprint(text: str) -> str:
    return hashlib.scrypt(text.encode(), salt=b"slipway manifest", n=_SCRYPT_COST, r=8, p=1, dklen=32).hex()


def _members(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the members of an object as `_canonical` writes them, by name."""
    return {name: f"{_canonical(name)}:{_canonical(each)}" for name, each in value.items()}


# JSON that is the same for equal values, however their keys are ordered.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
