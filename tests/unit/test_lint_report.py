"""Findings as people, programs and CI systems get them; the commands that print them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import lint_cases
from lint_cases import TODAY, Case
from slipway import lint, paths, release
from slipway.cli.app import app
from slipway.cli.problems import guarded
from slipway.lint import report
from slipway.lint.rules import Finding

WAIVED = Case(
    "three kinds",
    release={"components.nvidia-fabricmanager": lint_cases.GONE, "components.etcd.version": "3.6.13"},
    stack={
        "etcd.failure_domains": ["a", "a", "b"],
        "waivers": [{"rule": "fabric-manager-missing", "reason": "the image has one", "until": "2027-01-01"}],
    },
)


@pytest.fixture(scope="module")
def findings() -> list[Finding]:
    """An error, a waived error and a warning."""
    return lint.check(WAIVED.case, TODAY)


def test_summary_counts(findings: list[Finding]) -> None:
    assert report.summary(findings) == "1 error, 1 warning, 1 waived"
    assert report.summary([]) == "nothing found"


def test_table_has_a_row_each(findings: list[Finding]) -> None:
    console = Console(width=300, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(report.table(findings))
    lines = console.export_text().splitlines()
    assert len(lines) == 1 + len(findings)
    assert any(line.startswith("error") and "etcd-shared-domain" in line for line in lines)
    assert any(line.startswith("waived") and "waived: the image has one" in line for line in lines)


def test_json_has_every_field(findings: list[Finding]) -> None:
    made = json.loads(json.dumps(report.as_json(findings)))
    assert {one["rule"] for one in made["findings"]} == {one.rule for one in findings}
    assert all(
        set(one) == {"rule", "severity", "file", "path", "message", "fix", "source", "waived"}
        for one in made["findings"]
    )


# -- SARIF 2.1.0 -------------------------------------------------------------------------------------------------------

LEVELS = {"none", "note", "warning", "error"}


def check_sarif(log: dict[str, Any]) -> None:
    """Assert what SARIF 2.1.0 asks of the parts that we write; numbers are sections of the standard."""
    assert set(log) == {"$schema", "version", "runs"}  # 3.13
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert set(run) == {"tool", "results"}  # 3.14
    driver = run["tool"]["driver"]
    assert isinstance(driver["name"], str)  # 3.19
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:  # 3.49
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in LEVELS
        assert isinstance(rule["properties"], dict)
    for result in run["results"]:  # 3.27
        assert ids[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in LEVELS
        assert result["message"]["text"]
        for location in result["locations"]:
            physical = location["physicalLocation"]
            assert not physical["artifactLocation"]["uri"].startswith("/")
            if "region" in physical:
                assert physical["region"]["startLine"] >= 1
        for suppression in result.get("suppressions", ()):  # 3.35
            assert suppression["kind"] in {"inSource", "external"}
            assert suppression["justification"]


def test_sarif(findings: list[Finding], tmp_path: Path) -> None:
    log = report.as_sarif(findings, tmp_path)
    check_sarif(log)
    (waived,) = [one for one in log["runs"][0]["results"] if "suppressions" in one]
    assert waived["ruleId"] == "fabric-manager-missing"
    assert "region" not in waived["locations"][0]["physicalLocation"]  # no file there to have lines


STACK = """\
# a comment
config:
  slipway:cluster:
    network:
      hosts: 10.0.0.0/24
    pools:
      - name: a
        count: 1
      - name: b
        count: 2
"""
RELEASE = """\
components:
  etcd:
    install:
      ubuntu24.04/amd64:
        packages: {a.b: "1"}
    downloads:
      - url: x
      - url: y
"""


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        (STACK, "pools[1].count", 10),
        (STACK, "pools", 6),
        (STACK, "pools[7].count", 6),
        (STACK, "network.pods", 4),
        (STACK, "nothing", 3),
        (RELEASE, "components.etcd.install.ubuntu24.04/amd64.packages.a.b", 5),
        (RELEASE, "components.etcd.downloads.1", 8),
        (RELEASE, "components.nccl", 1),
    ],
)
def test_line_of_a_path(text: str, path: str, line: int) -> None:
    root = yaml.compose(text)
    assert root is not None
    assert report.line(root, path) == line


# -- commands ----------------------------------------------------------------------------------------------------------


def call(*arguments: str) -> Callable[[], object]:
    return lambda: app(list(arguments), standalone_mode=False, prog_name="slipway")


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of releases of its own: `good` has none but notes, `bad` has an error."""
    for name, changes in (("good", {}), ("bad", {"components.nvidia-imex": lint_cases.debs("580.1.1", "nvidia-imex")})):
        data = lint_cases.changed(lint_cases.RELEASE, changes)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(data | {"id": name}))
    monkeypatch.setattr(paths, "releases", lambda: tmp_path)
    return tmp_path


