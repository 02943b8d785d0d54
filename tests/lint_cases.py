"""Cases for the linter: what differs from a good stack and a good release, and the rules that must then find something.

The good release is for Debian 13 on both architectures and has everything for GPUs. A case says by path what differs:
`components.etcd.version` in the release, `etcd.count` in the stack; a value of `GONE` takes the key away.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import functools
import json
from typing import Any

import yaml

from slipway import lint, paths, spec
from slipway.release import Release

GONE = object()
TODAY = dt.date(2026, 12, 1)

STACK: dict[str, Any] = yaml.safe_load((paths.root() / "stacks/Pulumi.lab.yaml").read_text())["config"][spec.CONFIG_KEY]
STACK["network"] = {"hosts": "10.98.0.0/16", "pods": "10.128.0.0/9", "services": "10.97.0.0/16", "pod_prefix": 24}
STACK["pools"] = [{"name": "gpu", "count": 1, "platform": "nd-h100-v5"}]

_DIGESTS = {"amd64": "0" * 64, "arm64": "1" * 64}
_DRIVER = "580.126.20"


def file(name: str) -> list[dict[str, Any]]:
    """One download with a digest for each architecture."""
    return [{"url": f"https://example.com/{name}-{{arch}}", "sha256": dict(_DIGESTS), "file": name}]


def engine(name: str, version: str) -> dict[str, Any]:
    """A component that is downloaded."""
    return {"version": version, "downloads": file(name)}


def debs(version: str, *names: str, **exact: str) -> dict[str, Any]:
    """A component of Debian packages: each of the component's version, or of one of its own."""
    packages = dict.fromkeys(names, f"{version}-1") | {name.replace("_", "-"): one for name, one in exact.items()}
    return {"version": version, "repository": "nvidia", "packages": packages}


def amd64_only(component: dict[str, Any]) -> dict[str, Any]:
    """The same, on amd64 alone."""
    packages = component.pop("packages")
    return {**component, "install": {"debian13/amd64": {"packages": packages}}}


def driver(version: str, modules: str = "open", *more: str) -> dict[str, Any]:
    """A driver with the packages of its branch, before 590."""
    branch = version.partition(".")[0]
    flavour = "-open" if modules == "open" else ""
    made = debs(version, f"libnvidia-compute-{branch}", f"nvidia-dkms-{branch}{flavour}", *more)
    return {**made, "modules": modules}


def plain_driver(version: str, *more: str) -> dict[str, Any]:
    """A driver from branch 590 on, with open modules."""
    return {**debs(version, "nvidia-open", *more), "modules": "open"}


def companions(version: str) -> dict[str, Any]:
    """Everything that must be of the driver's version, from R580 on, by path."""
    return {
        "components.nvidia-firmware": debs(version, "nvidia-firmware"),
        "components.nvidia-fabricmanager": amd64_only(debs(version, "nvidia-fabricmanager")),
        "components.nvidia-nscq": amd64_only(debs(version, "libnvidia-nscq")),
        "components.nvidia-imex": debs(version, "nvidia-imex"),
    }


def old_companions(version: str) -> dict[str, Any]:
    """The same before R580, when names had the branch."""
    branch = version.partition(".")[0]
    return {
        "components.nvidia-firmware": debs(version, f"nvidia-firmware-{branch}"),
        "components.nvidia-fabricmanager": amd64_only(debs(version, f"nvidia-fabricmanager-{branch}")),
        "components.nvidia-nscq": amd64_only(debs(version, f"libnvidia-nscq-{branch}")),
        "components.nvidia-imex": debs(version, f"nvidia-imex-{branch}"),
    }


def new_driver(version: str, *more: str) -> dict[str, Any]:
    """Driver and companions of another version, by path: as they are called from 590 on."""
    return {"components.nvidia-driver": plain_driver(version, *more), **companions(version)}


def cuda(version: str, *, nccl: str | None = None) -> dict[str, Any]:
    """Toolkit, NCCL, cuDNN and DCGM for one CUDA version, by path."""
    major, minor, *_ = version.split(".")
    return {
        "components.cuda-toolkit": debs(version, f"cuda-toolkit-{major}-{minor}"),
        "components.nccl.packages": dict.fromkeys(("libnccl2", "libnccl-dev"), f"2.30.7-1+cuda{nccl or version[:4]}"),
        "components.cudnn.packages": {f"cudnn9-cuda-{major}": "9.17.0-1"},
        "components.dcgm.packages": dict.fromkeys((_DCGM, f"datacenter-gpu-manager-4-cuda{major}"), "1:4.5.2-1"),
    }


_DCGM = "datacenter-gpu-manager-4-core"
TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)

