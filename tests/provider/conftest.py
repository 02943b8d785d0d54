"""What the provider's tests share: a stack, and a lab host without one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import box
from probe import Project, standing
from slipway import paths
from slipway.fleet.lab import host as lab_host
from slipway.fleet.lab import network as lab_network


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The stack, not up yet; destroyed at the end."""
    project = Project(tmp_path_factory.mktemp("provider"))
    with standing(project, "probe-0", "probe-1"):
        yield project


@pytest.fixture(scope="package")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The SSH key that the box accepts."""
    file = tmp_path_factory.mktemp("ssh") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


@contextmanager
def home(folder: Path) -> Iterator[None]:
    """The lab's hosts are in a folder of the box's own: just now, not while other tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_HOME", str(folder))
        yield


@pytest.fixture(scope="package")
def known_hosts(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The box is up; the file with its pinned key."""
    folder = tmp_path_factory.mktemp("home")
    file = key.with_name("known_hosts")
    try:
        with home(folder):
            lab_network.ensure(box.NETWORK)
            public = key.with_suffix(".pub").read_text().strip()
            spec = lab_host.HostSpec(name="box", network=box.NETWORK.name, address=box.ADDRESS, authorized_key=public)
            state = lab_host.ensure(spec, progress=lambda _: None)
        file.write_text(f"{box.ADDRESS} {state.host_key}\n")
        yield file
    finally:
        with home(folder):
            lab_host.destroy(box.NETWORK.name, "box")
            lab_network.destroy(box.NETWORK.name)


@pytest.fixture(scope="package")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the box's role and our modules."""
    root = tmp_path_factory.mktemp("checkout")
    for name, text in {
        "playbooks/box.yml": box.PLAYBOOK,
        "roles/box/tasks/main.yml": box.TASKS,
        "roles/box/handlers/main.yml": box.HANDLERS,
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("library", "module_utils"):
        shutil.copytree(paths.root() / "playbooks" / name, root / "playbooks" / name)
    return root


@pytest.fixture
def controller(root: Path, key: Path, known_hosts: Path) -> Iterator[box.Controller]:
    """The box's controller."""
    # Paths of sockets are short: pytest's own folders are too deep.
    with tempfile.TemporaryDirectory(prefix="slipway-") as name:
        folder = Path(name)
        controller = box.Controller(folder, root, key, known_hosts)
        controller.on_host("rm -f /run/holding /run/go")
        yield controller
        controller.socket.close()
        for connection in folder.glob("?" * 40):
            subprocess.run(
                ["ssh", "-O", "exit", "-o", f"ControlPath={connection}", "-"], capture_output=True, check=False
            )