def test_check_of_a_shipped_stack(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert guarded(call("check", "lab")) == 0
    said = capsys.readouterr()
    assert "unverified" in said.out
    assert said.out.rstrip().endswith("notes")
    assert said.err == ""


def test_up_refuses_before_it_fetches_anything(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    bad = Case("bad", release={"components.etcd.version": "3.5.2"}, stack={})
    monkeypatch.setattr("slipway.cli.stacks.case", lambda stack: bad.case)
    monkeypatch.setattr("slipway.cli.setup.stack_ready", lambda stack: pytest.fail("engines were asked for"))
    for verb in ("up", "preview"):
        assert guarded(call(verb, "lab")) == 2
        said = capsys.readouterr().err.splitlines()
        assert said[0].startswith("slipway: release: components.etcd: 3.5.2 ")
        assert all(re.search(r" \[[a-z-]+\]$", line) for line in said)


def test_check_as_sarif_has_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert guarded(call("check", "lab", "--sarif")) == 0
    log = json.loads(capsys.readouterr().out)
    check_sarif(log)
    places = [one["locations"][0]["physicalLocation"] for one in log["runs"][0]["results"]]
    lines = (paths.root() / "stacks/releases/lab.yaml").read_text().splitlines()
    found = {lines[place["region"]["startLine"] - 1].strip() for place in places}
    assert "kubernetes:" in found


def test_release_check_exit_codes(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(call("release", "check", "good")) == 0
    assert capsys.readouterr().out == "nothing found\n"
    assert guarded(call("release", "check", "bad", "--json")) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["rule"] == "imex-version"
    assert finding["file"] == str(releases / "bad.yaml")
    assert guarded(call("release", "check")) == 1
    assert "1 error" in capsys.readouterr().out
    assert guarded(call("release", "check", "godo")) == 2
    assert "nearest: good" in capsys.readouterr().err
    assert guarded(call("check", "no-such-stack")) == 2
    assert "is missing; there are: " in capsys.readouterr().err


def test_a_mistake_in_a_release_is_one_line(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = releases / "good.yaml"
    file.write_text(
        file.read_text().replace("containerd:", "containred:").replace("version: 3.6.14", "version: newest")
    )
    assert guarded(call("release", "check", "good")) == 2
    first, second = sorted(capsys.readouterr().err.splitlines())
    assert first.endswith("good.yaml: components.containred: unknown component; nearest: containerd")
    assert second.endswith(
        "components.etcd.version: 'newest' is not a version; expected numbers with dots, such as 1.36.4"
    )


def test_release_list(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del releases
    assert guarded(call("release", "list")) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said[1:]] == ["bad", "good"]
    assert "580.126.20" in said[1]


def test_release_diff(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(call("release", "diff", "2026.08", "2026.11", "--stack", "lab")) == 0
    said = capsys.readouterr().out
    assert "restart:kube-apiserver" in said
    assert "* assumed: no role installs it yet" in said
    assert guarded(call("release", "diff", "lab", "lab")) == 0
    assert capsys.readouterr().out == "lab and lab are the same\n"
    assert guarded(call("release", "diff", "2026.08", "2026.11", "--json")) == 0
    made = json.loads(capsys.readouterr().out)
    assert {"what", "before", "after", "on", "groups", "costs", "assumed"} == set(made["changes"][0])
    assert {"group", "hosts", "cost"} == set(made["hosts"][0])


def write(folder: Path, name: str, changes: dict[str, Any]) -> None:
    data = lint_cases.changed(lint_cases.RELEASE, changes)
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(data | {"id": name}))


def test_release_path(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (releases / "bad.yaml").unlink()
    write(releases, "old", {"components.kubernetes.version": "1.34.5", "components.etcd.version": "3.5.20"})
    assert guarded(call("release", "path", "old", "good")) == 0
    said = capsys.readouterr().out
    assert "old-to-good-1 (no file yet)" in said
    assert "give --write" in said
    assert not (releases / "old-to-good-1.yaml").exists()

    assert guarded(call("release", "path", "old", "good", "--write")) == 0
    assert "old-to-good-1.yaml" in capsys.readouterr().out
    between = release.load("old-to-good-1", releases)
    assert (between.version("kubernetes"), between.version("etcd")) == ("1.35.8", "3.5.33")
    assert guarded(call("release", "check", "old-to-good-1")) == 0
    capsys.readouterr()

    # What was written is one of the releases that there are: the way leads over it.
    assert guarded(call("release", "path", "old", "good")) == 0
    assert "(no file yet)" not in capsys.readouterr().out
    assert guarded(call("release", "path", "good", "old")) == 1
    assert "good to old: no way: components.etcd: " in capsys.readouterr().err


def test_release_path_does_not_write_over_a_file(releases: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(releases, "old", {"components.kubernetes.version": "1.34.5"})
    (releases / "old-to-good-1.yaml").write_text("id: [")
    assert guarded(call("release", "path", "old", "good", "--write")) == 2
    assert capsys.readouterr().err.count("\n") == 1