RELEASE: dict[str, Any] = {
    "id": "good",
    "description": "everything fits",
    "targets": ["debian13/amd64", "debian13/arm64"],
    "repositories": {
        "nvidia": {
            "description": "one for all",
            "sources": {"debian13": {"uris": ["https://example.com/apt/"], "suites": ["/"]}},
            "key": "https://example.com/key",
            "fingerprint": "A" * 40,
            "signed_by": "/usr/share/keyrings/nvidia.asc",
            "owns": ["nvidia-*", "libnvidia-*"],
        }
    },
    "components": {
        "etcd": engine("etcd", "3.6.14"),
        "kubernetes": engine("kubelet", "1.36.4"),
        "containerd": engine("containerd", "2.3.4"),
        "runc": engine("runc", "1.4.3"),
        "cni-plugins": engine("bridge", "1.9.1"),
        "coredns": engine("coredns", "1.14.7"),
        "dns-autoscaler": engine("dns-autoscaler", "0.1.0"),
        "csr-approver": engine("csr-approver", "0.1.0"),
        "pause": engine("pause", "0.1.0"),
        "kernel": debs("6.14.0", "linux-azure-nvidia"),
        "nvidia-driver": driver(_DRIVER),
        "nvidia-nvsdm": amd64_only(debs(_DRIVER, "libnvsdm")),
        "cuda-toolkit": debs("13.0.2", "cuda-toolkit-13-0"),
        "cudnn": debs("9.17.0", "cudnn9-cuda-13"),
        "nccl": debs("2.30.7", libnccl2="2.30.7-1+cuda13.3", libnccl_dev="2.30.7-1+cuda13.3"),
        "nvidia-container-toolkit": debs("1.18.0", *TOOLKIT),
        "dcgm": {
            "version": "4.5.2",
            "repository": "nvidia",
            "packages": dict.fromkeys((_DCGM, "datacenter-gpu-manager-4-cuda13"), "1:4.5.2-1"),
        },
        "doca-ofed": debs("3.1.0", "doca-ofed"),
    },
    "registry_images": {
        "nvidia-device-plugin": {
            "reference": "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
            "digest": "sha256:" + "2" * 64,
        },
        "dcgm-exporter": {
            "reference": "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1",
            "digest": "sha256:" + "3" * 64,
        },
    },
    "toolchain": {"version": "1.26.8", "sums": {}},
    "bundle": {"packages": {}},
    "controller_packages": [],
}
for _path, _component in companions(_DRIVER).items():
    RELEASE["components"][_path.partition(".")[2]] = _component


@dataclasses.dataclass(frozen=True)
class Case:
    """One case: its name, the rules that must find something, and what differs from what is good.

    `before` is what differs in the release that is there already; without it nothing is there.
    """

    name: str
    rules: set[str] = dataclasses.field(default_factory=set)
    release: dict[str, Any] = dataclasses.field(default_factory=dict)
    stack: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    deployed: dict[str, Any] | None = None

    @functools.cached_property
    def case(self) -> lint.Case:
        """What the linter gets."""
        return lint.Case(
            cluster=None if self.stack is None else cluster(self.stack),
            release=release(self.release),
            before=None if self.before is None else release(self.before),
            deployed=self.deployed,
        )


def release(changes: dict[str, Any]) -> Release:
    """The good release with changes by path."""
    return Release.model_validate_json(json.dumps(changed(RELEASE, changes)))


def cluster(changes: dict[str, Any]) -> spec.Cluster:
    """The good stack with changes by path."""
    return spec.Cluster.model_validate(changed(STACK, changes))


