"""Packages of a mirror: chosen and fetched by apt itself, put into a signed repository.

apt runs with a root of its own, so it can choose for another operating system and architecture than this machine's. It
starts from no installed package: what it takes is complete by itself.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import lzma
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pysequoia

from slipway import openpgp, paths, writing
from slipway.artifacts import download
from slipway.fleet.lab import base, files
from slipway.mirror.content import File, MirrorError, put, sha256
from slipway.mirror.key import Key
from slipway.node import role_meta
from slipway.release import Release, Repository, Target

_CONTROL = ".control"
"""Suffix of the file beside a package with its paragraph of the index."""

_EXACT = re.compile(r"Depends: ([a-z0-9][a-z0-9+.-]*)(?::\w+)? \(= ([^)]+)\)")
_INSTALLS = re.compile(r"^Inst (?P<name>\S+) .*\((?P<version>\S+) .*\[(?P<arch>\S+)\]\)", re.MULTILINE)


def role_packages(root: Path | None = None) -> list[str]:
    """Return the packages of the distribution that roles install, from `packages` of their `meta/slipway.yml`."""
    folder = (root or paths.root()) / "roles"
    return sorted({package for role in role_meta.load(folder).values() for package in role.packages})


def wanted(release: Release, target: Target) -> list[list[str]]:
    """Return what hosts of a kind install, as apt has it: what roles need and, for each platform, the pinned packages.

    Platforms may pin different versions of one package, so each is a list of its own.
    """
    platforms = {
        Target.parse(key)
        for component in release.components.values()
        for key in component.install
        if key.startswith(f"{target}/")
    }
    lists = []
    for kind in [target, *sorted(platforms, key=str)]:
        pinned = (component.at(kind) for component in release.components.values())
        exact = [f"{name}={package.version}" for one in pinned if one for name, package in one.packages.items()]
        lists.append([*role_packages(), *sorted(exact)])
    return lists


def fetch(release: Release, target: Target, work: Path) -> list[Path]:
    """Let apt choose and fetch the packages for a kind of host; what is there already is not fetched again.

    Args:
        release: what is pinned.
        target: the kind of host.
        work: apt's root, kept for the next time.

    Raises:
        MirrorError: a repository cannot be used, or apt finds no way.
    """
    environment = _root(work, target)
    _write_sources(release, target, work)
    _apt(["update"], environment, target)
    chosen: set[str] = set()
    for names in wanted(release, target):
        said = _simulate(names, environment, target, work)
        for match in _INSTALLS.finditer(said):
            chosen.add(f"{match['name']}_{match['version'].replace(':', '%3a')}_{match['arch']}.deb")
        _apt(["--download-only", "install", *names], environment, target)
    archives = work / "var/cache/apt/archives"
    return [archives / name for name in sorted(chosen)]


def _simulate(names: list[str], environment: Mapping[str, str], target: Target, work: Path) -> str:
    """Let apt say what it would install.

    It takes the newest version of what is not pinned, also where something pinned wants exactly an older one: then that
    one is asked for as well. Repositories with several branches of a GPU driver need this.
    """
    settled: dict[str, str] = {}
    while True:
        try:
            return _apt(["--simulate", "install", *names], environment, target)
        except MirrorError as error:
            exact = {name: version for name, version in _EXACT.findall(str(error)) if settled.get(name) != version}
            if not exact:
                raise
            settled |= exact
            pins = (
                f"Package: {name}\nPin: version {version}\nPin-Priority: 1002\n" for name, version in settled.items()
            )
            # Before all others: of several that fit the first one counts.
            (work / "etc/apt/preferences.d/00-exact").write_text("\n".join(pins))


def _root(work: Path, target: Target) -> dict[str, str]:
    """Make apt's root and return the environment that lets apt use it."""
    for folder in ("etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/apt.conf.d", "etc/apt/trusted.gpg.d"):
        shutil.rmtree(work / folder, ignore_errors=True)
        (work / folder).mkdir(parents=True)
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "var/lib/dpkg/status").write_text("")
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
    settings = {
        "Dir": f"{work}/",
        "Dir::State::status": f"{work}/var/lib/dpkg/status",
        "Dir::Etc::netrc": "/etc/apt/auth.conf",
        "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
        "APT::Architecture": target.arch,
        "APT::Install-Recommends": "false",
        "APT::Get::Assume-Yes": "true",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Dpkg::Use-Pty": "0",
    }
    text = "".join(f'{name} "{value}";\n' for name, value in settings.items())
    text += f'APT::Architectures {{ "{target.arch}"; }};\n'
    (work / "apt.conf").write_text(text + files.carried_apt_settings(dump, dict(os.environ)))
    return {
        **os.environ,
        "APT_CONFIG": str(work / "apt.conf"),
        "LC_ALL": "C.UTF-8",
        "DEBIAN_FRONTEND": "noninteractive",
    }


def _write_sources(release: Release, target: Target, work: Path) -> None:
    """Write the repositories of a release, and those of the distribution where the release leaves it to the machine."""
    parts, keys = work / "etc/apt/sources.list.d", work / "etc/apt/trusted.gpg.d"
    if target.os in base.OSES:
        for name, text in base.sources(target.os).items():
            (parts / name).write_text(text)
    for name, repository in release.repositories.items():
        if repository.source(target) is None:
            continue
        key = keys / f"{name}.asc"
        key.write_text(_key(name, repository))
        text = repository.deb822(target)
        (parts / f"{name}.sources").write_text(text.replace(f"Signed-By: {repository.signed_by}", f"Signed-By: {key}"))
        (work / "etc/apt/preferences.d" / name).write_text(_preferences(repository, target))
    if not any(parts.iterdir()):
        raise MirrorError(f"{target}: release {release.id} has no repository for it")


