"""Hosts of the lab by themselves, without a cluster: three of them, in a network of their own."""

from __future__ import annotations

import concurrent.futures
import ipaddress
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.fleet.lab import host, network
from slipway.fleet.lab.errors import LabError
from slipway.fleet.lab.machine import MachineState, machine_state

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="hosts need root")]

NETWORK = network.NetworkSpec(name="test", cidr=ipaddress.IPv4Network("10.213.95.0/24"), bridge="slipway-test")
NAMES = ("one", "two", "three")


class Fleet:
    """Three hosts and a key that opens them."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "key"
        self.known_hosts = folder / "known_hosts"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)

    def spec(self, name: str) -> host.HostSpec:
        return host.HostSpec(
            name=name,
            network=NETWORK.name,
            address=NETWORK.cidr[10 + NAMES.index(name)],
            authorized_key=self.key.with_suffix(".pub").read_text().strip(),
        )

    def up(self) -> None:
        network.ensure(NETWORK)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            states = list(pool.map(lambda name: host.ensure(self.spec(name)), NAMES))
        self.known_hosts.write_text("".join(f"{state.address} {state.host_key}\n" for state in states))

    def ssh(self, name: str, command: str, *, check: bool = True, key: Path | None = None) -> str:
        options = {
            "UserKnownHostsFile": self.known_hosts,
            "StrictHostKeyChecking": "yes",
            "IdentitiesOnly": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": "10",
        }
        flags = [part for option, value in options.items() for part in ("-o", f"{option}={value}")]
        target = f"root@{self.spec(name).address}"
        done = subprocess.run(
            ["ssh", "-F", "none", "-i", str(key or self.key), *flags, target, command], capture_output=True, text=True
        )
        if check and done.returncode:
            raise AssertionError(f"{name}: {command}: exit {done.returncode}: {done.stderr}")
        return done.stdout.strip()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> MachineState:
    del tmp_path_factory
    return machine_state()


@pytest.fixture(scope="module")
def fleet(before: MachineState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    del before  # asked for so that it is taken first
    hosts = Fleet(tmp_path_factory.mktemp("fleet"))
    hosts.up()
    yield hosts
    _destroy()


def _destroy() -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: host.destroy(NETWORK.name, name), NAMES))
    network.destroy(NETWORK.name)


def _leader(name: str) -> int:
    state = host.inspect(NETWORK.name, name)
    assert state is not None
    assert state.leader is not None
    return state.leader


def test_hosts_run_and_are_who_they_are(fleet: Fleet) -> None:
    for name in NAMES:
        assert fleet.ssh(name, "hostname") == name
        assert fleet.ssh(name, "systemctl is-system-running --wait") == "running"
    ids = {fleet.ssh(name, "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub") for name in NAMES}
    assert len(ids) == len(NAMES)


def test_only_the_key_opens_a_host(fleet: Fleet, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    assert fleet.ssh("one", "true", check=False, key=tmp_path / "other") == ""
    settings = fleet.ssh("one", "sshd -T").splitlines()
    assert "passwordauthentication no" in settings
    assert "kbdinteractiveauthentication no" in settings
    assert "hostkey /etc/ssh/ssh_host_ed25519_key" in settings
    modes = fleet.ssh(
        "one", "stat -c '%a %U' /etc/ssh/ssh_host_ed25519_key /root/.ssh/authorized_keys /root/.ssh /root /"
    )
    assert modes.splitlines() == ["600 root", "600 root", "700 root", "700 root", "755 root"]


def test_hosts_reach_each_other_and_the_way_out(fleet: Fleet) -> None:
    assert fleet.ssh("one", f"head -c 4 </dev/tcp/{fleet.spec('two').address}/22") == "SSH-"
    assert fleet.ssh("one", "ip -4 route show default").startswith(f"default via {NETWORK.gateway}")


def test_packages_can_be_installed_without_an_update(fleet: Fleet) -> None:
    fleet.ssh("two", "apt-get install --yes ethtool && ethtool --version")


def test_a_host_has_its_own_network_settings_and_not_the_machines_others(fleet: Fleet) -> None:
    fleet.ssh("one", "sysctl -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0")
    assert fleet.ssh("two", "cat /proc/sys/net/ipv4/conf/all/rp_filter") != ""
    assert fleet.ssh("one", "sysctl -w vm.swappiness=1 2>/dev/null || echo refused") == "refused"
    assert fleet.ssh("one", "date -s 2001-01-01 >/dev/null 2>&1 || echo refused") == "refused"
    assert fleet.ssh("one", "cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic").split() == ["1", "10"]


def test_what_container_runtimes_need_works(fleet: Fleet) -> None:
    fleet.ssh("one", "unshare --mount --pid --fork --net true")
    fleet.ssh(
        "one",
        "cd /mnt/local && mkdir -p l u w m && mount -t overlay -o lowerdir=l,upperdir=u,workdir=w x m && umount m",
    )
    fleet.ssh("one", "nft add table ip t && nft 'add chain ip t c { type nat hook postrouting priority 100; }'")
    fleet.ssh("one", "nft add rule ip t c masquerade && nft delete table ip t && ip link add b0 type bridge")
    fleet.ssh("one", "ip netns add pod && ip link add v0 type veth peer name v1 netns pod && ip netns delete pod")
    fleet.ssh("one", "test -w /dev/kmsg")
    group = "/sys/fs/cgroup/memory/t" if Path("/sys/fs/cgroup/memory").is_dir() else "/sys/fs/cgroup/t"
    fleet.ssh("one", f"mkdir {group} && rmdir {group}")


def test_hosts_do_not_see_each_others_control_groups(fleet: Fleet) -> None:
    root = Path("/sys/fs/cgroup/pids") if Path("/sys/fs/cgroup/pids").is_dir() else Path("/sys/fs/cgroup")
    fleet.ssh("one", f"mkdir {root}/only-one")
    assert fleet.ssh("two", f"test -d {root}/only-one || echo none") == "none"
    fleet.ssh("one", f"rmdir {root}/only-one")
    # A unit of one host has processes of that host only.
    assert fleet.ssh("two", "systemctl kill --signal=TERM systemd-logind; sleep 1; systemctl is-active ssh") == "active"
    assert fleet.ssh("one", "systemctl show -P NRestarts systemd-logind") == "0"


def test_the_local_ssd_is_the_hosts_own(fleet: Fleet) -> None:
    fleet.ssh("one", "echo kept >/mnt/local/file")
    assert (host.folder(NETWORK.name, "one") / "ssd/file").read_text() == "kept\n"
    assert fleet.ssh("two", "ls /mnt/local/file 2>/dev/null || echo none") == "none"


def test_a_host_comes_back_from_a_reboot(fleet: Fleet) -> None:
    leader = _leader("one")
    fleet.ssh("one", "echo kept >/root/file; systemctl reboot", check=False)
    deadline = time.monotonic() + 60
    while True:
        state = host.inspect(NETWORK.name, "one")
        assert state is not None
        if state.leader not in (leader, None):
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    host.wait(NETWORK.name, "one")
    assert fleet.ssh("one", "cat /root/file /mnt/local/file").split() == ["kept", "kept"]


@pytest.mark.parametrize("victim", ["supervisor", "systemd-nspawn", "systemd"])
def test_a_killed_host_starts_again_with_its_data(fleet: Fleet, victim: str) -> None:
    leader = _leader("two")
    fleet.ssh("two", "echo kept >/root/file; sync")
    nspawn = _parent(leader)
    os.kill({"supervisor": _parent(nspawn), "systemd-nspawn": nspawn, "systemd": leader}[victim], signal.SIGKILL)
    deadline = time.monotonic() + 20
    while True:
        state = host.inspect(NETWORK.name, "two")
        assert state is not None
        if not state.running:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    host.start(NETWORK.name, "two")
    assert _leader("two") != leader
    assert fleet.ssh("two", "cat /root/file; systemctl is-system-running --wait").split() == ["kept", "running"]


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_stop_powers_off_and_start_goes_on(fleet: Fleet) -> None:
    fleet.ssh("three", "echo kept >/root/file")
    host.stop(NETWORK.name, "three")
    state = host.inspect(NETWORK.name, "three")
    assert state is not None
    assert not state.running
    journal = subprocess.run(
        host.logs(NETWORK.name, "three", ["--no-pager", "-n", "200"]), capture_output=True, text=True, check=True
    ).stdout
    assert "Power-Off" in journal or "Powering off" in journal or "Journal stopped" in journal
    with pytest.raises(LabError, match="slipway lab start"):
        host.shell(NETWORK.name, "three", [])
    host.start(NETWORK.name, "three")
    assert fleet.ssh("three", "cat /root/file") == "kept"


def test_a_shell_needs_no_ssh(fleet: Fleet) -> None:
    del fleet
    command = host.shell(NETWORK.name, "three", ["sh", "-c", "hostname; pwd; cat /proc/1/comm; echo $HOME"])
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["three", "/root", "systemd", "/root"]


def test_ensure_adopts_what_is_there(fleet: Fleet) -> None:
    leader = _leader("three")
    state = host.ensure(fleet.spec("three"))
    assert state.leader == leader
    host.stop(NETWORK.name, "three")
    assert host.ensure(fleet.spec("three")).host_key == state.host_key
    assert fleet.ssh("three", "cat /root/file") == "kept"


def test_ensure_lets_another_key_in(fleet: Fleet, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    key = other.with_suffix(".pub").read_text().strip()
    leader = _leader("three")
    host.ensure(fleet.spec("three").model_copy(update={"authorized_key": key}))
    assert _leader("three") == leader
    assert fleet.ssh("three", "hostname", key=other) == "three"
    host.ensure(fleet.spec("three"))
    assert fleet.ssh("three", "hostname") == "three"


def test_another_host_of_the_same_name_is_refused(fleet: Fleet) -> None:
    with pytest.raises(LabError, match="slipway lab destroy test/three"):
        host.ensure(fleet.spec("three").model_copy(update={"address": NETWORK.cidr[99]}))


def test_an_address_of_another_host_is_refused(fleet: Fleet) -> None:
    with pytest.raises(LabError, match="is host one's"):
        host.ensure(fleet.spec("three").model_copy(update={"name": "four", "address": fleet.spec("one").address}))
    assert host.inspect(NETWORK.name, "four") is None


def test_a_half_made_host_is_made_anew(fleet: Fleet) -> None:
    host.stop(NETWORK.name, "three")
    (host.folder(NETWORK.name, "three") / "host.json").unlink()
    host.ensure(fleet.spec("three"))
    fleet.up()
    assert fleet.ssh("three", "cat /root/file 2>/dev/null || echo fresh") == "fresh"


def test_a_lost_bridge_is_mended(fleet: Fleet) -> None:
    """As after a reboot of the machine: nothing is left but folders."""
    for name in NAMES:
        host.stop(NETWORK.name, name)
    subprocess.run(["ip", "link", "delete", NETWORK.bridge], check=True)
    subprocess.run(["nft", "delete", "table", "ip", "slipway-lab-test"], check=True)
    for name in NAMES:
        host.start(NETWORK.name, name)
        assert fleet.ssh(name, "hostname") == name


def test_a_bridge_lost_under_running_hosts_gets_their_links_back(fleet: Fleet) -> None:
    subprocess.run(["ip", "link", "delete", NETWORK.bridge], check=True)
    assert network.ensure(NETWORK).up
    for name in NAMES:
        assert fleet.ssh(name, "hostname") == name


def test_a_network_with_hosts_stays(fleet: Fleet) -> None:
    del fleet
    with pytest.raises(LabError, match="still has hosts"):
        network.destroy(NETWORK.name)


def test_overlapping_networks_are_refused(fleet: Fleet) -> None:
    del fleet
    with pytest.raises(LabError, match=r"overlaps 10\.213\.95\.0/24"):
        network.ensure(
            network.NetworkSpec(name="other", cidr=ipaddress.IPv4Network("10.213.95.128/25"), bridge="slipway-other")
        )


def test_destroy_leaves_nothing(before: MachineState, fleet: Fleet) -> None:
    del fleet
    _destroy()
    assert before.difference(machine_state()) == []
    assert network.inspect(NETWORK.name) is None
    assert not network.folder(NETWORK.name).exists()
    _destroy()  # again: nothing to do, and no error
