"""What a look at hosts found, as it is told."""

from __future__ import annotations

from slipway.play import findings
from slipway.play.findings import Change, Finding

DIFF = "--- before: /etc/a\n+++ after: /etc/a\n@@ -1 +1 @@\n-old\n+new\n same\n"


def test_means_follow_the_number_of_hosts_unless_given() -> None:
    assert findings.means_for(None, 20) == "check"
    assert findings.means_for(None, 21) == "digest"
    assert findings.means_for("check", 7500) == "check"
    assert findings.means_for("sample", 1) == "sample"


def test_a_sample_has_the_first_and_the_last_of_each_pool() -> None:
    pools = {"a0": "a", "b0": "b", "a1": "a", "a2": "a", "c0": "c"}
    assert findings.sample(pools) == {"a": ["a0", "a2"], "b": ["b0"], "c": ["c0"]}


def test_a_change_tells_what_and_how() -> None:
    event = {"role": "etcd", "name": "Write", "status": "changed", "what": ["/etc/a"], "diff": DIFF}
    change = findings.change(event)
    assert change.title == "etcd : Write"
    assert change.line == "etcd : Write: /etc/a"
    assert change.text == "/etc/a\n-old\n+new"
    assert Change("", "Only a name").line == "Only a name"
    assert Change("", "Only a name").text == "would change"


def test_diffs_are_shortened() -> None:
    lines = findings.shortened("".join(f"+{'x' * 300}\n" for _ in range(50)))
    assert len(lines) == 13
    assert max(map(len, lines)) == 160
    assert lines[-1] == "… 38 more lines"


def test_a_list_of_changes_is_short() -> None:
    many = tuple(Change("r", f"t{number}", ("/x" * 500,)) for number in range(40))
    short = Finding("change", changes=many).short
    assert len(short) == 11
    assert short[-1] == "and 30 more"
    assert max(map(len, short)) <= 200


def test_rows_of_a_preview() -> None:
    write = Change("etcd", "Write", ("/etc/a",))
    cost = "restart:etcd"
    assert findings.would(Finding("same")) == {}
    assert findings.would(Finding("change", changes=(write, write), cost=cost)) == {
        "wouldChange": {"etcd : Write": "/etc/a, /etc/a"},
        "disrupts": "restart:etcd",
    }
    assert findings.would(Finding("unreachable", "unreachable: no route")) == {"wouldChange": "unreachable: no route"}
    failed = findings.would(Finding("failed", "etcd : Wait: no", (write,), cost))
    assert failed["wouldFail"] == "etcd : Wait: no"
    assert failed["wouldChange"] == {"etcd : Write": "/etc/a"}


def test_the_summary_counts() -> None:
    found = [Finding("same"), Finding("change"), Finding("same"), Finding("unreachable", "x")]
    assert findings.summary(found) == "1 would change, 1 unreachable, 2 would not change"
    assert findings.summary(found, drift=True) == "1 drifted, 1 unreachable, 2 as it should be"
    assert findings.summary([]) == "no hosts"
