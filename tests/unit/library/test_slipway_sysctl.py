from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from library import slipway_sysctl

from unit.library.modules import run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the drop-in is root's")


@pytest.fixture
def host(tmp_path: Path) -> dict[str, Any]:
    """A kernel that shows two settings, of which one is read-only."""
    for path, value in {"net/core/somaxconn": "128\n", "vm/max_map_count": "65530\n", "net/range": "1\t2\n"}.items():
        (tmp_path / "proc" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / path).write_text(value)
    settings = {"net.core.somaxconn": 4096, "vm.max_map_count": 262144, "net.range": "1 2", "net.not.here": 1}
    return {
        "name": "test",
        "settings": settings,
        "directory": str(tmp_path / "sysctl.d"),
        "proc": str(tmp_path / "proc"),
    }


@pytest.fixture(autouse=True)
def read_only_vm() -> Any:
    """Root may write everything; a read-only mount answers no."""
    real = os.access
    with mock.patch.object(slipway_sysctl.os, "access", lambda path, how: "/vm/" not in path and real(path, how)):
        yield


def test_applies_what_the_host_owns_and_says_what_not(host: dict[str, Any], tmp_path: Path) -> None:
    said = run(slipway_sysctl, check=True, **host)
    assert not (tmp_path / "sysctl.d").exists()
    done = run(slipway_sysctl, **host)
    for key in ("changed", "applied", "not_applied"):
        assert said[key] == done[key]
    assert done["applied"] == {"net.core.somaxconn": "4096"}
    assert sorted(done["not_applied"]) == ["net.not.here", "vm.max_map_count"]
    assert "is 65530" in done["not_applied"]["vm.max_map_count"]
    assert "net.not.here" in done["msg"]
    assert (tmp_path / "proc/net/core/somaxconn").read_text() == "4096"
    written = (tmp_path / "sysctl.d/90-slipway-test.conf").read_text().splitlines()
    assert written == [
        "net.core.somaxconn = 4096",
        "net.not.here = 1",
        "net.range = 1 2",
        "vm.max_map_count = 262144",
    ]
    again = run(slipway_sysctl, **host)
    assert not again["changed"]
    assert again["not_applied"] == done["not_applied"]


def test_live_value_that_drifted(host: dict[str, Any], tmp_path: Path) -> None:
    run(slipway_sysctl, **host)
    (tmp_path / "proc/net/core/somaxconn").write_text("1")
    assert run(slipway_sysctl, **host)["applied"] == {"net.core.somaxconn": "4096"}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("net.core.somaxconn", "/p/net/core/somaxconn"),
        ("net/ipv4/conf/eth0.1/rp_filter", "/p/net/ipv4/conf/eth0.1/rp_filter"),
        ("net.ipv4.conf.eth0/1.rp_filter", "/p/net/ipv4/conf/eth0.1/rp_filter"),
    ],
)
def test_paths(key: str, path: str) -> None:
    assert slipway_sysctl.setting_path("/p", key) == path
