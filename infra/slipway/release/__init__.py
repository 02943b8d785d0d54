"""Releases: one file `stacks/releases/<id>.yaml` pins every version that a cluster is made of.

`model` says what a file may hold, `reading` reads and checks it, `known` knows the components. `changes` compares two
releases, `steps` finds the way from one to another. Nothing here imports Pulumi or Ansible.
"""

from slipway.release.model import (
    UBUNTU,
    Build,
    Bundle,
    Component,
    Download,
    Image,
    Package,
    Pinned,
    RegistryImage,
    Release,
    ReleaseError,
    Repository,
    Source,
    Target,
    Toolchain,
    Variant,
)
from slipway.release.reading import known_ids, load, shown
from slipway.release.texts import Arch

__all__ = [
    "UBUNTU",
    "Arch",
    "Build",
    "Bundle",
    "Component",
    "Download",
    "Image",
    "Package",
    "Pinned",
    "RegistryImage",
    "Release",
    "ReleaseError",
    "Repository",
    "Source",
    "Target",
    "Toolchain",
    "Variant",
    "known_ids",
    "load",
    "shown",
]
