"""Bundles: everything a host needs to converge itself, in two archives named by their digest.

* *runtime*: ansible-core, Mitogen and what they import, pure Python, taken from the packages that are installed here.
* *content*: roles, playbooks, their plugins, the runner and its settings.

A host keeps each bundle unpacked in `/var/lib/slipway/bundles/<digest>/`; a digest never changes its content, so a
bundle is sent once. The archives are reproducible: sorted names, no times, no owners.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from slipway import paths, writing
from slipway.node import role_meta
from slipway.node import slim as slim_module

RUNTIME_DISTRIBUTIONS = ("ansible-core", "mitogen", "jinja2", "markupsafe", "PyYAML", "packaging")
"""What runs on a host. resolvelib and cryptography are for Galaxy and Vault, which a host does not use."""

_RUNTIME_LEFT_OUT = (
    "ansible/galaxy/",
    "ansible/cli/adhoc.py",
    "ansible/cli/config.py",
    "ansible/cli/console.py",
    "ansible/cli/doc.py",
    "ansible/cli/galaxy.py",
    "ansible/cli/inventory.py",
    "ansible/cli/pull.py",
    "ansible/cli/vault.py",
    "ansible_test/",
)

_CONTENT_FOLDERS = ("roles", "playbooks")
_CONTENT_LEFT_OUT = ("playbooks/controller/",)
_SHARED_PLUGINS = ("library", "module_utils", "filter_plugins", "action_plugins", "lookup_plugins", "test_plugins")
_HOST_FILES = Path(__file__).parent / "host"
"""The runner and what Ansible loads of ours on the host."""


class BundleError(Exception):
    """A bundle cannot be made; the message is one line."""


@dataclass(frozen=True)
class Bundle:
    """One archive: sha256 of the tar.gz in hex, and where it lies here."""

    digest: str
    path: str


@dataclass(frozen=True)
class Bundles:
    """The two archives that a host needs."""

    runtime: Bundle
    content: Bundle

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return `{"runtime": {"digest", "path"}, "content": {…}}`, as the converge action takes it."""
        return asdict(self)


def ensure(root: Path | None = None) -> Bundles:
    """Make the bundles of a checkout where they are missing and return them; some milliseconds when nothing changed.

    Args:
        root: the checkout; default this one.

    Raises:
        BundleError: a package is not installed, or a folder of the checkout is missing.
    """
    return Bundles(runtime=_runtime(), content=_content(root or paths.root()))


def playbook_digest(playbook: str, root: Path | None = None) -> str:
    """Return the digest of what one playbook runs: itself, the roles it uses, and the plugins all roles share.

    Args:
        playbook: its name without folder and suffix, such as `etcd`.
        root: the checkout; default this one.

    Raises:
        BundleError: the playbook or a role does not exist.
    """
    base = root or paths.root()
    wanted = playbook_roles(playbook, base)
    plugins = tuple(f"playbooks/{folder}/" for folder in _SHARED_PLUGINS)
    prefixes = (*plugins, *(f"roles/{role}/" for role in wanted))
    files = {
        name: data
        for name, data in _content_files(base)
        if name.startswith(prefixes) or name in {f"playbooks/{each}.yml" for each in _playbooks(playbook, base)}
    }
    return _digest_of(files)


def playbook_roles(playbook: str, root: Path | None = None) -> list[str]:
    """Return the roles that a playbook uses, dependencies and included roles too, sorted.

    Raises:
        BundleError: the playbook or a role does not exist.
    """
    base = root or paths.root()
    found: set[str] = set()
    waiting: list[str] = []
    for each in _playbooks(playbook, base):
        waiting += _roles_named_in(_load(base / "playbooks" / f"{each}.yml"))
    while waiting:
        role = waiting.pop()
        if role in found:
            continue
        folder = base / "roles" / role
        if not folder.is_dir():
            raise BundleError(f"playbooks/{playbook}.yml: role {role} not found in roles/")
        found.add(role)
        for file in sorted([*folder.glob("tasks/*.yml"), *folder.glob("handlers/*.yml")]):
            waiting += _roles_named_in(_load(file))
        meta = _load(folder / "meta" / "main.yml") if (folder / "meta" / "main.yml").is_file() else {}
        waiting += [_role_name(each) for each in (meta or {}).get("dependencies", [])]
    return sorted(found)


# -- runtime -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _runtime() -> Bundle:
    """Return the runtime bundle of the installed packages, made if the cache lacks it."""
    versions = {}
    for name in RUNTIME_DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise BundleError(f"package {name} is not installed here; run: ./slipway doctor") from error
    # The two modules that choose and change files count as well as the packages' versions.
    makers = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in (__file__, slim_module.__file__)]
    key = hashlib.sha256(json.dumps([makers, versions], sort_keys=True).encode()).hexdigest()[:16]
    note = paths.bundles() / f"runtime-{key}.json"
    try:
        kept = Bundle(**json.loads(note.read_text()))
        if Path(kept.path).is_file():
            return kept
    except (OSError, ValueError, TypeError):
        pass  # no note yet, or a torn one: make the bundle again
    made = _store(_runtime_files())
    writing.write(note, json.dumps(asdict(made)).encode())
    return made


