"""What a route reflector remembers of its kernel's routes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "roles/pod_network/files/reflector_memory.py"


@pytest.fixture(scope="module")
def memory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reflector_memory", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder: Path, prints: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "ip").write_text(f"#!/bin/sh\nprintf '%s' '{prints}'\n")
    (folder / "ip").chmod(0o755)


def test_only_routes_with_a_gateway(memory: ModuleType) -> None:
    routes = [{"dst": "10.1.1.0/24", "gateway": "10.0.0.6"}, {"type": "unreachable", "dst": "10.1.0.0/24"}]
    written = memory.static_protocol(routes)
    assert "route 10.1.1.0/24 via 10.0.0.6;" in written
    assert "10.1.0.0/24" not in written
    assert "preference 1" in written


def test_a_kernel_without_routes_keeps_what_was_known(
    memory: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "memory.conf"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr("sys.argv", ["reflector_memory.py", str(target)])
    program(tmp_path / "bin", "")
    memory.main()
    assert "route" not in target.read_text()
    program(tmp_path / "bin", '[{"dst": "10.1.1.0/24", "gateway": "10.0.0.6"}]')
    memory.main()
    known = target.read_text()
    assert "10.1.1.0/24" in known
    program(tmp_path / "bin", "[]")
    memory.main()
    assert target.read_text() == known
