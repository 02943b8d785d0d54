"""Where Slipway keeps things on the controller.

Two places outside the checkout, both made on first use:

* *home* holds what cannot be made again: Pulumi's state, its passphrase, the lab's hosts.
* *cache* holds what can: engines, the virtual environment, downloads, bundles, images.

`SLIPWAY_HOME` and `SLIPWAY_CACHE` move them. Every function returns an absolute path; none makes a
folder unless it says so.
"""

from __future__ import annotations

import os
from pathlib import Path

ENGINES_ON_HOST = Path("/srv/slipway/engines")
"""Where a lab host sees the controller's engines folder, read-only."""

IMAGES_ON_HOST = Path("/srv/slipway/images")
"""Where a lab host sees the controller's images folder, read-only."""


def root() -> Path:
    """Return the root of the checkout."""
    return Path(__file__).resolve().parents[2]


def home() -> Path:
    """Return the folder of what cannot be made again: state, passphrase, lab hosts."""
    return _place("SLIPWAY_HOME", Path("/var/lib/slipway"), Path("~/.local/state/slipway"))


def cache() -> Path:
    """Return the folder of what can be made again: engines, downloads, bundles, images."""
    return _place("SLIPWAY_CACHE", Path("/var/cache/slipway"), Path("~/.cache/slipway"))


def state() -> Path:
    """Return the folder of Pulumi's file backend."""
    return home() / "state"


def passphrase() -> Path:
    """Return the file (0600) with the passphrase that encrypts the secrets in Pulumi's state."""
    return home() / "passphrase"


def pulumi_home() -> Path:
    """Return the folder that Pulumi uses for its own settings (PULUMI_HOME)."""
    return home() / "pulumi"


def lab() -> Path:
    """Return the folder of the lab's hosts."""
    return home() / "lab"


def runs() -> Path:
    """Return the folder of logs and records of runs."""
    return home() / "runs"


def engines() -> Path:
    """Return the folder of all engines: `<name>/<version>-<digest12>/<file>`."""
    return cache() / "engines"


def engine(name: str) -> Path:
    """Return the folder of the newest complete build of one engine.

    Raises:
        FileNotFoundError: the engine is not there; the message says what to run.
    """
    link = engines() / name / "current"
    if not (link / "manifest.json").is_file():
        raise FileNotFoundError(f"engine {name} is missing in {engines()}; run: ./slipway engines")
    return link.resolve()


def downloads() -> Path:
    """Return the folder of downloaded release files, whole or half-done."""
    return cache() / "downloads"


def bundles() -> Path:
    """Return the folder of node bundles: `<digest>.tar.gz`."""
    return cache() / "bundles"


def images() -> Path:
    """Return the folder of OCI archives: `<name>-<version>-<digest12>.tar`."""
    return cache() / "images"


def lab_bases() -> Path:
    """Return the folder of the lab's base trees: `<os>-<digest>/`."""
    return cache() / "lab" / "base"


def locks() -> Path:
    """Return the folder of lock files, made if missing."""
    folder = cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def releases() -> Path:
    """Return the folder of release files: `<id>.yaml`."""
    return root() / "stacks" / "releases"


def _place(variable: str, for_root: Path, for_user: Path) -> Path:
    """Return the place that an environment variable names, else the usual one of this user."""
    if named := os.environ.get(variable):
        return Path(named).expanduser().absolute()
    return for_root if os.geteuid() == 0 else for_user.expanduser()
