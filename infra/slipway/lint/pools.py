"""Node pools: names, labels, machine types, and what the release has for their GPUs and fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipway import documents, platforms
from slipway.fleet import addresses
from slipway.lint import cuda, versions, views
from slipway.lint.figures import cuda as cuda_figures
from slipway.lint.figures import driver as driver_figures
from slipway.lint.figures import gpu as gpu_figures
from slipway.lint.figures import node_software as node_figures
from slipway.lint.figures import rdma as rdma_figures
from slipway.lint.rules import Problem, rule
from slipway.release import Release
from slipway.spec import Cluster

_KUBERNETES = ("kubernetes.io", "k8s.io")
_KUBELETS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS = ("slipway.dev/pool", "slipway.dev/platform", "slipway.dev/unit", "topology.kubernetes.io/zone")
_GPU_SOURCE = "; ".join(dict.fromkeys(one.source for one in gpu_figures.ARCHITECTURES.values()))


# -- the stack file alone ----------------------------------------------------------------------------------------------


@rule(
    "pool-name-taken",
    "error",
    source="infra/slipway/fleet/addresses.py: hosts are called <cluster>-<pool>-<number>",
    fix="choose another name",
    structural=True,
)
def pool_name_taken(cluster: Cluster) -> Iterator[Problem]:
    """Pool names are unique and differ from the groups', so that host names do."""
    seen: dict[str, int] = {}
    for index, pool in enumerate(cluster.pools):
        if pool.name in seen:
            yield Problem(
                f"pools[{index}].name",
                f"{pool.name} is the name of pools[{seen[pool.name]}] too",
            )
        elif pool.name in addresses.RESERVED_NAMES:
            yield Problem(f"pools[{index}].name", f"{pool.name} names a group of fixed hosts")
        seen.setdefault(pool.name, index)


@rule(
    "pool-too-many",
    "error",
    source="infra/slipway/fleet/addresses.py: eight blocks of the host network",
    fix="join pools of the same machines",
    structural=True,
)
def pool_too_many(cluster: Cluster) -> Iterator[Problem]:
    """Each pool has a block of the host network."""
    if len(cluster.pools) > addresses.POOL_BLOCKS:
        yield Problem(
            "pools", f"{len(cluster.pools)} pools, but a host network has {addresses.POOL_BLOCKS} blocks for pools"
        )


@rule(
    "pool-label",
    "error",
    source="kubelet --help, --node-labels; Kubernetes NodeRestriction",
    fix="use a key in a domain of yours, or kubectl label",
    structural=True,
)
def pool_label(cluster: Cluster) -> Iterator[Problem]:
    """Pools' labels are neither Slipway's nor Kubernetes' own, which no kubelet may set."""
    for index, pool in enumerate(cluster.pools):
        for key in pool.labels:
            domain = key.rpartition("/")[0]
            if key in _OWN_LABELS:
                yield Problem(f"pools[{index}].labels", f"Slipway sets {key} itself")
            elif domain.endswith(_KUBERNETES) and not domain.endswith(_KUBELETS):
                yield Problem(f"pools[{index}].labels", f"a kubelet may not set {key}")


@rule(
    "platform-unknown",
    "error",
    source="infra/slipway/platforms/machines.yaml",
    fix="name a machine type of infra/slipway/platforms/machines.yaml, or add yours with its source",
)
def platform_unknown(cluster: Cluster) -> Iterator[Problem]:
    """Every pool is of a machine type that Slipway knows."""
    known = platforms.load()
    for index, pool in enumerate(cluster.pools):
        if pool.platform not in known:
            message = f"unknown machine type {pool.platform!r}{documents.nearest(pool.platform, known)}"
            yield Problem(f"pools[{index}].platform", message)


@rule(
    "rack-not-whole",
    "error",
    source="learn.microsoft.com virtual-machines/sizes ndgb200v6: 18 machines are one NVLink domain",
    fix="count whole racks",
)
def rack_not_whole(cluster: Cluster) -> Iterator[Problem]:
    """Machines of NVLink racks come in whole racks."""
    for path, pool, platform in views.declared(cluster):
        if platform.rack and pool.count % platform.rack:
            message = f"{pool.count} machines; {pool.platform} comes in racks of {platform.rack}"
            yield Problem(f"{path}.count", message)


