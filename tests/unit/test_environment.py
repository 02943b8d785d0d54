"""The environment that `eval "$(./slipway env)"` gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipway import environment, paths, private, release
from slipway.artifacts import engines

LAB = release.load("lab")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "the home's"))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "the $cache"))
    return tmp_path


@pytest.fixture
def programs() -> None:
    """Engines with empty programs."""
    for name, files in environment.PROGRAMS.items():
        folder = engines.folder(name, LAB)
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).touch(mode=0o755)


def test_exports_survive_eval_with_odd_characters() -> None:
    script = 'eval "$1"; printf "%s\\n" "$SLIPWAY_HOME" "$SLIPWAY_CACHE" "$PATH" "${PULUMI_STACK-unset}"'
    shown = subprocess.run(
        ["sh", "-c", script, "sh", environment.exports(LAB)],
        env={**os.environ, "PULUMI_STACK": "other"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown[0] == str(paths.home())
    assert shown[1] == str(paths.cache())
    assert shown[2].split(":")[:2] == [str(Path(sys.prefix) / "bin"), str(environment.programs(LAB))]
    assert shown[3] == "unset"


def test_path_does_not_grow_when_evaluated_again() -> None:
    once = environment.variables(LAB, "/usr/bin:/bin")["PATH"]
    assert once.endswith(":/usr/bin:/bin")
    again = environment.variables(LAB, once)["PATH"].split(":")
    assert again.count(str(environment.programs(LAB))) == 1


def test_passphrase_is_made_once_and_is_private(programs: None) -> None:
    environment.prepare(LAB)
    first = paths.passphrase().read_text()
    environment.prepare(LAB)
    assert paths.passphrase().read_text() == first
    assert len(first.strip()) >= 32
    assert paths.passphrase().stat().st_mode & 0o777 == 0o600
    assert paths.state().stat().st_mode & 0o777 == 0o700
    assert [path.name for path in paths.home().iterdir() if path.name.startswith(".")] == []


def test_a_lost_passphrase_is_not_replaced(programs: None) -> None:
    environment.prepare(LAB)
    checkpoint = paths.state() / ".pulumi/stacks/slipway/one.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{}")
    paths.passphrase().unlink()
    with pytest.raises(
        environment.StateError, match="passphrase is gone, and the secrets of one are encrypted with it"
    ):
        environment.prepare(LAB)
    assert not paths.passphrase().exists()


def test_programs_lie_side_by_side(programs: None) -> None:
    environment.prepare(LAB)
    names = {path.name for path in environment.programs(LAB).iterdir()}
    assert names == {file for files in environment.PROGRAMS.values() for file in files}


def test_provider_is_where_pulumi_looks(programs: None) -> None:
    environment.prepare(LAB)
    environment.prepare(LAB)
    version = LAB.version("pulumi-kubernetes")
    program = paths.pulumi_home() / "plugins" / f"resource-kubernetes-v{version}" / "pulumi-resource-kubernetes"
    engine = engines.folder("pulumi-kubernetes", LAB)
    engine.mkdir(parents=True)
    (engine / program.name).write_text('#!/bin/sh\necho "$1"; echo secret >"$TMPDIR/kubeconfig"; ls -ld "$TMPDIR"\n')
    (engine / program.name).chmod(0o755)
    said = subprocess.run([program, "two words"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "two words"
    assert said[1].startswith("drwx------")
    folder = Path(said[1].rpartition(" ")[2])
    assert folder.parent == private.memory()
    assert folder.exists()
    private.remove_left()
    assert not folder.exists()
