"""Comparing versions of releases and of Debian packages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.lint import versions

numbers = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_versions_are_in_one_order(a: str, b: str, c: str) -> None:
    assert versions.same(a, b) == (not versions.older(a, b) and not versions.older(b, a))
    assert not (versions.older(a, b) and versions.older(b, a))
    if versions.older(a, b) and versions.older(b, c):
        assert versions.older(a, c)
    assert versions.newest([a, b, c]) in (a, b, c)


@settings(deadline=None)
@given(numbers)
def test_zeros_at_the_end_and_suffixes_do_not_count(version: str) -> None:
    if version.count(".") < 3:
        assert versions.same(version, f"{version}.0")
    assert versions.same(version, f"{version}-rc.1")
    assert versions.same(version, f"{version}+cuda13.3")


@pytest.mark.parametrize(
    ("older", "newer"), [("580.126.9", "580.126.20"), ("1.9", "1.18"), ("3.5.33", "3.6.0"), ("1.36", "1.36.1")]
)
def test_numbers_are_compared_as_numbers(older: str, newer: str) -> None:
    assert versions.older(older, newer)


@pytest.mark.parametrize(
    ("package", "upstream"),
    [
        ("1:4.5.2-1", "4.5.2"),
        ("2.30.7-1+cuda13.3", "2.30.7"),
        ("580.126.20-0ubuntu1", "580.126.20"),
        ("6.14.0-1003.3", "6.14.0"),
        ("3.1.0-091513", "3.1.0"),
        ("580.173.02", "580.173.02"),
        ("2:1.2.3", "1.2.3"),
    ],
)
def test_upstream_part_of_a_debian_version(package: str, upstream: str) -> None:
    assert versions.upstream(package) == upstream


@pytest.mark.parametrize(
    ("package", "version", "within"),
    [
        ("9.17.1.4-1", "9.17", True),
        ("9.17-1", "9.17", True),
        ("9.170-1", "9.17", False),
        ("580.126.16-1", "580.126.20", False),
        ("1:4.6.0-1", "4.6.0", True),
    ],
)
def test_a_package_within_a_version(package: str, version: str, within: bool) -> None:
    assert versions.within(package, version) is within


@pytest.mark.parametrize(
    ("one", "other", "apart"), [("1.35.8", "1.36.0", 1), ("1.36", "1.34", -2), ("3.6", "3.6.9", 0), ("1.36", "2.0", 64)]
)
def test_minors_apart(one: str, other: str, apart: int) -> None:
    assert versions.minors_apart(one, other) == apart
