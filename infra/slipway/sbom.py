"""A release as a bill of materials in CycloneDX, for those who look for known faults in what clusters run.

The same release gives the same bytes: no time is in it, and its serial number comes from the release's digest.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Iterator

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component as Part
from cyclonedx.model.component import ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from slipway import paths
from slipway.release import Component, Download, Pinned, RegistryImage, Release, Target

_NAMESPACE = uuid.UUID("6f0c9d3e-6b0b-5a5f-9c53-0f6f0b1c2a77")
_ALGORITHMS = {"sha256": HashAlgorithm.SHA_256, "sha512": HashAlgorithm.SHA_512}
_DISTRIBUTIONS = {"ubuntu": "ubuntu", "debian": "debian"}


def document(release: Release) -> str:
    """Return the bill of materials of a release: CycloneDX 1.6, JSON."""
    digest = release.digest()
    about = Part(
        type=ComponentType.PLATFORM,
        name="slipway-release",
        version=release.id,
        description=release.description,
        bom_ref=f"release:{release.id}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
    )
    bom = Bom(
        serial_number=uuid.uuid5(_NAMESPACE, digest),
        metadata=BomMetaData(component=about, timestamp=dt.datetime.fromtimestamp(0, dt.UTC)),
        components=list(_parts(release)),
    )
    bom.register_dependency(about, bom.components)
    written: dict[str, object] = json.loads(JsonV1Dot6(bom).output_as_string())
    metadata = written["metadata"]
    assert isinstance(metadata, dict)  # noqa: S101
    del metadata["timestamp"]
    return json.dumps(written, indent=1) + "\n"


def _parts(release: Release) -> Iterator[Part]:
    for name, component in release.components.items():
        yield from _component(release, name, component)
    for name, image in release.registry_images.items():
        yield _image(name, image)
    for name, version in release.bundle.packages.items():
        yield Part(name=name, version=version, bom_ref=f"bundle:{name}", purl=PackageURL("pypi", None, name, version))
    go = release.toolchain.version
    yield Part(
        type=ComponentType.APPLICATION,
        name="go",
        version=go,
        description="builds what is not downloaded",
        bom_ref="toolchain:go",
        purl=PackageURL("golang", "golang.org", "toolchain", f"v0.0.1-go{go}"),
    )


def _component(release: Release, name: str, component: Component) -> Iterator[Part]:
    """Yield a component's programs as one part, and each of its packages at each version."""
    if component.is_engine:
        yield _program(release, name, component)
    seen: dict[tuple[str, str, str, str], Part] = {}
    for text in release.targets:
        target = Target.parse(text)
        pinned = component.at(target)
        if pinned is None:
            continue
        for package in pinned.packages:
            part = _package(name, package, target, pinned)
            seen[package, pinned.packages[package].version, target.os, target.arch] = part
    yield from seen.values()


def _program(release: Release, name: str, component: Component) -> Part:
    build = component.build
    ours = build is not None and build.module == "."
    purl = PackageURL("generic", "slipway" if ours else None, name, component.version)
    if build is not None and not ours:
        namespace, _, last = build.module.rpartition("/")
        purl = PackageURL("golang", namespace, last, build.version)
    return Part(
        type=ComponentType.APPLICATION,
        name=name,
        version=component.version,
        bom_ref=f"component:{name}",
        purl=purl,
        external_references=[one for download in component.downloads for one in _references(release, download)],
        properties=[*_unverified(component.unverified), *_recipe(name, component)],
    )


def _references(release: Release, download: Download) -> Iterator[ExternalReference]:
    archs = sorted({Target.parse(target).arch for target in release.targets})
    known = {download.url.format(arch=arch): download.digest(arch) for arch in archs}
    for url, digest in known.items():
        hashes = [HashType(alg=_ALGORITHMS[digest[0]], content=digest[1])] if digest else []
        yield ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(url), hashes=hashes)


def _recipe(name: str, component: Component) -> Iterator[Property]:
    """Say where the hashes of all modules of a build are."""
    if component.build:
        folder = paths.root() / "infra/slipway/artifacts/builds" / name
        yield Property(name="slipway:go.sum", value=str((folder / "go.sum").relative_to(paths.root())))


def _package(component: str, name: str, target: Target, pinned: Pinned) -> Part:
    package = pinned.packages[name]
    distribution = target.os.rstrip("0123456789.")
    purl = PackageURL(
        "deb",
        _DISTRIBUTIONS.get(distribution, distribution),
        name,
        package.version,
        {"arch": target.arch, "distro": f"{distribution}-{target.os.removeprefix(distribution)}"},
    )
    digest = package.sha256.get(target.arch)
    return Part(
        name=name,
        version=package.version,
        bom_ref=f"package:{name}@{package.version}:{target.os}/{target.arch}",
        purl=purl,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else [],
        properties=[
            Property(name="slipway:component", value=component),
            Property(name="slipway:repository", value=pinned.repository or ""),
            *_unverified(package.unverified),
        ],
    )


def _image(name: str, image: RegistryImage) -> Part:
    repository, _, tag = image.reference.rpartition(":")
    digest = image.digest
    qualifiers = {"repository_url": repository, "tag": tag}
    return Part(
        type=ComponentType.CONTAINER,
        name=name,
        version=tag,
        bom_ref=f"image:{name}",
        purl=PackageURL("oci", None, repository.rpartition("/")[2], digest, qualifiers),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest.partition(":")[2])] if digest else [],
        properties=list(_unverified(image.unverified)),
    )


def _unverified(said: str | None) -> list[Property]:
    return [Property(name="slipway:unverified", value=said)] if said else []
