"""Digests from publishers: real HTTP, real signatures, files of digests and indices as they are found."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from publishers import Answer, Gpg, Publisher, package, publish_image, publish_repository, release_file, running, sha256
from slipway import lock, paths
from slipway import release as releases
from slipway.cli import lock as command
from slipway.cli.problems import Problem
from slipway.lock import checksums

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="no gpg here to make keys and signatures with")

ETCD = {arch: f"etcd for {arch}".encode() for arch in ("amd64", "arm64")}
TOOL = b"tool"

RELEASE = """\
# The head stays.
id: "1"
description: a release
targets: [debian13/amd64, debian13/arm64]

repositories:
  vendor:
    description: a vendor
    sources:
      debian13:
        uris: [{url}/flat/]
        suites: [/]
    key: {url}/key.asc
    fingerprint: {fingerprint}   # of their page
    signed_by: /usr/share/keyrings/vendor.asc
  suites:
    description: with suites
    sources:
      debian13/amd64: {{uris: ["{url}/apt"], suites: [stable], components: [main]}}
    key: {url}/key.asc
    fingerprint: {fingerprint}
    signed_by: /usr/share/keyrings/vendor.asc

components:
  etcd:
    version: 3.6.14
    downloads:
      - url: {url}/v3/etcd-{{arch}}.tar.gz   # an archive
        sha256:
          amd64: {etcd_amd64}
        checksums: {url}/v3/SHA256SUMS
        members: {{etcd: etcd}}
      - unverified: its digest
        url: {url}/tool
        checksums: {url}/tool.sha512
        file: tool
      - url: {url}/nothing
        unverified: its digest, since nobody publishes it
        file: nothing

  # Comments stay where they are.
  dcgm:
    version: 4.6.0
    repository: vendor
    install:
      debian13/amd64:
        packages:
          datacenter: 1:4.6.0-1   # why
          manager: {{version: 4.6.0-1, unverified: the revision}}
  kernel:
    version: "6.1"
    repository: suites
    install:
      debian13/amd64:
        packages:
          linux-image:
            version: 6.1-2
            unverified: all of it   # really

registry_images:
  plugin:
    reference: {host}/vendor/plugin:v1
    unverified: its digest

toolchain: {{version: 1.26.8, sums: {{amd64: "h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM="}}}}
bundle: {{packages: {{ansible-core: 2.19.14}}}}
controller_packages: [util-linux]
"""


@pytest.fixture(scope="module")
def gpg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gpg]:
    made = Gpg(tmp_path_factory.mktemp("gpg") / "home")
    yield made
    made.close()


@pytest.fixture(scope="module")
def key(gpg: Gpg) -> str:
    return gpg.key("vendor@example.com")


@pytest.fixture
def server(gpg: Gpg, key: str) -> Iterator[Publisher]:
    """Publishes all that RELEASE names."""
    with running() as one:
        sums = "".join(f"{sha256(content)}  ./etcd-{arch}.tar.gz\n" for arch, content in ETCD.items())
        one.files["/v3/SHA256SUMS"] = f"{sha256(b'other')} *etcd.zip\n{sums}".encode()
        one.files["/tool.sha512"] = ("ab" * 64).encode() + b"\n"
        one.files["/key.asc"] = gpg.public("vendor@example.com")
        flat = [package("datacenter", "1:4.6.0-1", "amd64", b"d"), package("manager", "4.6.0-1", "all", b"m")]
        flat += [package("datacenter", "1:4.5.2-1", "amd64", b"old"), package("datacenter", "1:4.6.0-1", "arm64", b"a")]
        publish_repository(one, gpg, key, "/flat", flat)
        publish_repository(one, gpg, key, "/apt", [package("linux-image", "6.1-2", "amd64", b"k")], "stable")
        one.digest = publish_image(one, "vendor/plugin", "v1", b"layer")  # type: ignore[attr-defined]
        yield one


@pytest.fixture
def file(server: Publisher, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The release file, in a folder of its own."""
    written = tmp_path / "1.yaml"
    written.write_text(
        RELEASE.format(url=server.url(""), host=server.host, fingerprint=key, etcd_amd64=sha256(ETCD["amd64"]))
    )
    monkeypatch.setattr(paths, "releases", lambda: tmp_path)
    monkeypatch.setattr("slipway.artifacts.download.ATTEMPTS", 1)
    return written


