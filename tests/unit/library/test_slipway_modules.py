"""Kernel modules, with played files of the kernel and of modprobe's folder: no machine of the tests loads any."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from library import slipway_modules

from unit.library.modules import run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the drop-in is root's")

MODINFO = """\
#!/bin/sh
cat "$PLAYED/modinfo/$1" 2>/dev/null || { echo "modinfo: ERROR: Module $1 not found." >&2; exit 1; }
"""
MODPROBE = """\
#!/bin/sh
echo "$*" >> "$PLAYED/log"
case $1 in
--remove) rm -r "$PLAYED/sys/$2"; exit ;;
--all) shift ;;
esac
for module in "$@"; do
  test -e "$PLAYED/modinfo/$module" || { echo "modprobe: FATAL: Module $module not found in directory" >&2; exit 1; }
  mkdir -p "$PLAYED/sys/$module/holders"
  echo live > "$PLAYED/sys/$module/initstate"
  echo 0 > "$PLAYED/sys/$module/refcnt"
  sed -n 's/^version: *//p' "$PLAYED/modinfo/$module" > "$PLAYED/sys/$module/version"
  sed -n 's/^srcversion: *//p' "$PLAYED/modinfo/$module" > "$PLAYED/sys/$module/srcversion"
done
"""


class Machine:
    """A machine whose kernel has `overlay` built in, and nothing loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "lib" / os.uname().release).mkdir(parents=True)
        for name in ("bin", "modinfo", "sys/overlay"):
            (folder / name).mkdir(parents=True)
        for name, text in (("modinfo", MODINFO), ("modprobe", MODPROBE)):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)

    def install(self, module: str, version: str, srcversion: str) -> None:
        text = f"filename:       /lib/{module}.ko.xz\n"
        text += f"version:        {version}\n" if version else ""
        text += f"srcversion:     {srcversion}\n" if srcversion else ""
        (self.folder / "modinfo" / module).write_text(text)

    def show(self, module: str, file: str) -> str:
        return (self.folder / "sys" / module / file).read_text().strip()

    def log(self) -> list[str]:
        file = self.folder / "log"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, *modules: str, check: bool = False) -> dict[str, Any]:
        return run(
            slipway_modules,
            check=check,
            name="test",
            modules=list(modules),
            directory=str(self.folder / "modules-load.d"),
            sysfs=str(self.folder / "sys"),
            installed=str(self.folder / "lib"),
        )


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("PLAYED", str(tmp_path))
    monkeypatch.setattr(slipway_modules, "CAP_SYS_MODULE", 0)  # root has CAP_CHOWN wherever tests run
    machine.install("nvidia", "570.86.15", "AAAA")
    machine.install("nf_conntrack", "", "CCCC")
    return machine


def test_what_is_missing_is_loaded_now_and_at_boot(machine: Machine) -> None:
    said = machine.run("overlay", "nf_conntrack", "nvidia", check=True)
    assert machine.log() == []
    assert not (machine.folder / "modules-load.d").exists()
    done = machine.run("overlay", "nf_conntrack", "nvidia")
    assert said["changed_modules"] == done["changed_modules"] == ["nf_conntrack", "nvidia"]
    assert machine.log() == ["--all nf_conntrack nvidia"]
    drop_in = machine.folder / "modules-load.d/90-slipway-test.conf"
    assert drop_in.read_text() == "overlay\nnf_conntrack\nnvidia\n"
    assert not machine.run("overlay", "nf_conntrack", "nvidia")["changed"]


@pytest.mark.parametrize(("version", "srcversion"), [("580.95.05", "BBBB"), ("570.86.15", "BBBB"), ("580.95.05", "")])
def test_a_module_that_is_not_the_one_installed_is_loaded_anew(machine: Machine, version: str, srcversion: str) -> None:
    machine.run("nvidia")
    machine.install("nvidia", version, srcversion)
    said = machine.run("nvidia", check=True)
    assert said["changed_modules"] == ["nvidia"]
    assert said["diff"][1]["before"] == "nvidia 570.86.15 (srcversion AAAA)\n"
    assert said["diff"][1]["after"].startswith(f"nvidia {version}")
    assert machine.show("nvidia", "version") == "570.86.15"
    assert machine.run("nvidia")["changed_modules"] == ["nvidia"]
    assert machine.show("nvidia", "version") == version
    assert not machine.run("nvidia")["changed"]


def test_one_in_use_is_left_and_its_users_are_named(machine: Machine) -> None:
    machine.run("nvidia")
    machine.install("nvidia", "580.95.05", "BBBB")
    (machine.folder / "sys/nvidia/holders/nvidia_uvm").mkdir()
    assert machine.run("nvidia", check=True)["changed"]
    failed = machine.run("nvidia")
    assert failed["msg"] == (
        "kernel modules of test: nvidia is loaded in version 570.86.15 (srcversion AAAA), installed in 580.95.05 "
        "(srcversion BBBB), and in use by nvidia_uvm; reboot the host to change it"
    )
    (machine.folder / "sys/nvidia/holders/nvidia_uvm").rmdir()
    (machine.folder / "sys/nvidia/refcnt").write_text("2\n")
    assert "in use by 2 users; reboot" in machine.run("nvidia")["msg"]
    assert machine.show("nvidia", "version") == "570.86.15"


def test_a_module_that_nothing_installed_is_said(machine: Machine) -> None:
    failed = machine.run("mlx5_core")
    assert failed["msg"] == (
        "kernel modules of test: modprobe --all mlx5_core: modprobe: FATAL: Module mlx5_core not found in directory; "
        "expected the module from the kernel's or a driver's package"
    )


def test_where_no_modules_can_be_loaded_there_is_nothing_to_do(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "lib" / os.uname().release).rmdir()
    said = machine.run("nvidia")
    assert not said["changed"]
    assert said["msg"].startswith("not applicable: this kernel has no modules (")
    monkeypatch.setattr(slipway_modules, "CAP_SYS_MODULE", 63)  # which nobody has
    assert machine.run("nvidia")["msg"] == "not applicable: kernel modules belong to the machine around this host"
    assert not (machine.folder / "modules-load.d").exists()