def changed(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with values put in by path; parts of a path are separated by dots, the last may have some."""
    data = copy.deepcopy(data)
    for path, value in changes.items():
        place, rest = data, path
        while True:
            first, dot, after = rest.partition(".")
            if not dot or first not in place:
                break
            place, rest = place[first], after
        if value is GONE:
            del place[rest]
        else:
            place[rest] = value
    return data


GB200 = {"platform": "nd-gb200-v6", "count": 18, "unit_size": 18}
"""Fields of a pool of one rack."""


def pool(**fields: Any) -> dict[str, Any]:
    """Changes of the stack: one pool."""
    return {"pools": [{"name": "gpu", "count": 1, "platform": "nd-h100-v5", **fields}]}


_BIG = {"name": "cpu", "platform": "generic", "max_pods": 60}
_LARGE = {"network.hosts": "10.0.0.0/10", "network.pods": "11.0.0.0/8", "network.services": "12.0.0.0/16"}
_THOUSANDS = {**_LARGE, "pools": [{**_BIG, "count": 5000}]}
_V100 = {
    "components.nvidia-driver": driver("580.126.20", "proprietary"),
    **cuda("12.9.1"),
    "components.dcgm.packages": dict.fromkeys(
        (_DCGM, "datacenter-gpu-manager-4-cuda12", "datacenter-gpu-manager-4-cuda13"), "1:4.5.2-1"
    ),
}
_R570 = {"components.nvidia-driver": driver("570.211.01"), **old_companions("570.211.01")}
_R570 |= {"components.nvidia-nvsdm": amd64_only(debs("570.211.01", "libnvsdm"))}


def r(number: str, *more: str) -> dict[str, Any]:
    """Driver and companions of a branch from 590 on, with NVSDM."""
    return {**new_driver(number, *more), "components.nvidia-nvsdm": amd64_only(debs(number, "libnvsdm"))}


def on_system(os: str) -> dict[str, Any]:
    """Changes of the release: for one operating system on amd64 instead."""
    alone = {
        "nvidia-fabricmanager": "nvidia-fabricmanager",
        "nvidia-nscq": "libnvidia-nscq",
        "nvidia-nvsdm": "libnvsdm",
    }
    return {
        "targets": [f"{os}/amd64"],
        "repositories.nvidia.sources": {os: {"uris": ["https://example.com/apt/"], "suites": ["/"]}},
        **{f"components.{name}": debs(_DRIVER, package) for name, package in alone.items()},
    }


JAMMY = on_system("ubuntu22.04")
_ENDED = {"driver-branch-ended"}

CASES = [
    # -- good ones -----------------------------------------------------------------------------------------------------
    Case("good release"),
    Case("good stack with H100", stack={}),
    Case("good step", before={"components.kubernetes.version": "1.35.8"}, stack={}, deployed={}),
    Case(
        "V100 with R580 proprietary, CUDA 12.9, both DCGM packages", release=_V100, stack=pool(platform="nd40-v100-v2")
    ),
    Case("GB200, two whole racks", stack=pool(**GB200 | {"count": 36})),
    Case("GB300", release={}, stack=pool(**GB200 | {"platform": "nd-gb300-v6"})),
    Case("A100 partitioned", stack=pool(platform="nd-a100-v4", gpu={"mig": "all-1g.5gb"})),
    Case("H100 with dma-buf", stack=pool(gpu={"gpudirect": "dma-buf"})),
    Case("H100 with peermem and DOCA", stack=pool(gpu={"gpudirect": "peermem"})),
    Case(
        "Secure Boot with signed modules",
        stack=pool(secure_boot=True),
        release={"components.nvidia-driver.signed": True},
    ),
    Case("members in three failure domains", stack={"etcd.failure_domains": ["a", "b", "c"]}),
    Case("R595 with a pin", release=r("595.71.05", "nvidia-driver-pinning-595.71.05")),
    Case("kubelet held back by three minors", release={"components.kubelet": engine("kubelet", "1.33.1")}),
    Case("etcd 3.5.33 to 3.6", before={"components.etcd.version": "3.5.33"}),
    Case(
        "etcd 3.6.11 to 3.7", release={"components.etcd.version": "3.7.1"}, before={"components.etcd.version": "3.6.11"}
    ),
    Case("gate that is beta", stack={"apiservers.flags": {"feature-gates": "WatchList=true"}}),
    Case(
        "HPC-X for CUDA 13 on DOCA",
        release={"components.hpc-x": engine("hpcx-v2.25.1-gcc-doca_ofed-u-cuda13-x", "2.25.1")},
    ),
    # -- pins ----------------------------------------------------------------------------------------------------------
    Case("a figure nobody could confirm", {"unverified"}, {"components.etcd.unverified": "all of it"}),
    Case(
        "a package without a confirmed revision",
        {"unverified"},
        {"components.cudnn.packages": {"cudnn9-cuda-13": {"version": "9.17.0", "unverified": "revision"}}},
    ),
    Case("no containerd", {"component-missing"}, {"components.containerd": GONE}),
    Case(
        "a file without a digest or a build",
        {"file-not-obtainable", "unverified"},
        {"components.runc.downloads": [{"url": "https://example.com/runc", "file": "runc", "unverified": "digest"}]},
    ),
    Case(
        "libraries one patch off the kernel module",
        {"package-version"},
        {"components.nvidia-driver.packages.libnvidia-compute-580": "580.126.16-1"},
    ),
    Case(
        "two repositories own nvidia-*",
        {"packages-of-two-owners"},
        {"repositories.ubuntu": {**RELEASE["repositories"]["nvidia"], "owns": ["nvidia-*"]}},
    ),
    Case(
        "fabric manager from another repository than the driver",
        {"package-from-elsewhere"},
        {
            "repositories.ubuntu": {**RELEASE["repositories"]["nvidia"], "owns": []},
            "components.nvidia-fabricmanager.repository": "ubuntu",
        },
    ),
    Case(
        "an image by a tag that moves",
        {"image-latest"},
        {"registry_images.dcgm": {"reference": "nvcr.io/dcgm:latest", "digest": "sha256:" + "4" * 64}},
    ),
    Case(
        "four toolkit packages of two versions",
        {"container-toolkit-one-version"},
        {"components.nvidia-container-toolkit.packages.nvidia-container-toolkit-base": "1.18.1-1"},
    ),
    Case(
        "three toolkit packages",
        {"container-toolkit-one-version"},
        {"components.nvidia-container-toolkit.packages.nvidia-container-toolkit-base": GONE},
    ),
    Case(
        "toolkit packages of another version than the component",
        {"container-toolkit-one-version"},
        {"components.nvidia-container-toolkit.version": "1.19.0"},
    ),
    Case(
        "libnccl-dev of another build",
        {"nccl-one-version"},
        {"components.nccl.packages.libnccl-dev": "2.30.7-1+cuda13.2"},
    ),
    Case("DCGM packages of two versions", {"dcgm-one-version"}, {f"components.dcgm.packages.{_DCGM}": "1:4.4.1-1"}),
    Case(
        "a fabric manager for Arm",
        {"no-arm-build"},
        {"components.nvidia-fabricmanager": debs(_DRIVER, "nvidia-fabricmanager")},
    ),
    # -- driver --------------------------------------------------------------------------------------------------------
    Case(
        "a fabric manager one patch off",
        {"fabric-manager-version"},
        {"components.nvidia-fabricmanager": amd64_only(debs("580.126.16", "nvidia-fabricmanager"))},
    ),
    Case("IMEX of another patch", {"imex-version"}, {"components.nvidia-imex": debs("580.126.16", "nvidia-imex")}),
    Case(
        "firmware of another patch",
        {"driver-family-version"},
        {"components.nvidia-firmware": debs("580.105.08", "nvidia-firmware")},
    ),
    Case(
        "NSCQ of another branch",
        {"driver-family-version"},
        {
            "components.nvidia-nscq": amd64_only(debs("570.211.01", "libnvidia-nscq")),
        },
    ),
    Case("an ended branch", {*_ENDED, "cuda-driver-floor", "dcgm-cuda-major", "cudnn-driver-floor"}, _R570),
    Case("an ended branch with CUDA 12", _ENDED, {**_R570, **cuda("12.8.1")}),
    Case(
        "an ended branch of Ubuntu's archive",
        _ENDED,
        {
            **_R570,
            **cuda("12.8.1"),
            "repositories.ubuntu": {**RELEASE["repositories"]["nvidia"], "owns": []},
            "repositories.nvidia.owns": [],
            "components.nvidia-driver": {**driver("570.211.01"), "repository": "ubuntu"},
        },
    ),
    Case("a branch that ended without a day", _ENDED, r("590.48.01", "nvidia-driver-pinning-590")),
    Case("a branch nobody knows", {"driver-branch-unknown"}, r("600.10.01", "nvidia-driver-pinning-600")),
    Case("modules not said", {"driver-modules-unsaid"}, {"components.nvidia-driver.modules": GONE}),
    Case(
        "proprietary modules with R620",
        {"driver-no-proprietary"},
        {
            **r("620.10.01"),
            "components.nvidia-driver": {
                **debs("620.10.01", "cuda-drivers", "nvidia-driver-pinning-620"),
                "modules": "proprietary",
            },
        },
    ),
    Case(
        "open packages called proprietary",
        {"driver-packages-flavour"},
        {"components.nvidia-driver.modules": "proprietary"},
    ),
    Case(
        "packages of another branch",
        {"driver-packages-branch"},
        {"components.nvidia-driver.packages": {"nvidia-dkms-570-open": "580.126.20-1"}},
    ),
    Case(
        "a name with a branch where names have none",
        {"driver-packages-branch"},
        {
            **r("595.71.05"),
            "components.nvidia-driver": {
                **debs("595.71.05", "nvidia-dkms-595-open", "nvidia-driver-pinning-595"),
                "modules": "open",
            },
        },
    ),
    Case("R595 that nothing holds", {"driver-not-held"}, r("595.71.05")),
    Case(
        "fabric manager with a branch in its name",
        {"companion-package-name"},
        {"components.nvidia-fabricmanager": amd64_only(debs(_DRIVER, "nvidia-fabricmanager-580"))},
    ),
    Case(
        "22.04 with the 6.8 kernel and precompiled modules",
        {"driver-precompiled"},
        {
            **JAMMY,
            "components.kernel": debs("6.8.0", "linux-azure"),
            "components.nvidia-driver": {
                **debs(_DRIVER, "linux-modules-nvidia-580-server-open-azure"),
                "modules": "open",
            },
        },
    ),
    Case(
        "precompiled modules of a branch that Ubuntu compiles",
        release={
            **JAMMY,
            "components.kernel": debs("5.15.0", "linux-azure"),
            "components.nvidia-driver": {
                **debs(_DRIVER, "linux-modules-nvidia-580-server-open-azure"),
                "modules": "open",
            },
        },
    ),
    Case(
        "precompiled modules that nobody compiles",
        {"driver-precompiled"},
        {
            "components.nvidia-driver": {
                **debs(_DRIVER, "linux-modules-nvidia-580-server-open-generic"),
                "modules": "open",
            }
        },
    ),
    Case(
        "GRID beside the data-center module",
        {"grid-and-datacenter"},
        {"components.nvidia-driver.packages.nvidia-grid-dkms": "580.126.20-1"},
    ),
    Case(
        "a kernel that the driver is not supported on",
        {"kernel-not-supported"},
        {
            **JAMMY,
            "components.kernel": debs("6.2.0", "linux-azure"),
        },
    ),
    Case(
        "22.04 with the 6.8 kernel and no gcc-12",
        {"kernel-compiler"},
        {
            **JAMMY,
            "components.kernel": debs("6.8.0", "linux-azure"),
        },
    ),
    Case(
        "from proprietary modules to R620",
        {"driver-flavour-step"},
        r("620.10.01", "nvidia-driver-pinning-620"),
        before={"components.nvidia-driver": driver("580.126.20", "proprietary")},
    ),
    # -- CUDA ----------------------------------------------------------------------------------------------------------
    Case(
        "CUDA 13 with driver 570",
        {*_ENDED, "cuda-driver-floor"},
        {
            **_R570,
            **cuda("12.8.1"),
            "components.cuda-toolkit": debs("13.0.2", "cuda-toolkit-13-0"),
            "components.nccl": GONE,
            "components.cudnn": GONE,
        },
    ),
    Case(
        "CUDA newer than the driver",
        {"cuda-driver-older"},
        {"components.cuda-toolkit": debs("13.3.1", "cuda-toolkit-13-3")},
    ),
    Case(
        "CUDA that was never released",
        {"cuda-unknown"},
        cuda("12.7.0") | {"components.dcgm.packages": RELEASE["components"]["dcgm"]["packages"]},
    ),
    Case(
        "CUDA 13.4 whose driver nobody knows",
        {"cuda-unknown"},
        {"components.cuda-toolkit": debs("13.4.1", "cuda-toolkit-13-4")},
    ),
    Case(
        "the preview of CUDA 13.4", {"cuda-preview"}, {"components.cuda-toolkit": debs("13.4.0", "cuda-toolkit-13-4")}
    ),
    Case("the package cuda", {"cuda-drags-driver"}, {"components.cuda-toolkit": debs("13.0.2", "cuda-13-0")}),
    Case(
        "+cuda12 NCCL with CUDA 13",
        {"nccl-cuda-major"},
        {"components.nccl.packages": dict.fromkeys(("libnccl2", "libnccl-dev"), "2.30.7-1+cuda12.9")},
    ),
    Case(
        "cuDNN for CUDA 12 with CUDA 13",
        {"cudnn-cuda-major"},
        {"components.cudnn.packages": {"cudnn9-cuda-12": "9.17.0-1"}},
    ),
    Case(
        "cuDNN on a driver too old",
        {*_ENDED, "cudnn-driver-floor", "cudnn-cuda-major"},
        {**_R570, **cuda("12.8.1"), "components.cudnn.packages": {"cudnn9-cuda-13": "9.17.0-1"}},
    ),
    Case(
        "DCGM's package of the wrong CUDA",
        {"dcgm-cuda-major"},
        {"components.dcgm.packages": dict.fromkeys((_DCGM, "datacenter-gpu-manager-4-cuda12"), "1:4.5.2-1")},
    ),
    Case(
        "DCGM 4 with a driver from before",
        {"dcgm-driver-floor", "driver-branch-unknown"},
        {
            "components.nvidia-driver": driver("440.118.02"),
            **old_companions("440.118.02"),
            "components.nvidia-nvsdm": GONE,
            "components.cuda-toolkit": GONE,
            "components.cudnn": GONE,
            "components.dcgm.packages": {_DCGM: "1:4.5.2-1"},
        },
    ),
    Case(
        "an exporter older than the host's DCGM",
        {"dcgm-exporter-older"},
        {"registry_images.dcgm-exporter.reference": "nvcr.io/nvidia/k8s/dcgm-exporter:4.4.1-4.6.0"},
    ),
    Case(
        "HPC-X for CUDA 12",
        {"hpcx-flavour"},
        {"components.hpc-x": engine("hpcx-v2.25.1-gcc-doca_ofed-ubuntu24.04-cuda12-x86_64.tbz", "2.25.1")},
    ),
    Case(
        "HPC-X for inbox RDMA on DOCA",
        {"hpcx-flavour"},
        {"components.hpc-x": engine("hpcx-v2.25.1-gcc-inbox-ubuntu24.04-cuda13-x86_64.tbz", "2.25.1")},
    ),
    # -- node software -------------------------------------------------------------------------------------------------
    Case(
        "a toolkit with two holes",
        {"container-toolkit-vulnerable", "container-toolkit-cdi"},
        {"components.nvidia-container-toolkit": debs("1.16.1", *TOOLKIT)},
    ),
    Case(
        "a toolkit with one hole",
        {"container-toolkit-vulnerable", "container-toolkit-cdi"},
        {"components.nvidia-container-toolkit": debs("1.17.7", *TOOLKIT)},
    ),
    Case(
        "a toolkit without holes that does not refresh CDI",
        {"container-toolkit-cdi"},
        {"components.nvidia-container-toolkit": debs("1.17.8", *TOOLKIT)},
    ),
    Case(
        "a device plugin with a driver from before",
        {"device-plugin-floor", "driver-branch-unknown"},
        {
            "components.nvidia-driver": driver("375.66"),
            **old_companions("375.66"),
            "components.nvidia-nvsdm": GONE,
            "components.cuda-toolkit": GONE,
            "components.cudnn": GONE,
            "components.dcgm": GONE,
        },
    ),
    Case(
        "GPUDirect Storage on proprietary modules",
        {"storage-open-modules"},
        {
            "components.nvidia-fs": engine("nvidia-fs", "2.29.4"),
            "components.nvidia-driver": driver(_DRIVER, "proprietary"),
        },
    ),
    Case(
        "containerd 1.7, whose configuration is of version 2",
        {"containerd-config-version", "containerd-cdi"},
        {"components.containerd.version": "1.7.34"},
    ),
    Case(
        "containerd 1.7 with Kubernetes 1.38",
        {"containerd-too-old", "containerd-config-version", "containerd-cdi", "kubernetes-not-in-matrix"},
        {"components.containerd.version": "1.7.34", "components.kubernetes.version": "1.38.0"},
    ),
    # -- RDMA ----------------------------------------------------------------------------------------------------------
    Case(
        "DOCA from the repository of another version",
        {"doca-one-build"},
        {
            "repositories.doca": {
                **RELEASE["repositories"]["nvidia"],
                "owns": [],
                "sources": {"debian13": {"uris": ["https://example.com/public/repo/doca/3.2.0/u/"], "suites": ["/"]}},
            },
            "components.doca-ofed.repository": "doca",
        },
    ),
    Case(
        "firmware tools of two versions",
        {"mft-version"},
        {"components.mft": debs("4.33.0", "mft"), "components.doca-ofed.packages.kernel-mft-dkms": "4.32.0-1"},
    ),
    Case(
        "DOCA for a system that it is not released for",
        {"doca-os"},
        {
            **on_system("ubuntu26.04"),
        },
    ),
    Case(
        "DOCA of two vendors",
        {"doca-two-vendors"},
        {"components.doca-ofed.packages.doca-ofed-azure": "3.1.0-1"},
    ),
    # -- etcd ----------------------------------------------------------------------------------------------------------
    Case(
        "etcd that corrupts data",
        {"etcd-corrupts", "etcd-member-add", "etcd-handshakes", "etcd-not-tested"},
        {"components.etcd.version": "3.5.22"},
    ),
    Case("etcd of another minor than tested", {"etcd-not-tested"}, {"components.etcd.version": "3.5.33"}),
    Case("etcd that refuses members", {"etcd-member-add", "etcd-handshakes"}, {"components.etcd.version": "3.6.10"}),
    Case("etcd with unfinished handshakes", {"etcd-handshakes"}, {"components.etcd.version": "3.6.13"}),
    Case("etcd 3.4", {"etcd-ended", "etcd-for-kubernetes", "etcd-not-tested"}, {"components.etcd.version": "3.4.45"}),
    Case("etcd 3.5.20 to 3.6", {"etcd-minor-floor"}, before={"components.etcd.version": "3.5.20"}),
    Case(
        "etcd 3.6.10 to 3.7",
        {"etcd-minor-floor"},
        {"components.etcd.version": "3.7.1"},
        before={"components.etcd.version": "3.6.10"},
    ),
    Case("etcd 3.4 to 3.6", {"etcd-minor-step"}, before={"components.etcd.version": "3.4.45"}),
    Case("etcd 3.7 to 3.6", {"etcd-downgrade"}, before={"components.etcd.version": "3.7.1"}),
    Case("four members", {"etcd-even"}, stack={"etcd.count": 4}),
    Case("a short election", {"etcd-election"}, stack={"etcd.election_ms": 300}),
    Case("one member for twenty nodes", {"etcd-alone"}, stack={"etcd.count": 1, **pool(count=20)}),
    Case("two members in one failure domain", {"etcd-shared-domain"}, stack={"etcd.failure_domains": ["a", "b", "a"]}),
    Case("two domains for three members", {"etcd-domain-count"}, stack={"etcd_events.failure_domains": ["a", "b"]}),
    Case(
        "a small database for many nodes",
        {"etcd-quota"},
        stack={**_LARGE, "etcd.quota_bytes": 2 * 1024**3, "pools": [{**_BIG, "count": 1000}]},
    ),
    # -- Kubernetes ----------------------------------------------------------------------------------------------------
    Case("kubelet newer than the API server", {"kubelet-newer"}, {"components.kubelet": engine("kubelet", "1.37.0")}),
    Case("kubelet four minors older", {"kubelet-too-old"}, {"components.kubelet": engine("kubelet", "1.32.9")}),
    Case(
        "kube-proxy newer than the API server",
        {"kubelet-newer"},
        {"components.kube-proxy": engine("kube-proxy", "1.37.0")},
    ),
    Case(
        "a kubelet newer on one architecture",
        {"kubelet-newer"},
        {
            "components.kubelet": {
                **engine("kubelet", "1.36.4"),
                "install": {"debian13/arm64": engine("kubelet", "1.37.0")},
            },
        },
    ),
    Case(
        "Kubernetes that NVIDIA does not list",
        {"kubernetes-not-in-matrix", "etcd-not-tested"},
        {"components.kubernetes.version": "1.37.1"},
    ),
    Case("two minors at once", {"kubernetes-minor-step"}, before={"components.kubernetes.version": "1.34.11"}),
    Case("Kubernetes goes back", {"kubernetes-downgrade"}, before={"components.kubernetes.version": "1.37.0"}),
    Case(
        "nodes left behind by a step",
        {"kubelet-left-behind"},
        before={"components.kubernetes.version": "1.35.8", "components.kubelet": engine("kubelet", "1.32.9")},
    ),
    Case(
        "a gate that is not there yet",
        {"feature-gate-too-early"},
        stack=pool(kubelet={"featureGates": {"EtcdRangeStream": False}}),
    ),
    Case(
        "a gate that is locked",
        {"feature-gate-locked"},
        stack={"apiservers.flags": {"feature-gates": "ConsistentListFromCache=false"}},
    ),
    Case(
        "a gate that is alpha",
        {"feature-gate-alpha"},
        stack={"apiservers.flags": {"feature-gates": "ShardedListAndWatch=true"}},
    ),
    Case(
        "a gate that needs a newer etcd",
        {"feature-gate-etcd", "kubernetes-not-in-matrix", "etcd-not-tested"},
        {"components.kubernetes.version": "1.37.0"},
        {"apiservers.flags": {"feature-gates": "EtcdRangeStream=true"}},
    ),
    Case(
        "gangs across the version that drops their API",
        {"dropped-api", "kubernetes-not-in-matrix", "etcd-not-tested"},
        {"components.kubernetes.version": "1.37.0"},
        {"apiservers.flags": {"feature-gates": "GenericWorkload=true"}},
        before={},
    ),
    Case("a flag that is gone", {"removed-flag"}, stack={"apiservers.flags": {"pod-infra-container-image": "pause"}}),
    Case("a field that is gone", {"removed-flag"}, stack=pool(kubelet={"imagePullProgressDeadline": "30m"})),
    Case(
        "the cgroup driver after it is gone",
        {"removed-flag", "kubernetes-not-in-matrix"},
        {"components.kubernetes.version": "1.38.0"},
        pool(kubelet={"cgroupDriver": "systemd"}),
    ),
    Case("the cgroup driver said twice", {"kubelet-cgroup-driver"}, stack=pool(kubelet={"cgroupDriver": "systemd"})),
    Case("cgroup v1", {"cgroup-v1"}, stack=pool(kubelet={"failCgroupV1": False})),
    Case(
        "one half of the status trap",
        {"kubelet-status-frequency"},
        stack=pool(kubelet={"nodeStatusUpdateFrequency": "10s"}),
    ),
    Case(
        "both halves of the status trap",
        stack=pool(kubelet={"nodeStatusUpdateFrequency": "10s", "nodeStatusReportFrequency": "5m"}),
    ),
    Case("one API server for twenty nodes", {"apiserver-alone"}, stack={"apiservers.count": 1, **pool(count=20)}),
    Case(
        "events etcd by commas",
        {"etcd-overrides-separator"},
        stack={"apiservers.flags": {"etcd-servers-overrides": "/events#https://e1:2379,https://e2:2379"}},
    ),
    Case(
        "events etcd by semicolons",
        stack={"apiservers.flags": {"etcd-servers-overrides": "/events#https://e1:2379;https://e2:2379"}},
    ),
    Case(
        "watch cache sizes", {"apiserver-flag-not-set"}, stack={"apiservers.flags": {"watch-cache-sizes": "pods#100"}}
    ),
    Case("too many connections closed", {"apiserver-goaway"}, stack={"apiservers.flags": {"goaway-chance": "0.1"}}),
    Case(
        "connections closed of one API server",
        {"apiserver-goaway"},
        stack={"apiservers.flags": {"goaway-chance": "0.001"}, "apiservers.count": 1},
    ),
    Case("events for a day", {"apiserver-event-ttl"}, stack={"apiservers.flags": {"event-ttl": "24h0m"}}),
    Case("five thousand nodes with default requests in flight", {"apiserver-inflight"}, stack=_THOUSANDS),
    Case("five thousand nodes", stack={**_THOUSANDS, "apiservers.flags": {"max-requests-inflight": "1600"}}),
    # -- addresses -----------------------------------------------------------------------------------------------------
    Case("services inside pods", {"networks-overlap"}, stack={"network.services": "10.244.0.0/16"}),
    Case("link-local hosts", {"network-special"}, stack={"network.hosts": "169.254.0.0/16"}),
    Case("services over 172.16/16 with InfiniBand", {"network-reserved"}, stack={"network.services": "172.16.0.0/16"}),
    Case(
        "services over 172.16/16 without InfiniBand",
        stack={"network.services": "172.16.0.0/16", **pool(platform="generic")},
    ),
    Case("too large a service network", {"network-size"}, stack={"network.services": "12.0.0.0/8"}),
    Case("more pods than a node's network holds", {"pods-fit"}, stack={**pool(max_pods=250), "network.pod_prefix": 25}),
    Case("more hosts than a block holds", {"hosts-fit"}, stack={"network.hosts": "10.98.0.0/24", **pool(count=40)}),
    # -- pools ---------------------------------------------------------------------------------------------------------
    Case("a pool called like a group", {"pool-name-taken"}, stack=pool(name="etcd")),
    Case("nine pools", {"pool-too-many"}, stack={"pools": [{"name": f"p{number}", "count": 0} for number in range(9)]}),
    Case("a label that no kubelet may set", {"pool-label"}, stack=pool(labels={"kubernetes.io/os": "x"})),
    Case("an unknown machine type", {"platform-unknown"}, stack=pool(platform="nd-h100-v6")),
    Case("half a rack", {"rack-not-whole"}, stack=pool(**GB200 | {"count": 20})),
    Case(
        "Secure Boot on A100",
        {"secure-boot-platform", "secure-boot-unsigned"},
        stack=pool(platform="nd-a100-v4", secure_boot=True),
    ),
    Case("a rack that changes machine by machine", {"rack-not-a-unit"}, stack=pool(**GB200 | {"unit_size": 0})),
    Case("a canary larger than a wave", {"rollout-never-stops"}, stack={"rollout": {"canary": 9, "hosts": 3}}),
    Case("a unit of one host", {"places-of-one"}, stack=pool(unit_size=1)),
    Case("Secure Boot with an unsigned driver", {"secure-boot-unsigned"}, stack=pool(secure_boot=True)),
    Case(
        "Secure Boot with DOCA built on the host",
        {"secure-boot-unsigned"},
        {"components.nvidia-driver.signed": True, "components.doca-ofed": debs("3.2.1", "doca-ofed")},
        pool(secure_boot=True),
    ),
    Case(
        "an Arm machine with a release for amd64",
        {"target-missing"},
        {"targets": ["debian13/amd64"], "components.kernel": GONE},
        pool(**GB200),
    ),
    Case(
        "a release without a driver",
        {"driver-missing"},
        {"components.nvidia-driver": GONE},
        {},
    ),
    Case(
        "V100 with R610",
        {"gpu-driver-window", "gpu-modules", *_ENDED},
        {
            **r("610.43.02", "nvidia-driver-pinning-610"),
            **_V100,
            "components.nvidia-driver": plain_driver("610.43.02", "nvidia-driver-pinning-610"),
        },
        pool(platform="nd40-v100-v2"),
    ),
    Case(
        "B200 with a driver too old",
        {"gpu-driver-window", "subnet-manager-missing", *_ENDED},
        {
            "components.nvidia-driver": driver("570.124.06"),
            **old_companions("570.124.06"),
            "components.nvidia-nvsdm": amd64_only(debs("570.124.06", "libnvsdm")),
            **cuda("12.8.1"),
        },
        pool(platform="hgx-b200"),
    ),
    Case(
        "Blackwell with proprietary modules",
        {"gpu-modules"},
        {"components.nvidia-driver": driver(_DRIVER, "proprietary")},
        pool(**GB200),
    ),
    Case(
        "Grace Hopper with proprietary modules",
        {"gpu-modules"},
        {"components.nvidia-driver": driver(_DRIVER, "proprietary")},
        pool(platform="gh200"),
    ),
    Case(
        "V100 with open modules",
        {"gpu-modules"},
        {**_V100, "components.nvidia-driver": driver(_DRIVER)},
        pool(platform="nd40-v100-v2"),
    ),
    Case(
        "V100 with CUDA 13",
        {"gpu-cuda-window", "nccl-gpu"},
        {
            "components.nvidia-driver": driver(_DRIVER, "proprietary"),
            "components.dcgm.packages": _V100["components.dcgm.packages"],
        },
        pool(platform="nd40-v100-v2"),
    ),
    Case(
        "Blackwell with CUDA 12.6",
        {"gpu-cuda-window", "nccl-gpu", "dcgm-cuda-major"},
        cuda("12.6.3"),
        pool(**GB200),
    ),
    Case(
        "V100 with DCGM for one CUDA",
        {"dcgm-two-cudas"},
        {**_V100, "components.dcgm.packages": RELEASE["components"]["dcgm"]["packages"]},
        pool(platform="nd40-v100-v2"),
    ),
    Case(
        "cuDNN for CUDA 12 on Blackwell with a driver too old",
        {"cudnn-gpu", "gpu-driver-window", "cuda-driver-older", *_ENDED},
        {
            "components.nvidia-driver": driver("565.57.01"),
            **old_companions("565.57.01"),
            "components.nvidia-nvsdm": GONE,
            **cuda("12.8.1"),
        },
        pool(**GB200),
    ),
    Case("H100 without a fabric manager", {"fabric-manager-missing"}, {"components.nvidia-fabricmanager": GONE}, {}),
    Case(
        "a machine without NVSwitch and no fabric manager",
        release={"components.nvidia-fabricmanager": GONE},
        stack=pool(platform="nc80-h100-v5"),
    ),
    Case("B200 without a subnet manager", {"subnet-manager-missing"}, stack=pool(platform="hgx-b200")),
    Case(
        "B200 with a subnet manager",
        release={"components.nvidia-nvlsm": debs("2025.03", "nvlsm")},
        stack=pool(platform="hgx-b200"),
    ),
    Case("GB200 without IMEX", {"imex-missing"}, {"components.nvidia-imex": GONE}, pool(**GB200)),
    Case(
        "GPU memory as NUMA nodes",
        {"coherent-memory"},
        stack=pool(**GB200, gpu={"coherent_memory": "numa"}),
    ),
    Case(
        "Grace with another kernel",
        {"grace-kernel"},
        {"components.kernel": debs("6.14.0", "linux-generic")},
        pool(**GB200),
    ),
    Case("L partitions of V100", {"mig-not-possible"}, _V100, pool(platform="nd40-v100-v2", gpu={"mig": "all-1g.5gb"})),
    Case("partitions without GPUs", {"mig-not-possible"}, stack=pool(platform="generic", gpu={"mig": "all-1g.5gb"})),
    Case(
        "H200 partitioned with a driver too old",
        {"mig-driver-floor", *_ENDED},
        {
            "components.nvidia-driver": driver("535.183.06"),
            **old_companions("535.183.06"),
            "components.nvidia-nvsdm": GONE,
            **cuda("12.2.2"),
        },
        pool(platform="nd-h200-v5", gpu={"mig": "all-1g.18gb"}),
    ),
    Case("DOCA on MANA", {"rdma-stack"}, stack=pool(platform="nc-rtxpro6000-v6", gpu={"rdma": "doca"})),
    Case("InfiniBand that nothing drives", {"rdma-stack"}, stack=pool(gpu={"rdma": "none"})),
    Case("InfiniBand without DOCA in the release", {"rdma-stack"}, {"components.doca-ofed": GONE}, {}),
    Case(
        "ConnectX-8 with DOCA 2.9",
        {"doca-adapter"},
        {"components.doca-ofed": debs("2.9.2", "doca-ofed")},
        pool(**GB200 | {"platform": "nd-gb300-v6"}),
    ),
    Case("peermem on inbox modules", {"peermem-needs-doca"}, stack=pool(gpu={"gpudirect": "peermem", "rdma": "inbox"})),
    Case(
        "dma-buf on proprietary modules and an old kernel",
        {"dmabuf-needs"},
        {"components.nvidia-driver": driver(_DRIVER, "proprietary"), "components.kernel": debs("5.4.0", "linux-azure")},
        pool(gpu={"gpudirect": "dma-buf"}),
    ),
    Case("dma-buf on V100", {"dmabuf-needs"}, _V100, pool(platform="nd40-v100-v2", gpu={"gpudirect": "dma-buf"})),
    Case(
        "one fabric, two drivers",
        {"fabric-of-two-versions", "driver-family-version", "fabric-manager-version", "imex-version"},
        {
            "components.nvidia-driver.install": {
                "debian13/amd64/nd-h200-v5": {**driver("580.105.08"), "packages": driver("580.105.08")["packages"]}
            },
        },
        {
            "pools": [
                {"name": "a", "count": 1, "platform": "nd-h100-v5", "fabric": "one"},
                {"name": "b", "count": 1, "platform": "nd-h200-v5", "fabric": "one"},
            ]
        },
    ),
    # -- DNS and autoscaler --------------------------------------------------------------------------------------------
    Case(
        "CoreDNS limits that cross",
        {"coredns-limits"},
        stack={"addons": {"coredns": {"min_replicas": 9, "max_replicas": 3}}},
    ),
    Case("one CoreDNS pod", {"coredns-alone"}, stack={"addons": {"coredns": {"min_replicas": 1}}, **pool(count=20)}),
    Case(
        "CoreDNS pods by the hundred",
        {"coredns-many"},
        stack={
            **_LARGE,
            "pools": [{**_BIG, "count": 2000}],
            "addons": {"coredns": {"nodes_per_replica": 16, "max_replicas": 200}},
        },
    ),
    Case(
        "fewer CoreDNS pods than asked for",
        {"coredns-capped"},
        stack={**_LARGE, "pools": [{**_BIG, "count": 2000}], "addons": {"coredns": {"max_replicas": 10}}},
    ),
    Case(
        "more than the autoscaler's totals",
        {"autoscaler-totals", "autoscaler-step"},
        {"components.cluster-autoscaler": engine("cluster-autoscaler", "1.36.0")},
        {
            **_LARGE,
            "pools": [{"name": "gpu", "count": 4000, "max_pods": 60, "platform": "nd-h100-v5"}],
        },
    ),
    Case(
        "within the autoscaler's totals",
        set(),
        {"components.cluster-autoscaler": engine("cluster-autoscaler", "1.36.0")},
        {**_LARGE, "pools": [{"name": "gpu", "count": 900, "max_pods": 60, "platform": "nd-h100-v5"}]},
    ),
    # -- changes and waivers -------------------------------------------------------------------------------------------
    Case(
        "a running etcd of five becomes one of three",
        set(),
        stack={},
        deployed={"etcd": {"hosts": [{"name": f"lab-etcd-{number}"} for number in range(5)]}},
    ),
    Case(
        "other services than those deployed",
        {"network-change"},
        stack={},
        deployed={"apiservers": {"vars": {"apiserver_service_cidr": "10.96.0.0/16"}}},
    ),
    Case(
        "a waiver that ended",
        {"waiver-expired", "fabric-manager-missing"},
        {"components.nvidia-fabricmanager": GONE},
        {"waivers": [{"rule": "fabric-manager-missing", "reason": "the vendor's image has it", "until": "2026-11-30"}]},
    ),
    Case(
        "a waiver of a rule that there is not",
        {"waiver-impossible"},
        stack={"waivers": [{"rule": "fabric-manager-mising", "reason": "a typing mistake", "until": "2027-01-01"}]},
    ),
    Case(
        "a waiver of what Slipway relies on",
        {"waiver-impossible", "etcd-even"},
        stack={
            "etcd.count": 4,
            "waivers": [{"rule": "etcd-even", "reason": "we like even numbers", "until": "2027-01-01"}],
        },
    ),
    Case(
        "a waiver that lets nothing pass",
        {"waiver-unused"},
        stack={"waivers": [{"rule": "mig-driver-floor", "reason": "we had an old driver", "until": "2027-01-01"}]},
    ),
]
