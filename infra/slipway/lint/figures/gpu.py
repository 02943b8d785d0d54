"""GPU architectures and models: what they run on."""

from __future__ import annotations

import dataclasses

_DRV = "docs.nvidia.com/datacenter/tesla/drivers (615, 620), supported GPUs; CUDA 13 release notes"
_MIG = "MIG user guide (620), deployment considerations"


@dataclasses.dataclass(frozen=True)
class Architecture:
    """What all GPUs of an architecture need. `sm` is the compute capability times ten, the smallest of the family."""

    name: str
    sm: int
    first_cuda: str
    first_driver: str = "0"
    last_branch: int | None = None
    last_cuda: str | None = None
    modules: tuple[str, ...] = ("open", "proprietary")
    """Flavours of kernel modules that drive it."""
    source: str = _DRV


ARCHITECTURES = {
    one.name: one
    for one in (
        Architecture("volta", 70, "0", last_branch=580, last_cuda="12.9", modules=("proprietary",)),
        Architecture("turing", 75, "10.0"),
        Architecture("ampere", 80, "11.0"),
        Architecture("ada", 89, "11.8", "520"),
        Architecture("hopper", 90, "11.8", "520"),
        Architecture("blackwell", 100, "12.8", "570", modules=("open",)),
        Architecture("blackwell-ultra", 103, "12.9", "575.57.08", modules=("open",)),
    )
}


@dataclasses.dataclass(frozen=True)
class Model:
    """A GPU. `mig` is the oldest driver that can partition it: None where that is not known, "" where it cannot be."""

    name: str
    architecture: str
    mig: str | None = None
    first_driver: str = "0"
    modules: tuple[str, ...] | None = None
    """Where fewer flavours drive it than the architecture."""
    source: str = _MIG


MODELS = {
    one.name: one
    for one in (
        Model("v100", "volta", mig="", source=_DRV),
        Model("t4", "turing", mig="", source=_DRV),
        Model("a100", "ampere", mig="450.80.02"),
        Model("a30", "ampere", mig="460.73.01"),
        Model("l40s", "ada", mig="", source=_DRV),
        Model("h20", "hopper", mig="535.161.07"),
        Model("h100", "hopper", mig="525.85.12"),
        Model("h200", "hopper", mig="550.90.07"),
        Model("gh200", "hopper", modules=("open",), source=_DRV),
        Model("b200", "blackwell", mig="570.133.20", first_driver="570.133.20", source=f"{_MIG}; {_DRV}"),
        Model("gb200", "blackwell", mig="570.133.20"),
        Model("rtx-pro-6000", "blackwell", mig="575.51.03"),
        Model("b300", "blackwell-ultra", mig="580.82.07"),
        Model("gb300", "blackwell-ultra", source=f"{_DRV}; the MIG guide has only the GB300 of a DGX Station"),
    )
}


@dataclasses.dataclass(frozen=True)
class TwoCudas:
    """An architecture for which DCGM needs its packages of two CUDA versions from a branch of the driver on."""

    architecture: str
    since_branch: int
    source: str


DCGM_TWO_CUDAS = (TwoCudas("volta", 580, "NVIDIA/DCGM#254"),)
