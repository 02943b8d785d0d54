"""Room on disks, and files kept as they should be."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest
from ansible.module_utils import slipway_io

RIGHTS = slipway_io.Attributes(os.getuid(), os.getgid(), 0o640)


def test_what_has_no_room_is_not_begun(tmp_path: Path) -> None:
    begun = False
    with pytest.raises(slipway_io.SlipwayError) as raised, slipway_io.room_for(f"{tmp_path}/not/there", 2**60):
        begun = True
    assert not begun
    assert re.fullmatch(
        rf"no space left on {tmp_path} \(\d+ MiB free, {2**40} needed\); make room and run it again", str(raised.value)
    )


def test_a_disk_that_fills_meanwhile_is_told_and_other_errors_are_themselves(tmp_path: Path) -> None:
    with (
        pytest.raises(slipway_io.SlipwayError, match=r"\(\d+ MiB free, 1 needed\)"),
        slipway_io.room_for(str(tmp_path), 5),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(PermissionError), slipway_io.room_for(str(tmp_path), 5):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_file_is_kept_at_its_content_and_rights(tmp_path: Path) -> None:
    path = tmp_path / "folder/file"
    assert slipway_io.keep_file(str(path), b"one", RIGHTS, check_mode=True) == (None, True)
    assert not path.exists()
    assert slipway_io.keep_file(str(path), b"one", RIGHTS, check_mode=False) == (None, True)
    assert slipway_io.keep_file(str(path), b"one", RIGHTS, check_mode=False) == (b"one", False)
    path.chmod(0o600)
    assert slipway_io.keep_file(str(path), b"one", RIGHTS, check_mode=False) == (b"one", True)
    assert path.stat().st_mode & 0o777 == 0o640
