"""OCI archives: the layout that every tool reads, the same bytes each time."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from slipway.artifacts import oci


@pytest.fixture
def image(tmp_path: Path) -> oci.Image:
    binary = tmp_path / "server"
    binary.write_bytes(b"\x7fELF program")
    return oci.Image("slipway.local/server:1.2.3", binary, "amd64", arguments=("serve",), user="7:8", ports=(80,))


def read(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as opened:
        members = {member.name: opened.extractfile(member) for member in opened.getmembers()}
        return {name: file.read() for name, file in members.items() if file}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return a blob after checking it against its descriptor."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    content = files[f"blobs/{algorithm}/{digest}"]
    assert hashlib.sha256(content).hexdigest() == digest
    assert len(content) == descriptor["size"]
    return content


def test_layout(image: oci.Image, tmp_path: Path) -> None:
    digest = oci.write(image, tmp_path / "image.tar")
    files = read(tmp_path / "image.tar")
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == digest
    assert entry["annotations"]["io.containerd.image.name"] == "slipway.local/server:1.2.3"
    manifest = json.loads(blob(files, entry))
    config = json.loads(blob(files, manifest["config"]))
    (layer_entry,) = manifest["layers"]
    layer = blob(files, layer_entry)
    assert config["rootfs"]["diff_ids"] == [layer_entry["digest"]]
    assert config["config"]["Entrypoint"] == ["/server"]
    assert config["config"]["Cmd"] == ["serve"]
    assert config["config"]["User"] == "7:8"
    assert config["config"]["ExposedPorts"] == {"80/tcp": {}}
    assert (config["architecture"], config["os"]) == ("amd64", "linux")
    with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
        (member,) = opened.getmembers()
        assert (member.name, member.mode, member.uid, member.mtime) == ("server", 0o755, 0, 0)


def test_same_bytes_each_time(image: oci.Image, tmp_path: Path) -> None:
    oci.write(image, tmp_path / "one.tar")
    oci.write(image, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_another_binary_is_another_digest(image: oci.Image, tmp_path: Path) -> None:
    first = oci.write(image, tmp_path / "one.tar")
    image.binary.write_bytes(b"\x7fELF other")
    assert oci.write(image, tmp_path / "two.tar") != first


def test_reads_back_what_it_wrote(image: oci.Image, tmp_path: Path) -> None:
    digest = oci.write(image, tmp_path / "image.tar")
    assert oci.read_digest(tmp_path / "image.tar") == (image.reference, digest)
