"""Debian packages of the controller: which are missing, and how they get installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable


class PackageError(RuntimeError):
    """Packages that cannot be installed; the message is one line with the next command."""


def missing(packages: Iterable[str]) -> list[str]:
    """Return those packages that are not installed, in the order given."""
    wanted = list(dict.fromkeys(packages))
    if shutil.which("dpkg-query") is None:
        raise PackageError(
            "no dpkg-query: Slipway's controller runs on Debian or Ubuntu; "
            f"install by hand what these hold: {' '.join(wanted)}"
        )
    query = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *wanted],
        capture_output=True,
        text=True,
        check=False,
    )
    installed = {
        name for name, _, status in (line.partition(" ") for line in query.stdout.splitlines()) if status == "installed"
    }
    return [name for name in wanted if name not in installed]


def install_command(packages: Iterable[str]) -> str:
    """Return the command that installs packages, for a person to type."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"{sudo}apt-get update && {sudo}apt-get install --yes {' '.join(packages)}"


def install(packages: Iterable[str]) -> None:
    """Install packages without asking anything.

    Raises:
        PackageError: not root and no sudo, or apt failed; the message says what to run.
    """
    names = list(packages)
    if not names:
        return
    sudo: list[str] = []
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise PackageError(f"missing packages; as root, run: {install_command(names)}")
        sudo = ["sudo", "--preserve-env=http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "l"}
    options = ["--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]
    for arguments in (["update", "-o", "DPkg::Lock::Timeout=300"], ["install", *options, *names]):
        done = subprocess.run(
            [*sudo, "apt-get", "-qq", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise PackageError(
                f"apt-get {arguments[0]} failed: {said[-1] if said else done.returncode}; run: {install_command(names)}"
            )
