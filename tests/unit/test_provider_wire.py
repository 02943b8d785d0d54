"""Values between the engine and Python, and what counts as a change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipway.provider import wire
from slipway.provider.wire import UNKNOWN, Secret

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3) | st.builds(Secret, inner)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_what_is_sent_comes_back(sent):
    assert wire.decode(wire.encode(sent)) == sent


@given(st.dictionaries(st.text(), values, max_size=4))
def test_nothing_differs_from_itself(inputs):
    assert wire.difference(inputs, inputs) == {} or wire.has_unknown(inputs)


def test_whole_numbers_are_ints():
    assert repr(wire.decode(wire.encode({"port": 22.0, "load": 0.5}))) == "{'load': 0.5, 'port': 22}"


def test_the_order_is_always_the_same():
    assert list(wire.decode(wire.encode({"d": {"b": 1, "a": 2}, "c": 3}))) == ["c", "d"]
    assert list(wire.decode(wire.encode({"d": {"b": 1, "a": 2}}))["d"]) == ["a", "b"]


def test_a_secret_does_not_show_what_it_holds():
    assert "hunter2" not in repr({"password": Secret("hunter2")})


def test_secrets_are_found_at_any_depth():
    assert wire.reveal({"a": [Secret({"b": Secret(1)})]}) == {"a": [{"b": 1}]}
    assert wire.has_unknown({"a": [Secret({"b": UNKNOWN})]})


def test_paths_lead_to_what_changed():
    old = {"hosts": [{"name": "a", "vars": {"x": 1, "dotted.key": 2}}], "gone": 1, "same": [1]}
    new = {"hosts": [{"name": "a", "vars": {"x": 2, "dotted.key": 3}}, {"name": "b"}], "same": [1]}
    assert wire.difference(old, new) == {
        "gone": "delete",
        'hosts[0].vars["dotted.key"]': "update",
        "hosts[0].vars.x": "update",
        "hosts[1]": "add",
    }


def test_no_path_leads_into_a_secret():
    assert wire.difference({"secrets": Secret({"a": 1})}, {"secrets": Secret({"a": 2})}) == {"secrets": "update"}


def test_becoming_secret_is_no_change():
    assert wire.difference({"a": "x"}, {"a": Secret("x")}) == {}


def test_what_is_not_known_yet_counts_as_changed():
    assert wire.difference({"a": "x"}, {"a": UNKNOWN}) == {"a": "update"}
