from __future__ import annotations

from pathlib import Path

import pytest
from library import slipway_storage

from unit.library.modules import run

MOUNTS = """\
25 1 0:31 / / rw,relatime - overlay overlay rw,lowerdir=/base
26 25 0:5 / /dev rw - devtmpfs devtmpfs rw
30 25 254:0 /hosts/a/ssd /mnt/local rw,relatime shared:1 - ext4 /dev/vda rw
31 25 0:31 /srv /mnt/root rw - overlay overlay rw
32 25 8:1 / /mnt/broken rw - xfs /dev/sda1 ro
33 25 8:2 / /mnt/with\\040space rw - xfs /dev/sdb1 rw
"""


@pytest.mark.parametrize("point", ["/mnt/local", "/mnt/with space"])
def test_bound(point: str) -> None:
    assert slipway_storage.find_bound(slipway_storage.parse_mounts(MOUNTS), point).point == point


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("/mnt/missing", "is not a mount point"),
        ("/mnt/root", "lies on the root file system"),
        ("/", "lies on the root file system"),
        ("/mnt/broken", "is mounted read-only"),
    ],
)
def test_refuses(point: str, expected: str) -> None:
    with pytest.raises(slipway_storage.SlipwayError, match=expected):
        slipway_storage.find_bound(slipway_storage.parse_mounts(MOUNTS), point)


def test_module(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(
        f"1 0 8:0 / / rw - ext4 /dev/sda rw\n2 1 8:1 / {tmp_path} rw - xfs /dev/sdb rw\n"
    )
    wanted = {"mode": "bound", "mount": str(tmp_path), "mountinfo": str(tmp_path / "mountinfo")}
    result = run(slipway_storage, **wanted, minimum_free_gib=0.001)
    assert not result["changed"]
    assert (result["device"], result["filesystem"]) == ("8:1", "xfs")
    failed = run(slipway_storage, **wanted, minimum_free_gib=1e9)
    assert "GiB are free; expected at least 1e+09 GiB" in failed["msg"]
