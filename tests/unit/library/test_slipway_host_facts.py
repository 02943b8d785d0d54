from __future__ import annotations

import os
from pathlib import Path

from library import slipway_host_facts

from unit.library.modules import run


def write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_container_with_cgroup_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/1/status": "Name:\tsystemd\nCapBnd:\t000001fffeffffff\n",
            "proc/1/environ": "container=systemd-nspawn\0",
            "proc/meminfo": "MemTotal:       24576000 kB\nMemFree: 1 kB\n",
            "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n",
            "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
        },
    )
    facts = slipway_host_facts.collect(str(tmp_path))
    assert facts["cgroup_version"] == 1
    assert facts["container"]
    assert not facts["cap_sys_resource"]
    assert not facts["swap"]
    assert facts["memory_mib"] == 24000
    assert (facts["os_id"], facts["os_version"]) == ("debian", "13")


def test_machine_with_cgroup_2(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/1/status": "CapBnd:\t000001ffffffffff\n",
            "proc/swaps": "Filename\tType\n/dev/sda2\tpartition\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
        },
    )
    facts = slipway_host_facts.collect(str(tmp_path))
    assert facts["cgroup_version"] == 2
    assert facts["cap_sys_resource"]
    assert facts["swap"]
    assert not facts["container"]


def test_this_machine() -> None:
    result = run(slipway_host_facts)
    facts = result["ansible_facts"]["slipway_host"]
    assert facts["kernel"] == os.uname().release
    assert facts["cpus"] >= 1
    assert facts["memory_mib"] > 100
