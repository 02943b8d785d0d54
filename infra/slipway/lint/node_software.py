"""Container toolkit, device plugin, GPUDirect Storage, containerd."""

from __future__ import annotations

from collections.abc import Iterator

from slipway.lint import versions, views
from slipway.lint.figures import node_software as figures
from slipway.lint.rules import Problem, rule
from slipway.release import Release

_TOOLKIT = "components.nvidia-container-toolkit"


@rule(
    "container-toolkit-vulnerable",
    "error",
    source=figures.TOOLKIT_FLOORS[0].source,
    fix="take a container toolkit with the fix",
)
def container_toolkit_vulnerable(release: Release) -> Iterator[Problem]:
    """The container toolkit has no known way out of a container."""
    for host in views.hosts(release):
        toolkit = host.version("nvidia-container-toolkit")
        holes = [one for one in figures.TOOLKIT_FLOORS if toolkit and versions.older(toolkit, one.version)]
        if holes:
            names = ", ".join(f"{one.vulnerability} (fixed in {one.version})" for one in holes)
            yield Problem(_TOOLKIT, f"{toolkit} has {names}", on=str(host))


@rule(
    "container-toolkit-cdi",
    "warning",
    source=figures.CDI_REFRESH_SINCE.source,
    fix="take a newer container toolkit",
)
def container_toolkit_cdi(release: Release) -> Iterator[Problem]:
    """The container toolkit keeps its CDI specification fresh by itself."""
    since = figures.CDI_REFRESH_SINCE.value
    for host in views.hosts(release):
        toolkit = host.version("nvidia-container-toolkit")
        if toolkit and versions.older(toolkit, since):
            message = f"{toolkit} does not write its CDI specification anew after a change of driver; {since} does"
            yield Problem(_TOOLKIT, message, on=str(host))


@rule("device-plugin-floor", "error", source=figures.DEVICE_PLUGIN.source, fix="take a newer driver and toolkit")
def device_plugin_floor(release: Release) -> Iterator[Problem]:
    """Driver and container toolkit are ones that the device plugin works with."""
    since, driver_floor, toolkit_floor = figures.DEVICE_PLUGIN.value
    image = release.registry_images.get("nvidia-device-plugin")
    if image is None or versions.older(image.reference.rpartition(":v")[2], since):
        return
    for host in views.hosts(release):
        for component, floor in (("nvidia-driver", driver_floor), ("nvidia-container-toolkit", toolkit_floor)):
            version = host.version(component)
            if version and versions.older(version, floor):
                message = f"needs {component} {floor} or later, which is {version}"
                yield Problem("registry_images.nvidia-device-plugin", message, on=str(host))


@rule("storage-open-modules", "error", source=figures.NVIDIA_FS_OPEN_SINCE.source, fix="take the open kernel modules")
def storage_open_modules(release: Release) -> Iterator[Problem]:
    """GPUDirect Storage's module stands on the open kernel modules."""
    since = figures.NVIDIA_FS_OPEN_SINCE.value
    for host in views.hosts(release):
        storage, driver = host.version("nvidia-fs"), host.pinned("nvidia-driver")
        if storage and driver and driver.modules == "proprietary" and not versions.older(storage, since):
            message = f"nvidia-fs {storage} needs the open kernel modules (from {since} on)"
            yield Problem("components.nvidia-fs", message, on=str(host))


@rule(
    "containerd-config-version",
    "error",
    source=figures.CONFIG_VERSIONS[0].source,
    fix="take containerd 2: Slipway's role writes its configuration for that",
)
def containerd_config_version(release: Release) -> Iterator[Problem]:
    """The containerd reads the version of configuration that Slipway's role writes."""
    written = figures.OWN_CONFIG_VERSION.value
    for host in views.hosts(release):
        containerd = host.version("containerd")
        known = [one for one in figures.CONFIG_VERSIONS if containerd and not versions.older(containerd, one.since)]
        if containerd and (not known or known[-1].version < written):
            reads = f"reads version {known[-1].version}" if known else "is older than any that we know"
            message = f"{containerd} {reads}, the role writes version {written}"
            yield Problem("components.containerd", message, on=str(host))


@rule(
    "containerd-cdi",
    "warning",
    source=figures.CDI_IN_CONTAINERD_SINCE.source,
    fix="take containerd 2, where CDI is on",
)
def containerd_cdi(release: Release) -> Iterator[Problem]:
    """Where the container toolkit gives out GPUs by CDI, containerd takes them without further settings."""
    since = figures.CDI_IN_CONTAINERD_SINCE.value
    for host in views.hosts(release):
        containerd, toolkit = host.version("containerd"), host.version("nvidia-container-toolkit")
        by_cdi = toolkit and not versions.older(toolkit, figures.CDI_REFRESH_SINCE.value)
        if containerd and by_cdi and versions.older(containerd, since):
            message = f"{containerd} has CDI off, by which container toolkit {toolkit} gives out GPUs"
            yield Problem("components.containerd", message, on=str(host))
