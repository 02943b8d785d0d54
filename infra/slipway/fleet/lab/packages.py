"""What the lab needs installed on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slipway import apt
from slipway.fleet.lab import files, tools
from slipway.fleet.lab.errors import LabError

_COMMANDS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "nft": "nftables",
    "ip": "iproute2",
    "ssh-keyscan": "openssh-client",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "find": "findutils",
}
"""Command that the lab runs → Debian package that has it."""


def missing() -> list[str]:
    """Return the Debian packages that the lab needs and this machine lacks; quick, it only looks for commands."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    names = {package for command, package in _COMMANDS.items() if not shutil.which(command, path=path)}
    if not Path(files.KEYRING).exists():
        names.add("debian-archive-keyring")
    return sorted(names)


def ensure(progress: tools.Progress = tools.silent) -> None:
    """Install what the lab needs on this machine, by apt.

    Raises:
        LabError: not root, no apt here, or apt fails.
    """
    if not missing():
        return
    with tools.lock("packages", waiting=progress):
        if not (names := missing()):
            return
        progress(f"installing {', '.join(names)}")
        try:
            apt.install(names)
        except apt.PackageError as error:
            raise LabError(str(error)) from error
