"""DOCA-OFED, network adapters and MPI."""

from __future__ import annotations

import dataclasses

from slipway.lint.figures import Figure

_RELEASES = "GPUDirect Storage release notes, table of MLNX_OFED and DOCA"


@dataclasses.dataclass(frozen=True)
class FirstDoca:
    """The first DOCA that NVIDIA lists for an operating system."""

    os: str
    version: str
    source: str = _RELEASES


FIRST_DOCA = (FirstDoca("ubuntu26.04", "3.4.1"),)


@dataclasses.dataclass(frozen=True)
class Adapter:
    """Which DOCA drives a network adapter: after `after`, up to `last`."""

    name: str
    after: str | None
    last: str | None
    source: str = "DOCA 2.9 general support: last for ConnectX-4, no ConnectX-8"


ADAPTERS = (Adapter("connectx-4", None, "2.9"), Adapter("connectx-8", "2.9", None))

UNSIGNED_SINCE = Figure("3.2", "DOCA-Host installation guide, DKMS: kernel parts are built on the host, unsigned")

FLAVOURS = Figure(r"^doca-ofed-(azure|aws|generic|gcp|oracle)", "ubuntu.com, how to install DOCA-OFED")
"""Canonical's own packages, which conflict with NVIDIA's."""

BREAKS_MANA = Figure("mana", "azhpc-images distros/ubuntu24.04/install.sh: DOCA's ib_core breaks mana_ib")
"""The fabric that DOCA takes away."""

HPCX_NAME = Figure(r"hpcx-v[\d.]+-gcc-(doca_ofed|inbox)-.*-cuda(\d+)-", "azhpc-images versions.json")
"""Name of HPC-X archives: RDMA stack and CUDA's major version."""

PEERMEM_NEEDS = Figure("doca-ofed", "gpu-operator-rdma.rst: the inbox ib_core has no peer-memory interface")