@rule(
    "secure-boot-platform",
    "error",
    source="azure-docs virtual-machines/nda100-v4-series.md: no Trusted Launch",
    fix="leave secure_boot out, or choose another machine type",
)
def secure_boot_platform(cluster: Cluster) -> Iterator[Problem]:
    """Secure Boot is asked only of machines that have it."""
    for path, pool, platform in views.declared(cluster):
        if pool.secure_boot and platform.secure_boot is False:
            yield Problem(f"{path}.secure_boot", f"{pool.platform} cannot do it")


# -- with the release --------------------------------------------------------------------------------------------------


@rule(
    "target-missing",
    "error",
    source="the release's `targets`",
    fix="choose a release for that kind of host, or add the kind to this one",
)
def target_missing(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The release is for the operating system and architecture of every pool."""
    for machines in views.pools(cluster, release):
        kind = f"{machines.host.target.os}/{machines.host.target.arch}"
        if machines.platform.gpu and kind not in release.targets:
            message = f"{machines.pool.platform} is {kind}; release {release.id} is for {', '.join(release.targets)}"
            yield Problem(f"{machines.path}.platform", message)


@rule(
    "driver-missing",
    "error",
    source="infra/slipway/platforms/machines.yaml: the machine type has GPUs",
    fix="choose a release with nvidia-driver for that kind of host",
)
def driver_missing(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The release has a driver for every pool with GPUs."""
    for machines in views.pools(cluster, release):
        target = machines.host.target
        there = f"{target.os}/{target.arch}" in release.targets
        if machines.platform.gpu and there and machines.host.pinned("nvidia-driver") is None:
            message = f"{machines.pool.platform} has GPUs; release {release.id} has no driver for {target}"
            yield Problem(f"{machines.path}.platform", message)


@rule("gpu-driver-window", "error", source=_GPU_SOURCE, fix="choose a release with a driver for that GPU")
def gpu_driver_window(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The driver is of a branch that drives the pool's GPUs."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        driver = machines.host.version("nvidia-driver") or ""
        first = versions.newest([architecture.first_driver, model.first_driver]) or ""
        last = architecture.last_branch
        if versions.older(driver, first):
            message = f"{model.name} needs driver {first} or later, release {release.id} has {driver}"
            yield Problem(f"{machines.path}.platform", message)
        elif last and versions.major(driver) > last:
            message = f"{model.name} ({architecture.name}) ends with R{last}, release {release.id} has {driver}"
            yield Problem(f"{machines.path}.platform", message)


@rule("gpu-modules", "error", source=_GPU_SOURCE, fix="pin modules of the other flavour for that platform")
def gpu_modules(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The driver's kernel modules are of a flavour that drives the pool's GPUs."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        pinned = machines.host.pinned("nvidia-driver")
        wanted = model.modules or architecture.modules
        if pinned and pinned.modules and pinned.modules not in wanted:
            message = f"{model.name} takes only {wanted[0]} modules, release {release.id} has {pinned.modules} ones"
            yield Problem(f"{machines.path}.platform", message)


@rule("gpu-cuda-window", "error", source=_GPU_SOURCE, fix="pin a CUDA toolkit for that GPU")
def gpu_cuda_window(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The CUDA toolkit makes programs for the pool's GPUs."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        toolkit, last = machines.host.version("cuda-toolkit"), architecture.last_cuda
        if toolkit is None:
            continue
        if versions.older(toolkit, architecture.first_cuda):
            message = f"{model.name} needs CUDA {architecture.first_cuda} or later, release {release.id} has {toolkit}"
            yield Problem(f"{machines.path}.platform", message)
        elif last and versions.older(last, versions.minor(toolkit)):
            message = f"CUDA {last} is the last for {model.name}, release {release.id} has {toolkit}"
            yield Problem(f"{machines.path}.platform", message)


@rule("nccl-gpu", "error", source=cuda_figures.NCCL_13_SMALLEST_SM.source, fix="pin NCCL built for a fitting CUDA")
def nccl_gpu(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """NCCL has code for the pool's GPUs."""
    smallest = cuda_figures.NCCL_13_SMALLEST_SM.value
    for machines, model, architecture in views.gpu_pools(cluster, release):
        pinned = machines.host.pinned("nccl")
        suffixes = {one.version.partition("+cuda")[2] for one in pinned.packages.values()} if pinned else set()
        for built in sorted(suffixes - {""}):
            floors = [one.cuda for one in cuda_figures.NCCL_FLOORS if one.sm <= architecture.sm]
            needed = versions.newest(floors)
            if needed and versions.older(built, needed):
                message = f"NCCL built for CUDA {built} has nothing for {model.name}, which needs {needed}"
                yield Problem(f"{machines.path}.platform", message)
            elif versions.major(built) >= cuda_figures.NCCL_NEW_CUDA.value and architecture.sm < smallest:
                message = f"NCCL built for CUDA {built} has nothing for sm_{architecture.sm} of {model.name}"
                yield Problem(f"{machines.path}.platform", message)


@rule("cudnn-gpu", "error", source=cuda_figures.CUDNN[0].source, fix="take a newer driver")
def cudnn_gpu(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The driver is one with which cuDNN runs on the GPUs of the pool."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        driver, version = machines.host.version("nvidia-driver") or "", machines.host.version("cudnn")
        pinned = machines.host.pinned("cudnn")
        names = " ".join(pinned.packages) if pinned else ""
        for one in cuda_figures.CUDNN:
            fits = architecture.name == one.architecture and f"cuda-{one.cuda_major}" in names
            if fits and version and not versions.older(version, one.since) and versions.older(driver, one.driver):
                message = (
                    f"cuDNN {version} on {model.name} needs driver {one.driver}, release {release.id} has {driver}"
                )
                yield Problem(f"{machines.path}.platform", message)


@rule(
    "dcgm-two-cudas",
    "error",
    source=gpu_figures.DCGM_TWO_CUDAS[0].source,
    fix="pin the packages for CUDA 12 and 13 side by side",
)
def dcgm_two_cudas(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """DCGM sees old GPUs under a new driver: it needs its packages for the GPU's CUDA and for the driver's."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        pinned, driver = machines.host.pinned("dcgm"), machines.host.version("nvidia-driver") or ""
        found = next((one for one in gpu_figures.DCGM_TWO_CUDAS if one.architecture == architecture.name), None)
        if not pinned or not found or versions.major(driver) < found.since_branch or not architecture.last_cuda:
            continue
        there = {
            int(named[1])
            for package in pinned.packages
            if (named := re.search(node_figures.DCGM_CUDA_PACKAGE.value, package))
        }
        wanted = {versions.major(architecture.last_cuda), cuda.of_driver(driver)}
        if not wanted <= there:
            message = f"DCGM for {model.name} under driver {driver} needs packages for CUDA {sorted(wanted, key=str)}"
            yield Problem(f"{machines.path}.platform", f"{message}, release {release.id} has {sorted(there)}")


@rule(
    "fabric-manager-missing",
    "error",
    source="gpustack#1254, pytorch#35710: CUDA error 802 without it",
    fix="pin nvidia-fabricmanager at the driver's version",
)
def fabric_manager_missing(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """Machines with NVSwitches have a fabric manager: without it no GPU program starts."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        if machines.platform.fabric_manager and machines.host.pinned("nvidia-fabricmanager") is None:
            message = f"{machines.pool.platform} has NVSwitches; release {release.id} has no nvidia-fabricmanager"
            yield Problem(f"{machines.path}.platform", message)


@rule(
    "subnet-manager-missing",
    "error",
    source="NVIDIA/gpu-operator#2781; gpu-driver-container install.sh",
    fix="pin nvidia-nvlsm and nvidia-nvsdm",
)
def subnet_manager_missing(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """Machines with NVLink 5 switches have a subnet manager and its library."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        for component in ("nvidia-nvlsm", "nvidia-nvsdm"):
            if machines.platform.subnet_manager and machines.host.pinned(component) is None:
                message = f"{machines.pool.platform} has NVLink 5 switches; release {release.id} has no {component}"
                yield Problem(f"{machines.path}.platform", message)


@rule("imex-missing", "error", source="docs.nvidia.com IMEX guide", fix="pin nvidia-imex at the driver's version")
def imex_missing(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """Machines of an NVLink rack have IMEX."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        if machines.platform.imex and machines.host.pinned("nvidia-imex") is None:
            message = f"{machines.pool.platform} is part of a rack; release {release.id} has no nvidia-imex"
            yield Problem(f"{machines.path}.platform", message)


@rule(
    "coherent-memory",
    "error",
    source=driver_figures.COHERENT_SINCE.source,
    fix="leave gpu.coherent_memory at driver",
)
def coherent_memory(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """On Grace the driver manages GPU memory: as NUMA nodes, Kubernetes would hand it out to anybody."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        driver = machines.host.version("nvidia-driver") or ""
        new = versions.major(driver) >= driver_figures.COHERENT_SINCE.value
        if new and machines.platform.arch == "arm64" and machines.pool.gpu.coherent_memory == "numa":
            yield Problem(f"{machines.path}.gpu.coherent_memory", f"numa on {machines.pool.platform}")


@rule("grace-kernel", "warning", source=driver_figures.GRACE_KERNEL.source, fix="pin linux-azure-nvidia or its like")
def grace_kernel(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """Grace boots the kernel made for it."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        kernel = machines.host.pinned("kernel")
        names = list(kernel.packages) if kernel else []
        made_for_it = any(re.match(driver_figures.GRACE_KERNEL.value, name) for name in names)
        if machines.platform.arch == "arm64" and names and not made_for_it:
            message = f"release {release.id} has {names[0]}, which is not made for {machines.pool.platform}"
            yield Problem(f"{machines.path}.platform", message)


# -- partitioned GPUs --------------------------------------------------------------------------------------------------


@rule("mig-not-possible", "error", source=gpu_figures.MODELS["a100"].source, fix="leave gpu.mig out")
def mig_not_possible(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """GPUs are partitioned only where they can be."""
    for machines in views.pools(cluster, release):
        if machines.pool.gpu.mig and (machines.model is None or machines.model.mig == ""):
            what = machines.platform.gpu or "a machine without GPUs"
            yield Problem(f"{machines.path}.gpu.mig", f"{what} cannot be partitioned")


@rule("mig-driver-floor", "error", source=gpu_figures.MODELS["a100"].source, fix="take a newer driver")
def mig_driver_floor(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The driver can partition the pool's GPUs."""
    for machines, model, _ in views.gpu_pools(cluster, release):
        driver = machines.host.version("nvidia-driver") or ""
        if machines.pool.gpu.mig and model.mig and versions.older(driver, model.mig):
            message = f"MIG on {model.name} needs driver {model.mig} or later, release {release.id} has {driver}"
            yield Problem(f"{machines.path}.gpu.mig", message)


# -- firmware and fabric -----------------------------------------------------------------------------------------------


@rule(
    "secure-boot-unsigned",
    "error",
    source=f"NVIDIA/gpu-operator#1726; {rdma_figures.UNSIGNED_SINCE.source}",
    fix="pin precompiled, signed modules (`signed: true`), or leave secure_boot out",
)
def secure_boot_unsigned(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """Machines with Secure Boot get only kernel modules that are signed: others are refused by the kernel."""
    for machines in views.pools(cluster, release):
        if not machines.pool.secure_boot:
            continue
        driver, doca = machines.host.pinned("nvidia-driver"), machines.host.version("doca-ofed")
        if driver and driver.signed is not True:
            message = f"the driver {driver.version} of release {release.id} is not signed"
            yield Problem(f"{machines.path}.secure_boot", message)
        if doca and not versions.older(doca, rdma_figures.UNSIGNED_SINCE.value) and _rdma(machines) == "doca":
            message = f"DOCA {doca} of release {release.id} is built on the host, unsigned"
            yield Problem(f"{machines.path}.secure_boot", message)


def _rdma(machines: views.Machines) -> str:
    """Return the RDMA stack of a pool: what it says, else DOCA on InfiniBand."""
    return machines.pool.gpu.rdma or ("doca" if machines.platform.fabric == "infiniband" else "none")


@rule(
    "rdma-stack",
    "error",
    source=rdma_figures.BREAKS_MANA.source,
    fix="leave gpu.rdma out: it follows the machine type's fabric",
)
def rdma_stack(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """The RDMA modules fit the fabric."""
    for machines in views.pools(cluster, release):
        path, fabric, stack = f"{machines.path}.gpu.rdma", machines.platform.fabric, _rdma(machines)
        if stack == "doca" and fabric == rdma_figures.BREAKS_MANA.value:
            yield Problem(path, f"DOCA takes the RDMA of {machines.pool.platform} away")
        elif stack == "none" and fabric == "infiniband":
            yield Problem(path, f"{machines.pool.platform} has InfiniBand, which nothing would drive")
        elif stack == "doca" and machines.platform.gpu and _has_driver_without_doca(machines):
            yield Problem(path, f"release {release.id} has no doca-ofed for {machines.host}")


def _has_driver_without_doca(machines: views.Machines) -> bool:
    return machines.host.pinned("nvidia-driver") is not None and machines.host.pinned("doca-ofed") is None


@rule("doca-adapter", "error", source=rdma_figures.ADAPTERS[0].source, fix="pin a DOCA that drives the adapter")
def doca_adapter(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """DOCA drives the pool's network adapters."""
    for machines in views.pools(cluster, release):
        doca = machines.host.version("doca-ofed")
        one = next((one for one in rdma_figures.ADAPTERS if one.name == machines.platform.adapter), None)
        if not doca or not one:
            continue
        too_old = one.after is not None and not versions.older(one.after, versions.minor(doca))
        too_new = one.last is not None and versions.older(one.last, versions.minor(doca))
        if too_old or too_new:
            message = f"DOCA {doca} of release {release.id} does not drive {one.name}"
            yield Problem(f"{machines.path}.platform", message)


@rule("peermem-needs-doca", "error", source=rdma_figures.PEERMEM_NEEDS.source, fix="use dma-buf, or DOCA")
def peermem_needs_doca(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """GPUDirect by nvidia_peermem stands on DOCA-OFED."""
    for machines, _, _ in views.gpu_pools(cluster, release):
        doca = _rdma(machines) == "doca" and machines.host.pinned(rdma_figures.PEERMEM_NEEDS.value)
        if machines.pool.gpu.gpudirect == "peermem" and not doca:
            yield Problem(f"{machines.path}.gpu.gpudirect", "peermem without DOCA: inbox modules cannot do it")


@rule("dmabuf-needs", "error", source=node_figures.DMABUF_KERNEL.source, fix="use peermem with DOCA")
def dmabuf_needs(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """GPUDirect by dma-buf has the modules, the kernel, the CUDA and the GPU for it."""
    for machines, model, architecture in views.gpu_pools(cluster, release):
        if machines.pool.gpu.gpudirect != "dma-buf":
            continue
        host, lacks = machines.host, []
        driver, kernel, toolkit = host.pinned("nvidia-driver"), host.version("kernel"), host.version("cuda-toolkit")
        if driver and driver.modules == "proprietary":
            lacks.append("open kernel modules")
        if kernel and versions.older(kernel, node_figures.DMABUF_KERNEL.value):
            lacks.append(f"kernel {node_figures.DMABUF_KERNEL.value}, not {kernel}")
        if toolkit and versions.older(toolkit, cuda_figures.DMABUF_CUDA.value):
            lacks.append(f"CUDA {cuda_figures.DMABUF_CUDA.value}, not {toolkit}")
        if architecture.sm < node_figures.DMABUF_SM.value:
            lacks.append(f"a GPU from Turing on, not {model.name}")
        if lacks:
            yield Problem(f"{machines.path}.gpu.gpudirect", f"dma-buf needs {'; '.join(lacks)}")


@rule(
    "fabric-of-two-versions",
    "error",
    source="Azure/azhpc-images: one driver, OFED and fabric manager for machines that train together",
    fix="pin the same versions for all platforms of the fabric, or give the pools fabrics of their own",
)
def fabric_of_two_versions(cluster: Cluster, release: Release) -> Iterator[Problem]:
    """All pools of one fabric have the same driver and the same DOCA."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for machines, _, _ in views.gpu_pools(cluster, release):
        if machines.platform.fabric == "none":
            continue
        fabric = machines.pool.fabric or machines.pool.platform
        for component in ("nvidia-driver", "doca-ofed"):
            version = machines.host.version(component) or "none"
            pool, other = seen.setdefault((fabric, component), (machines.pool.name, version))
            if other != version:
                message = f"{component} {version}, but pool {pool} of the same fabric {fabric} has {other}"
                yield Problem(f"{machines.path}.fabric", message)
