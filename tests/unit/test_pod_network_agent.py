"""The pod network agent: what it writes from a Node, and when BIRD is told."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    """The agent, loaded as it lies on a host: with its helper beside it."""
    sys.path.insert(0, str(ROOT / "playbooks/module_utils"))
    try:
        spec = importlib.util.spec_from_file_location("agent", ROOT / "roles/pod_network/files/pod_network_agent.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        "address": "10.0.0.5",
        "mtu": 1500,
        "conflist": str(tmp_path / "10-slipway.conflist"),
        "bird_include": str(tmp_path / "pod-network.conf"),
    }


def test_writes_once_and_tells_bird_once(
    agent: ModuleType, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(agent, "reload_bird", lambda: told.append(Path(config["conflist"]).exists()))
    agent.apply(config, ["10.244.3.0/24"])
    agent.apply(config, ["10.244.3.0/24"])
    assert told == [False]  # announced before the CNI configuration was there
    assert "route 10.244.3.0/24 unreachable;" in Path(config["bird_include"]).read_text()
    plugins = json.loads(Path(config["conflist"]).read_text())["plugins"]
    assert plugins[0]["ipam"]["ranges"] == [[{"subnet": "10.244.3.0/24"}]]
    assert plugins[0]["ipMasq"] is False
    agent.apply(config, ["10.244.4.0/24"])
    assert told == [False, True]


def test_removes_its_own_old_files_and_no_others(
    agent: ModuleType, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "reload_bird", lambda: None)
    (tmp_path / "05-slipway-old.conflist").write_text("{}")
    (tmp_path / "99-other.conflist").write_text("{}")
    agent.apply(config, ["10.244.3.0/24"])
    assert sorted(path.name for path in tmp_path.glob("*.conflist")) == ["10-slipway.conflist", "99-other.conflist"]


def test_networks_of_a_node(agent: ModuleType) -> None:
    assert agent.pod_networks({"spec": {}}) == []
    assert agent.pod_networks({"spec": {"podCIDR": "10.0.0.0/24"}}) == ["10.0.0.0/24"]
    both = agent.pod_networks({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}})
    assert agent.usable(both) == ["10.0.0.0/24"]


def test_mtu_of_the_interface_with_the_address(agent: ModuleType) -> None:
    assert agent.interface_mtu("127.0.0.1") > 1500
    assert agent.interface_mtu("203.0.113.9") == 1500


def test_an_api_that_is_away_is_named(agent: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(agent.ApiError, match="cannot be read"):
        agent.look(
            {
                "api_server": "https://127.0.0.1:1",
                "authority_file": str(tmp_path / "none"),
                "client_certificate": str(tmp_path / "none"),
                "node_name": "x",
            }
        )
