"""The release file: what it may say, and how mistakes are told."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway import paths, release
from slipway.artifacts import gobuild

LAB = paths.releases() / "lab.yaml"


def write(folder: Path, change: object) -> Path:
    """Write the lab's release, changed by a function, as `changed.yaml`."""
    data = yaml.safe_load(LAB.read_text())
    data["id"] = "changed"
    change(data)  # type: ignore[operator]
    (folder / "changed.yaml").write_text(yaml.safe_dump(data))
    return folder


def refused(folder: Path, change: object) -> list[str]:
    """Return the lines with which a changed release is refused."""
    with pytest.raises(release.ReleaseError) as caught:
        release.load("changed", write(folder, change))
    return str(caught.value).splitlines()


def test_lab_release_loads() -> None:
    lab = release.load("lab")
    assert lab.version("kubernetes") == lab.component("kubernetes").version
    assert lab.image("pause") == f"slipway.local/pause:{lab.version('pause')}"
    assert lab.component("etcd").files() == ("etcd", "etcdctl", "etcdutl")
    assert len(lab.digest()) == 64


def test_comments_and_order_do_not_change_the_digest(tmp_path: Path) -> None:
    def reverse(data: dict[str, object]) -> None:
        data["components"] = dict(reversed(list(data["components"].items())))  # type: ignore[attr-defined]

    plain = release.load("changed", write(tmp_path, lambda data: None)).digest()
    assert release.load("changed", write(tmp_path, reverse)).digest() == plain


@settings(deadline=None)
@given(st.sampled_from(sorted(release.load("lab").components)))
def test_any_changed_version_changes_the_digest(name: str) -> None:
    lab = release.load("lab")
    component = lab.components[name].model_copy(update={"version": "99.0.0"})
    other = lab.model_copy(update={"components": {**lab.components, name: component}})
    assert other.digest() != lab.digest()


def test_unknown_key_gives_path_and_nearest(tmp_path: Path) -> None:
    def misspell(data: dict[str, dict[str, dict[str, object]]]) -> None:
        data["components"]["etcd"]["verison"] = data["components"]["etcd"].pop("version")

    lines = refused(tmp_path, misspell)
    assert any(re.search(r"changed\.yaml: components\.etcd\.verison: unknown key; nearest: version$", x) for x in lines)
    assert any(line.endswith("components.etcd.version: missing") for line in lines)


def test_unknown_key_deep_inside_a_list(tmp_path: Path) -> None:
    def misspell(data: dict[str, dict[str, dict[str, list[dict[str, object]]]]]) -> None:
        data["components"]["etcd"]["downloads"][0]["memebers"] = {}

    assert refused(tmp_path, misspell)[0].endswith("downloads.0.memebers: unknown key; nearest: members")


def test_version_that_yaml_takes_for_a_number(tmp_path: Path) -> None:
    def number(data: dict[str, dict[str, dict[str, object]]]) -> None:
        data["components"]["etcd"]["version"] = 3.6

    (line,) = refused(tmp_path, number)
    assert "components.etcd.version" in line
    assert line.endswith("(put it in quotes)")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    def many(data: dict[str, dict[str, dict[str, object]]]) -> None:
        data["components"]["etcd"]["version"] = "latest"
        data["components"]["runc"]["downloads"] = [{"url": "ftp://x", "sha256": {"amd64": "short"}, "file": "runc"}]
        data["toolchain"]["sums"] = {"amd64": "h1:no"}

    lines = refused(tmp_path, many)
    assert len(lines) == 4
    assert all(line.count(": ") >= 2 for line in lines)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["images"]["pause"].update(component="puase"), "nearest: pause"),
        (lambda d: d["images"]["pause"].update(file="pauze"), "pause has no file 'pauze'; nearest: pause"),
        (
            lambda d: d["components"]["etcd"].pop("build") and d["components"]["etcd"].pop("downloads"),
            "needs `downloads`",
        ),
        (lambda d: d["components"]["kubernetes"].pop("unverified"), "say why in `unverified`"),
        (lambda d: d["components"]["etcd"]["downloads"][0].update(sha256={}), "needs sha256 or sha512"),
        (lambda d: d.update(id="other"), "expected 'changed' like the file's name"),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, change: object, said: str) -> None:
    assert said in " ".join(refused(tmp_path, change))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", "expected a mapping"),
        ("a: [", "not YAML"),
        ("", "NoneType"),
        ("a: 1\na: 2", r"changed\.yaml:2: not YAML: key 'a' is there twice"),
    ],
)
def test_not_a_release(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "changed.yaml").write_text(text)
    with pytest.raises(release.ReleaseError, match=said) as caught:
        release.load("changed", tmp_path)
    assert "\n" not in str(caught.value)


def test_no_such_release_gives_nearest() -> None:
    with pytest.raises(release.ReleaseError, match=r"no release 'lba'; nearest: lab; there are: "):
        release.load("lba")


def test_no_such_component_gives_nearest() -> None:
    with pytest.raises(release.ReleaseError, match="nearest: containerd"):
        release.load("lab").component("containred")


@pytest.mark.parametrize("name", ["lab", "2026.08", "2026.11"])
def test_shipped_releases_load(name: str) -> None:
    shipped = release.load(name)
    assert shipped.id == name
    for target in map(release.Target.parse, shipped.targets):
        assert shipped.component("etcd").at(target) is not None


