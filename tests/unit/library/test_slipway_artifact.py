from __future__ import annotations

import hashlib
import http.server
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from library import slipway_artifact

from unit.library.modules import run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="programs are root's")


def program(tmp_path: Path, version: str, text: str = "") -> dict[str, Any]:
    source = tmp_path / f"tool-{version}"
    source.write_text(text or version)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    return {
        "component": "tool",
        "version": version,
        "files": [{"name": "tool", "source": source.as_uri(), "sha256": sha256}],
        "link_directory": str(tmp_path / "bin"),
        "root": str(tmp_path / "opt"),
    }


def test_installs_once(tmp_path: Path) -> None:
    wanted = program(tmp_path, "1")
    said = run(slipway_artifact, check=True, **wanted)
    assert said["changed"]
    assert not (tmp_path / "opt").exists()
    done = run(slipway_artifact, **wanted)
    assert (done["installed"], done["linked"]) == (said["installed"], said["linked"])
    assert (tmp_path / "bin/tool").read_text() == "1"
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert not run(slipway_artifact, **wanted)["changed"]
    # What is installed does not depend on the source any more.
    (tmp_path / "tool-1").unlink()
    assert not run(slipway_artifact, **wanted)["changed"]


def test_mends_a_file_that_was_changed_and_keeps_one_that_was_only_touched(tmp_path: Path) -> None:
    wanted = program(tmp_path, "1")
    run(slipway_artifact, **wanted)
    installed = tmp_path / "opt/tool/1/tool"
    os.utime(installed, (1, 1))
    assert not run(slipway_artifact, **wanted)["changed"]
    installed.write_text("2")
    assert run(slipway_artifact, **wanted)["installed"] == ["tool"]
    assert installed.read_text() == "1"


def test_everyone_may_run_it_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        run(slipway_artifact, **program(tmp_path, "1"))
    finally:
        os.umask(old)
    for name in ("opt/tool/1/tool", "opt/tool/1", "opt/tool", "opt", "bin"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755


def test_keeps_the_version_before_for_rollback(tmp_path: Path) -> None:
    for version in ("1", "2", "3"):
        result = run(slipway_artifact, **program(tmp_path, version))
    assert result["removed"] == ["1"]
    assert sorted(path.name for path in (tmp_path / "opt/tool").iterdir()) == ["2", "3"]
    (tmp_path / "tool-2").unlink(missing_ok=True)
    back = run(slipway_artifact, **program(tmp_path, "2"))
    assert back["installed"] == []
    assert (tmp_path / "bin/tool").read_text() == "2"
    # 2 was used last, so it stays when 4 comes.
    result = run(slipway_artifact, **program(tmp_path, "4"))
    assert result["removed"] == ["3"]


def test_wrong_digest_installs_nothing(tmp_path: Path) -> None:
    wanted = program(tmp_path, "1")
    (tmp_path / "tool-1").write_text("other")
    failed = run(slipway_artifact, **wanted)
    assert "sha256 is" in failed["msg"]
    assert "expected" in failed["msg"]
    assert not (tmp_path / "bin/tool").exists()
    assert not (tmp_path / "opt/tool/1/tool").exists()


def test_member_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "tool.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("a", "b"):
            info = tarfile.TarInfo(f"./bin/{name}")
            info.size = 1
            tar.addfile(info, io.BytesIO(name.encode()))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    files = [{"name": n, "source": archive.as_uri(), "sha256": sha256, "member": f"bin/{n}"} for n in ("a", "b")]
    wanted = {**program(tmp_path, "1"), "files": files, "links": {"a": "", "b": str(tmp_path / "elsewhere/b")}}
    assert run(slipway_artifact, **wanted)["installed"] == ["a", "b"]
    assert (tmp_path / "elsewhere/b").read_text() == "b"
    assert not (tmp_path / "bin").exists()
    assert not run(slipway_artifact, **wanted)["changed"]
    files[0]["member"] = "bin/c"
    assert "holds no file bin/c" in run(slipway_artifact, **wanted)["msg"]


def test_does_not_replace_a_file_that_is_not_a_link(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").write_text("by hand")
    assert "is not a link" in run(slipway_artifact, **program(tmp_path, "1"))["msg"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Serves tmp_path; the first answer breaks off in the middle."""
    broken: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def do_GET(self) -> None:
            if broken:
                super().do_GET()
                return
            broken.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"half")

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_download_survives_a_broken_transfer(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slipway_artifact.time, "sleep", lambda _: None)
    wanted = program(tmp_path, "1", "x" * 5000)
    wanted["files"][0]["source"] = f"{server}/tool-1"
    assert run(slipway_artifact, **wanted)["changed"]
    assert (tmp_path / "bin/tool").read_text() == "x" * 5000
    wanted["version"] = "2"
    wanted["files"][0]["source"] = f"{server}/nothing"
    assert "404" in run(slipway_artifact, **wanted)["msg"]
