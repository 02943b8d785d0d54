"""The environment in which `pulumi` finds Slipway's state, secrets, engines and Python.

`variables()` is pure; `prepare()` makes the few files that it speaks of.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from slipway import paths, private, writing
from slipway.artifacts import engines
from slipway.release import Release

PROGRAMS = {
    "pulumi": ("pulumi",),
    "pulumi-language-python": (
        "pulumi-language-python",
        "pulumi-language-python-exec",
        "pulumi-resource-pulumi-python",
    ),
    "kubernetes": ("kubectl",),
    "etcd": ("etcdctl", "etcdutl"),
}
"""What a user types, or Pulumi looks for, by name: engine and files."""

_KUBERNETES_PLUGIN = """\
#!/bin/sh
# The plugin writes the administrator's kubeconfig among the temporary files and leaves it there.
# So it gets a folder of its own, in memory; the next run removes those of plugins that have ended.
set -eu
for base in /run "${{XDG_RUNTIME_DIR-}}" /dev/shm "${{TMPDIR:-/tmp}}"; do
    [ -n "$base" ] && [ -w "$base" ] && break
done
TMPDIR=$base/{prefix}$$-kubernetes
export TMPDIR
rm -rf "$TMPDIR"
mkdir -m 0700 "$TMPDIR"
exec {program} "$@"
"""

UNSET = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_ACCESS_TOKEN", "PULUMI_STACK", "VIRTUAL_ENV", "PYTHONHOME")
"""Variables of other set-ups that would win over ours."""


class StateError(RuntimeError):
    """Pulumi's state cannot be used; one line."""


def variables(release: Release, path: str) -> dict[str, str]:
    """Return the variables to set.

    Args:
        release: decides which engines come first on PATH.
        path: PATH as it is now; folders of earlier calls are taken out.
    """
    ours = [str(Path(sys.prefix) / "bin"), str(programs(release))]
    cache = f"{paths.cache()}/"
    others = [folder for folder in path.split(os.pathsep) if folder and not folder.startswith(cache)]
    return {
        "PATH": os.pathsep.join([*ours, *others]),
        "PULUMI_BACKEND_URL": f"file://{paths.state()}",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(paths.passphrase()),
        "PULUMI_HOME": str(paths.pulumi_home()),
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        # A stack file without its salt (see slipway.stack) is no reason to make up a new key.
        "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
        "PULUMI_SUPPRESS_NEO_LINK": "true",
        "SLIPWAY_HOME": str(paths.home()),
        "SLIPWAY_CACHE": str(paths.cache()),
        "SLIPWAY_PYTHON": sys.executable,
    }


def merged(release: Release) -> dict[str, str]:
    """Return the whole environment for a child process."""
    kept = {name: value for name, value in os.environ.items() if name not in UNSET and name != "PYTHONPATH"}
    return kept | variables(release, os.environ.get("PATH", os.defpath))


def exports(release: Release) -> str:
    """Return shell lines for `eval`."""
    lines = [
        f"export {name}={shlex.quote(value)}"
        for name, value in variables(release, os.environ.get("PATH", os.defpath)).items()
    ]
    return "\n".join([f"unset {' '.join(UNSET)}", *lines])


def programs(release: Release) -> Path:
    """Return the folder for PATH, with the programs of a release side by side."""
    sources = [str(engines.folder(name, release)) for name in PROGRAMS]
    return paths.cache() / "programs" / hashlib.sha256("\n".join(sources).encode()).hexdigest()[:12]


def stacks() -> list[str]:
    """Return the names of the stacks that Pulumi's state has."""
    return sorted(file.stem for file in (paths.state() / ".pulumi" / "stacks").glob("*/*.json"))


def prepare(release: Release) -> None:
    """Make the folders of state, the passphrase (once), and the places where Pulumi finds its parts.

    The engines must be there.

    Raises:
        StateError: the passphrase of stacks that are there is gone.
    """
    paths.home().mkdir(parents=True, exist_ok=True)
    for folder in (paths.state(), paths.pulumi_home()):
        folder.mkdir(mode=0o700, exist_ok=True)
    _make_passphrase(paths.passphrase())
    _make_programs(release)
    _make_kubernetes_plugin(release)


def _make_kubernetes_plugin(release: Release) -> None:
    """Put the plugin where Pulumi looks: a script that starts it with a folder of its own for temporary files."""
    name = "pulumi-kubernetes"
    folder = paths.pulumi_home() / "plugins" / f"resource-kubernetes-v{release.version(name)}"
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "pulumi-resource-kubernetes"
    text = _KUBERNETES_PLUGIN.format(
        prefix=private.PREFIX, program=shlex.quote(str(engines.folder(name, release) / program.name))
    )
    if program.is_file() and not program.is_symlink() and program.read_text() == text:
        return
    writing.write(program, text, 0o755)


def _make_programs(release: Release) -> None:
    """Put the programs into one folder, as hard links where the file system can.

    Pulumi takes a language host that lies beside its own file without a word, and warns of one from elsewhere.
    """
    place = programs(release)
    if place.is_dir():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=place.parent))
    for name, files in PROGRAMS.items():
        for file in files:
            source = engines.folder(name, release) / file
            try:
                os.link(source, partial / file)
            except OSError:
                shutil.copy2(source, partial / file)
    partial.chmod(0o755)
    try:
        partial.rename(place)
    except OSError:  # another run was first
        shutil.rmtree(partial)


def _make_passphrase(path: Path) -> None:
    """Write a new passphrase, readable by its owner alone; never replace one that is there or that something needs."""
    if path.exists():
        return
    if known := stacks():
        raise StateError(
            f"{path} is gone, and the secrets of {', '.join(known)} are encrypted with it: put it back; "
            "without a backup see docs/trouble/passphrase-lost.md"
        )
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32) + "\n")
    try:
        os.link(fresh, path)  # fails when another run was first
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
