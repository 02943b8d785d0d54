"""Which etcd member goes when: what must hold for all clusters, and a few by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slipway.play import etcd_order
from slipway.play.etcd_order import LAG, Member, View, Word, majority


def url(name: str) -> str:
    return f"https://{name}:2380"


def member(number: int, *, learner: bool = False, begun: bool = True) -> Member:
    name = f"e{number}"
    clients = (f"https://{name}:2379",) if begun else ()
    return Member(100 + number, name if begun else "", url(name), clients, learner)


def view(members: list[Member], words: dict[str, Word], *, hosts: list[str] | None = None, quota: int = 0) -> View:
    """What a well member says of the list is said by all that are well."""
    said = {name: replace(word, members=tuple(members) if word.well else ()) for name, word in words.items()}
    return View({name: url(name) for name in hosts or words}, said, quota)


def well(number: int, leader: int = 0, **more: object) -> Word:
    return Word(True, id=100 + number, cluster=1, leader=100 + leader, index=50, applied=50, **more)  # type: ignore[arg-type]


SILENT = Word(False, "does not answer")
GONE = Word(False, "has no data", has_data=False)
AWAY = Word(False, "cannot be asked", reached=False, has_data=False)


@st.composite
def views(draw: st.DrawFn) -> View:
    """Clusters with a majority, of members in all states; one of those that are well leads."""
    count = draw(st.integers(1, 7))
    members = [member(number, learner=draw(st.booleans()) if number else False) for number in range(count)]
    voters = [each for each in members if not each.learner]
    states = {each.name: draw(st.sampled_from(["well", "well", "behind", "silent", "gone"])) for each in members}
    assume(sum(states[each.name] in ("well", "behind") for each in voters) >= majority(len(voters)))
    leader = next(each for each in voters if states[each.name] in ("well", "behind"))
    words = {}
    for number, each in enumerate(members):
        word = well(number, leader.id - 100)
        words[each.name] = {
            "well": word,
            "behind": replace(word, index=50 + LAG + 1 if each is leader else 50),
            "silent": SILENT,
            "gone": GONE,
        }[states[each.name]]
    return view(members, words)


@given(views())
def test_every_host_has_its_turn_unwell_first_and_the_leader_last(seen):
    hosts = sorted(seen.words, reverse=True)
    order = etcd_order.order(seen, hosts)
    assert sorted(order) == sorted(hosts)
    first = [bool(seen.trouble(host)) or seen.entry(host).learner for host in order]
    assert first == sorted(first, reverse=True)
    leaders = [host for host in order if seen.leads(host) and not seen.trouble(host)]
    assert not leaders or order[-1] == leaders[0]


@given(views())
def test_a_member_that_is_well_stops_only_where_the_others_have_a_majority(seen):
    assume(len(seen.peer_urls) > 1)
    for each in seen.voters:
        if seen.word(each.name).well and not etcd_order.cannot_stop(seen, each.name):
            others = [other for other in seen.voters if other is not each and not seen.trouble(other.name)]
            assert len(others) == len(seen.voters) - 1
            assert len(others) >= majority(len(seen.voters))


@given(views())
def test_a_member_is_removed_only_where_a_majority_of_the_rest_is_well(seen):
    for each in seen.members:
        if each.learner or etcd_order.cannot_remove(seen, each):
            continue
        rest = [other for other in seen.voters if other is not each]
        assert sum(not seen.trouble(other.name) for other in rest) >= majority(len(rest)) >= 1


@given(views())
def test_a_successor_is_well_and_another_voter(seen):
    leader = next(name for name in seen.words if seen.leads(name))
    to = etcd_order.successor(seen, leader)
    if to is not None:
        assert to.name != leader
        assert not to.learner
        assert not seen.trouble(to.name)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"e0": well(0), "e1": well(1), "e2": well(2)}, ["e1", "e2", "e0"]),
        ({"e0": well(0, 1), "e1": well(1, 1), "e2": SILENT}, ["e2", "e0", "e1"]),
        ({"e0": well(0, 1), "e1": well(1, 1), "e2": GONE}, ["e2", "e0", "e1"]),
    ],
)
def test_orders(words, expected):
    assert etcd_order.order(view([member(0), member(1), member(2)], words), ["e0", "e1", "e2"]) == expected


def test_new_members_come_before_those_that_run():
    seen = view([member(0)], {"e0": well(0), "e1": GONE, "e2": GONE})
    assert etcd_order.order(seen, ["e0", "e1", "e2"]) == ["e1", "e2", "e0"]


def test_without_a_majority_the_order_is_that_of_trouble():
    words = {"e0": Word(False, "has no leader", id=100), "e1": SILENT}
    assert etcd_order.order(view([], words), ["e0", "e1"]) == ["e0", "e1"]


@pytest.mark.parametrize(
    ("entry", "word", "expected"),
    [
        (None, GONE, "join"),
        (None, SILENT, "join"),
        (member(1, begun=False), GONE, "begin"),
        (member(1), GONE, "replace"),
        (member(1), SILENT, "change"),
        (member(1), AWAY, "change"),
        (member(1, learner=True), well(1), "change"),
    ],
)
def test_steps(entry, word, expected):
    seen = view([member(0)] + [entry] * (entry is not None), {"e0": well(0), "e1": word})
    assert etcd_order.step(seen, "e1") == expected


THREE = [member(0), member(1), member(2)]


@pytest.mark.parametrize(
    ("members", "words", "reason"),
    [
        (THREE, {"e0": well(0), "e1": well(1), "e2": well(2)}, ""),
        (THREE, {"e0": well(0), "e1": well(1), "e2": SILENT}, "e2 does not answer"),
        (THREE, {"e0": SILENT, "e1": well(1, 1), "e2": SILENT}, ""),  # not well itself: a turn is its cure
        (
            THREE,
            {"e0": replace(well(0), applied=50 + 2 * LAG, index=50 + 2 * LAG), "e1": well(1), "e2": well(2)},
            "e1 is 2000 entries behind",
        ),
        (THREE, {"e0": well(0), "e1": well(1), "e2": well(2, alarms=("CORRUPT",))}, "alarm CORRUPT is raised"),
        (THREE[:1], {"e0": well(0)}, ""),
        (THREE[:2], {"e0": well(0), "e1": well(1)}, "2 members cannot spare one"),
    ],
)
def test_stopping(members, words, reason):
    assert etcd_order.cannot_stop(view(members, words), "e0") == reason


def test_a_cluster_that_is_to_be_of_one_can_be_stopped():
    assert etcd_order.cannot_stop(view(THREE[:2], {"e0": well(0), "e1": well(1)}, hosts=["e0"]), "e0") == ""


def test_no_space_does_not_forbid_giving_more():
    words = {f"e{number}": well(number, quota=100, alarms=("NOSPACE",)) for number in range(3)}
    assert etcd_order.cannot_stop(view(THREE, words, quota=100), "e1") == "alarm NOSPACE is raised"
    assert etcd_order.cannot_stop(view(THREE, words, quota=200), "e1") == ""


@pytest.mark.parametrize(
    ("members", "words", "gone", "reason"),
    [
        (THREE, {"e0": well(0), "e1": well(1), "e2": SILENT}, 2, ""),
        (
            THREE,
            {"e0": well(0), "e1": well(1), "e2": SILENT},
            1,
            "1 of the 2 members that stay are well, and 2 must be",
        ),
        (THREE[:1], {"e0": well(0)}, 0, "it is the last member"),
        ([member(0), member(1, learner=True)], {"e0": well(0), "e1": SILENT}, 1, ""),
    ],
)
def test_removing(members, words, gone, reason):
    assert etcd_order.cannot_remove(view(members, words), members[gone]) == reason


def test_two_clusters_are_seen():
    assert view(THREE[:1], {"e0": well(0), "e1": replace(well(1), cluster=2)}).is_split
    assert not view(THREE[:1], {"e0": well(0), "e1": SILENT}).is_split
