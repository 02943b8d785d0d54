"""The script `slipway`: any folder, any way to call it, two at once. A stand-in for Python makes it quick."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from slipway import paths

FAKE_PYTHON = r"""#!/bin/sh
# Stands in for python3: knows -V, makes a "venv" that is this script, counts installs, and shows how the CLI is called.
case $1 in
-V) echo "Python ${FAKE_VERSION:-3.12.1}" ;;
-c) exit 0 ;;
-m)
    case $2 in
    venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    pip) echo install >>"$FAKE_LOG"; sleep "${FAKE_SLOW:-0}"; exit "${FAKE_PIP:-0}" ;;
    esac ;;
-P) shift 3; printf 'PYTHONPATH=%s\n' "$PYTHONPATH"; for one; do printf '<%s>\n' "$one"; done ;;
esac
"""


class Checkout:
    """A copy of what the script needs, in a folder with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a check out"
        (self.root / "infra").mkdir(parents=True)
        script = (paths.root() / "slipway").read_text()
        python = folder / "fake python"
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)
        # The stand-in takes the place of the system's Python.
        (self.root / "slipway").write_text(script.replace("in /usr/bin/python3 ", f"in '{python}' "))
        (self.root / "slipway").chmod(0o755)
        (self.root / "requirements.lock").write_text("one==1\n")
        self.log = folder / "log"
        self.cache = folder / "the cache"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SLIPWAY_CACHE": str(self.cache),
            "FAKE_LOG": str(self.log),
        }

    def run(self, *command: str, cwd: Path | None = None, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command or (str(self.root / "slipway"), "version"),
            cwd=cwd,
            env={**self.environment, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    @property
    def installs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_hands_over_every_argument(checkout: Checkout) -> None:
    done = checkout.run(str(checkout.root / "slipway"), "two words", "", "--x=$HOME")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"PYTHONPATH={checkout.root}/infra\n<two words>\n<>\n<--x=$HOME>\n"


def test_second_run_says_and_installs_nothing(checkout: Checkout) -> None:
    assert "making the Python environment" in checkout.run().stderr
    assert checkout.run().stderr == ""
    assert checkout.installs == 1


def test_from_elsewhere_and_through_links(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "link one").symlink_to("a check out/slipway")
    (tmp_path / "link two").symlink_to(tmp_path / "link one")
    wanted = checkout.run().stdout
    assert checkout.run(str(tmp_path / "link two"), "version", cwd=Path("/")).stdout == wanted
    assert checkout.run("./link one", "version", cwd=tmp_path).stdout == wanted
    assert checkout.run("sh", "slipway", "version", cwd=checkout.root).stdout == wanted
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "slipway").symlink_to(checkout.root / "slipway")
    searched = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    assert checkout.run("sh", "-c", "slipway version", cwd=tmp_path, PATH=searched).stdout == wanted


def test_changed_lock_file_makes_a_new_environment(checkout: Checkout) -> None:
    checkout.run()
    (checkout.root / "requirements.lock").write_text("one==2\n")
    checkout.run()
    assert checkout.installs == 2


def test_another_python_makes_a_new_environment(checkout: Checkout) -> None:
    checkout.run()
    checkout.run(FAKE_VERSION="3.13.0")
    assert checkout.installs == 2


def test_half_made_environment_is_made_again(checkout: Checkout) -> None:
    failed = checkout.run(FAKE_PIP="1")
    assert failed.returncode == 2
    assert failed.stderr.splitlines()[-1].startswith("slipway: pip could not install requirements.lock")
    (venv,) = (path for path in (checkout.cache / "venv").iterdir() if path.is_dir())
    (venv / "left over").touch()
    assert checkout.run().returncode == 0
    assert not (venv / "left over").exists()


def test_two_runs_at_once_make_one_environment(checkout: Checkout) -> None:
    command = [str(checkout.root / "slipway"), "version"]
    environment = {**checkout.environment, "FAKE_SLOW": "0.5"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen(command, env=environment, **pipes) for _ in range(3)]  # type: ignore[call-overload]
    said = [run.communicate(timeout=60)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert checkout.installs == 1
    assert sum("waiting for another run" in text for text in said) == 2


def test_wrong_python_version_is_passed_over(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "dirname", "readlink", "id", "cat", "sha256sum"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    done = checkout.run(str(checkout.root / "slipway"), "version", PATH=str(tools), FAKE_VERSION="3.9.2")
    assert done.returncode == 2
    assert done.stderr == ("slipway: missing: python3 python3-venv ; install them by hand (there is no apt here)\n")


def test_fast_path_is_quick(checkout: Checkout) -> None:
    """The best of ten, so that a busy machine does not fail it."""
    checkout.run()
    spans = []
    for _ in range(10):
        begun = time.perf_counter()
        checkout.run()
        spans.append(time.perf_counter() - begun)
    assert min(spans) < 0.05


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash")
def test_is_plain_sh() -> None:
    assert subprocess.run(["dash", "-n", str(paths.root() / "slipway")]).returncode == 0
    assert (paths.root() / "slipway").read_text().startswith("#!/bin/sh\n")