def _key(name: str, repository: Repository) -> str:
    if repository.fingerprint is None:
        raise MirrorError(
            f"repositories.{name}: the release has no fingerprint for its key; compare {repository.key} with what its "
            "publisher says and write `fingerprint`"
        )
    try:
        return str(openpgp.pick(download.read(repository.key).content, repository.fingerprint, repository.key))
    except (download.DownloadError, openpgp.SignatureError) as error:
        raise MirrorError(f"repositories.{name}: {error}") from None


def _preferences(repository: Repository, target: Target) -> str:
    """Return apt preferences: the packages that a repository owns come from there and from nowhere else."""
    source = repository.source(target)
    if source is None or not repository.owns:
        return ""
    names = " ".join(repository.owns)
    hosts = sorted({uri.split("/")[2].rpartition("@")[2].partition(":")[0] for uri in source.uris})
    ours = "".join(f'Package: {names}\nPin: origin "{host}"\nPin-Priority: 1001\n\n' for host in hosts)
    return f"{ours}Package: {names}\nPin: release *\nPin-Priority: -1\n"


def _apt(arguments: list[str], environment: Mapping[str, str], target: Target) -> str:
    done = subprocess.run(
        ["apt-get", "-q", *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    errors = [line for start in ("E:", "W: Failed", "Err:") for line in lines if line.startswith(start)]
    if done.returncode != 0 or (arguments == ["update"] and errors):
        unmet = [" ".join(line.split()) for line in lines if "Depends: " in line]
        said = "; ".join(dict.fromkeys([*errors[:2], *unmet])) or f"exit {done.returncode}"
        raise MirrorError(f"{target}: apt-get {arguments[-1] if arguments == ['update'] else 'install'}: {said}")
    return done.stdout


# -- the repository ----------------------------------------------------------------------------------------------------


def publish(folder: Path, target: Target, packages: Iterable[Path]) -> list[File]:
    """Put packages of one kind of host into the mirror's pool; return them as its files."""
    found = []
    for package in packages:
        digest = sha256(package)
        name = re.sub(r"_\d+%3a", "_", package.name)
        path = f"apt/pool/{target.os}/{digest[:12]}/{name}"
        place = folder / path
        size = package.stat().st_size
        if not place.exists() or place.stat().st_size != size:
            put(package, place)
        control = place.with_name(place.name + _CONTROL)
        if not control.exists():
            shown = subprocess.run(["dpkg-deb", "--field", str(place)], capture_output=True, text=True, check=True)
            known = f"Filename: {path.removeprefix('apt/')}\nSize: {size}\nSHA256: {digest}\n"
            control.write_text(shown.stdout.rstrip("\n") + "\n" + known)
        found.append(File(path=path, sha256=digest, size=size, source=f"apt {target.os}"))
    return found


def sign(folder: Path, release: str, packages: Iterable[File], key: Key) -> None:
    """Write the indices of a release's packages, a suite `<os>-<release>` for each operating system, and sign them.

    Hosts see what their release has and nothing else, so that apt has no newer version to prefer.
    """
    suites: dict[str, dict[str, list[str]]] = {}
    for package in packages:
        place = folder / package.path
        text = place.with_name(place.name + _CONTROL).read_text()
        arch = re.search(r"^Architecture: (\S+)$", text, re.MULTILINE)
        index = suites.setdefault(place.parents[1].name, {"amd64": [], "arm64": []})
        for name in index if arch is None or arch[1] == "all" else [arch[1]]:
            index[name].append(text)
    for name, index in suites.items():
        written = {arch: "\n".join(texts).encode() for arch, texts in index.items() if texts}
        _write_suite(folder / f"apt/dists/{name}-{release}", written, key)


def _write_suite(suite: Path, indices: Mapping[str, bytes], key: Key) -> None:
    listed = []
    for arch, text in indices.items():
        index = suite / f"main/binary-{arch}"
        packed = lzma.compress(text, preset=1)
        for name, content in {"Packages": text, "Packages.xz": packed}.items():
            digest = hashlib.sha256(content).hexdigest()
            listed.append(f" {digest} {len(content)} main/binary-{arch}/{name}")
            writing.write(index / "by-hash/SHA256" / digest, content)
            writing.write(index / name, content)
    fields = {
        "Origin": "Slipway",
        "Label": "Slipway mirror",
        "Suite": suite.name,
        "Codename": suite.name,
        "Date": dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S UTC"),
        "Acquire-By-Hash": "yes",
        "Architectures": " ".join(indices),
        "Components": "main",
    }
    head = "".join(f"{name}: {value}\n" for name, value in fields.items())
    writing.write(suite / "InRelease", key.clear(f"{head}SHA256:\n{chr(10).join(listed)}\n".encode()))


def faults(suite: Path, key: pysequoia.Cert) -> list[str]:
    """Return a line for each index of a suite that is not what the key signed."""
    signed = suite / "InRelease"
    try:
        text = openpgp.content(signed.read_bytes(), key, str(signed)).decode()
    except FileNotFoundError:
        return [f"{signed}: is missing"]
    except openpgp.SignatureError as error:
        return [str(error)]
    found = []
    for digest, _, name in re.findall(r"^ (\S+) (\d+) (\S+)$", text, re.MULTILINE):
        index = suite / name
        if not index.is_file():
            found.append(f"{index}: is missing")
        elif (got := sha256(index)) != digest:
            found.append(f"{index}: wanted sha256 {digest}, got {got}")
    return found
