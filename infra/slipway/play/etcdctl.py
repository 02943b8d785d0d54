"""How an etcd member is asked, by a script on its own host with the host's own certificate, and what its answers mean.

The scripts need nothing but `sh` and `etcdctl`; a host that is still empty answers too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipway.play.etcd_order import Member, Word
from slipway.play.remote import Reply

SECONDS = 5
"""How long a member may take for an answer."""

_DATA = "directory=$(sed -n 's/^data-dir: *//p' /etc/etcd/etcd.yaml 2>/dev/null)"
_CTL = f"etcdctl --command-timeout={SECONDS}s"

LOOK = f"""{_DATA}
test -n "$directory" && test -d "$directory/member/wal" && echo data
command -v etcdctl >/dev/null || exit 0
{_CTL} endpoint status -w json 2>/dev/null | sed 's/^/status /'
{_CTL} member list -w json 2>&1 | tail -n 1 | sed 's/^/members /'
"""
"""Prints `data` where there are some, then what the member says of itself and the list as a majority has it."""

SET_ASIDE = f"""{_DATA}
systemctl disable --now etcd.service 2>/dev/null
test -d "$directory/member" || exit 0
mv "$directory/member" "$directory/removed-$(date -u +%Y%m%dT%H%M%SZ)"
"""
"""Stops a member that no cluster knows any more, for good, and puts its data where nobody reads them."""


def move_leader(leader: Member, to: Member) -> str:
    """Return the script that makes another member the leader."""
    return f"{_CTL} --endpoints={shlex.quote(','.join(leader.client_urls))} move-leader {to.id:x}"


def remove(member: Member) -> str:
    """Return the script that takes a member from the list."""
    return f"{_CTL} member remove {member.id:x}"


def add(name: str, peer_url: str) -> str:
    """Return the script that adds a member which gets all data and has no vote yet."""
    return f"{_CTL} member add {shlex.quote(name)} --learner --peer-urls={shlex.quote(peer_url)}"


def promote(member: Member) -> str:
    """Return the script that gives a member its vote; it fails while the member is behind."""
    return f"{_CTL} member promote {member.id:x}"


def look_at(members: Sequence[Member]) -> str:
    """Return the script that asks other members of what they say of themselves, a line each."""
    asks = [
        f"{_CTL} --endpoints={shlex.quote(','.join(each.client_urls))} endpoint status -w json 2>/dev/null"
        f" | sed 's/^/{each.id:x} /'"
        for each in members
    ]
    return "\n".join([*asks, "true"])


def word(reply: Reply) -> Word:
    """Return what a host said to `LOOK`."""
    if not reply.ok:
        return Word(well=False, complaint=f"cannot be asked: {reply.reason}", reached=False, has_data=False)
    lines = dict(line.partition(" ")[::2] for line in reply.output.splitlines())
    has_data = "data" in lines
    status, listed = _json(lines.get("status", "")), _json(lines.get("members", ""))
    if not status:
        complaint = "does not answer" if has_data else "has no data"
        return Word(well=False, complaint=complaint, has_data=has_data)
    members = tuple(_member(each) for each in listed["members"]) if listed else ()
    found = _of_status(status[0]["Status"], members)
    learner = bool(status[0]["Status"].get("isLearner"))
    if found.leader and not members and not learner:
        return replace(found, well=False, complaint=f"sees no majority: {lines.get('members', 'no answer')[-200:]}")
    return found


def strangers(reply: Reply, members: Sequence[Member]) -> dict[str, Word]:
    """Return what members said to `look_at`, by name."""
    lines = dict(line.partition(" ")[::2] for line in reply.output.splitlines())
    found = {}
    for member in members:
        status = _json(lines.get(f"{member.id:x}", ""))
        silent = Word(well=False, complaint="does not answer", reached=False, has_data=False)
        found[member.name] = _of_status(status[0]["Status"], ()) if status else silent
    return found


def _of_status(status: Mapping[str, Any], members: tuple[Member, ...]) -> Word:
    header = status["header"]
    leader = int(status.get("leader", 0))
    # "memberID:10501334649042878790 alarm:NOSPACE "; "etcdserver: no leader" is among them, too.
    alarms = [each.rpartition("alarm:")[2].strip() for each in status.get("errors", ()) if "alarm:" in each]
    return Word(
        well=leader != 0,
        complaint="" if leader else "has no leader",
        id=int(header["member_id"]),
        cluster=int(header["cluster_id"]),
        leader=leader,
        index=int(status.get("raftIndex", 0)),
        applied=int(status.get("raftAppliedIndex", 0)),
        quota=int(status.get("dbSizeQuota", 0)),
        alarms=tuple(sorted(set(alarms))),
        members=members,
    )


def _member(listed: Mapping[str, Any]) -> Member:
    return Member(
        id=int(listed["ID"]),
        name=listed.get("name", ""),
        peer_url=listed["peerURLs"][0],
        client_urls=tuple(listed.get("clientURLs", ())),
        learner=bool(listed.get("isLearner")),
    )


def _json(text: str) -> Any:
    """Return what JSON says; None for a message in plain words."""
    try:
        return json.loads(text)
    except ValueError:
        return None
