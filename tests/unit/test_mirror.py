"""Mirrors: built from publishers on this machine by real apt, read by real apt, changed, refused, resumed."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from publishers import Gpg, Publisher, deb, publish_image, publish_repository, running, sha256
from slipway import paths
from slipway import release as releases
from slipway.artifacts import EngineError, Progress, engines
from slipway.artifacts.download import WrongDigestError
from slipway.cli import mirror as command
from slipway.cli.problems import Problem
from slipway.mirror import apt, build, client, content, verify
from slipway.mirror.content import MirrorError
from slipway.mirror.serve import Server
from slipway.release import Release, Target

pytestmark = [
    pytest.mark.skipif(shutil.which("gpg") is None, reason="no gpg here to make keys and signatures with"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here"),
]

HERE = Target("ubuntu24.04", engines.arch())
OTHER = Target("ubuntu24.04", "arm64" if engines.arch() == "amd64" else "amd64")

RELEASE = """\
id: "1"
description: a release
targets: [ubuntu24.04/amd64, ubuntu24.04/arm64]
repositories:
  vendor:
    description: a vendor
    sources:
      ubuntu24.04/amd64: {{uris: ["{url}/amd64"], suites: [/]}}
      ubuntu24.04/arm64: {{uris: ["{url}/arm64"], suites: [/]}}
    key: {url}/key.asc
    fingerprint: {fingerprint}
    signed_by: /usr/share/keyrings/vendor.asc
    owns: [nvidia-*]
components:
  etcd:
    version: 3.6.14
    downloads:
      - url: {url}/etcd-{{arch}}
        sha256: {{amd64: {etcd_amd64}, arm64: {etcd_arm64}}}
        file: etcd
  nvidia-driver:
    version: "580.1"
    repository: vendor
    packages: {{nvidia-driver: 1:580.1-1}}
registry_images:
  plugin: {{reference: "{host}/vendor/plugin:v1", digest: "{digest}"}}
toolchain: {{version: 1.26.8, sums: {{amd64: "h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM="}}}}
bundle: {{packages: {{ansible-core: 2.19.14}}}}
controller_packages: [util-linux]
"""


@pytest.fixture(scope="module")
def gpg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpg]:
    made = Gpg(tmp_path_factory.mktemp("gpg") / "home")
    made.key("vendor@example.com")
    yield made
    made.close()


@pytest.fixture(scope="module")
def debs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, bytes, str]]]:
    """For each architecture a driver in two versions, what it depends on, what nobody needs, and a role's package."""
    folder = tmp_path_factory.mktemp("debs")
    made = {}
    for arch in ("amd64", "arm64"):
        made[arch] = [
            deb(folder, "nvidia-driver", "1:580.1-1", arch, "nvidia-firmware (= 580.1-1), common"),
            deb(folder, "nvidia-driver", "1:610.1-1", arch),
            deb(folder, "nvidia-firmware", "580.1-1", arch),
            deb(folder, "nvidia-firmware", "610.1-1", arch),
            deb(folder / arch, "common", "2", "all"),
            deb(folder, "unwanted", "1", arch),
            deb(folder, "haproxy", "3.0-1", arch),
        ]
    return made


@pytest.fixture
def publisher(gpg: Gpg, debs: dict[str, list[tuple[str, bytes, str]]]) -> Iterator[Publisher]:
    with running() as server:
        for arch, packages in debs.items():
            publish_repository(server, gpg, "vendor@example.com", f"/{arch}", packages)
            server.files[f"/etcd-{arch}"] = f"etcd for {arch}".encode()
        server.files["/key.asc"] = gpg.public("vendor@example.com")
        yield server


