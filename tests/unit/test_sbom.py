"""Bills of materials of the releases that we ship, judged by CycloneDX's own schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from slipway import release as releases
from slipway import sbom

RELEASES = ("lab", "2026.11", "2026.08")


def bill(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(sbom.document(releases.load(name)))
    return read


@pytest.mark.parametrize("name", RELEASES)
def test_fits_the_schema(name: str) -> None:
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom.document(releases.load(name)))
    assert fault is None, fault


def test_the_schema_finds_faults() -> None:
    """Else the test above could not fail."""
    wrong = bill("lab")
    wrong["components"][0]["type"] = "nonsense"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(wrong)) is not None


def test_the_same_release_gives_the_same_bytes() -> None:
    first = sbom.document(releases.load("2026.11"))
    assert sbom.document(releases.load("2026.11")) == first
    assert bill("2026.08")["serialNumber"] != json.loads(first)["serialNumber"]


@pytest.mark.parametrize("name", RELEASES)
def test_everything_is_in_it(name: str) -> None:
    pinned, parts = releases.load(name), bill(name)["components"]
    known = {part["bom-ref"] for part in parts}
    assert {f"component:{one}" for one in pinned.engines} <= known
    assert {f"image:{one}" for one in pinned.registry_images} <= known
    for component in pinned.components.values():
        for text in pinned.targets:
            at = component.at(releases.Target.parse(text))
            for package, one in (at.packages if at else {}).items():
                assert f"package:{package}@{one.version}:{text}" in known
    for part in parts:
        purl = PackageURL.from_string(part["purl"])
        assert purl.version or (purl.type == "oci" and "tag" in purl.qualifiers), part["name"]


def test_digests_are_in_it() -> None:
    (etcd,) = [part for part in bill("2026.11")["components"] if part["name"] == "etcd"]
    wanted = releases.load("2026.11").component("etcd").downloads[0].sha256
    found = {one["hashes"][0]["content"] for one in etcd["externalReferences"]}
    assert found == set(wanted.values())
    release = bill("2026.11")["metadata"]["component"]
    assert release["hashes"][0]["content"] == releases.load("2026.11").digest()