def _runtime_files() -> dict[str, bytes]:
    """Return the files of the runtime: pure Python and its data, without compiled and unused parts."""
    files: dict[str, bytes] = {}
    for name in RUNTIME_DISTRIBUTIONS:
        for file in importlib.metadata.files(name) or []:
            relative = PurePosixPath(file).as_posix()
            if relative.startswith(("..", "/")) or "__pycache__/" in relative:
                continue
            if ".dist-info/" in relative and not relative.endswith("/METADATA"):  # Ansible asks for versions
                continue
            if relative.endswith((".so", ".pyc", ".pyi", ".pyx", ".pxd", ".c", ".ps1", ".md")):
                continue
            if relative.startswith(_RUNTIME_LEFT_OUT):
                continue
            files[relative] = slim_module.slim(relative, Path(str(file.locate())).read_bytes())
    return files


# -- content -----------------------------------------------------------------------------------------------------------


def _content(root: Path) -> Bundle:
    """Return the content bundle of a checkout, made if the cache lacks it."""
    files = dict(_content_files(root))
    if not any(name.startswith("playbooks/") for name in files):
        raise BundleError(f"no playbooks in {root}")
    for package in ("slipway", "slipway/node"):
        files[f"{package}/__init__.py"] = b""
    for file in sorted(_HOST_FILES.rglob("*.py")):
        files[f"slipway/node/host/{file.relative_to(_HOST_FILES).as_posix()}"] = file.read_bytes()
    files["slipway_node.py"] = files.pop("slipway/node/host/launch.py")
    files["ansible.cfg"] = (_HOST_FILES / "ansible.cfg").read_bytes()
    try:
        about_roles = role_meta.index(role_meta.load(root / "roles"))
    except role_meta.RoleMetaError as error:
        raise BundleError(str(error)) from None
    index = {"roles": _role_digests(files), **about_roles}
    files["index.json"] = json.dumps(index, sort_keys=True, indent=1).encode()
    return _store(files)


def _content_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield (path below root, content) of roles and playbooks, sorted."""
    for folder in _CONTENT_FOLDERS:
        for directory, folders, names in os.walk(root / folder):
            folders[:] = sorted(each for each in folders if each != "__pycache__" and not each.startswith("."))
            for name in sorted(names):
                path = Path(directory, name)
                relative = path.relative_to(root).as_posix()
                if (
                    name.startswith(".")
                    or name.endswith((".pyc", ".swp", "~"))
                    or relative.startswith(_CONTENT_LEFT_OUT)
                ):
                    continue
                yield relative, path.read_bytes()


def _role_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the digest of each role's files, for the manifest that a host keeps."""
    roles: dict[str, dict[str, bytes]] = {}
    for name, data in files.items():
        if name.startswith("roles/"):
            _, role, inner = name.split("/", 2)
            roles.setdefault(role, {})[inner] = data
    return {role: _digest_of(inner) for role, inner in sorted(roles.items())}


def _playbooks(playbook: str, root: Path) -> list[str]:
    """Return a playbook and those it imports, by name."""
    found: list[str] = []
    waiting = [playbook]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        file = root / "playbooks" / f"{name}.yml"
        if not file.is_file():
            raise BundleError(f"playbooks/{name}.yml not found; known: {', '.join(_known_playbooks(root)) or 'none'}")
        found.append(name)
        for play in _load(file) or []:
            imported = play.get("import_playbook", play.get("ansible.builtin.import_playbook"))
            if imported:
                waiting.append(PurePosixPath(str(imported)).stem)
    return found


def _known_playbooks(root: Path) -> list[str]:
    return sorted(file.stem for file in (root / "playbooks").glob("*.yml"))


def _roles_named_in(node: Any) -> list[str]:
    """Return the roles that plays or tasks name, however deep in blocks."""
    names: list[str] = []
    if isinstance(node, list):
        for each in node:
            names += _roles_named_in(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key == "roles" and isinstance(value, list):
                names += [_role_name(each) for each in value]
            elif str(key).removeprefix("ansible.builtin.") in {"import_role", "include_role"}:
                names.append(_role_name(value))
            elif key in {"tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"}:
                names += _roles_named_in(value)
    return names


def _role_name(entry: Any) -> str:
    return str(entry.get("role", entry.get("name"))) if isinstance(entry, dict) else str(entry)


def _load(file: Path) -> Any:
    try:
        return yaml.load(file.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - safe both
    except yaml.YAMLError as error:
        raise BundleError(f"{file}: not YAML: {' '.join(str(error).split())}") from error


# -- archives ----------------------------------------------------------------------------------------------------------


def _digest_of(files: Mapping[str, bytes]) -> str:
    """Return one digest of names and contents."""
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\0{hashlib.sha256(files[name]).hexdigest()}\n".encode())
    return total.hexdigest()


def _store(files: Mapping[str, bytes]) -> Bundle:
    """Write files as a reproducible archive into the cache, unless one of the same files is there."""
    folder = paths.bundles()
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / f"files-{_digest_of(files)[:32]}.json"
    try:
        kept = Bundle(**json.loads(note.read_text()))
        if Path(kept.path).is_file():
            return kept
    except (OSError, ValueError, TypeError):
        pass
    data = pack(files)
    digest = hashlib.sha256(data).hexdigest()
    archive = folder / f"{digest}.tar.gz"
    writing.write(archive, data)
    made = Bundle(digest=digest, path=str(archive))
    writing.write(note, json.dumps(asdict(made)).encode())
    return made


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a tar.gz of files that depends on nothing but their names and contents."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for folder in sorted(_parents(files)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return packed.getvalue()


def _parents(names: Iterable[str]) -> set[str]:
    return {str(folder) for name in names for folder in PurePosixPath(name).parents if str(folder) != "."}
