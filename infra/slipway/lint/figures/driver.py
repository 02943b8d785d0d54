"""Branches of the GPU driver, its module flavours and packages, and what must be of its version."""

from __future__ import annotations

import dataclasses
import datetime as dt

from slipway.lint.figures import Figure

_BRANCHES = "docs.nvidia.com/datacenter/tesla/drivers, supported branches (editions 615 and 620)"
_GUIDE = "docs.nvidia.com/datacenter/tesla/driver-installation-guide"


@dataclasses.dataclass(frozen=True)
class Branch:
    """A branch and the last day on which it gets fixes; `ends` of None with `ended` means that it was told no day."""

    number: int
    kind: str
    ends: dt.date | None
    ended: bool = False
    source: str = _BRANCHES


def _month(year: int, month: int) -> dt.date:
    """Return the last day of a month: end of life is published by month."""
    return dt.date(year + month // 12, month % 12 + 1, 1) - dt.timedelta(days=1)


BRANCHES = (
    Branch(535, "LTS", _month(2026, 6)),
    *(Branch(number, "", None, ended=True) for number in (550, 555, 560, 565, 575, 590)),
    Branch(570, "PB", _month(2026, 2)),
    Branch(580, "LTS", _month(2028, 6)),
    Branch(595, "PB", _month(2027, 3)),
    Branch(610, "NFB", _month(2026, 8)),
    Branch(620, "LTS", _month(2029, 9)),
)

DUMMIES = Figure(
    "Ubuntu turns its packages into empty ones that install the next branch",
    "packages.ubuntu.com: linux-modules-nvidia-590-generic depends on linux-modules-nvidia-595-generic",
)
"""What becomes of an ended branch in Ubuntu's archive."""

NO_PROPRIETARY_SINCE = Figure(620, f"{_GUIDE} (620) section 4.1: proprietary modules are removed in R620")

OPEN_BY_DEFAULT_SINCE = Figure(560, f"{_GUIDE}, kernel modules: from R560 the default is the open modules")

NO_BRANCH_IN_NAMES_SINCE = Figure(590, f"{_GUIDE}, Ubuntu 590 and later packages: names lose the branch")

PINNING_PACKAGE = Figure(r"^nvidia-driver-pinning-", f"{_GUIDE}, version locking")
"""Packages that keep a host on a branch or a version."""

PLAIN_NAMES_SINCE = Figure(
    580,
    "azhpc-images install_nvidia_fabric_manager.sh; gpu-driver-container ubuntu24.04/install.sh: no branch from R580",
)
"""Companions that share the driver's version have no branch in their package names from here on."""

OPEN_PACKAGE = Figure(r"(^|-)open($|-)", f"{_GUIDE}, kernel modules")
"""Names of packages with the open kernel modules."""

MODULES_PACKAGE = Figure(
    r"^(nvidia-dkms-|nvidia-driver-\d|nvidia-headless-|linux-modules-nvidia-|linux-objects-nvidia-|nvidia-open|cuda-drivers)",
    f"{_GUIDE}, kernel modules; gpu-driver-container ubuntu24.04/precompiled",
)
"""Names of packages that bring kernel modules, and so are of one flavour."""

DKMS_PACKAGE = Figure(r"(^|-)dkms(-|$)", f"{_GUIDE}, kernel modules")

PRECOMPILED_PACKAGE = Figure(r"^linux-(modules|objects)-nvidia-(\d{3})-", "gpu-driver-container precompiled")


@dataclasses.dataclass(frozen=True)
class Companion:
    """A component that must have exactly the driver's version. `rule` is the rule that says so."""

    component: str
    package: str
    rule: str
    source: str


COMPANIONS = (
    Companion("nvidia-firmware", "nvidia-firmware", "driver-family-version", "gpu-driver-container install.sh"),
    Companion("nvidia-modprobe", "nvidia-modprobe", "driver-family-version", "gpu-driver-container install.sh"),
    Companion("nvidia-persistenced", "nvidia-persistenced", "driver-family-version", "gpu-driver-container install.sh"),
    Companion("nvidia-nscq", "libnvidia-nscq", "driver-family-version", "gpu-driver-container install.sh"),
    Companion("nvidia-nvsdm", "libnvsdm", "driver-family-version", "gpu-driver-container install.sh"),
    Companion(
        "nvidia-fabricmanager",
        "nvidia-fabricmanager",
        "fabric-manager-version",
        "docs.nvidia.com fabric-manager-user-guide; NVIDIA/gpu-operator#544",
    ),
    Companion("nvidia-imex", "nvidia-imex", "imex-version", "docs.nvidia.com IMEX guide; azhpc-images versions.json"),
)

NO_ARM = (
    Figure("nvidia-fabricmanager", "Azure/aks-gpu#170: switch trays run it; there is none for Arm"),
    Figure("nvidia-nvsdm", "gpu-driver-container install.sh: libnvsdm has no arm64 build"),
)
"""Components that cannot be installed on Arm."""

GRID_PACKAGE = Figure(
    r"(^|-)grid(-|$)", "amazon-eks-ami: the GRID module and the data-center module cannot be loaded together"
)


@dataclasses.dataclass(frozen=True)
class Precompiled:
    """Branches for which Ubuntu has precompiled, signed modules."""

    os: str
    branches: tuple[int, ...]
    not_for: tuple[str, ...] = ()
    """Kernel series of it for which there are none."""
    source: str = "cloud-native-docs gpu-operator/precompiled-drivers.rst, platform-support.rst"


PRECOMPILED = (
    Precompiled("ubuntu22.04", (580, 595), not_for=("6.8",)),
    Precompiled("ubuntu24.04", (580, 595)),
    Precompiled("ubuntu26.04", (595,)),
)


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Kernel series of an operating system that the driver is supported on."""

    os: str
    series: tuple[str, ...]
    source: str = "cloud-native-docs gpu-operator/platform-support.rst"


KERNELS = (Kernels("ubuntu22.04", ("5.15", "6.5", "6.8")),)


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A kernel that was built by another compiler than the operating system's own."""

    os: str
    series: str
    package: str
    source: str


COMPILERS = (
    Compiler("ubuntu22.04", "6.8", "gcc-12", "aws-samples EKS#107: the 6.8 kernel of 22.04 was built by gcc-12"),
)

GRACE_KERNEL = Figure(r"^linux-.*-nvidia", "AgentBaker artifacts/10_azure_nvidia: Grace boots linux-azure-nvidia")
"""Names of the kernels for Grace."""

COHERENT_SINCE = Figure(
    580, "amazon-eks-ami, azhpc-images and AgentBaker set NVreg_CoherentGPUMemoryMode=driver for Kubernetes"
)
