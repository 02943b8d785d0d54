"""The manifest: for each playbook that ran here, what the host was brought to and how that went.

`slipway.play.manifest` in the checkout is its other side and says what each field means.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from typing import Any

from slipway.node.host import places

VERSION = 1


def read() -> dict[str, Any]:
    """Return `{"version": 1, "playbooks": {name: entry}}`; an unreadable file counts as none."""
    with contextlib.suppress(OSError, ValueError), open(places.state("manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
        if (
            isinstance(manifest, dict)
            and manifest.get("version") == VERSION
            and isinstance(manifest.get("playbooks"), dict)
        ):
            return manifest
    return {"version": VERSION, "playbooks": {}}


def entry(playbook: str) -> dict[str, Any]:
    """Return what the manifest says about one playbook, {} when it never ran here."""
    found = read()["playbooks"].get(playbook)
    return found if isinstance(found, dict) else {}


def write(playbook: str, new: dict[str, Any]) -> None:
    """Put one playbook's entry into the manifest, a file of one line."""
    manifest = read()
    manifest["playbooks"][playbook] = new
    places.write(places.state("manifest.json"), json.dumps(manifest) + "\n")


def index(key: str) -> dict[str, Any]:
    """Return what the content bundle's index says of roles: their `roles` (digests), `costs`, or `proof`."""
    with (
        contextlib.suppress(OSError, ValueError, KeyError),
        open(places.content("index.json"), encoding="utf-8") as file,
    ):
        found: dict[str, Any] = json.load(file)[key]
        return found
    return {}


def now() -> str:
    """Return the time in UTC as 2026-01-31T12:00:00Z."""
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
