"""Engines: where they come from, and that they are whole when they are there."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slipway import paths, release
from slipway.artifacts import EngineError, Progress, download, engines, gobuild, images, oci
from slipway.release import Component, Release

LAB = release.load("lab")


@pytest.fixture
def progress() -> Progress:
    return Progress(Console(file=io.StringIO(), width=300))


def said(progress: Progress) -> str:
    file = progress.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path / "home"))
    download.unreachable.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """A release server with one archive; yields (address, folder)."""
    folder = tmp_path / "site"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_: object) -> None:  # type: ignore[override]
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with tarfile.open(folder / "pause.tgz", "w:gz") as archive:
        entry = tarfile.TarInfo("dist/pause")
        entry.size = 8
        archive.addfile(entry, io.BytesIO(b"released"))
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-in for the Go compiler; returns the list of components that it built."""
    built: list[str] = []

    def build(component: str, recipe: Any, _toolchain: object, _arch: str, target: Path) -> None:
        built.append(component)
        for name in (*recipe.packages, *recipe.copies):
            (target / name).write_text("built")

    monkeypatch.setattr(gobuild, "build", build)
    return built


def published(site: str, folder: Path, *, digest: str | None = None, name: str = "pause.tgz") -> Release:
    """The lab's release with `pause` published on our server."""
    right = hashlib.sha256((folder / "pause.tgz").read_bytes()).hexdigest()
    fields = LAB.components["pause"].model_dump(mode="json")
    fields["downloads"] = [
        {"url": f"{site}/{name}", "sha256": {engines.arch(): digest or right}, "members": {"pause": "dist/pause"}}
    ]
    component = Component.model_validate(fields, strict=False)
    return LAB.model_copy(update={"components": {**LAB.components, "pause": component}})


def test_downloads_what_can_be_reached(site: Any, progress: Progress, compiler: list[str]) -> None:
    pinned = published(*site)
    engine = engines.ensure("pause", pinned, progress)
    assert (engine.folder / "pause").read_text() == "released"
    assert (engine.folder / "pause").stat().st_mode & 0o777 == 0o755
    assert engine.manifest.files[0].source.startswith(site[0])
    assert compiler == []
    assert "downloading" in said(progress)


def test_builds_what_cannot_be_reached_and_says_so(site: Any, progress: Progress, compiler: list[str]) -> None:
    engine = engines.ensure("pause", published(*site, name="gone.tgz"), progress)
    assert (engine.folder / "pause").read_text() == "built"
    assert "pause 0.1.0: building from Go modules (release file cannot be reached: answers 404)" in said(progress)


def test_wrong_digest_stops_and_builds_nothing(site: Any, progress: Progress, compiler: list[str]) -> None:
    pinned = published(*site, digest="0" * 64)
    with pytest.raises(EngineError, match=r"^pause 0\.1\.0: http.*: wanted sha256 0{64}, got [0-9a-f]{64}"):
        engines.ensure("pause", pinned, progress)
    assert compiler == []
    assert engines.find("pause", pinned) is None
    assert list((paths.engines() / "pause").iterdir()) == []


def test_second_time_does_nothing(progress: Progress, compiler: list[str]) -> None:
    first = engines.ensure("pause", LAB, progress)
    assert engines.ensure("pause", LAB, progress) == first
    assert compiler == ["pause"]


