"""CUDA toolkits, the drivers they want, and the libraries built for them."""

from __future__ import annotations

import dataclasses

from slipway.lint.figures import Figure

_NOTES = "CUDA release notes, table of toolkit and corresponding driver versions (Linux)"
_MINOR = "docs.nvidia.com/deploy/cuda-compatibility, minor version compatibility"


@dataclasses.dataclass(frozen=True)
class Toolkit:
    """The driver that a toolkit was released with, which all of its features need."""

    version: str
    """`<major>.<minor>.<update>`."""
    driver: str
    source: str = _NOTES


TOOLKITS = (
    Toolkit("11.8.0", "520.61.05"),
    Toolkit("12.0.0", "525.60.13"),
    Toolkit("12.0.1", "525.85.12"),
    Toolkit("12.1.0", "530.30.02"),
    Toolkit("12.1.1", "530.30.02"),
    Toolkit("12.2.0", "535.54.03"),
    Toolkit("12.2.1", "535.86.09"),
    Toolkit("12.2.2", "535.104.05"),
    Toolkit("12.3.0", "545.23.06"),
    Toolkit("12.3.1", "545.23.08"),
    Toolkit("12.4.0", "550.54.14"),
    Toolkit("12.4.1", "550.54.15"),
    Toolkit("12.5.0", "555.42.02"),
    Toolkit("12.5.1", "555.42.06"),
    Toolkit("12.6.0", "560.28.03"),
    Toolkit("12.6.1", "560.35.03"),
    Toolkit("12.6.2", "560.35.03"),
    Toolkit("12.6.3", "560.35.05"),
    Toolkit("12.8.0", "570.26"),
    Toolkit("12.8.1", "570.124.06"),
    Toolkit("12.9.0", "575.51.03"),
    Toolkit("12.9.1", "575.57.08"),
    Toolkit("13.0.0", "580.65.06"),
    Toolkit("13.0.1", "580.82.07"),
    Toolkit("13.0.2", "580.95.05"),
    Toolkit("13.1.0", "590.44.01"),
    Toolkit("13.1.1", "590.48.01"),
    Toolkit("13.2.0", "595.45.04"),
    Toolkit("13.2.1", "595.58.03"),
    Toolkit("13.2.2", "595.71.05"),
    Toolkit("13.3.0", "610.43.02"),
    Toolkit("13.3.1", "610.43.02"),
)

BUILD_NUMBERS_SINCE = Figure(
    "13.4", "docs.nvidia.com/cuda/archive/13.4.1 and 13.4.2 release notes: the third number is a build number"
)
"""From here on the third number of a version says nothing about updates."""

PREVIEWS = (Figure("13.4.0", "docs.nvidia.com/cuda/archive/13.4.1 release notes: 13.4.0 was the preview"),)


@dataclasses.dataclass(frozen=True)
class Floor:
    """The oldest driver on which any toolkit of a major version runs."""

    major: int
    driver: str
    source: str = _MINOR


FLOORS = (Floor(11, "450.80.02"), Floor(12, "525.60.13"), Floor(13, "580.65.06"))


@dataclasses.dataclass(frozen=True)
class Cudnn:
    """The oldest driver for a build of cuDNN; `architecture` is given where it holds for one only."""

    since: str
    cuda_major: int
    driver: str
    architecture: str = ""
    source: str = "cuDNN support matrix"


CUDNN = (
    Cudnn("9.17", 13, "580.65.06"),
    Cudnn("9.17", 12, "525.60.13"),
    Cudnn("9.17", 12, "570.26", "blackwell"),
)

NCCL_NEW_CUDA = Figure(13, "NCCL makefiles/common.mk")
"""The major version of CUDA with which NCCL drops old GPUs."""

NCCL_13_SMALLEST_SM = Figure(75, "NCCL makefiles/common.mk: a build for CUDA 13 has nothing below sm_75")


@dataclasses.dataclass(frozen=True)
class NcclFloor:
    """The oldest CUDA that NCCL for a compute capability can be built with."""

    sm: int
    cuda: str
    source: str = "NCCL makefiles/common.mk"


NCCL_FLOORS = (NcclFloor(90, "11.8"), NcclFloor(100, "12.8"), NcclFloor(120, "12.8"))

DMABUF_CUDA = Figure("11.7", "cloud-native-docs gpu-operator/gpu-operator-rdma.rst")
"""The oldest CUDA for GPUDirect RDMA by dma-buf."""

DRAGS_A_DRIVER = Figure(
    r"^(cuda|cuda-\d+-\d+|cuda-drivers.*|cuda-runtime-.*)$",
    "driver installation guide: only cuda-toolkit-<X>-<Y> leaves the driver alone",
)
"""Names of packages that install a driver besides."""
