"""Which member of an etcd cluster may be changed, joined, replaced or removed next.

Pure: what the members' hosts say goes in, decisions come out; `slipway.provider.members` asks and acts. A reason is one
line, or "" where nothing speaks against it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

LAG = 1_000
"""Entries of the raft log by which a member may be behind and still count as caught up. etcd itself turns requests
away at 5,000 (`maxGapBetweenApplyAndCommitIndex`)."""

Step = Literal["join", "begin", "replace", "change"]
"""What a host's turn is: `join` a cluster that does not know it; `begin` as the member that was added but never began;
`replace` a member whose data are gone; `change` one that is there."""


@dataclass(frozen=True)
class Member:
    """An entry of the cluster's member list.

    Args:
        id: its id.
        name: its name, which is its host's; "" for one that was added and has not begun.
        peer_url: where other members reach it.
        client_urls: where clients reach it, as it announced; none before it has begun.
        learner: it gets all data and has no vote yet.
    """

    id: int
    name: str
    peer_url: str
    client_urls: tuple[str, ...] = ()
    learner: bool = False

    @property
    def begun(self) -> bool:
        """Whether it was ever up."""
        return bool(self.client_urls)


@dataclass(frozen=True)
class Word:
    """What a host says of its own member.

    Args:
        well: it serves and sees a majority.
        complaint: one line when not well.
        reached: the host answers.
        has_data: the host has a member's data.
        id: the member's id; 0 when it does not run.
        cluster: the cluster's id; 0 likewise.
        leader: the id of the leader that it follows; 0 for none.
        index: the end of the raft log that it knows.
        applied: how far it has applied that.
        quota: the size of the database at which it refuses writes, bytes.
        alarms: alarms that are raised, such as NOSPACE.
        members: the cluster's list, as a majority has it; none from a learner, or one that sees no majority.
    """

    well: bool
    complaint: str = ""
    reached: bool = True
    has_data: bool = True
    id: int = 0
    cluster: int = 0
    leader: int = 0
    index: int = 0
    applied: int = 0
    quota: int = 0
    alarms: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()


@dataclass(frozen=True)
class View:
    """A cluster as its hosts tell of it.

    Args:
        peer_urls: declared host → where its member is reached by others.
        words: what each host says, by the member's name; members whose hosts are not declared are among them.
        quota: the quota that members are to have, bytes.
    """

    peer_urls: Mapping[str, str]
    words: Mapping[str, Word]
    quota: int = 0
    _none: Word = field(default=Word(well=False, complaint="was not asked", reached=False), repr=False)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The cluster's list; empty where no member sees a majority."""
        return next((word.members for word in self.words.values() if word.members), ())

    @cached_property
    def voters(self) -> tuple[Member, ...]:
        """Members that count for a majority."""
        return tuple(member for member in self.members if not member.learner)

    @property
    def is_split(self) -> bool:
        """Whether there are members of two clusters."""
        return len({word.cluster for word in self.words.values() if word.cluster}) > 1

    @property
    def has_data(self) -> bool:
        """Whether any host has data of a member."""
        return any(word.has_data for word in self.words.values())

    @property
    def spokesman(self) -> str | None:
        """A host whose member can be asked to change the list."""
        return next((name for name, word in self.words.items() if word.members), None)

    def word(self, name: str) -> Word:
        """What a host says."""
        return self.words.get(name, self._none)

    def entry(self, host: str) -> Member | None:
        """A host's member."""
        url = self.peer_urls.get(host)
        return next((each for each in self.members if each.peer_url == url or each.name == host), None)

    def leads(self, host: str) -> bool:
        """Whether a host's member is the leader."""
        word = self.word(host)
        return word.id != 0 and word.id == word.leader

    def trouble(self, name: str) -> str:
        """Why a member is not well; "" when it serves and has caught up."""
        word = self.word(name)
        if not word.well:
            return word.complaint
        behind = max(each.index for each in self.words.values()) - word.applied
        return f"is {behind} entries behind" if behind > LAG else ""

    def alarms(self, name: str) -> str:
        """Alarms that forbid a change of a member. No space is no hindrance to giving it more."""
        raised = {alarm for word in self.words.values() for alarm in word.alarms}
        if self.word(name).quota < self.quota:
            raised.discard("NOSPACE")
        return ", ".join(sorted(raised))


def majority(voters: int) -> int:
    """How many of so many must be well."""
    return voters // 2 + 1


def step(view: View, host: str) -> Step:
    """Say what a host's turn is, in a cluster with a majority."""
    entry, word = view.entry(host), view.word(host)
    if entry is None:
        return "join"
    if not entry.begun:
        return "begin"
    return "replace" if word.reached and not word.has_data else "change"


def order(view: View, hosts: Sequence[str]) -> list[str]:
    """Return hosts that are not well or have no vote yet, then those that join, then followers, and the leader last."""

    def rank(host: str) -> int:
        entry = view.entry(host)
        if view.members and entry is None:
            return 1
        if view.trouble(host) or (entry and entry.learner):
            return 0
        return 3 if view.leads(host) else 2

    return sorted(hosts, key=rank)  # stable: else in the order given


def cannot_stop(view: View, host: str) -> str:
    """Say why a member that serves may not be stopped now, be it for a restart."""
    entry = view.entry(host)
    if entry is None or entry.learner or not view.word(host).well:
        return ""
    if alarms := view.alarms(host):
        return f"alarm {alarms} is raised"
    others = [member for member in view.voters if member.id != entry.id]
    for other in others:
        if trouble := view.trouble(other.name):
            return f"{other.name or other.peer_url} {trouble}"
    spare = len(others) >= majority(len(view.voters))
    # A cluster that is declared to be of one cannot be changed without a break.
    return "" if spare or len(view.peer_urls) == 1 else f"{len(view.voters)} members cannot spare one"


def cannot_remove(view: View, member: Member) -> str:
    """Say why a member may not be taken from the list: the majority of those that stay must be well."""
    if member.learner:
        return ""
    rest = [each for each in view.voters if each.id != member.id]
    well = [each for each in rest if not view.trouble(each.name)]
    if not rest:
        return "it is the last member"
    if len(well) < majority(len(rest)):
        return f"{len(well)} of the {len(rest)} members that stay are well, and {majority(len(rest))} must be"
    return ""


def successor(view: View, leader: str, leaving: Collection[str] = ()) -> Member | None:
    """Return who is to lead instead of a leader: well, caught up, with a vote, not leaving, and declared if one is."""
    able = [
        member
        for member in view.voters
        if member.name not in (leader, *leaving) and member.begun and not view.trouble(member.name)
    ]
    return max(able, key=lambda each: (each.name in view.peer_urls, view.word(each.name).applied), default=None)
