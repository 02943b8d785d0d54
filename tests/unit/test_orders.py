"""What hosts are to become: digests of all, orders of some, and which of them need nothing."""

import pytest

from slipway.node import bundle
from slipway.play.broker import BrokerError
from slipway.play.runner import Result
from slipway.provider.orders import Orders
from slipway.provider.play_inputs import PlayInputs

HOST_KEY = "ssh-ed25519 AAAA"


def inputs(**changes):
    hosts = [
        {"name": name, "address": "10.0.0.1", "hostKey": HOST_KEY, "pool": "gpu", "vars": {"node_name": name}}
        for name in ("a", "b", "c")
    ]
    usual = {"playbook": "node", "hosts": hosts, "digest": "d", "release": "r", "sshKey": "k", "vars": {"one": 1}}
    return PlayInputs.model_validate(usual | changes)


@pytest.fixture
def bundles(monkeypatch):
    made = []
    either = bundle.Bundle("0" * 64, "/x")
    monkeypatch.setattr(bundle, "ensure", lambda: made.append(1) or bundle.Bundles(either, either))
    return made


def test_an_order_says_all_that_a_host_is_to_become(bundles):
    orders = Orders(inputs(secrets={"s": "x"}), {"b"}).of({"a", "b"})
    assert list(orders) == ["a", "b"]
    told = orders["a"].inputs
    assert told["vars"] == {"one": 1, "node_name": "a"}
    assert told["secrets"] == {"s": "x"}
    assert told["groups"] == ["gpu"]
    assert [orders[name].inputs["force"] for name in "ab"] == [False, True]
    assert told["digest"] != orders["b"].inputs["digest"]


def test_no_bundle_is_made_for_hosts_that_need_nothing(bundles):
    play = inputs()
    orders = Orders(play, set())
    seen = {host.name: Result(ok=True, digest=play.wanted(host)) for host in play.hosts}
    assert orders.untouched(seen) == {
        name: Result(ok=True, digest=r.digest, untouched=True) for name, r in seen.items()
    }
    assert orders.of(set()) == {}
    assert not bundles


def test_hosts_elsewhere_forced_or_not_read_are_not_left_untouched():
    play = inputs()
    at = play.digests()
    seen = {
        "a": Result(ok=True, digest=at["b"]),
        "b": Result(ok=True, digest=at["b"]),
        "c": Result(ok=False, unreachable=True, digest=at["c"]),
    }
    assert Orders(play, {"b"}).untouched(seen) == {}


def test_a_certificate_that_is_declared_wrongly_is_no_order(bundles):
    with pytest.raises(BrokerError, match=r"pki_certificates\[0\]"):
        Orders(inputs(vars={"pki_certificates": [{}]}), set()).of({"a"})
