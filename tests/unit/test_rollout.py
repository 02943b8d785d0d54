"""The rollout planner: what must hold for all hosts and policies, and a few plans by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.play.rollout import Limits, RolloutError, plan

names = st.lists(st.sampled_from([f"h{number:02}" for number in range(40)]), unique=True)
some = st.sets(st.sampled_from([f"h{number:02}" for number in range(40)]))
modes = st.sampled_from(["together", "quorum", "waves"])
domains = st.fixed_dictionaries({f"h{number:02}": st.sampled_from(["", "a", "b", "c"]) for number in range(40)})
limits = st.builds(Limits, st.integers(1, 5), st.integers(1, 4), st.integers(1, 20), st.integers(1, 100))


@given(modes, names, some, domains, limits)
def test_every_host_comes_exactly_once_and_no_wave_is_empty(mode, hosts, converged, domains, limits):
    waves = plan(mode, hosts, converged, failure_domains=domains, limits=limits)
    assert sorted(name for wave in waves for name in wave) == sorted(hosts)
    assert all(waves)


@given(names, some)
def test_quorum_takes_at_most_one_running_member_a_wave_and_alone(hosts, converged):
    for wave in plan("quorum", hosts, converged):
        assert len(wave) == 1 or not converged.intersection(wave)


@given(names, some, domains, limits)
def test_waves_keep_to_limits_and_failure_domains(hosts, converged, domains, limits):
    allowed = limits.canary
    for wave in plan("waves", hosts, converged, failure_domains=domains, limits=limits):
        risked = [name for name in wave if name in converged]
        assert len(risked) <= min(allowed, limits.largest(len(hosts)))
        assert len({domains[name] for name in risked}) <= 1
        allowed *= limits.growth


def test_a_new_etcd_cluster_forms_together():
    assert plan("quorum", ["e0", "e1", "e2"]) == [["e0", "e1", "e2"]]


def test_a_replaced_member_comes_before_the_others_roll():
    assert plan("quorum", ["e0", "e1", "e2"], {"e0", "e2"}) == [["e1"], ["e0"], ["e2"]]


def test_waves_grow_after_the_canary_and_finish_a_domain_first():
    nodes = [f"n{number}" for number in range(8)]
    domains = {node: "b" if number < 4 else "a" for number, node in enumerate(nodes)}
    assert plan("waves", nodes, nodes, failure_domains=domains, limits=Limits(hosts=3)) == [
        ["n4"],
        ["n5", "n6"],
        ["n7"],
        ["n0", "n1", "n2"],
        ["n3"],
    ]


def test_new_nodes_join_the_second_wave():
    assert plan("waves", ["n0", "n1", "n2"], {"n0", "n2"}) == [["n0"], ["n2", "n1"]]
    assert plan("waves", ["n0", "n1", "n2"], {"n0"}) == [["n0"], ["n1", "n2"]]


def test_a_new_pool_starts_with_a_canary_too():
    assert plan("waves", ["n0", "n1", "n2"]) == [["n0"], ["n1", "n2"]]


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"canary": 0}, "rollout.canary: expected 1 or more, got 0"),
        ({"percent": 101}, "rollout.percent: expected 1 to 100, got 101"),
    ],
)
def test_limits_that_make_no_sense_are_refused(policy, message):
    with pytest.raises(RolloutError, match=message):
        Limits(**policy)


def test_two_hosts_of_one_name_and_an_unknown_mode_are_refused():
    with pytest.raises(RolloutError, match="n0 given more than once"):
        plan("together", ["n0", "n0"])
    with pytest.raises(RolloutError, match="'all' is none of together, quorum, waves"):
        plan("all", ["n0"])
