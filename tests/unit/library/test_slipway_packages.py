from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from library import slipway_packages

from unit.library.modules import run

STATUS = """\
Package: openssl
Status: install ok installed
Architecture: amd64
Version: 3.5.1-1

Package: haproxy
Status: deinstall ok config-files
Version: 2.6.1

Package: kmod
Status: install ok half-configured
Version: 34-1
"""

APT_GET = """\
#!/bin/sh
echo "$*" >> "$APT_LOG"
case "$*" in
*update*) touch "$APT_LOG.updated"; exit 0 ;;
*haproxy*)
  test -e "$APT_LOG.updated" || { echo "E: Unable to locate package haproxy"; exit 100; }
  printf '\\nPackage: haproxy\\nStatus: install ok installed\\nVersion: 3.0.11-1\\n' >> "$APT_STATUS" ;;
*chrony*)
  test -e "$APT_LOG.configured" || { echo "E: dpkg was interrupted, you must run 'dpkg --configure -a'"; exit 100; }
  printf '\\nPackage: chrony\\nStatus: install ok installed\\nVersion: 4.6\\n' >> "$APT_STATUS" ;;
*large*)
  echo "Need to get 0 B/2628 kB of archives."
  echo "After this operation, 7604 kB of additional disk space will be used."
  echo "dpkg: error: failed to write (No space left on device)"; exit 100 ;;
*busy*)
  echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4711 (apt)"; exit 100 ;;
*) echo "E: Unable to locate package"; exit 100 ;;
esac
"""


DPKG = """\
#!/bin/sh
test "$*" = "--force-confdef --force-confold --configure -a" && touch "$APT_LOG.configured"
"""
APT_MARK = """\
#!/bin/sh
echo "apt-mark $*" >> "$APT_LOG"
sed -i "/^Package: $2$/{n;s/install ok/hold ok/}" "$APT_STATUS"
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a dpkg status file and an apt-get that finds haproxy only with new package lists."""
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "bin").mkdir()
    for name, text in (("apt-get", APT_GET), ("dpkg", DPKG), ("apt-mark", APT_MARK)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "lock").touch()
    monkeypatch.setattr(slipway_packages, "LOCKS", (str(tmp_path / "missing"), str(tmp_path / "lock")))
    monkeypatch.setattr(slipway_packages, "POLL_SECONDS", 0.05)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("APT_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("APT_STATUS", str(tmp_path / "status"))
    return tmp_path


@pytest.fixture
def holder(host: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process has apt's lock."""
    script = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(1); input()"
    with subprocess.Popen(
        [sys.executable, "-uc", script, host / "lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_reads_what_is_fully_installed_and_held() -> None:
    assert slipway_packages.installed_packages(STATUS) == {"openssl": ("3.5.1-1", False)}
    assert slipway_packages.installed_packages(STATUS.replace("install ok", "hold ok")) == {
        "openssl": ("3.5.1-1", True)
    }


def test_starts_nothing_when_all_is_there(host: Path) -> None:
    result = run(slipway_packages, packages=["openssl"], status_file=str(host / "status"))
    assert not result["changed"]
    assert not (host / "log").exists()


def test_a_pinned_package_is_held(host: Path) -> None:
    wanted = {"packages": ["openssl=3.5.1-1"], "status_file": str(host / "status")}
    said = run(slipway_packages, check=True, **wanted)
    assert not (host / "log").exists()
    done = run(slipway_packages, **wanted)
    assert said["held"] == done["held"] == ["openssl"]
    assert done["installed"] == []
    assert done["diff"] == {"before": "openssl=3.5.1-1\n", "after": "openssl=3.5.1-1 held\n"}
    assert (host / "log").read_text() == "apt-mark hold openssl\n"
    assert not run(slipway_packages, **wanted)["changed"]


def test_installs_with_new_lists(host: Path) -> None:
    wanted = {"packages": ["openssl", "haproxy=3.0.11-1"], "status_file": str(host / "status")}
    said = run(slipway_packages, check=True, **wanted)
    assert not (host / "log").exists()
    done = run(slipway_packages, **wanted)
    assert said["installed"] == done["installed"] == ["haproxy=3.0.11-1"]
    calls = (host / "log").read_text().splitlines()
    assert len(calls) == 4
    assert "openssl" not in calls[0]
    assert calls[-1] == "apt-mark hold haproxy"
    assert not run(slipway_packages, **wanted)["changed"]


def test_another_version_than_asked_for_is_a_failure(host: Path) -> None:
    failed = run(slipway_packages, packages=["haproxy=9"], status_file=str(host / "status"))
    assert "haproxy=9: still not there" in failed["msg"]


def test_unknown_package(host: Path) -> None:
    failed = run(slipway_packages, packages=["nothing"], status_file=str(host / "status"))
    assert failed["msg"] == "nothing: apt-get fails: E: Unable to locate package"


def test_what_a_killed_dpkg_left_is_finished_first(host: Path) -> None:
    assert run(slipway_packages, packages=["chrony"], status_file=str(host / "status"))["installed"] == ["chrony"]


def test_a_full_disk_is_told_with_what_is_needed(host: Path) -> None:
    failed = run(slipway_packages, packages=["large"], status_file=str(host / "status"))
    assert re.fullmatch(r"no space left on /usr \(\d+ MiB free, 8 needed\); make room and run it again", failed["msg"])


def test_another_apt_is_waited_for(host: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def say_waiting(line: str) -> None:
        said.append(line)
        holder.kill()

    monkeypatch.setattr(slipway_packages, "say_waiting", say_waiting)
    assert run(slipway_packages, packages=["openssl=3.5.1-1"], status_file=str(host / "status"))["held"] == ["openssl"]
    (line,) = said
    assert line.startswith(f"waits for apt: {host}/lock is held by process {holder.pid} ({sys.executable}")


def test_another_apt_is_not_waited_for_without_end(host: Path, holder: subprocess.Popen[str]) -> None:
    began = time.monotonic()
    failed = run(slipway_packages, packages=["haproxy"], lock_seconds=1, status_file=str(host / "status"))
    assert 1 <= time.monotonic() - began < 5
    assert failed["msg"].startswith(f"apt is locked: {host}/lock is held by process {holder.pid} (")
    assert failed["msg"].endswith(", since more than 1 s; wait until it is done or end it, and run it again")
    assert not (host / "log").exists()


def test_who_takes_the_lock_between_look_and_start_is_waited_for_as_long(host: Path) -> None:
    failed = run(slipway_packages, packages=["busy"], lock_seconds=1, status_file=str(host / "status"))
    assert "It is held by process 4711 (apt)" in failed["msg"]
    assert len((host / "log").read_text().splitlines()) > 2
