"""The pure parts of the lab: where control groups are, what is written into hosts, what hosts take over of apt."""

from __future__ import annotations

import ipaddress
import threading
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from pydantic import ValidationError

from slipway.fleet.lab import base, cgroups, files, host, machine, network, tools
from slipway.fleet.lab.errors import LabError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFU5nsgEBDLiU9+e/Bs9NXEIj/YX4izvf8EpggDqgNGj someone"

V1_MOUNTS = """\
27 1 254:0 / / rw - ext4 /dev/vda rw
30 23 0:25 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:27 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
V1_OWN = "4:memory:/jobs/7\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"


def test_layout_of_cgroup_v1_finds_each_hierarchy_and_our_group_in_it() -> None:
    found = cgroups.layout(V1_MOUNTS, V1_OWN)
    assert found.version == 1
    root = Path("/sys/fs/cgroup")
    assert found.groups == {
        root / "cpu,cpuacct": "",
        root / "memory": "/jobs/7",
        root / "systemd": "",
        root / "unified": "",
    }


def test_layout_of_cgroup_v2() -> None:
    mounts = "30 23 0:25 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    found = cgroups.layout(mounts, "0::/user.slice/session-1.scope\n")
    assert found.version == 2
    assert found.groups == {Path("/sys/fs/cgroup"): "/user.slice/session-1.scope"}


def test_layout_in_a_container_counts_from_what_is_mounted() -> None:
    mounts = "30 23 0:25 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    assert cgroups.layout(mounts, "4:memory:/docker/abc/x\n").groups == {Path("/sys/fs/cgroup/memory"): "/x"}
    assert cgroups.layout(mounts, "4:memory:/docker/abc\n").groups == {Path("/sys/fs/cgroup/memory"): ""}


def test_no_control_groups_is_one_line() -> None:
    with pytest.raises(LabError, match="no control groups"):
        cgroups.layout("27 1 254:0 / / rw - ext4 /dev/vda rw\n", "0::/\n")


def test_deb822_sources_move_to_another_suite() -> None:
    text = """\
Types: deb
# where it was taken from
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

Types: deb
URIs: https://elsewhere.example/node
Suites: nodistro
Components: main

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm-backports
Components: main
"""
    moved = files.adapt_deb822(text, "bookworm", "trixie")
    assert moved.count("Types: deb\n") == 2
    assert "Suites: trixie trixie-updates\nComponents: main contrib\n" in moved
    assert "Suites: trixie-security" in moved
    assert "bookworm" not in moved
    assert "elsewhere" not in moved


def test_one_line_sources_move_to_another_suite() -> None:
    text = """\
deb [arch=amd64 trusted=yes] http://mirror.example/debian bookworm main contrib
deb http://mirror.example/debian-security bookworm-security main
deb-src http://mirror.example/debian bookworm main
# deb http://mirror.example/debian bookworm-backports main
deb https://elsewhere.example stable main
"""
    keyring = f"[signed-by={files.KEYRING}]"
    assert files.adapt_one_line(text, "bookworm", "trixie").splitlines() == [
        f"deb {keyring} http://mirror.example/debian trixie main contrib",
        f"deb {keyring} http://mirror.example/debian-security trixie-security main",
    ]


def test_on_a_machine_that_is_not_debian_sources_are_those_of_the_base_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "ubuntu", "VERSION_CODENAME": "noble"})
    with pytest.raises(LabError, match=r"sources.list: is missing, .*; run first: ./slipway up$"):
        base.sources("debian13")
    made = base.folder("debian13") / "etc/apt/sources.list"
    made.parent.mkdir(parents=True)
    made.write_text("deb http://mirror.example/debian trixie main\n")
    wanted = f"deb [signed-by={files.KEYRING}] http://mirror.example/debian trixie main\n"
    assert base.sources("debian13") == {"debian.list": wanted}


def test_hosts_take_over_proxies_and_certificates_of_apt_and_nothing_else() -> None:
    dump = """\
Acquire "";
Acquire::Languages "none";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::http::Proxy::mirror.example "DIRECT";
Acquire::https::CaInfo "/etc/ssl/own.pem";
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::Packages::MetaKey "x";
DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";
"""
    settings = files.carried_apt_settings(
        dump, {"http_proxy": "http://other.example", "https_proxy": "http://p.example"}
    )
    assert settings.splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::http::Proxy::mirror.example "DIRECT";',
        'Acquire::https::CaInfo "/etc/ssl/own.pem";',
        'Acquire::Check-Valid-Until "false";',
        'Acquire::https::Proxy "http://p.example";',
    ]
    assert files.named_files(settings) == ["/etc/ssl/own.pem"]


def test_a_host_key_is_a_pair_and_does_not_show_its_secret() -> None:
    key = files.new_host_key()
    private = serialization.load_ssh_private_key(key.private.encode(), None)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    assert public.decode() == key.public
    assert "PRIVATE" not in repr(key)
    assert files.new_host_key().public != key.public


def test_name_servers_on_loopback_are_of_no_use_to_hosts() -> None:
    assert network.usable_servers("nameserver 127.0.0.53\noptions edns0\n") == []
    assert network.usable_servers("nameserver 127.0.0.1\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\n") == [
        "192.0.2.1"
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Upper"},
        {"name": "a/b"},
        {"name": ".."},
        {"address": "10.0.0.300"},
        {"authorized_key": "not a key"},
        {"authorized_key": f"{KEY}\nssh-ed25519 AAAA second"},
        {"colour": "red"},
    ],
)
def test_a_wrong_host_is_refused(wrong: dict[str, str]) -> None:
    right = {"name": "one", "network": "lab", "address": "10.0.0.3", "authorized_key": KEY}
    host.HostSpec.model_validate(right)
    with pytest.raises(ValidationError):
        host.HostSpec.model_validate(right | wrong)


def test_a_bridge_fits_the_kernel() -> None:
    with pytest.raises(ValidationError):
        network.NetworkSpec(name="lab", cidr=ipaddress.IPv4Network("10.0.0.0/24"), bridge="sixteen-letters-")


def test_an_unknown_os_names_those_there_are() -> None:
    with pytest.raises(LabError, match="debian13"):
        base.folder("plan9")


def test_a_base_tree_is_named_by_what_it_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    before = base.digest("debian13")
    assert before != base.digest("debian12")
    monkeypatch.setattr(files, "SSHD", files.SSHD + "# more\n")
    assert base.digest("debian13") != before


def test_a_lock_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        with tools.lock("something"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    tools.write(tmp_path / "new" / "file", "secret", 0o600)
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o600
    with pytest.raises(UnicodeEncodeError):
        tools.write(tmp_path / "new" / "file", "\udc80")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]
    assert (tmp_path / "new" / "file").read_text() == "secret"


def test_difference_says_what_came_and_went() -> None:
    before = machine.MachineState(mounts=("a", "b"), links=(), rules=(), processes=(), sysctls=("x = 0",), cgroups=())
    after = machine.MachineState(mounts=("b",), links=("br",), rules=(), processes=(), sysctls=("x = 1",), cgroups=())
    assert before.difference(before) == []
    assert before.difference(after) == ["mounts - a", "links + br", "sysctls - x = 0", "sysctls + x = 1"]
