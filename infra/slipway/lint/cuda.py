"""CUDA and the libraries built for it, against each other and the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipway.lint import versions, views
from slipway.lint.figures import cuda as figures
from slipway.lint.figures import node_software, rdma
from slipway.lint.rules import Problem, rule
from slipway.release import Release

_TOOLKIT = "components.cuda-toolkit"


def _toolkits(release: Release) -> Iterator[tuple[views.Host, str]]:
    for host in views.hosts(release):
        if version := host.version("cuda-toolkit"):
            yield host, version


def of_driver(driver: str) -> int | None:
    """Return CUDA's major version that a driver brings, as nvidia-smi shows it."""
    known = [one.version for one in figures.TOOLKITS if not versions.older(driver, one.driver)]
    newest = versions.newest(known)
    return versions.major(newest) if newest else None


def _floor(toolkit: str) -> str | None:
    """Return the oldest driver on which a toolkit runs at all."""
    return next((one.driver for one in figures.FLOORS if one.major == versions.major(toolkit)), None)


@rule(
    "cuda-driver-floor",
    "error",
    source=figures.FLOORS[0].source,
    fix="take a newer driver, or an older CUDA",
)
def cuda_driver_floor(release: Release) -> Iterator[Problem]:
    """The driver is one on which the CUDA toolkit runs."""
    for host, toolkit in _toolkits(release):
        driver, floor = host.version("nvidia-driver"), _floor(toolkit)
        if driver and floor and versions.older(driver, floor):
            message = f"CUDA {toolkit} does not run on driver {driver}; it needs {floor} or later"
            yield Problem(_TOOLKIT, message, on=str(host))


@rule(
    "cuda-driver-older",
    "warning",
    source=figures.TOOLKITS[0].source,
    fix="take the driver that the toolkit was released with, or a later one",
)
def cuda_driver_older(release: Release) -> Iterator[Problem]:
    """The driver is not older than the one that the CUDA toolkit was released with, which its newest features need."""
    for host, toolkit in _toolkits(release):
        driver, floor = host.version("nvidia-driver"), _floor(toolkit)
        own = next((one.driver for one in figures.TOOLKITS if versions.same(one.version, toolkit)), None)
        if driver and own and versions.older(driver, own) and not (floor and versions.older(driver, floor)):
            message = f"CUDA {toolkit} was released with driver {own}; with {driver} its newest features are missing"
            yield Problem(_TOOLKIT, message, on=str(host))


@rule(
    "cuda-unknown",
    "warning",
    source=figures.TOOLKITS[0].source,
    fix="check it against the release notes, and add it to infra/slipway/lint/figures/cuda.py with its source",
)
def cuda_unknown(release: Release) -> Iterator[Problem]:
    """The CUDA toolkit is one that NVIDIA released and whose driver is known."""
    since = figures.BUILD_NUMBERS_SINCE.value
    for host, toolkit in _toolkits(release):
        listed = any(versions.same(one.version, toolkit) for one in figures.TOOLKITS)
        preview = any(versions.same(one.value, toolkit) for one in figures.PREVIEWS)
        if listed or preview:
            continue
        message = f"no driver is known for CUDA {toolkit}"
        if not versions.older(toolkit, since):
            message += f"; from {since} on its third number is a build number, not an update"
        yield Problem(_TOOLKIT, message, on=str(host))


@rule("cuda-preview", "error", source=figures.PREVIEWS[0].source, fix="take the first general release")
def cuda_preview(release: Release) -> Iterator[Problem]:
    """No preview of CUDA is pinned."""
    for host, toolkit in _toolkits(release):
        if any(versions.same(one.value, toolkit) for one in figures.PREVIEWS):
            yield Problem(_TOOLKIT, f"{toolkit} is a preview", on=str(host))


@rule(
    "cuda-drags-driver",
    "error",
    source=figures.DRAGS_A_DRIVER.source,
    fix="install cuda-toolkit-<major>-<minor>",
)
def cuda_drags_driver(release: Release) -> Iterator[Problem]:
    """CUDA's packages leave the driver alone."""
    for host, package, _ in views.packages(release, "cuda-toolkit"):
        if re.match(figures.DRAGS_A_DRIVER.value, package):
            yield Problem(_TOOLKIT, f"{package} installs a driver of its own choice", on=str(host))


@rule(
    "nccl-cuda-major",
    "error",
    source="developer.nvidia.com redist: NCCL is built for one major version of CUDA, the +cuda suffix says which",
    fix="take the build of NCCL for the CUDA toolkit's major version",
)
def nccl_cuda_major(release: Release) -> Iterator[Problem]:
    """NCCL is built for the major version of the CUDA toolkit."""
    for host, _, package in views.packages(release, "nccl"):
        toolkit, built = host.version("cuda-toolkit"), package.version.partition("+cuda")[2]
        if toolkit and built and versions.major(built) != versions.major(toolkit):
            message = f"built for CUDA {built}, the toolkit is {toolkit}"
            yield Problem("components.nccl", message, on=str(host))


