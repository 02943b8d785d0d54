"""The read-only tree that all hosts of one OS release share, made once by debootstrap.

It lies in `<cache>/lab/base/<os>-<digest>/`, where the digest covers everything it is made from; it is complete or not
there at all. An unfinished one of a killed run is thrown away, the packages it had downloaded are kept for the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import inspect as introspection
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from slipway import paths
from slipway.fleet.lab import files, packages, tools
from slipway.fleet.lab.errors import LabError

_HOST_PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "iptables",
    "kmod",
    "nftables",
    "openssh-server",
    "openssl",
    "procps",
    "python3",
    "sudo",
    "systemd",
    "systemd-sysv",
)
# Roles install everything else themselves, as on any other machine.

_MASKED = (
    # Nothing that starts by itself and costs time or memory on eleven hosts.
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "systemd-pstore.service",
    "systemd-resolved.service",
    # Its keys would be made again at each boot of a host without them; ours is made at creation.
    "sshd-keygen.service",
)


@dataclasses.dataclass(frozen=True)
class Os:
    """An OS release that hosts can have."""

    suite: str
    recipe: int = 1
    """Raised when the way the tree is made changes in a way the digest does not see."""


OSES = {"debian13": Os("trixie"), "debian12": Os("bookworm")}


def digest(os_name: str) -> str:
    """Return the digest of all that a base tree is made from (12 hexadecimal digits).

    Raises:
        LabError: no such OS.
    """
    system = _os(os_name)
    parts = [system.suite, str(system.recipe), platform.machine(), *_HOST_PACKAGES, *_MASKED]
    parts += [files.REMOUNT_UNIT, files.SSHD, files.NETWORKD, files.JOURNALD, introspection.getsource(_configure)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def folder(os_name: str) -> Path:
    """Return where the base tree of an OS is, or will be."""
    return paths.lab_bases() / f"{os_name}-{digest(os_name)}"


def is_ready(os_name: str) -> bool:
    """Say whether the base tree of an OS is there."""
    return folder(os_name).is_dir()


def ensure(os_name: str, progress: tools.Progress = tools.silent) -> Path:
    """Make the base tree of an OS if it is not there, and return its folder. Takes one to two minutes, once.

    Args:
        os_name: a key of `OSES`.
        progress: gets a line now and then, with elapsed seconds.

    Raises:
        LabError: no such OS, not root, or a package could not be had.
    """
    wanted = folder(os_name)
    if wanted.is_dir():
        return wanted
    if os.geteuid() != 0:
        raise LabError("the lab's base tree needs root: debootstrap makes device nodes; run: sudo slipway up")
    packages.ensure(progress)
    with tools.lock(f"base-{os_name}", waiting=progress):
        if wanted.is_dir():
            return wanted
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for left in wanted.parent.glob(f".{os_name}-*.partial"):  # of a killed run: we hold the lock
            tools.remove_tree(left)
        unfinished = Path(tempfile.mkdtemp(dir=wanted.parent, prefix=f".{os_name}-", suffix=".partial"))
        try:
            _bootstrap(_os(os_name), unfinished, progress)
            _configure(_os(os_name), unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(wanted)
        except BaseException:
            tools.remove_tree(unfinished)
            raise
    return wanted


def _bootstrap(system: Os, tree: Path, progress: tools.Progress) -> None:
    """Run debootstrap; whatever happens to us, it dies with us, and its mounts and processes with it."""
    downloads = paths.cache() / "lab" / f"packages-{system.suite}"
    downloads.mkdir(parents=True, exist_ok=True)
    mirror = _mirror(system)
    command = [
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--pid", "--fork", "--kill-child=SIGKILL", "--mount", "--propagation", "private"),
        *("debootstrap", "--variant=minbase", f"--include={','.join(_HOST_PACKAGES)}", f"--cache-dir={downloads}"),
        *(f"--keyring={files.KEYRING}", system.suite, str(tree), *([mirror] if mirror else [])),
    ]
    started = time.monotonic()
    said = 0.0
    last = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        for line in process.stdout:
            last = line.strip() or last
            elapsed = time.monotonic() - started
            if elapsed - said >= 2:
                progress(f"base tree {system.suite}: {last.removeprefix('I: ')} ({elapsed:.0f} s)")
                said = elapsed
    if process.returncode != 0:
        log = tree / "debootstrap" / "debootstrap.log"
        with contextlib.suppress(OSError, IndexError):
            last = log.read_text(errors="replace").strip().splitlines()[-1]
        raise LabError(f"base tree {system.suite}: debootstrap failed: {last}")
    shutil.rmtree(downloads)


def _configure(system: Os, tree: Path) -> None:
    """Make the fresh tree a lab host's: what is the same for every host."""
    _carry_apt(system, tree)
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "etc/machine-id").unlink(missing_ok=True)
    tools.write(tree / "etc/systemd/system/slipway-cgroups.service", files.REMOUNT_UNIT)
    tools.write(tree / "etc/ssh/sshd_config.d/10-slipway-lab.conf", files.SSHD)
    tools.write(tree / "etc/systemd/networkd.conf.d/10-slipway-lab.conf", files.NETWORKD)
    tools.write(tree / "etc/systemd/journald.conf.d/10-slipway-lab.conf", files.JOURNALD)
    for name in ("mnt/local", "srv/slipway/engines", "srv/slipway/images", "usr/lib/modules", "var/log/journal"):
        (tree / name).mkdir(parents=True, exist_ok=True)
    inside = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=SIGKILL",
        "chroot",
        str(tree),
        "/usr/bin/env",
        "-i",
    ]
    inside += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]
    tools.run([*inside, "systemctl", "enable", "slipway-cgroups.service", "systemd-networkd.service", "ssh.service"])
    tools.run([*inside, "systemctl", "mask", *_MASKED])
    tools.run([*inside, "update-ca-certificates"], timeout=300)
    tools.run([*inside, "apt-get", "update"], timeout=600)
    tools.run([*inside, "apt-get", "--yes", "upgrade"], timeout=1200)
    tools.run([*inside, "apt-get", "clean"])
    # Linker cache and journal catalogue are up to date: without these, every host makes them again at its first boot.
    tools.run([*inside, "journalctl", "--update-catalog"])
    for name in ("etc/.updated", "var/.updated"):
        tools.write(tree / name, "")


