"""The rollout planner: what must hold for all hosts and policies, and a few plans by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.play.rollout import Budget, Limits, Plan, RolloutError, first_few, plan

HOSTS = [f"h{number:02}" for number in range(40)]
names = st.lists(st.sampled_from(HOSTS), unique=True)
some = st.sets(st.sampled_from(HOSTS))
modes = st.sampled_from(["together", "quorum", "waves"])
places = st.fixed_dictionaries({host: st.sampled_from(["", "a", "b", "c"]) for host in HOSTS})
racks = st.fixed_dictionaries({host: st.sampled_from(["", "1", "2", "3", "4"]) for host in HOSTS})
limits = st.builds(Limits, st.integers(1, 5), st.integers(1, 4), st.integers(1, 20), st.integers(1, 100))
percents = st.none() | st.integers(0, 100)
budgets = st.builds(Budget, st.none() | st.integers(0, 50), percents)


def units_of(domains, units):
    """Units that lie in one failure domain, as they do in the world."""
    return {host: f"{domains[host]}{unit}" if unit else "" for host, unit in units.items()}


@given(modes, names, some, places, racks, some, limits, budgets)
def test_every_host_comes_exactly_once_and_no_wave_is_empty(
    mode, hosts, converged, domains, units, troubled, limits, budget
):
    found = plan(
        mode,
        hosts,
        converged,
        failure_domains=domains,
        units=units_of(domains, units),
        troubled=troubled,
        limits=limits,
        budget=budget,
    )
    assert sorted(name for wave in found.waves for name in wave) == sorted(hosts)
    assert all(found.waves)


@given(names, some)
def test_quorum_takes_one_member_a_wave_once_any_runs(hosts, converged):
    found = plan("quorum", hosts, converged)
    if converged:
        assert all(len(wave) == 1 for wave in found.waves)
        assert not found.may_fail


@given(names, some, places, racks, some, limits)
def test_waves_keep_to_limits_failure_domains_and_units(hosts, converged, domains, racks, troubled, limits):
    units = units_of(domains, racks)
    largest = limits.largest(len(hosts))
    found = plan("waves", hosts, converged, failure_domains=domains, units=units, troubled=troubled, limits=limits)
    allowed = min(limits.canary, largest)
    for wave in found.waves:
        risked = [name for name in wave if name in converged]
        together = {units[name] or name for name in risked}
        assert len(risked) <= allowed or len(together) == 1
        assert len({domains[name] for name in risked}) <= 1
        allowed = min(max(allowed, len(risked)) * limits.growth, largest)
    for unit in {units[host] for host in hosts} - {""}:
        members = {host for host in hosts if units[host] == unit}
        assert sum(bool(members.intersection(wave)) for wave in found.waves) == 1


@given(names, some, places, limits)
def test_a_begun_failure_domain_is_finished_before_the_next(hosts, converged, domains, limits):
    found = plan("waves", hosts, converged, failure_domains=domains, limits=limits)
    seen = [domains[host] for wave in found.waves for host in wave if host in converged]
    assert seen == sorted(seen)


@given(names, some, some, limits)
def test_hosts_that_failed_before_come_last_and_are_no_canaries(hosts, converged, troubled, limits):
    found = plan("waves", hosts, converged, troubled=troubled, limits=limits)
    order = [host in troubled for wave in found.waves for host in wave if host in converged]
    assert order == sorted(order)
    assert not found.canaries & troubled
    assert found.canaries <= set(found.waves[0] if found.waves else [])


@given(names, some, some, some, budgets, st.integers(0, 20))
def test_a_rollout_goes_on_within_its_budget_and_never_beyond(hosts, converged, troubled, failing, budget, more):
    total = len(hosts) + more
    found = plan("waves", hosts, converged, troubled=troubled, budget=budget, total=total)
    failed: set[str] = set()
    well = 0
    for done, wave in enumerate(found.waves, 1):
        failed |= failing.intersection(wave)
        well += len(set(wave) - failed)
        why = found.stopped(done, failed, well)
        complete = done == len(found.waves)
        canary = found.canaries & failed if well else failed - troubled
        assert bool(why) == (not complete and (len(failed) > budget.may_fail(total) or bool(canary)))
        assert "\n" not in why
        if why:
            break


@given(names, some, some, places, limits, st.integers(0, 10))
def test_what_is_left_after_an_interruption_goes_once_and_in_no_larger_waves(
    hosts, converged, failing, domains, limits, wave
):
    def planned(names):
        return plan("waves", names, converged, failure_domains=domains, limits=limits, total=len(hosts))

    first = planned(hosts)
    done = {name for each in first.waves[:wave] for name in each} - failing
    resumed = planned([name for name in hosts if name not in done])
    assert sorted(name for each in resumed.waves for name in each) == sorted(set(hosts) - done)
    for each in resumed.waves:
        assert len(converged.intersection(each)) <= limits.largest(len(hosts))


def test_a_new_etcd_cluster_forms_together():
    assert plan("quorum", ["e0", "e1", "e2"]).waves == [["e0", "e1", "e2"]]


def test_replaced_members_come_one_at_a_time_before_the_others_roll():
    assert plan("quorum", ["e0", "e1", "e2"], {"e0", "e2"}).waves == [["e1"], ["e0"], ["e2"]]
    assert plan("quorum", ["e3", "e4"], {"e0", "e1", "e2"}).waves == [["e3"], ["e4"]]


def test_members_go_in_the_order_that_is_given():
    assert plan("quorum", ["e2", "e0", "e1"], {"e0", "e1", "e2"}).waves == [["e2"], ["e0"], ["e1"]]


def test_waves_grow_after_the_canary_and_finish_a_domain_first():
    nodes = [f"n{number}" for number in range(8)]
    domains = {node: "b" if number < 4 else "a" for number, node in enumerate(nodes)}
    assert plan("waves", nodes, nodes, failure_domains=domains, limits=Limits(hosts=3)).waves == [
        ["n4"],
        ["n5", "n6"],
        ["n7"],
        ["n0", "n1", "n2"],
        ["n3"],
    ]


def test_a_unit_is_the_canary_as_a_whole_and_waves_grow_from_it():
    nodes = [f"n{number}" for number in range(8)]
    racks = {node: f"r{number // 2}" for number, node in enumerate(nodes)}
    assert plan("waves", nodes, nodes, units=racks).waves == [["n0", "n1"], nodes[2:6], nodes[6:]]
    assert plan("waves", nodes, nodes, units=racks, limits=Limits(hosts=3)).waves == [
        ["n0", "n1"],
        ["n2", "n3"],
        ["n4", "n5"],
        ["n6", "n7"],
    ]


def test_limits_relate_to_the_whole_pool_when_only_some_of_it_is_left():
    nodes = [f"n{number}" for number in range(10)]
    quarter = Limits(canary=10, percent=25)
    assert [len(wave) for wave in plan("waves", nodes, nodes, limits=quarter, total=16).waves] == [4, 4, 2]
    assert [len(wave) for wave in plan("waves", nodes, nodes, limits=quarter).waves] == [2, 2, 2, 2, 2]


def test_new_nodes_join_the_second_wave():
    assert plan("waves", ["n0", "n1", "n2"], {"n0", "n2"}).waves == [["n0"], ["n2", "n1"]]
    assert plan("waves", ["n0", "n1", "n2"], {"n0"}).waves == [["n0"], ["n1", "n2"]]


def test_a_new_pool_starts_with_a_canary_too():
    assert plan("waves", ["n0", "n1", "n2"]).waves == [["n0"], ["n1", "n2"]]
    assert plan("waves", ["n0", "n1", "n2"], troubled=["n0"]).waves == [["n1"], ["n2", "n0"]]


def test_a_stop_says_where_why_and_what_is_left():
    hosts = [f"n{number}" for number in range(7)]
    found = plan("waves", hosts, hosts, budget=Budget(percent=20))
    assert found == Plan([hosts[:1], hosts[1:3], hosts[3:]], 1, 7)
    assert found.stopped(1, ["n0"], 0) == (
        "stopped after wave 1 of 3: the canary failed (n0); not begun: n1, n2, n3, n4, n5, n6"
    )
    assert found.stopped(2, ["n1"], 2) == ""
    assert found.stopped(2, ["n2", "n1"], 1) == (
        "stopped after wave 2 of 3: 2 of 7 hosts failed (n1, n2), the budget is 1; not begun: n3, n4, n5, n6"
    )
    assert found.stopped(3, hosts, 0) == ""


def test_after_a_deferred_canary_the_next_hosts_are_canaries():
    hosts = [f"n{number}" for number in range(7)]
    found = plan("waves", hosts, hosts, budget=Budget(hosts=5))
    assert found.stopped(2, ["n1"], 1) == ""
    assert found.stopped(2, ["n1"], 0).startswith("stopped after wave 2 of 3: the canary failed (n1); not begun: n3")


def test_many_names_are_cut():
    assert first_few(HOSTS[:6]) == "h00, h01, h02, h03, h04, h05"
    assert first_few(HOSTS) == "h00, h01, h02, h03, h04 and 35 more"


@pytest.mark.parametrize(
    ("budget", "may_fail"),
    [(Budget(), 0), (Budget(3), 3), (Budget(percent=5), 2), (Budget(1, 5), 1), (Budget(9, 5), 2), (Budget(0, 50), 0)],
)
def test_the_lower_limit_of_a_budget_counts(budget, may_fail):
    assert budget.may_fail(50) == may_fail


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (lambda: Limits(canary=0), "rollout.canary: expected 1 or more, got 0"),
        (lambda: Limits(percent=101), "rollout.percent: expected 1 to 100, got 101"),
        (lambda: Budget(hosts=-1), "rollout.budget.hosts: expected 0 or more, got -1"),
        (lambda: Budget(percent=101), "rollout.budget.percent: expected 0 to 100, got 101"),
    ],
)
def test_limits_that_make_no_sense_are_refused(policy, message):
    with pytest.raises(RolloutError, match=message):
        policy()


def test_what_makes_no_plan_is_refused():
    with pytest.raises(RolloutError, match="n0 given more than once"):
        plan("together", ["n0", "n0"])
    with pytest.raises(RolloutError, match="'all' is none of together, quorum, waves"):
        plan("all", ["n0"])
    with pytest.raises(RolloutError, match="unit r: its hosts lie in two failure domains, a and b"):
        plan("waves", ["n0", "n1"], failure_domains={"n0": "b", "n1": "a"}, units={"n0": "r", "n1": "r"})