def test_most_specific_key_wins_field_by_field(tmp_path: Path) -> None:
    def add(data: dict[str, Any]) -> None:
        data["targets"] = ["debian13/amd64", "debian13/arm64"]
        data["repositories"] = {
            "r": {
                "description": "one",
                "sources": {"debian13": {"uris": ["https://a/"], "suites": ["/"]}},
                "key": "https://a/key",
                "unverified": "its fingerprint",
                "signed_by": "/k",
            }
        }
        data["components"]["nccl"] = {
            "version": "1.0",
            "repository": "r",
            "packages": {"a": "1.0-1"},
            "install": {
                "debian13": {"packages": {"b": "1.0-2"}},
                "debian13/arm64": {"version": "2.0", "packages": {"c": {"version": "2.0-1"}}},
                "debian13/arm64/gb200": {"packages": {"d": "2.0-3"}},
            },
        }

    loaded = release.load("changed", write(tmp_path, add))
    nccl = loaded.component("nccl")

    def at(target: str) -> tuple[str, dict[str, str]]:
        pinned = nccl.at(release.Target.parse(target))
        assert pinned is not None
        return pinned.version, {name: one.version for name, one in pinned.packages.items()}

    assert at("debian12/amd64") == ("1.0", {"a": "1.0-1"})
    assert at("debian13/amd64") == ("1.0", {"b": "1.0-2"})
    assert at("debian13/arm64") == ("2.0", {"c": "2.0-1"})
    assert at("debian13/arm64/gb200") == ("2.0", {"d": "2.0-3"})
    assert "nccl" not in loaded.engines
    assert loaded.repositories["r"].deb822(release.Target.parse("debian13/arm64")) == (
        "Types: deb\nURIs: https://a/\nSuites: /\nArchitectures: arm64\nSigned-By: /k\n"
    )


def test_a_component_called_like_a_file_comes_instead(tmp_path: Path) -> None:
    def hold_back(data: dict[str, Any]) -> None:
        kubelet = data["components"]["kubernetes"]["downloads"][0]
        data["components"]["kubelet"] = {"version": "1.35.8", "downloads": [kubelet]}

    held = release.load("changed", write(tmp_path, hold_back))
    assert held.provider("kubernetes", "kubelet") == "kubelet"
    assert held.provider("kubernetes", "kube-proxy") == "kubernetes"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda d: d["components"].update(containred=d["components"].pop("containerd")),
            "components.containred: unknown component; nearest: containerd",
        ),
        (lambda d: d["components"]["etcd"].update(version="latest"), "components.etcd.version: 'latest' is not a ver"),
        (lambda d: d.update(targets=["debain13"]), "targets.0: 'debain13' is not <os>/<arch>"),
        (
            lambda d: d["components"]["etcd"].update(install={"debian31": {"version": "3.6.14"}}),
            "components.etcd.install.debian31: not among `targets` of the release; nearest: debian13",
        ),
        (
            lambda d: d["components"]["etcd"].update(install={"debian13": {"version": "3.6.13"}}),
            "another version needs its own",
        ),
        (
            lambda d: d["components"].update(nccl={"version": "1.0", "packages": {"libnccl2": "1.0-1"}}),
            "components.nccl: packages for debian13/amd64, but no `repository`",
        ),
        (
            lambda d: d["components"].update(
                nccl={"version": "1.0", "repository": "nvidai", "packages": {"libnccl2": "1.0-1"}}
            ),
            "components.nccl.repository: no repository 'nvidai'",
        ),
        (
            lambda d: d.update(registry_images={"a": {"reference": "nvcr.io/a:1"}}),
            "registry_images.a: an image needs its `digest`",
        ),
        (lambda d: d.update(registry_images={"a": {"reference": "a", "digest": "x"}}), "reference: 'a' is not an imag"),
    ],
)
def test_mistakes_give_path_and_what_was_expected(tmp_path: Path, change: object, said: str) -> None:
    (line, *_) = refused(tmp_path, change)
    assert said in line


def test_nothing_can_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        release.load("lab").toolchain.version = "1"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("shipped", "name"),
    [(shipped, name) for shipped in ("lab", "2026.08", "2026.11") for name in release.load(shipped).engines],
)
def test_recipes_agree_with_the_release(shipped: str, name: str) -> None:
    """The version in go.mod, which is what gets built, is the one that the release says."""
    build = release.load(shipped).components[name].build
    if build is None or build.module == ".":
        return
    required = dict(re.findall(r"^(?:require )?\s*(\S+) (v\S+)", gobuild.recipe_files(name)["go.mod"].decode(), re.M))
    assert required[build.module] == build.version


@pytest.mark.parametrize("name", sorted(release.load("lab").components))
def test_recipes_pin_every_module_by_hash(name: str) -> None:
    files = gobuild.recipe_files(name)
    if b"require" not in files["go.mod"]:
        return
    assert b"h1:" in files["go.sum"]


def test_bundle_is_what_is_installed() -> None:
    for package, pinned in release.load("lab").bundle.packages.items():
        assert version(package) == pinned


def test_built_version_of_the_kubernetes_provider_is_the_python_package_s() -> None:
    lab = release.load("lab")
    build = lab.component("pulumi-kubernetes").build
    assert build is not None
    assert build.variables["main.version"] == lab.version("pulumi-kubernetes") == version("pulumi-kubernetes")
