"""Reports of runs: the file, and the page in a real browser."""

import datetime as dt
import re
import stat

import pytest

import browser
from slipway.play.journal import Begin, End, Ended, Wave
from slipway.report import page, store
from slipway.report.model import HostReport, PlayReport, RunReport
from slipway.report.recorder import Recorder

BEGIN = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def at(seconds):
    return (BEGIN + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def report(hosts=6, *, finished=True):
    """A run of two waves in which one host failed, and hostile text came back."""
    rows = [
        HostReport(name=f"h{index}", pool="gpu", wave=1 + index % 2, outcome="converged", started=at(index), changed=3)
        for index in range(hosts)
    ]
    rows = [row.model_copy(update={"finished": at(10 + index)}) for index, row in enumerate(rows)]
    hostile = "<script>document.title = 'x'</script> & so"
    rows[1] = rows[1].model_copy(
        update={
            "outcome": "failed",
            "task": "etcd : Start etcd",
            "reason": hostile,
        }
    )
    rows += [HostReport(name="late", pool="gpu", outcome="not begun", reason="not begun: the rollout stopped at h1")]
    play = PlayReport(
        name="gpu", playbook="node", release="lab", waves=2, started=at(0), stopped="h1 failed", hosts=rows
    )
    return RunReport(
        stack="lab",
        by="me@here",
        pid=7,
        started=at(0),
        finished=at(70) if finished else None,
        plays=[play.model_copy(update={"finished": at(70) if finished else None})],
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "a home"))
    return tmp_path / "a home"


def test_what_is_written_is_read_back_and_is_its_owners(home):
    wrote = store.write(report())
    found, read = store.latest("lab")
    assert read == report()
    assert found == wrote
    assert {stat.S_IMODE(path.stat().st_mode) for path in (found, found.with_suffix(".html"))} == {0o600}
    assert stat.S_IMODE(wrote.parent.stat().st_mode) == 0o700


def test_only_the_last_are_kept(home):
    for second in range(store.KEPT + 3):
        store.write(report().model_copy(update={"started": at(second)}))
    assert len(store.every("lab")) == store.KEPT
    assert len(list(store.folder("lab").glob("*.html"))) == store.KEPT
    assert store.latest("lab")[1].started == at(store.KEPT + 2)


def test_no_report_says_what_makes_one(home):
    with pytest.raises(store.ReportError, match=r"^stack lab: no run has left a report in .*; run: ./slipway up lab$"):
        store.latest("lab")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe"])
def test_a_broken_report_is_named(home, content):
    store.write(report())
    [path] = store.every("lab")
    path.write_bytes(content)
    with pytest.raises(store.ReportError, match=re.escape(f"{path}: not a report of this version")):
        store.latest("lab")


def test_the_page_in_a_browser(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page.render(report()))
    found = browser.dom(file)
    assert "<title>lab · 2026-01-31T12:00:00Z</title>" in found  # what a host said stayed text
    assert "took 1:10" in found
    assert found.count("<rect ") == 6
    bad = re.search(r'<table class="bad">.*?</table>', found, re.S).group()
    assert re.findall(r'data-host="(\w+)"', bad) == ["h1", "late"]
    assert "etcd : Start etcd" in bad
    assert "&lt;script&gt;document.title = 'x'&lt;/script&gt; &amp; so" in bad


def test_the_page_shows_only_the_hosts_that_one_asks_for(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page.render(report()))
    typing = "const i = document.querySelector('input'); i.value = 'FAIL'; i.dispatchEvent(new Event('input'));"
    table = re.search(r'<table class="all">.*?</table>', browser.dom(file, typing), re.S).group()
    rows = re.findall(r'<tr data-host="(\w+)"( hidden="")?>', table)
    assert [name for name, hidden in rows if not hidden] == ["h1"]
    assert len(rows) == 7


def test_a_run_that_goes_on_has_a_page_too():
    assert "it goes on, or did not come to its end" in page.render(report(finished=False))


def test_the_page_of_a_large_cluster_is_no_burden():
    text = page.render(report(7500))
    assert len(text) < 4_000_000
    assert text.count("<rect ") == 7500


def test_bars_stay_in_their_wave_and_in_the_picture():
    made = page.timeline(report(9).plays[0])
    assert [wave for _, wave in made.waves] == [1, 2]
    second = made.waves[1][0]
    assert sum(bar.y >= second for bar in made.bars) == 4
    assert all(bar.x >= 0 and bar.x + bar.width <= 1002 and bar.y + bar.height <= made.height for bar in made.bars)


def test_a_journal_becomes_a_report(home):
    recorder = Recorder("lab")
    journal = recorder.journal()
    begin = Begin("gpu", "node", "lab", "me@here", at(0), [["h1"], ["h2"]], {"h0": "gpu", "h1": "gpu", "h2": "gpu"})
    journal.begin(begin)
    journal.wave(Wave(1, at(1)))
    hosts = {host.name: host for host in store.latest("lab")[1].plays[0].hosts}  # what a kill would leave
    assert {name: host.outcome for name, host in hosts.items()} == {"h0": "waiting", "h1": "running", "h2": "waiting"}
    assert store.latest("lab")[1].finished is None
    journal.host(Ended("h1", 1, "failed", at(1), at(5), 2, "etcd : Start", "no"))
    journal.host(Ended("h0", 0, "unchanged"))
    journal.host(Ended("h2", 0, "not begun", reason="not begun: the rollout stopped"))
    other = recorder.journal()
    other.begin(Begin("cpu", "node", "lab", "me@here", at(2), [["c0"]], {"c0": "cpu"}))
    journal.end(End(at(6), 1, "the rollout stopped"))
    assert store.latest("lab")[1].finished is None  # the other play goes on
    other.end(End(at(7), 1))
    path, report = store.latest("lab")
    assert report.finished
    assert path.with_suffix(".html").exists()
    assert (report.plays[0].stopped, report.plays[0].waves, len(report.plays)) == ("the rollout stopped", 2, 2)
    assert [(host.name, host.outcome) for host in report.plays[0].hosts] == [
        ("h1", "failed"),
        ("h2", "not begun"),
        ("h0", "unchanged"),
    ]


def test_a_report_that_cannot_be_written_stops_nothing(home):
    home.write_text("a file where a folder should be")
    Recorder("lab").journal().begin(Begin("gpu", "node", "lab", "me@here", at(0), [], {}))
