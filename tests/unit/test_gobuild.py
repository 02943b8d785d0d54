"""Builds from Go modules: flags, hashes, and messages; and one real build where there is a Go."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from slipway import release
from slipway.artifacts import engines, gobuild
from slipway.release import Build

LAB = release.load("lab")
OWN = gobuild._own_go()
needs_go = pytest.mark.skipif(
    OWN is None or gobuild._version(OWN) != LAB.toolchain.version, reason="this machine's own Go is not the pinned one"
)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))


def test_flags_are_reproducible_and_carry_versions() -> None:
    flags = gobuild.flags(Build(module=".", packages={"x": "."}, variables={"main.version": "1.2"}, tags=("a", "b")))
    assert flags == ["-trimpath", "-buildvcs=false", "-tags", "a b", "-ldflags", "-s -w -X main.version=1.2"]


def test_static_flags() -> None:
    assert gobuild.flags(Build(module=".", packages={"x": "."}, static=True))[-1].endswith("-extldflags -static")


def test_files_that_go_names_right_are_linked_side_by_side() -> None:
    build = Build(module="m", packages={"etcd": "m/server/v3", "one": "m/cmd/one", "two": "m/cmd/two"})
    assert gobuild._calls(build) == [(["etcd"], ["m/server/v3"]), (["one", "two"], ["m/cmd/one", "m/cmd/two"])]


def test_module_hash_is_go_s(tmp_path: Path) -> None:
    """As documented: SHA-256 of the sorted `<sha256>  <name>` lines, in base64."""
    archive = tmp_path / "m.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("m@v1/z.go", "package z")
        opened.writestr("m@v1/a.go", "package a")
    lines = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in (("m@v1/a.go", b"package a"), ("m@v1/z.go", b"package z"))
    )
    wanted = "h1:" + base64.b64encode(hashlib.sha256(lines.encode()).digest()).decode()
    assert gobuild.module_hash(archive) == wanted


def test_environment_keeps_proxies_and_drops_what_changes_results(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GOPROXY": "https://mirror", "GOOS": "plan9", "GOFLAGS": "-race", "GOWORK": "/x"}.items():
        monkeypatch.setenv(name, value)
    environment = gobuild._environment(Path("/go/bin/go"), cgo=False)
    assert environment["GOPROXY"] == "https://mirror"
    assert "GOOS" not in environment
    assert (environment["GOFLAGS"], environment["GOWORK"]) == ("-mod=readonly", "off")
    assert environment["PATH"].startswith("/go/bin:")


def test_no_recipe_is_one_line() -> None:
    with pytest.raises(gobuild.BuildError, match=r"^nothing: no recipe: .*go\.mod is missing$"):
        gobuild.recipe_files("nothing")


def test_tests_of_a_recipe_do_not_change_its_engine() -> None:
    assert not [name for name in gobuild.recipe_files("csr-approver") if name.endswith("_test.go")]


@needs_go
def test_same_source_same_bytes(tmp_path: Path) -> None:
    build = LAB.components["pause"].build
    assert build is not None
    content = []
    for name in ("one", "two"):
        target = tmp_path / name
        target.mkdir()
        gobuild.build("pause", build, LAB.toolchain, engines.arch(), target)
        content.append((target / "pause").read_bytes())
    assert content[0] == content[1]
    assert b"0.1.0" in content[0]


@needs_go
def test_compiler_s_refusal_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {**gobuild.recipe_files("pause"), "main.go": b"package main\n\nfunc main() { nonsense }\n"}
    monkeypatch.setattr(gobuild, "recipe_files", lambda _: broken)
    build = LAB.components["pause"].build
    assert build is not None
    with pytest.raises(
        gobuild.BuildError, match=r"building pause failed: .*undefined: nonsense; all of it: /"
    ) as caught:
        gobuild.build("pause", build, LAB.toolchain, engines.arch(), tmp_path)
    assert "\n" not in str(caught.value)
