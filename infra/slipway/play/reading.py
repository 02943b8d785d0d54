"""The one read that a host costs: what it says that it is, before anything runs on it.

Used on both ways to a host: by the converge action of the controller's playbook, and beside Ansible. Pure, and of the
standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.play import manifest

STATE = "/var/lib/slipway"
"""Where a host keeps its manifest and bundles (`slipway.node.host.places`)."""

SCRIPT = f"""date +%s; cd {STATE} 2>/dev/null || exit 0
cat manifest.json 2>/dev/null; echo; ls bundles 2>/dev/null; true"""
"""What is run on the host as root. Nothing is written: the host may not have seen a run yet."""


@dataclass(frozen=True)
class Reading:
    """What a host says about itself.

    Args:
        playbooks: from its manifest, the last run of each playbook by the playbook's name, as the host wrote it.
        bundles: the digests of the bundles that it has.
        clock: what its clock says, in seconds since 1970; None when it did not say.
    """

    playbooks: Mapping[str, Any] = field(default_factory=dict)
    bundles: frozenset[str] = frozenset()
    clock: int | None = None

    def entry(self, playbook: str) -> dict[str, Any]:
        """Return the last run of a playbook; empty when there was none."""
        found = self.playbooks.get(playbook)
        return found if isinstance(found, dict) else {}

    def finished(self, playbook: str) -> str:
        """Return the digest that the last run of a playbook brought the host to; empty when there is more to do."""
        try:
            entry = manifest.parse_entry(self.entry(playbook))
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError):
            return ""
        return entry.digest if entry.is_at(entry.digest) else ""


def parse(output: str) -> Reading:
    """Return what a host wrote when it was read; a manifest that is torn counts as none."""
    clock, _, rest = output.partition("\n")
    first, _, rest = rest.partition("\n")
    try:
        said = json.loads(first) if first else {}
    except (ValueError, RecursionError):
        said = {}
    playbooks = said.get("playbooks") if isinstance(said, dict) and said.get("version") == manifest.VERSION else None
    return Reading(
        playbooks if isinstance(playbooks, dict) else {},
        frozenset(rest.split()),
        int(clock) if clock.isdecimal() else None,
    )