def problems(file: Path) -> list[str]:
    return lock.find(releases.load(file.stem)).problems


def only(file: Path, *, path: str) -> str:
    """The one problem that there is, without its place in the file."""
    (problem,) = problems(file)
    place, _, said = problem.partition(": ")
    assert place == path
    return said


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """Lines that went and lines that came, without their indent."""
    old, new = before.splitlines(), after.splitlines()
    return [one.strip() for one in old if one not in new], [one.strip() for one in new if one not in old]


def test_fills_in_and_touches_nothing_else(file: Path, server: Publisher, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    with pytest.raises(Problem) as refused:
        command.lock("1", check=True)
    assert refused.value.code == 1
    assert "6 digests are not in the file" in str(refused.value)
    assert file.read_text() == before
    command.lock("1")
    gone, came = changed(before, file.read_text())
    assert gone == [
        "- unverified: its digest",
        "url: " + server.url("/tool"),
        "datacenter: 1:4.6.0-1   # why",
        "manager: {version: 4.6.0-1, unverified: the revision}",
        "unverified: all of it   # really",
        "unverified: its digest",
    ]
    assert came == [
        f"arm64: {sha256(ETCD['arm64'])}",
        "- url: " + server.url("/tool"),
        "sha512:",
        "amd64: " + "ab" * 64,
        "arm64: " + "ab" * 64,
        f"datacenter: {{version: 1:4.6.0-1, sha256: {{amd64: {sha256(b'd')}}}}}   # why",
        f"manager: {{version: 4.6.0-1, sha256: {{amd64: {sha256(b'm')}}}}}",
        "sha256:",
        f"amd64: {sha256(b'k')}",
        f"digest: {server.digest}",  # type: ignore[attr-defined]
    ]
    assert "nobody publishes it" in file.read_text()
    locked = file.read_text()
    command.lock("1", check=True)
    command.lock("1")
    assert file.read_text() == locked
    assert "etcd.downloads.2" in capsys.readouterr().out  # what has no published digest is told each time


def test_shipped_releases_survive_an_edit_everywhere() -> None:
    """Every download, package and image of the releases that we ship can be filled in, and nothing else changes."""
    for name in ("2026.11", "2026.08", "lab"):
        file = paths.releases() / f"{name}.yaml"
        pinned = releases.load(name)
        found: list[lock.Found] = []
        for component, one in pinned.components.items():
            for index, published in enumerate(one.downloads):
                if not published.sha256 and not published.sha512:
                    place = ("components", component, "downloads", index)
                    found.append(lock.Found(place, {"sha256": {"amd64": "0" * 64}}, settles=True))
            for key, variant in {"": one, **one.install}.items():
                top = ("components", component, *(("install", key) if key else ()), "packages")
                found += [
                    lock.Found((*top, each), {"sha256": {"arm64": "1" * 64, "amd64": "0" * 64}}, settles=True)
                    for each in variant.packages
                ]
        text = lock.write(file.read_text(), found)
        comments = [line for line in file.read_text().splitlines() if line.lstrip().startswith("#")]
        assert [line for line in text.splitlines() if line.lstrip().startswith("#")] == comments
        assert text.count("0" * 64) == len(found)  # each digest of decimal digits in quotes


def test_published_anew(file: Path, server: Publisher) -> None:
    server.files["/v3/SHA256SUMS"] = f"{'0' * 64}  etcd-amd64.tar.gz\n{'1' * 64}  etcd-arm64.tar.gz\n".encode()
    said = only(file, path="components.etcd.downloads.0")
    url = server.url("/v3/etcd-amd64.tar.gz")
    assert said.startswith(f"{url}: published anew: wanted sha256 {sha256(ETCD['amd64'])}, got {'0' * 64}")
    before = file.read_text()
    with pytest.raises(Problem):
        command.lock("1")
    assert sha256(ETCD["amd64"]) in file.read_text()  # never replaced by itself
    assert file.read_text() != before  # what else was found is in


def test_a_package_published_anew(file: Path, server: Publisher, gpg: Gpg, key: str) -> None:
    command.lock("1")
    publish_repository(server, gpg, key, "/apt", [package("linux-image", "6.1-2", "amd64", b"other")], "stable")
    said = only(file, path="components.kernel.install.debian13/amd64.packages.linux-image")
    assert said.startswith(server.url("/apt/pool/linux-image_6.1-2_amd64.deb"))
    assert said.endswith(f"published anew: wanted sha256 {sha256(b'k')}, got {sha256(b'other')}")


def test_an_image_published_anew(file: Path, server: Publisher) -> None:
    command.lock("1")
    digest = publish_image(server, "vendor/plugin", "v1", b"other")
    assert only(file, path="registry_images.plugin").endswith(f"got {digest}")


def test_redirects_are_followed(file: Path, server: Publisher) -> None:
    server.files["/elsewhere"] = server.files["/v3/SHA256SUMS"]
    server.redirect("/v3/SHA256SUMS", server.url("/elsewhere"))
    assert problems(file) == []


def test_a_missing_file_of_digests(file: Path, server: Publisher) -> None:
    del server.files["/tool.sha512"]
    lines = problems(file)
    assert set(lines) == {f"components.etcd.downloads.1: {server.url('/tool.sha512')}: answers 404"}


def test_a_truncated_file_of_digests(file: Path, server: Publisher) -> None:
    server.truncate("/v3/SHA256SUMS", 90)
    assert all("/v3/SHA256SUMS: peer closed connection" in line for line in problems(file))
    assert problems(file)


def test_a_file_of_digests_without_ours(file: Path, server: Publisher) -> None:
    server.files["/v3/SHA256SUMS"] = b"<html>moved</html>\n"
    assert f"{server.url('/v3/SHA256SUMS')}: has no digest for etcd-amd64.tar.gz" in problems(file)[0]


def test_a_version_that_is_not_there(file: Path) -> None:
    file.write_text(file.read_text().replace("1:4.6.0-1   # why", "1:4.6.0"))
    said = only(file, path="components.dcgm.install.debian13/amd64.packages.datacenter")
    assert said == "no version 1:4.6.0 for debian13/amd64; there are: 1:4.6.0-1"


def test_a_signature_by_another_key(file: Path, server: Publisher, gpg: Gpg) -> None:
    gpg.key("other@example.com")
    publish_repository(server, gpg, "other@example.com", "/flat", [])
    said = only(file, path="repositories.vendor")
    assert "InRelease: not signed by" in said


def test_a_changed_index(file: Path, server: Publisher) -> None:
    index = gzip.compress(b"Package: datacenter\n")
    server.files["/flat/Packages.gz"] = index
    assert only(file, path="repositories.vendor").endswith(f"got {sha256(index)}")


def test_a_truncated_index(file: Path, server: Publisher) -> None:
    server.truncate("/flat/Packages.gz", 20)
    assert "/flat/Packages.gz: " in only(file, path="repositories.vendor")


def test_a_tampered_release(file: Path, server: Publisher) -> None:
    signed = server.files["/flat/InRelease"]
    assert isinstance(signed, bytes)
    server.files["/flat/InRelease"] = signed.replace(b"Origin: test", b"Origin: best")
    assert "InRelease: not signed by" in only(file, path="repositories.vendor")


def test_a_detached_signature(file: Path, server: Publisher, gpg: Gpg, key: str) -> None:
    index = server.files["/flat/Packages.gz"]
    assert isinstance(index, bytes)
    text = release_file({"Packages.gz": index})
    del server.files["/flat/InRelease"]
    server.files["/flat/Release"] = text
    server.files["/flat/Release.gpg"] = gpg("-u", key, "--armor", "--detach-sign", feed=text)
    assert problems(file) == []
    server.files["/flat/Release"] = text + b"\n"
    assert "Release: not signed by" in only(file, path="repositories.vendor")


def test_an_expired_key(file: Path, server: Publisher, gpg: Gpg) -> None:
    old = gpg.key("old@example.com", made="20200101T000000", life="1y")
    server.files["/old.asc"] = gpg.public("old@example.com")
    feed = release_file({"Packages.gz": b""})
    past = ["--faked-system-time", "20200601T000000"]
    server.files["/flat/InRelease"] = gpg(*past, "-u", old, "--clearsign", feed=feed)
    text = file.read_text()
    text = text.replace("/key.asc", "/old.asc", 1).replace(
        releases.load("1").repositories["vendor"].fingerprint, old, 1
    )  # type: ignore[arg-type]
    file.write_text(text)
    assert only(file, path="repositories.vendor").endswith(f"the key {old} expired on 2020-12-31")


def test_a_key_that_is_not_safe_any_more(file: Path, server: Publisher, gpg: Gpg, key: str) -> None:
    weak = gpg.key("weak@example.com", "--cert-digest-algo", "SHA1")
    server.files["/key.asc"] = gpg.public("weak@example.com")
    file.write_text(file.read_text().replace(key, weak))
    assert all(f"the key {weak} cannot be trusted: SHA1 is not considered secure" in line for line in problems(file))


def test_a_server_that_fails(file: Path, server: Publisher) -> None:
    """Only where there is no `InRelease` its older form is asked for."""
    server.files["/flat/InRelease"] = Answer(status=503)
    assert only(file, path="repositories.vendor").endswith("/flat/InRelease: answers 503")


def test_a_key_of_another_fingerprint(file: Path, server: Publisher, gpg: Gpg) -> None:
    gpg.key("third@example.com")
    server.files["/key.asc"] = gpg.public("third@example.com")
    assert all("key.asc: wanted the key" in line for line in problems(file))


def test_a_stale_repository(file: Path, server: Publisher, gpg: Gpg, key: str) -> None:
    index = server.files["/flat/Packages.gz"]
    assert isinstance(index, bytes)
    text = release_file({"Packages.gz": index}, "Valid-Until: Sat, 01 Jan 2022 00:00:00 UTC\n")
    server.files["/flat/InRelease"] = gpg("-u", key, "--clearsign", feed=text)
    assert only(file, path="repositories.vendor").endswith("was valid until 2022-01-01; its server is stale")


def test_a_repository_without_fingerprint(file: Path, key: str) -> None:
    file.write_text(file.read_text().replace(f"fingerprint: {key}   # of their page", "unverified: its key"))
    assert "write `fingerprint`" in only(file, path="repositories.vendor")


def test_one_version_that_differs_between_hosts(file: Path, server: Publisher, gpg: Gpg, key: str) -> None:
    """A package given for all hosts must be one file for each architecture."""
    publish_repository(server, gpg, key, "/second", [package("datacenter", "1:4.6.0-1", "amd64", b"else")])
    text = file.read_text().replace("targets: [", "targets: [debian12/amd64, ")
    text = text.replace("[/]\n", f"[/]\n      debian12: {{uris: ['{server.url('/second')}'], suites: [/]}}\n", 1)
    text = text.replace(
        "    install:\n      debian13/amd64:\n        packages:\n          datacenter: 1:4.6.0-1   # why\n", ""
    )
    text = text.replace(
        "          manager: {version: 4.6.0-1, unverified: the revision}\n", "    packages: {datacenter: 1:4.6.0-1}\n"
    )
    file.write_text(text)
    said = only(file, path="components.dcgm.packages.datacenter")
    assert said.startswith("differs between kinds of host")


def test_a_registry_that_lies(file: Path, server: Publisher) -> None:
    known = server.files["/v2/vendor/plugin/manifests/v1"]
    assert isinstance(known, Answer)
    server.files["/v2/vendor/plugin/manifests/v1"] = Answer(
        known.content, headers=(("Docker-Content-Digest", "sha256:" + "0" * 64),)
    )
    assert f"wanted sha256:{'0' * 64}, got sha256:" in only(file, path="registry_images.plugin")


@pytest.mark.parametrize(
    "text",
    [
        f"{'a' * 64}  file.tgz\n",
        f"{'A' * 64} *./some/folder/file.tgz\r\n{'b' * 64}  file.tgz.asc\n",
        f"SHA256 (file.tgz) = {'a' * 64}\n",
        "a" * 64,
    ],
)
def test_layouts_of_files_of_digests(text: str) -> None:
    assert checksums.digest_of(text, "https://x.example/y/file.tgz") == ("sha256", "a" * 64)


def test_two_digests_for_one_file() -> None:
    text = f"{'a' * 64}  file\n{'b' * 64}  file\n"
    with pytest.raises(checksums.ChecksumError, match="has 2 digests for file"):
        checksums.digest_of(text, "https://x.example/file")
