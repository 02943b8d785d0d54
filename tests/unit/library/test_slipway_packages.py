from __future__ import annotations

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
*) echo "E: Unable to locate package"; exit 100 ;;
esac
"""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with a dpkg status file and an apt-get that finds haproxy only with new package lists."""
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apt-get").write_text(APT_GET)
    (tmp_path / "bin/apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("APT_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("APT_STATUS", str(tmp_path / "status"))
    return tmp_path


def test_reads_what_is_fully_installed() -> None:
    assert slipway_packages.installed_versions(STATUS) == {"openssl": "3.5.1-1"}


def test_starts_nothing_when_all_is_there(host: Path) -> None:
    result = run(slipway_packages, packages=["openssl", "openssl=3.5.1-1"], status_file=str(host / "status"))
    assert not result["changed"]
    assert not (host / "log").exists()


def test_installs_with_new_lists(host: Path) -> None:
    wanted = {"packages": ["openssl", "haproxy=3.0.11-1"], "status_file": str(host / "status")}
    said = run(slipway_packages, check=True, **wanted)
    assert not (host / "log").exists()
    done = run(slipway_packages, **wanted)
    assert said["installed"] == done["installed"] == ["haproxy=3.0.11-1"]
    calls = (host / "log").read_text().splitlines()
    assert len(calls) == 3
    assert "DPkg::Lock::Timeout=600" in calls[0]
    assert "openssl" not in calls[0]
    assert not run(slipway_packages, **wanted)["changed"]


def test_another_version_than_asked_for_is_a_failure(host: Path) -> None:
    failed = run(slipway_packages, packages=["haproxy=9"], status_file=str(host / "status"))
    assert "haproxy=9: still not there" in failed["msg"]


def test_unknown_package(host: Path) -> None:
    failed = run(slipway_packages, packages=["nothing"], status_file=str(host / "status"))
    assert failed["msg"] == "nothing: apt-get fails: E: Unable to locate package"
