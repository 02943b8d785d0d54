"""slipway_images: what is imported, pinned and released, from what ctr lists."""

from __future__ import annotations

import io
from typing import Any

import pytest
from library.slipway_images import OURS, PIN, Ctr, ImagesError, missing, parse_list, run

TABLE = """\
REF          TYPE                                       DIGEST     SIZE      PLATFORMS   LABELS
a.example/x:1 application/vnd.oci.image.manifest.v1+json sha256:aa 697.4 KiB linux/amd64 io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned
a.example/y:1 application/vnd.oci.image.manifest.v1+json sha256:bb 2.6 MiB   linux/amd64 -
"""  # noqa: E501 (as ctr prints it)


class Recorded(Ctr):
    """Has images in a dict and keeps the calls; an import brings what `archives` says."""

    def __init__(self, table: str, archives: dict[bytes, tuple[str, str]] | None = None) -> None:
        self.images = parse_list(table)
        self.archives = archives or {}
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str, archive: Any = None) -> str:
        self.calls.append(arguments)
        if archive is not None:
            name, digest = self.archives[archive.read()]
            self.images[name] = (digest, {})
        return ""

    def list(self) -> dict[str, tuple[str, dict[str, str]]]:
        return dict(self.images)


def image(name: str, digest: str, source: str = "file:///nowhere") -> dict[str, str]:
    return {"ref": name, "digest": digest, "source": source}


def test_table() -> None:
    found = parse_list(TABLE)
    assert found["a.example/x:1"] == ("sha256:aa", {"io.cri-containerd.image": "managed", PIN: "pinned"})
    assert found["a.example/y:1"] == ("sha256:bb", {})


def test_missing_is_absent_or_different() -> None:
    wanted = [image("a.example/x:1", "sha256:aa"), image("a.example/y:1", "sha256:cc"), image("z", "sha256:dd")]
    assert [each["ref"] for each in missing(wanted, parse_list(TABLE))] == ["a.example/y:1", "z"]


def test_imports_and_pins(tmp_path: Any) -> None:
    archive = tmp_path / "z.tar"
    archive.write_bytes(b"z")
    ctr = Recorded(TABLE, {b"z": ("z", "sha256:dd")})
    result = run(ctr, [image("z", "sha256:dd", archive.as_uri())], check=False)
    assert result == {"changed": True, "imported": ["z"], "pinned": ["z"], "released": []}
    assert ctr.calls == [("import", "--digests=false", "-"), ("label", "z", f"{PIN}=pinned", f"{OURS}=yes")]


def test_nothing_to_do() -> None:
    ctr = Recorded("")
    ctr.images = {"z": ("sha256:dd", {PIN: "pinned", OURS: "yes"})}
    assert not run(ctr, [image("z", "sha256:dd")], check=False)["changed"]
    assert ctr.calls == []


def test_releases_what_is_no_longer_wanted_and_only_that() -> None:
    ctr = Recorded("")
    ctr.images = {"old": ("sha256:dd", {PIN: "pinned", OURS: "yes"}), "users": ("sha256:ee", {PIN: "pinned"})}
    assert run(ctr, [], check=False)["released"] == ["old"]
    assert ctr.calls == [("label", "old", f"{PIN}=", f"{OURS}=")]


def test_check_changes_nothing() -> None:
    ctr = Recorded(TABLE)
    assert run(ctr, [image("z", "sha256:dd")], check=True)["imported"] == ["z"]
    assert ctr.calls == []


def test_another_image_in_the_archive_is_refused(tmp_path: Any) -> None:
    archive = tmp_path / "z.tar"
    archive.write_bytes(b"z")
    ctr = Recorded("", {b"z": ("z", "sha256:ff")})
    with pytest.raises(ImagesError, match="z is sha256:ff, expected sha256:dd"):
        run(ctr, [image("z", "sha256:dd", archive.as_uri())], check=False)


def test_missing_archive_is_one_line() -> None:
    with pytest.raises(ImagesError, match="expected an OCI archive of z") as caught:
        run(Recorded(""), [image("z", "sha256:dd", "file:///nowhere/z.tar")], check=False)
    assert "\n" not in str(caught.value)


def test_ctr_that_is_not_there() -> None:
    with pytest.raises(ImagesError, match="expected containerd's ctr there"):
        Ctr("/nowhere/ctr", "/nowhere.sock")("ls")


def test_ctr_that_fails(tmp_path: Any) -> None:
    program = tmp_path / "ctr"
    program.write_text("#!/bin/sh\necho first\necho 'ctr: no such socket' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(ImagesError, match="ctr images import ended with 1: ctr: no such socket"):
        Ctr(str(program), "/nowhere.sock")("import", "-", archive=io.BytesIO(b"x" * 200_000))
