"""The components that a release can pin, and what on hosts each of them changes.

A name that is not here is a typo. `parts` are the roles that install a component, each with the part of it (see the
role's `meta/slipway.yml`) that a new version changes; `groups` are the hosts that have it.
"""

from __future__ import annotations

import dataclasses

POOLS = "pools"
"""Stands for all node pools."""

GPU_POOLS = "gpu pools"
"""Stands for the node pools whose platform has GPUs."""

CONTROLLER = "controller"
"""The machine that Slipway itself runs on."""

CLUSTER = "cluster"
"""Pods that the cluster's own scheduler moves; no host is changed for them."""


ROLES: dict[str, tuple[str, ...]] = {
    "etcd": ("etcd", "etcd_events"),
    "apiserver": ("apiservers",),
    "controllers": ("apiservers",),
    "kubelet": (POOLS,),
    "kube_proxy": (POOLS,),
    "containerd": (POOLS,),
    **dict.fromkeys(
        ("nvidia_driver", "nvidia_fabric", "nvidia_container", "cuda", "dcgm", "rdma"),
        (GPU_POOLS,),
    ),
}
"""Which hosts have a role that installs components."""


@dataclasses.dataclass(frozen=True)
class Known:
    """What a component is.

    `cost` is the disruption of hosts that have no role with a part for it yet, in the words of
    `slipway.node.host.costs`.
    """

    about: str
    groups: tuple[str, ...]
    parts: tuple[tuple[str, str], ...] = ()
    cost: str = "none"


_DRIVER = "drain"

COMPONENTS: dict[str, Known] = {
    # Slipway's own machine
    "pulumi": Known("Pulumi's engine", (CONTROLLER,)),
    "pulumi-language-python": Known("Pulumi's language host", (CONTROLLER,)),
    "pulumi-kubernetes": Known("Pulumi's Kubernetes provider", (CONTROLLER,)),
    # Control plane and nodes
    "etcd": Known("etcd, etcdctl and etcdutl", ("etcd", "etcd_events"), (("etcd", "artifact"),)),
    "kubernetes": Known(
        "the Kubernetes programs",
        ("apiservers", POOLS),
        (
            ("apiserver", "artifact"),
            ("controllers", "artifact"),
            ("kubelet", "kubelet_artifact"),
            ("kube_proxy", "kube_proxy_artifact"),
        ),
    ),
    "kubelet": Known(
        "the kubelet, where it is not of the version of `kubernetes`", (POOLS,), (("kubelet", "kubelet_artifact"),)
    ),
    "kube-proxy": Known(
        "kube-proxy, where it is not of the version of `kubernetes`", (POOLS,), (("kube_proxy", "kube_proxy_artifact"),)
    ),
    "containerd": Known("containerd and its shim", (POOLS,), (("containerd", "containerd_artifact"),)),
    "runc": Known("the container runtime", (POOLS,), (("containerd", "containerd_runc_artifact"),)),
    "cni-plugins": Known("plugins of the pod network", (POOLS,), (("containerd", "containerd_cni_artifact"),)),
    "crictl": Known("command line of the container runtime", (POOLS,)),
    "coredns": Known("cluster DNS", (CLUSTER,)),
    "dns-autoscaler": Known("sizes cluster DNS", (CLUSTER,)),
    "csr-approver": Known(
        "approves serving certificates of kubelets", ("apiservers",), (("controllers", "approver_artifact"),)
    ),
    "cluster-autoscaler": Known("sizes node pools", (CLUSTER,)),
    "pause": Known("the container that holds a pod's namespaces", (POOLS,), (("containerd", "containerd_images"),)),
    "netprobe": Known("network test server", (CLUSTER,)),
    "kernel": Known("the Linux kernel", (POOLS,), cost="reboot"),
    # Driver and what must be of its version
    "nvidia-driver": Known(
        "kernel modules, libraries and tools of the GPU driver", (GPU_POOLS,), (("nvidia_driver", "driver"),), _DRIVER
    ),
    "nvidia-firmware": Known("GSP firmware", (GPU_POOLS,), (("nvidia_driver", "driver"),), _DRIVER),
    "nvidia-modprobe": Known("makes device nodes", (GPU_POOLS,), (("nvidia_driver", "driver"),), _DRIVER),
    "nvidia-persistenced": Known("keeps the driver loaded", (GPU_POOLS,), (("nvidia_driver", "driver"),), _DRIVER),
    "nvidia-fabricmanager": Known("programs NVSwitches", (GPU_POOLS,), (("nvidia_fabric", "fabric_manager"),), _DRIVER),
    "nvidia-nscq": Known("queries NVSwitches", (GPU_POOLS,), (("nvidia_fabric", "fabric_manager"),), _DRIVER),
    "nvidia-nvsdm": Known("queries NVLink 5 switches", (GPU_POOLS,), (("nvidia_fabric", "subnet_manager"),), _DRIVER),
    "nvidia-nvlsm": Known("NVLink 5 subnet manager", (GPU_POOLS,), (("nvidia_fabric", "subnet_manager"),), _DRIVER),
    "nvidia-imex": Known("memory exchange between trays of an NVLink rack", (GPU_POOLS,), (), _DRIVER),
    # Above the driver
    "cuda-toolkit": Known("CUDA toolkit", (GPU_POOLS,), (("cuda", "toolkit"),)),
    "cudnn": Known("cuDNN", (GPU_POOLS,), (("cuda", "cudnn"),)),
    "nccl": Known("NCCL", (GPU_POOLS,), (("cuda", "nccl"),)),
    "nvidia-container-toolkit": Known(
        "gives containers their GPUs", (GPU_POOLS,), (("nvidia_container", "toolkit"),), "restart:containerd"
    ),
    "dcgm": Known("DCGM, the GPU manager", (GPU_POOLS,), (("dcgm", "packages"),), "restart:nvidia-dcgm"),
    "dcgm-exporter": Known("GPU metrics", (CLUSTER,)),
    "nvidia-device-plugin": Known("tells the kubelet of GPUs", (CLUSTER,)),
    "nvidia-mig-manager": Known("partitions GPUs", (GPU_POOLS,), (), "restart:nvidia-mig-manager"),
    # RDMA and storage
    "doca-ofed": Known("RDMA kernel modules and libraries", (GPU_POOLS,), (("rdma", "doca"),), _DRIVER),
    "mft": Known("firmware tools of network adapters", (GPU_POOLS,), (("rdma", "mft"),)),
    "gdrcopy": Known("copies between GPU and CPU memory", (GPU_POOLS,), (), _DRIVER),
    "nvidia-fs": Known("GPUDirect Storage kernel module", (GPU_POOLS,), (), _DRIVER),
    "hpc-x": Known("MPI and collectives", (GPU_POOLS,)),
}
"""Every component, in the order in which tables show them."""

PROGRAMS = {"kubelet": ("kubernetes", "kubelet"), "kube-proxy": ("kubernetes", "kube_proxy")}
"""Component that holds back one program of another one → that other component, and the role of the program."""