def test_two_runs_at_once_build_once(progress: Progress, compiler: list[str]) -> None:
    threads = [threading.Thread(target=engines.ensure, args=("pause", LAB, progress)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert compiler == ["pause"]


@pytest.mark.parametrize("damage", ["truncated", "removed", "manifest"])
def test_damaged_engine_is_made_again(damage: str, progress: Progress, compiler: list[str]) -> None:
    engine = engines.ensure("pause", LAB, progress)
    if damage == "truncated":
        (engine.folder / "pause").write_text("")
    elif damage == "removed":
        (engine.folder / "pause").unlink()
    else:
        (engine.folder / "manifest.json").write_text("{")
    assert engines.find("pause", LAB) is None
    assert engines.ensure("pause", LAB, progress).manifest.files == engine.manifest.files
    assert compiler == ["pause", "pause"]


def test_leftovers_of_a_killed_run_go_away(progress: Progress, compiler: list[str]) -> None:
    left = paths.engines() / "pause" / ".partial-dead"
    left.mkdir(parents=True)
    (left / "pause").write_text("half")
    engines.ensure("pause", LAB, progress)
    assert not left.exists()


def test_failed_build_leaves_nothing(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise gobuild.BuildError("pause: no")

    monkeypatch.setattr(gobuild, "build", fail)
    with pytest.raises(gobuild.BuildError):
        engines.ensure("pause", LAB, progress)
    assert list((paths.engines() / "pause").iterdir()) == []


def test_digest_covers_recipe_release_and_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engines.digest("pause", LAB)
    newer = LAB.model_copy(update={"toolchain": LAB.toolchain.model_copy(update={"version": "1.99.0"})})
    assert engines.digest("pause", newer) != plain
    changed = {**gobuild.recipe_files("pause"), "main.go": b"package main"}
    monkeypatch.setattr(gobuild, "recipe_files", lambda _: changed)
    assert engines.digest("pause", LAB) != plain


def test_files_are_what_roles_expect(progress: Progress, compiler: list[str]) -> None:
    engines.ensure("pause", LAB, progress)
    listed = engines.files("pause", LAB)
    place = f"pause/0.1.0-{engines.digest('pause', LAB)[:12]}/pause"
    assert listed == {
        "component": "pause",
        "version": "0.1.0",
        "files": [
            {
                "name": "pause",
                "source": f"file:///srv/slipway/engines/{place}",
                "sha256": hashlib.sha256(b"built").hexdigest(),
            }
        ],
    }
    assert engines.files("pause", LAB, "https://mirror")["files"][0]["source"] == f"https://mirror/{place}"


def test_missing_engine_says_what_to_run() -> None:
    with pytest.raises(EngineError, match=r"run: \./slipway engines --only etcd$"):
        engines.files("etcd", LAB)
    with pytest.raises(FileNotFoundError, match=r"run: \./slipway engines$"):
        paths.engine("etcd")


def test_engine_by_name(progress: Progress, compiler: list[str]) -> None:
    engine = engines.ensure("pause", LAB, progress)
    assert paths.engine("pause") == engine.folder


def test_all_engines_in_one_go(progress: Progress, compiler: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "unreachable", lambda _: "cannot be reached: no network")
    ready = engines.ensure_all(LAB, progress)
    assert sorted(ready) == sorted(LAB.components) == sorted(compiler)


def test_first_failure_is_the_one_told(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(component: str, *_: object) -> None:
        raise gobuild.BuildError(f"{component}: no compiler")

    monkeypatch.setattr(gobuild, "build", fail)
    with pytest.raises(gobuild.BuildError, match="no compiler"):
        engines.ensure_all(LAB, progress, ["pause", "netprobe"])


def test_images_have_a_stable_name_and_digest(progress: Progress, compiler: list[str]) -> None:
    for name in {image.component for image in LAB.images.values()}:
        engines.ensure(name, LAB, progress)
    made = images.ensure(LAB)
    content = [path.read_bytes() for path in made]
    for path in made:
        path.unlink()
    assert [path.read_bytes() for path in images.ensure(LAB)] == content
    listed = {image["ref"]: image for image in images.files(LAB)}
    assert sorted(listed) == sorted(LAB.image(name) for name in LAB.images)
    pause = listed[LAB.image("pause")]
    assert pause["source"] == f"file:///srv/slipway/images/{images.archive('pause', LAB).name}"
    assert pause["digest"] == oci.read_digest(images.archive("pause", LAB))[1]


def test_missing_image_says_what_to_run() -> None:
    with pytest.raises(EngineError, match=r"run: \./slipway engines$"):
        images.files(LAB)