@pytest.fixture
def release(publisher: Publisher, gpg: Gpg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Release:
    """The release, with a cache and a folder of releases of its own."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(apt, "role_packages", lambda: ["haproxy"])
    monkeypatch.setattr("slipway.artifacts.download.ATTEMPTS", 1)
    for proxy in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    listed = gpg("--with-colons", "--list-keys", "vendor@example.com").decode().splitlines()
    text = RELEASE.format(
        url=publisher.url(""),
        host=publisher.host,
        fingerprint=next(line.split(":")[9] for line in listed if line.startswith("fpr:")),
        digest=publish_image(publisher, "vendor/plugin", "v1", b"layer"),
        **{f"etcd_{arch}": sha256(f"etcd for {arch}".encode()) for arch in ("amd64", "arm64")},
    )
    (tmp_path / "1.yaml").write_text(text)
    monkeypatch.setattr(paths, "releases", lambda: tmp_path)
    return releases.load("1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "mirror"


def built(release: Release, folder: Path, *targets: Target) -> build.Built:
    with Progress() as progress:
        return build.build(release, targets or (HERE,), folder, progress)


def packages(content: content.Content) -> list[str]:
    return sorted(Path(file.path).name for file in content.below("apt/pool"))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with Server(folder, ("127.0.0.1", 0)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_collects_what_is_needed_and_nothing_else(release: Release, folder: Path) -> None:
    made = built(release, folder).content
    arch = HERE.arch
    assert packages(made) == [
        "common_2_all.deb",
        f"haproxy_3.0-1_{arch}.deb",
        f"nvidia-driver_580.1-1_{arch}.deb",
        f"nvidia-firmware_580.1-1_{arch}.deb",
    ]
    assert (made.release, made.release_digest) == ("1", release.digest())
    assert {file.path.partition("/")[0] for file in made.files} == {"apt", "bundles", "engines", "images"}
    for file in made.files:
        assert sha256((folder / file.path).read_bytes()) == file.sha256
    assert (folder / "private/key.asc").stat().st_mode & 0o777 == 0o600
    assert (folder / "private").stat().st_mode & 0o777 == 0o700
    assert b"PRIVATE" not in (folder / "slipway-mirror.asc").read_bytes()


def test_another_architecture_than_this_machines(release: Release, folder: Path) -> None:
    made = built(release, folder, OTHER).content
    assert f"nvidia-driver_580.1-1_{OTHER.arch}.deb" in packages(made)
    (file,) = made.below("files")
    assert (folder / file.path).read_bytes() == f"etcd for {OTHER.arch}".encode()


def apt_reads(folder: Path, url: str, *arguments: str, work: Path) -> subprocess.CompletedProcess[str]:
    """Let real apt use a mirror the way hosts do: with the source that the role `host` writes."""
    work.mkdir(exist_ok=True)
    for name in (
        "etc/apt/sources.list.d",
        "etc/apt/preferences.d",
        "etc/apt/apt.conf.d",
        "lists/partial",
        "archives/partial",
    ):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "status").write_text("")
    key = (folder / "slipway-mirror.asc").read_text()
    inline = "\n".join(f" {line or '.'}" for line in key.strip().splitlines())
    (work / "etc/apt/sources.list.d/mirror.sources").write_text(
        f"Types: deb\nURIs: {url}/apt\nSuites: ubuntu24.04-1\nComponents: main\nSigned-By:\n{inline}\n"
    )
    settings = {
        "Dir": f"{work}/",
        "Dir::State::lists": f"{work}/lists",
        "Dir::State::status": f"{work}/status",
        "Dir::Cache::archives": f"{work}/archives",
        "APT::Sandbox::User": "root",
        "APT::Architecture": HERE.arch,
        "Acquire::Languages": "none",
    }
    (work / "conf").write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(work / "conf"), "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        ["apt-get", "-q", "-y", *arguments], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_apt_takes_packages_from_it(release: Release, folder: Path, tmp_path: Path) -> None:
    built(release, folder)
    with served(folder) as url:
        updated = apt_reads(folder, url, "update", work=tmp_path / "host")
        assert (updated.returncode, updated.stderr) == (0, "")
        got = apt_reads(folder, url, "--download-only", "install", "nvidia-driver", work=tmp_path / "host")
        assert got.returncode == 0, got.stderr
        names = {file.name.partition("_")[0] for file in (tmp_path / "host/archives").glob("*.deb")}
    assert names == {"nvidia-driver", "nvidia-firmware", "common"}


def test_apt_refuses_a_changed_index(release: Release, folder: Path, tmp_path: Path) -> None:
    built(release, folder)
    signed = folder / "apt/dists/ubuntu24.04-1/InRelease"
    signed.write_text(signed.read_text().replace("Origin: Slipway", "Origin: Another"))
    with served(folder) as url:
        refused = apt_reads(folder, url, "update", work=tmp_path / "host")
    assert refused.returncode != 0 or "W: " in refused.stderr
    assert "invalid" in refused.stderr or "not signed" in refused.stderr


def test_a_second_build_fetches_nothing_again(release: Release, folder: Path, publisher: Publisher) -> None:
    first = built(release, folder, HERE, OTHER)
    publisher.asked.clear()
    second = built(release, folder, HERE, OTHER)
    assert [path for path in publisher.asked if path.startswith(("/etcd", "/v2")) or path.endswith(".deb")] == []
    assert second.content == first.content
    assert second.key.fingerprint == first.key.fingerprint


def test_what_failed_is_said_and_the_rest_kept(release: Release, folder: Path, publisher: Publisher) -> None:
    missing = [f"/etcd-{OTHER.arch}", f"/{HERE.arch}/pool/haproxy_3.0-1_{HERE.arch}.deb"]
    kept = {path: publisher.files.pop(path) for path in missing}
    with pytest.raises(MirrorError) as refused:
        built(release, folder, HERE, OTHER)
    lines = str(refused.value).splitlines()
    assert any(line.endswith(f"/etcd-{OTHER.arch}: answers 404") for line in lines)
    assert any(f"ubuntu24.04/{HERE.arch}: apt-get install: E: Failed to fetch" in line for line in lines)
    assert not (folder / "releases/1.json").exists()
    publisher.files.update(kept)
    publisher.asked.clear()
    built(release, folder, HERE, OTHER)
    fetched = [path for path in publisher.asked if path.startswith("/etcd") or path.endswith(".deb")]
    assert sorted(fetched) == sorted(missing)


def test_a_file_that_broke_off_goes_on(release: Release, folder: Path, publisher: Publisher) -> None:
    name = f"etcd-{OTHER.arch}"
    publisher.truncate(f"/{name}", 4)
    with pytest.raises(MirrorError, match="peer closed connection"):
        built(release, folder, OTHER)
    left = list((folder / ".work/files").glob("*.part"))
    assert [file.read_bytes() for file in left] == [b"etcd"]
    publisher.files[f"/{name}"] = f"etcd for {OTHER.arch}".encode()
    assert len(built(release, folder, OTHER).content.below("files")) == 1


def test_a_file_that_is_another_one(release: Release, folder: Path, publisher: Publisher) -> None:
    publisher.files[f"/etcd-{OTHER.arch}"] = b"evil"
    with pytest.raises(MirrorError, match=f"got {sha256(b'evil')}; the file was thrown away"):
        built(release, folder, OTHER)


def test_an_unsigned_repository(release: Release, folder: Path, publisher: Publisher, gpg: Gpg) -> None:
    gpg.key("evil@example.com")
    publish_repository(publisher, gpg, "evil@example.com", f"/{HERE.arch}", [])
    with pytest.raises(MirrorError, match=f"ubuntu24.04/{HERE.arch}: apt-get update: "):
        built(release, folder)


def test_a_dependency_that_nothing_meets(
    release: Release, folder: Path, publisher: Publisher, gpg: Gpg, tmp_path: Path
) -> None:
    packages = [
        deb(tmp_path, "nvidia-driver", "1:580.1-1", HERE.arch, "missing-thing"),
        deb(tmp_path, "haproxy", "1", "all"),
    ]
    publish_repository(publisher, gpg, "vendor@example.com", f"/{HERE.arch}", packages)
    with pytest.raises(MirrorError, match="Depends: missing-thing"):
        built(release, folder)


def test_a_release_that_is_not_for_such_hosts(release: Release, folder: Path) -> None:
    with pytest.raises(MirrorError, match=r"release 1 is not for debian13/amd64; it is for ubuntu24\.04/amd64"):
        built(release, folder, Target("debian13", "amd64"))


def test_a_folder_holds_several_releases(release: Release, folder: Path, publisher: Publisher, tmp_path: Path) -> None:
    built(release, folder)
    later = yaml.safe_load((tmp_path / "1.yaml").read_text())
    later["id"] = "2"
    later["components"]["nvidia-driver"]["packages"] = {"nvidia-driver": "1:610.1-1"}
    (tmp_path / "2.yaml").write_text(yaml.safe_dump(later))
    built(releases.load("2"), folder)
    for suite, version in (("ubuntu24.04-1", "580.1-1"), ("ubuntu24.04-2", "610.1-1")):
        index = (folder / f"apt/dists/{suite}/main/binary-{HERE.arch}/Packages").read_text()
        assert re.findall(r"^Version: 1:(\S+)$", index, re.MULTILINE) == [version]
    lists, faults = verify.verify(folder)
    assert ([one.release for one in lists], faults) == (["1", "2"], [])


def test_an_image_has_what_its_index_names(release: Release, folder: Path) -> None:
    made = built(release, folder).content
    (file,) = [file for file in made.below("images") if "plugin" in file.path]
    with tarfile.open(folder / file.path) as archive:
        names = archive.getnames()
        index = json.load(archive.extractfile("index.json") or io.BytesIO())
    (entry,) = index["manifests"]
    assert entry["digest"] == release.registry_images["plugin"].digest
    assert f"blobs/{entry['digest'].replace(':', '/')}" in names
    assert f"blobs/sha256/{sha256(b'layer')}" in names


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda file: file.write_bytes(b"x" * file.stat().st_size),
            r"^engines/etcd/\S+/etcd: wanted sha256 \w+, got \w+$",
        ),
        (lambda file: file.write_bytes(b"x"), r"^engines/etcd/\S+/etcd: wanted \d+ bytes, got 1$"),
        (lambda file: file.unlink(), r"^engines/etcd/\S+/etcd: is missing$"),
    ],
)
def test_verify_finds_what_is_wrong(release: Release, folder: Path, harm: object, said: str) -> None:
    built(release, folder)
    (file,) = folder.glob("engines/etcd/*/etcd")
    copy = file.read_bytes()
    file.unlink()  # it is the cache's file too
    file.write_bytes(copy)
    command.verify(folder)
    harm(file)  # type: ignore[operator]
    with pytest.raises(Problem) as refused:
        command.verify(folder)
    assert refused.value.code == 1
    assert re.match(said, str(refused.value))


def test_verify_finds_a_changed_list(release: Release, folder: Path) -> None:
    built(release, folder)
    listed = folder / "releases/1.json"
    listed.write_text(listed.read_text().replace('"etcd for', '"evil for').replace("slipway", "evil"))
    index = next(folder.glob("apt/dists/*/main/*/Packages"))
    index.write_text("")
    _, faults = verify.verify(folder)
    assert any("1.json: not signed by" in fault for fault in faults)
    assert any("Packages: wanted sha256" in fault for fault in faults)


def test_verify_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(MirrorError, match="no mirror"):
        verify.verify(tmp_path)


def test_serves_what_is_for_everyone(release: Release, folder: Path) -> None:
    built(release, folder)
    with served(folder) as url:
        whole = httpx.get(f"{url}/releases/1.json")
        assert whole.content == (folder / "releases/1.json").read_bytes()
        rest = httpx.get(f"{url}/releases/1.json", headers={"Range": "bytes=10-"})
        assert (rest.status_code, rest.content) == (206, whole.content[10:])
        beyond = httpx.get(f"{url}/releases/1.json", headers={"Range": f"bytes={len(whole.content)}-"})
        assert beyond.status_code == 416
        assert httpx.head(f"{url}/slipway-mirror.asc").status_code == 200
        for hidden in (
            "/private/key.asc",
            "/.work/",
            "/releases/",
            "/",
            "/apt/../private/key.asc",
            "/apt/%2e%2e/private/key.asc",
        ):
            with httpx.Client() as raw:
                assert raw.get(httpx.URL(url, raw_path=hidden.encode())).status_code == 404, hidden


def ensure(release: Release, mirror: client.Client) -> engines.Engine:
    with Progress() as progress:
        return engines.ensure("etcd", release, progress, mirror=mirror)


def test_the_controller_takes_engines_from_it_alone(
    release: Release, folder: Path, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(release, folder)
    publisher.asked.clear()
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "another"))
    with served(folder) as url:
        engine = ensure(release, client.Client(url, made.key.fingerprint, "1"))
    assert (engine.folder / "etcd").read_bytes() == f"etcd for {HERE.arch}".encode()
    assert os.access(engine.folder / "etcd", os.X_OK)
    assert publisher.asked == []


def test_the_controller_refuses_what_it_does_not_trust(
    release: Release, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(release, folder)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "another"))
    with served(folder) as url:
        with pytest.raises(MirrorError, match=f"wanted the key {'A' * 40}, got {made.key.fingerprint}"):
            ensure(release, client.Client(url, "A" * 40, "1"))
        with pytest.raises(MirrorError, match=r"2\.json: answers 404; run there: \./slipway mirror build 2"):
            ensure(release, client.Client(url, made.key.fingerprint, "2"))
        (file,) = folder.glob("engines/etcd/*/etcd")
        size = file.stat().st_size
        file.unlink()
        file.write_bytes(b"x" * size)
        with pytest.raises(WrongDigestError):
            ensure(release, client.Client(url, made.key.fingerprint, "1"))
        listed = folder / "releases/1.json"
        listed.write_text(listed.read_text() + "\n")
        with pytest.raises(MirrorError, match="not signed by"):
            ensure(release, client.Client(url, made.key.fingerprint, "1"))


def test_an_engine_that_the_mirror_does_not_have(
    release: Release, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = built(release, folder)
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "another"))
    newer = release.components["etcd"].model_copy(update={"version": "3.6.99"})
    changed = release.model_copy(update={"components": {**release.components, "etcd": newer}})
    with served(folder) as url, pytest.raises((MirrorError, EngineError), match=r"has no engine etcd/3\.6\.99-"):
        ensure(changed, client.Client(url, made.key.fingerprint, "1"))


def test_what_roles_install_is_what_a_mirror_has() -> None:
    """Each role that installs packages of the distribution names them in its data, for mirrors."""
    for tasks in sorted((paths.root() / "roles").glob("*/tasks/*.yml")):
        role = tasks.parents[1]
        if "slipway_packages:" not in tasks.read_text():
            continue
        named = yaml.safe_load((role / "meta/slipway.yml").read_text()).get("packages", [])
        defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
        asked = set(defaults.get(f"{role.name}_packages", []))
        asked |= set(re.findall(r"^\s+- ([a-z][a-z0-9.+-]+)(?:\{\{|$)", tasks.read_text(), re.MULTILINE))
        asked |= set(re.findall(r"\['([a-z0-9.+-]+)'\]", tasks.read_text()))
        assert asked, role.name
        assert asked <= set(named), role.name
