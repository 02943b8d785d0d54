"""Container toolkit, DCGM, device plugin, storage, containerd: floors and formats."""

from __future__ import annotations

import dataclasses

from slipway.lint.figures import Figure


@dataclasses.dataclass(frozen=True)
class SecurityFloor:
    """The first version of a component without a vulnerability."""

    component: str
    version: str
    vulnerability: str
    source: str = "NVIDIA security bulletins"


TOOLKIT_FLOORS = (
    SecurityFloor("nvidia-container-toolkit", "1.16.2", "CVE-2024-0132"),
    SecurityFloor("nvidia-container-toolkit", "1.17.8", "CVE-2025-23266"),
)

TOOLKIT_PACKAGES = Figure(
    (
        "nvidia-container-toolkit",
        "nvidia-container-toolkit-base",
        "libnvidia-container-tools",
        "libnvidia-container1",
    ),
    "nvidia-container-toolkit packaging; NVIDIA/nvidia-container-toolkit#1091",
)
"""The packages that must be pinned together."""

CDI_REFRESH_SINCE = Figure("1.18", "nvidia-container-toolkit: nvidia-cdi-refresh and the containerd drop-in")

CDI_IN_CONTAINERD_SINCE = Figure("2.0", "cloud-native-docs container-toolkit/cdi-support: on by default")

DCGM_DRIVER = Figure(("4", "450"), "DCGM documentation: DCGM 4 needs R450 or later")
"""Major version of DCGM, and the oldest driver for it."""

DCGM_CUDA_PACKAGE = Figure(r"-cuda(\d+)$", "DCGM documentation; NVIDIA/DCGM#254")

DEVICE_PLUGIN = Figure(("0.20", "384.81", "1.7.0"), "k8s-device-plugin README")
"""Device plugin from, oldest driver, oldest container toolkit."""

NVIDIA_FS_OPEN_SINCE = Figure("2.17.5", "cloud-native-docs gpu-operator/gpu-operator-rdma.rst")
"""From here on nvidia-fs wants the open kernel modules."""

DMABUF_KERNEL = Figure("5.12", "cloud-native-docs gpu-operator/gpu-operator-rdma.rst")
DMABUF_SM = Figure(75, "cloud-native-docs gpu-operator/gpu-operator-rdma.rst: Turing or newer")


@dataclasses.dataclass(frozen=True)
class ConfigVersion:
    """The version of configuration that containerd from `since` on writes and understands best."""

    since: str
    version: int
    source: str = "kubespray roles/container-engine/containerd/templates; NVIDIA/cloud-native-stack#142"


CONFIG_VERSIONS = (ConfigVersion("1.7", 2), ConfigVersion("2.0", 3), ConfigVersion("2.3", 4))

OWN_CONFIG_VERSION = Figure(3, "roles/containerd/templates/config.toml.j2")
"""What Slipway's role writes; a containerd that knows a later version reads it too."""

CONTAINERD_1_GONE = Figure(("2.0", "1.38"), "KEP 4033: containerd 1.7 is not supported from Kubernetes 1.38 on")
"""Oldest containerd, and the Kubernetes from which it is needed."""
