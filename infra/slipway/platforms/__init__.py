"""Machine types as data: what GPUs, fabric and firmware a machine has. `machines.yaml` has them with their sources.

Reads its own file and nothing else.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from slipway import documents
from slipway.release.texts import Arch

FILE = Path(__file__).with_name("machines.yaml")


class Platform(BaseModel):
    """One machine type. A figure of None is not known."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    about: str
    arch: Arch
    gpu: str = ""
    """Model of its GPUs, as in `slipway.lint.figures.gpu`; empty when it has none."""
    gpus: int | None = None
    cores: int | None = None
    memory_gib: int | None = None
    rack: int | None = None
    """Machines that share one NVLink domain and change together."""
    fabric_manager: bool = False
    """Runs a fabric manager: it has NVSwitches of its own."""
    subnet_manager: bool = False
    """Runs an NVLink subnet manager: its NVSwitches are of NVLink 5."""
    imex: bool = False
    """Exchanges memory with the other machines of its rack."""
    fabric: Literal["none", "infiniband", "ethernet", "mana"] = "none"
    """What joins the GPUs of several machines."""
    nics: int = 0
    """Adapters of that fabric."""
    nic_gbps: int | None = None
    adapter: str = ""
    """Generation of those adapters, such as connectx-7."""
    secure_boot: bool | None = None
    """Whether its firmware can be made to take signed kernel modules only."""
    reserved: dict[str, str] = {}
    """Networks that hosts cannot use on it, and for what they are taken."""
    source: str


@functools.cache
def load() -> dict[str, Platform]:
    """Return every machine type by its name."""
    return {name: Platform.model_validate(data) for name, data in documents.load(FILE).items()}
