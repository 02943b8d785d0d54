"""What a host says that it is, from the script that is run on it to what is made of its words."""

import json
import subprocess
import time

import pytest

from slipway.play import reading


def entry(**changes):
    return {"release": "r", "digest": "d1", "result": "ok", **changes}


def manifest(**playbooks):
    return json.dumps({"version": 1, "playbooks": playbooks})


def script(folder):
    return reading.SCRIPT.replace(reading.STATE, str(folder))


def run(folder):
    return subprocess.run(["sh", "-c", script(folder)], capture_output=True, text=True, check=True).stdout


def test_a_host_says_its_manifest_and_its_bundles(tmp_path):
    (tmp_path / "manifest.json").write_text(manifest(node=entry()) + "\n")
    for name in ("b1", "b2"):
        (tmp_path / "bundles" / name).mkdir(parents=True)
    found = reading.parse(run(tmp_path))
    assert found.entry("node") == entry()
    assert found.finished("node") == "d1"
    assert found.bundles == {"b1", "b2"}
    assert found.clock is not None
    assert abs(found.clock - time.time()) < 5


def test_a_new_host_says_nothing_and_that_is_no_error(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        found = reading.parse(run(folder))
        assert (found.entry("node"), found.finished("node"), found.bundles) == ({}, "", frozenset())


def test_a_host_that_lost_its_manifest_still_has_its_bundles(tmp_path):
    (tmp_path / "bundles" / "b1").mkdir(parents=True)
    assert reading.parse(run(tmp_path)).bundles == {"b1"}


@pytest.mark.parametrize(
    "text",
    [
        '{"version": 1, "playbooks": {"node": {"dig',
        '{"version": 2, "playbooks": {"node": {"release": "r", "digest": "d1", "result": "ok"}}}',
        "[]",
        manifest(node=[]),
        manifest(node={"result": "ok"}),
        manifest(node=entry(result="failed")),
        manifest(node=entry(result="running")),
        manifest(other=entry()),
        manifest(node=entry(changed=float("inf"))),
        manifest(node=entry(finished="yesterday")),
        pytest.param("[" * 200_000, id="deep"),
    ],
)
def test_nothing_is_finished_but_what_the_host_says_plainly(text):
    assert reading.parse(f"1700000000\n{text}\n").finished("node") == ""
