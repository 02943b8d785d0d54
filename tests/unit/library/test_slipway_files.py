from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from library import slipway_files

from unit.library.modules import run

ME = {"owner": str(os.getuid()), "group": str(os.getgid())}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def arguments(tmp_path: Path) -> dict[str, Any]:
    return {
        "directories": [{"path": str(tmp_path / "d"), "mode": "0750", **ME}],
        "files": [
            {"path": str(tmp_path / "d/a"), "content": "one\n", "mode": "0640", **ME},
            {"path": str(tmp_path / "new/b"), "secret_content": "hidden\n", "mode": "0600", **ME},
        ],
        "absent": [str(tmp_path / "old")],
    }


def test_writes_everything_once(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    first = run(slipway_files, **arguments(tmp_path))
    assert first["changed"]
    assert first["changed_paths"] == [str(tmp_path / name) for name in ("d", "d/a", "new/b", "old")]
    assert (tmp_path / "d/a").read_text() == "one\n"
    assert (mode(tmp_path / "d"), mode(tmp_path / "d/a"), mode(tmp_path / "new/b")) == (0o750, 0o640, 0o600)
    assert not (tmp_path / "old").exists()
    second = run(slipway_files, **arguments(tmp_path))
    assert not second["changed"]
    assert second["changed_paths"] == []


def test_check_mode_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    said = run(slipway_files, check=True, **arguments(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old"]
    done = run(slipway_files, **arguments(tmp_path))
    assert said["changed_paths"] == done["changed_paths"]
    assert not run(slipway_files, check=True, **arguments(tmp_path))["changed"]


def test_check_mode_accepts_a_user_that_an_earlier_task_makes(tmp_path: Path) -> None:
    files = [{"path": str(tmp_path / "a"), "content": "x", "owner": "no-such-user"}]
    assert run(slipway_files, check=True, files=files)["changed"]
    failed = run(slipway_files, files=files)
    assert "user 'no-such-user' does not exist" in failed["msg"]
    assert not (tmp_path / "a").exists()


def test_only_the_mode_differs(tmp_path: Path) -> None:
    run(slipway_files, **arguments(tmp_path))
    (tmp_path / "d/a").chmod(0o666)
    assert run(slipway_files, **arguments(tmp_path))["changed_paths"] == [str(tmp_path / "d/a")]
    assert mode(tmp_path / "d/a") == 0o640


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    result = run(slipway_files, **arguments(tmp_path))
    assert "hidden" not in str(result)
    assert any("one\n" in each["after"] for each in result["diff"])


def test_refused_text_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a"
    target.write_text("good\n")
    entry = {"path": str(target), "content": "bad\n", "validate": "grep -q good %s", **ME}
    failed = run(slipway_files, files=[entry])
    assert "refused by grep" in failed["msg"]
    assert target.read_text() == "good\n"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("what", ["directory", "link"])
def test_does_not_write_over_something_else(tmp_path: Path, what: str) -> None:
    target = tmp_path / "a"
    if what == "directory":
        target.mkdir()
    else:
        target.symlink_to("/etc/passwd")
    failed = run(slipway_files, files=[{"path": str(target), "content": "x", **ME}])
    assert "expected a plain file" in failed["msg"]


def test_relative_paths(tmp_path: Path) -> None:
    directories = [{"path": "d/e", **ME}]
    assert "expected an absolute path" in run(slipway_files, directories=directories)["msg"]
    result = run(slipway_files, directories=directories, relative_to=str(tmp_path))
    assert result["changed_paths"] == [str(tmp_path / "d/e")]
    assert not run(slipway_files, directories=directories, relative_to=str(tmp_path))["changed"]


def test_parents_are_open_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        run(slipway_files, files=[{"path": str(tmp_path / "a/b/c"), "content": "x", **ME}])
    finally:
        os.umask(old)
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o755, 0o755, 0o644]


def test_full_directories_are_not_removed(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "not empty" in run(slipway_files, absent=[str(tmp_path / "full")])["msg"]
    (tmp_path / "link").symlink_to(tmp_path / "full")
    assert run(slipway_files, absent=[str(tmp_path / "link")])["changed"]
    assert (tmp_path / "full/file").exists()


def test_a_file_is_left_alone_while_something_else_is_there(tmp_path: Path) -> None:
    files = [{"path": str(tmp_path / "a"), "content": "x", "unless": str(tmp_path / "begun"), **ME}]
    assert run(slipway_files, check=True, files=files)["changed"]
    assert run(slipway_files, files=files)["changed"]
    (tmp_path / "begun").mkdir()
    files[0]["content"] = "y"
    assert not run(slipway_files, check=True, files=files)["changed"]
    assert not run(slipway_files, files=files)["changed"]
    assert (tmp_path / "a").read_text() == "x"