@rule("cudnn-cuda-major", "error", source=figures.CUDNN[0].source, fix="take cudnn9-cuda-<major> of the toolkit")
def cudnn_cuda_major(release: Release) -> Iterator[Problem]:
    """Packages of cuDNN are built for the major version of the CUDA toolkit."""
    for host, package, major in _cudnn(release):
        toolkit = host.version("cuda-toolkit")
        if toolkit and major != versions.major(toolkit):
            message = f"{package} is for CUDA {major}, the toolkit is {toolkit}"
            yield Problem("components.cudnn", message, on=str(host))


@rule("cudnn-driver-floor", "error", source=figures.CUDNN[0].source, fix="take a newer driver")
def cudnn_driver_floor(release: Release) -> Iterator[Problem]:
    """The driver is one on which cuDNN runs."""
    for host, package, major in _cudnn(release):
        driver, version = host.version("nvidia-driver"), host.version("cudnn")
        for one in figures.CUDNN:
            if one.architecture or one.cuda_major != major or not driver or not version:
                continue
            if not versions.older(version, one.since) and versions.older(driver, one.driver):
                message = f"{package} {version} needs driver {one.driver} or later, the driver is {driver}"
                yield Problem("components.cudnn", message, on=str(host))


def _cudnn(release: Release) -> Iterator[tuple[views.Host, str, int]]:
    """Each package of cuDNN with the major version of CUDA in its name, on each kind of host."""
    for host, package, _ in views.packages(release, "cudnn"):
        if named := re.search(r"-cuda-(\d+)$", package):
            yield host, package, int(named[1])


@rule(
    "dcgm-cuda-major",
    "error",
    source=node_software.DCGM_CUDA_PACKAGE.source,
    fix="take datacenter-gpu-manager-4-cuda<major>, with the CUDA version that nvidia-smi shows",
)
def dcgm_cuda_major(release: Release) -> Iterator[Problem]:
    """DCGM has the package for the major version of CUDA that the driver brings."""
    for host in views.hosts(release):
        driver, pinned = host.version("nvidia-driver"), host.pinned("dcgm")
        if not driver or not pinned:
            continue
        wanted = of_driver(driver)
        there = {
            int(named[1])
            for package in pinned.packages
            if (named := re.search(node_software.DCGM_CUDA_PACKAGE.value, package))
        }
        if wanted and there and wanted not in there:
            found = ", ".join(map(str, sorted(there)))
            message = f"packages for CUDA {found}, but driver {driver} brings CUDA {wanted}"
            yield Problem("components.dcgm", message, on=str(host))


@rule("dcgm-driver-floor", "error", source=node_software.DCGM_DRIVER.source, fix="take a newer driver")
def dcgm_driver_floor(release: Release) -> Iterator[Problem]:
    """The driver is one that DCGM talks to."""
    major, floor = node_software.DCGM_DRIVER.value
    for host in views.hosts(release):
        dcgm, driver = host.version("dcgm"), host.version("nvidia-driver")
        if dcgm and driver and not versions.older(dcgm, major) and versions.older(driver, floor):
            message = f"DCGM {dcgm} needs driver {floor} or later, the driver is {driver}"
            yield Problem("components.dcgm", message, on=str(host))


@rule(
    "dcgm-exporter-older",
    "error",
    source="dcgm-exporter README: the first part of its tag must not be older than the host's DCGM",
    fix="take an exporter whose tag begins with the host's DCGM version or a later one",
)
def dcgm_exporter_older(release: Release) -> Iterator[Problem]:
    """The exporter's DCGM is not older than that of any host."""
    image = release.registry_images.get("dcgm-exporter")
    if image is None:
        return
    exporter = image.reference.rpartition(":")[2].partition("-")[0]
    for host in views.hosts(release):
        dcgm = host.version("dcgm")
        if dcgm and versions.older(exporter, dcgm):
            message = f"DCGM {exporter} inside is older than {dcgm} of the hosts"
            yield Problem("registry_images.dcgm-exporter", message, on=str(host))


@rule("hpcx-flavour", "error", source=rdma.HPCX_NAME.source, fix="take the archive for that CUDA and RDMA stack")
def hpcx_flavour(release: Release) -> Iterator[Problem]:
    """HPC-X is built for the CUDA toolkit's major version and for the RDMA stack of the host."""
    for host in views.hosts(release):
        pinned, toolkit = host.pinned("hpc-x"), host.version("cuda-toolkit")
        stack = "doca_ofed" if host.pinned("doca-ofed") else "inbox"
        for download in pinned.downloads if pinned else ():
            named = re.search(rdma.HPCX_NAME.value, download.url)
            if not named:
                continue
            if toolkit and int(named[2]) != versions.major(toolkit):
                message = f"built for CUDA {named[2]}, the toolkit is {toolkit}"
                yield Problem("components.hpc-x", message, on=str(host))
            if named[1] != stack:
                yield Problem("components.hpc-x", f"built for {named[1]}, the host has {stack}", on=str(host))
