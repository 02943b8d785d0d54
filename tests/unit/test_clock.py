"""How far a host's clock may be off, and what is said when it is further."""

import pytest

from slipway.play import clock

NOON = 1_764_590_400  # 2025-12-01 12:00:00 UTC


@pytest.mark.parametrize(
    ("theirs", "before", "after", "ahead"),
    [
        (100, 100.9, 101.2, 0),  # date says whole seconds, cut off
        (101, 100.9, 101.2, 0),
        (130, 100.0, 160.0, 0),  # a slow answer is no wrong clock
        (99, 100.9, 101.2, -1),
        (40, 100.0, 160.0, -60),
        (170, 100.0, 160.0, 10),
    ],
)
def test_only_what_cannot_be_the_time_of_the_question_counts(theirs, before, after, ahead):
    assert clock.ahead(theirs, before, after) == ahead


def test_both_times_are_told():
    assert clock.complaint(-3_600, NOON).startswith(
        "the clock is off: 2025-12-01 11:00:00 UTC on the host, 2025-12-01 12:00:00 UTC on the controller; "
    )
    assert clock.complaint(61, NOON)


@pytest.mark.parametrize("off", [0, 60, -60])
def test_what_is_within_the_bound_is_fine(off):
    assert clock.complaint(off, NOON) == ""
