"""Where things are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway import paths


def test_variables_move_both_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", "/some where/home")
    monkeypatch.setenv("SLIPWAY_CACHE", "/some where/cache")
    assert paths.state() == Path("/some where/home/state")
    assert paths.passphrase() == Path("/some where/home/passphrase")
    assert paths.engines() == Path("/some where/cache/engines")
    assert paths.lab_bases() == Path("/some where/cache/lab/base")


@pytest.mark.parametrize(
    ("user", "home", "cache"),
    [
        (0, "/var/lib/slipway", "/var/cache/slipway"),
        (1000, "/home/someone/.local/state/slipway", "/home/someone/.cache/slipway"),
    ],
)
def test_usual_places(user: int, home: str, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_HOME", raising=False)
    monkeypatch.delenv("SLIPWAY_CACHE", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert (str(paths.home()), str(paths.cache())) == (home, cache)


def test_relative_place_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIPWAY_HOME", "here")
    assert paths.home() == tmp_path / "here"


def test_root_is_the_checkout() -> None:
    assert (paths.root() / "pyproject.toml").is_file()