def _carry_apt(system: Os, tree: Path) -> None:
    """Let hosts get packages the way this machine does: its sources, proxy, credentials and extra authorities."""
    for authority in Path("/usr/local/share/ca-certificates").glob("**/*.crt"):
        tools.write(tree / authority.relative_to("/"), authority.read_bytes())
    tools.run(["cp", "--dereference", "/etc/resolv.conf", str(tree / "etc/resolv.conf")])
    if not shutil.which("apt-config"):
        return
    settings = files.carried_apt_settings(tools.run(["apt-config", "dump"]), dict(os.environ))
    tools.write(
        tree / "etc/apt/apt.conf.d/10-slipway-lab",
        f'{settings}Acquire::Languages "none";\nAPT::Install-Recommends "false";\n',
    )
    for name in (*files.named_files(settings), "/etc/apt/auth.conf"):
        if Path(name).is_file():
            tools.write(tree / name.lstrip("/"), Path(name).read_bytes(), Path(name).stat().st_mode & 0o777)
    for file in Path("/etc/apt/auth.conf.d").glob("*.conf"):
        tools.write(tree / file.relative_to("/"), file.read_bytes(), 0o600)
    if sources := _sources(system):
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        for name, text in sources.items():
            tools.write(tree / "etc/apt/sources.list.d" / name, text)


def sources(os_name: str) -> dict[str, str]:
    """Return the apt sources that hosts of an OS have: this machine's own, else debootstrap's: file name → content.

    Raises:
        LabError: no such OS; or this machine is not Debian, and the base tree, which has its sources, is not made yet.
    """
    system = _os(os_name)
    if own := _sources(system):
        return own
    made = folder(os_name) / "etc/apt/sources.list"
    if not made.is_file():
        raise LabError(
            f"{made}: is missing, and this machine has no Debian sources of its own; run first: ./slipway up"
        )
    return {"debian.list": files.adapt_one_line(made.read_text(), system.suite, system.suite)}


def _sources(system: Os) -> dict[str, str]:
    """Return this machine's own Debian sources moved to another release: file name → content; none if not Debian."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        return {}
    codename = release["VERSION_CODENAME"]
    found = {}
    for file in [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]:
        if not file.is_file() or file.suffix not in (".list", ".sources"):
            continue
        adapt = files.adapt_deb822 if file.suffix == ".sources" else files.adapt_one_line
        if text := adapt(file.read_text(), codename, system.suite):
            found[file.name] = text
    return found


def _mirror(system: Os) -> str:
    """Return the address of this machine's own Debian mirror, "" for debootstrap's default."""
    for text in _sources(system).values():
        for line in text.splitlines():
            words = line.split()
            if words[:1] == ["URIs:"]:
                return words[1]
            if words[:1] == ["deb"]:
                return words[2]
    return ""


def _os(name: str) -> Os:
    try:
        return OSES[name]
    except KeyError:
        raise LabError(f"the lab has no OS {name}; it has: {', '.join(OSES)}") from None
