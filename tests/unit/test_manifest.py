"""What a host says it is, against what it should be."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.play import manifest

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
variables = st.dictionaries(st.text(max_size=5), values, max_size=4)


def digest(**changes):
    usual = {"content": "c", "release": "r", "variables": {"a": 1}, "secrets": {"s": "x"}}
    return manifest.wanted_digest(**{**usual, **changes})


@settings(deadline=None)  # the first fingerprint is slow on a busy machine
@given(variables, variables)
def test_the_wanted_digest_depends_on_values_and_not_on_order(one, other):
    backwards = dict(reversed(one.items()))
    assert digest(variables=one) == digest(variables=backwards)
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (digest(variables=one) == digest(variables=other)) == same


@settings(deadline=None)
@given(variables, variables)
def test_the_digests_of_many_hosts_are_those_of_each(common, own):
    about = {"content": "c", "release": "r", "secrets": {"s": "x"}}
    found = manifest.wanted_digests(**about, common=common, own={"a": own, "b": {}})
    assert found == {"a": digest(variables=common | own), "b": digest(variables=common)}


def test_the_wanted_digest_stays_what_it_is():
    # Another one for the same content would converge every host of every cluster anew.
    variables = {"b": {"y": [1, "ä"], "x": None}, "a": True}
    assert (
        manifest.wanted_digest(content="c", release="r", variables=variables, secrets={"s": "x"})
        == "29e9740840b2d6b47a135bf340e696cc35e130d0c530aa903a3a6ed755dbaf92"
    )


@pytest.mark.parametrize(
    "change", [{"content": "d"}, {"release": "s"}, {"variables": {}}, {"secrets": {"s": "y"}}, {"secrets": {}}]
)
def test_each_input_changes_the_wanted_digest(change):
    assert digest(**change) != digest()


def test_a_manifest_survives_the_way_from_the_host():
    entry = {
        "release": "r1",
        "digest": "d1",
        "result": "failed",
        "reason": "etcd : Start: no",
        "failed_task": "etcd : Start",
        "changed": 3,
        "roles": {"etcd": {"digest": "e1", "result": "failed", "changed": 3, "seconds": 1.25}},
        "started": "2026-01-31T12:00:00Z",
        "finished": None,
        "seconds": 1.5,
        "by": "me",
        "release_digest": "r" * 64,
    }
    read = manifest.parse(json.dumps({"version": 1, "playbooks": {"etcd": entry}}))
    assert read.playbooks["etcd"].roles["etcd"] == manifest.Role("e1", "failed", 3, 1.25)
    assert read.playbooks["etcd"].release_digest == "r" * 64
    assert not read.is_at("etcd", "d1")
    assert manifest.parse(json.dumps({"version": 1, "playbooks": {"etcd": {**entry, "result": "ok"}}})).is_at(
        "etcd", "d1"
    )
    assert not read.is_at("apiserver", "d1")


def _with(member):
    return '{"version":1,"playbooks":{"a":{"release":"r","digest":"d","result":"ok",' + member + "}}}"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version":2,"playbooks":{}}',
        '{"version":1,"playbooks":{"a":{"digest":"x"}}}',
        pytest.param("[" * 200_000, id="deep"),
        _with('"changed":1e999'),
        _with('"finished":5'),
        _with('"finished":"yesterday"'),
        _with('"finished":"2026-01-31T12:00:00"'),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_line(text):
    with pytest.raises(manifest.ManifestError) as error:
        manifest.parse(text)
    assert "\n" not in str(error.value)


def test_no_manifest_is_an_empty_one():
    assert manifest.parse("\n") == manifest.Manifest()
