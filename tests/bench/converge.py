"""What hosts cost the controller: CPU seconds and wall time of converges, reads and plays of thousands of hosts.

    python tests/bench/converge.py [--hosts 1,4,12] [--reads 600] [--synthetic 1000,7500] [--engine 7500]

Run it as root on a quiet machine after `eval "$(./slipway env)"`. It makes lab hosts of its own and takes them away
again. Parts:

* Lab hosts: a first run, a run with nothing to do and one after a changed line of a role, for each number of hosts;
  seconds a role; Mitogen's strategy and the plain one.
* Reads: one SSH connection a host, many times over: the constant of everything at no change.
* Synthetic hosts: a play of thousands through the provider, all but SSH real. Growth must be linear.
* Engine: the same through Pulumi itself. Each host is a real SSH connection, to one server that stands for all hosts.

Each figure comes from a process of its own, and counts all that it started. The constant a host is the slope between
the smallest and the largest number.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "infra"), str(ROOT / "tests")]

from bench import work  # noqa: E402
from probe import Project  # noqa: E402
from slipway.fleet.lab import host as lab_host  # noqa: E402
from slipway.fleet.lab import network as lab_network  # noqa: E402
from slipway.node import bundle  # noqa: E402
from slipway.provider.play_inputs import PlayInputs  # noqa: E402

NETWORK = lab_network.NetworkSpec(name="bench", cidr="10.93.0.0/24", bridge="slipway-bench")
PLAYBOOK = "- name: Bench\n  hosts: all\n  gather_facts: false\n  roles: [host, storage, pki]\n"
"""What every host gets before it becomes something: it needs no engines and no cluster."""

TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36

Figures = Mapping[str, Any]


class Checkout:
    """A copy of this checkout with the bench's playbook, in which a line of a role can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("infra", "playbooks", "roles"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "ansible.cfg", folder)
        (folder / "playbooks/bench.yml").write_text(PLAYBOOK)
        self.file = folder / "roles/host/tasks/main.yml"
        with self.file.open("a") as tasks:
            tasks.write(
                "- name: Write the file of the bench\n  slipway_files:\n    files:\n"
                "      - path: /etc/slipway-bench\n        content: |\n          line 0\n"
            )

    def change_a_line(self, number: int) -> None:
        """Change one line of one role."""
        text = self.file.read_text()
        self.file.write_text(text[: text.rindex("line ")] + f"line {number}\n")

    def play(self, hosts: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
        """Return the inputs of a play that brings the playbook to hosts."""
        return {
            "playbook": "bench",
            "hosts": list(hosts),
            "digest": bundle.playbook_digest("bench", self.folder),
            "release": "bench",
            "releaseDigest": "0" * 64,
            "sshKey": key,
            "vars": {"pki_authorities": {}, "pki_certificates": []},
        }

    def work(self, **job: Any) -> Figures:
        """Do a job in a process of its own."""
        done = subprocess.run(
            [sys.executable, ROOT / "tests/bench/work.py"],
            input=json.dumps(job),
            env=os.environ | {"PYTHONPATH": str(self.folder / "infra")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        figures: Figures = json.loads(done.stdout)
        return figures


@dataclass(frozen=True)
class Lab:
    """Lab hosts of the bench: the inputs of a play for each, and the key that they accept."""

    hosts: Sequence[Mapping[str, Any]]
    key: str

    def roles(self, number: int) -> dict[str, float]:
        """Return how long each role took in the last run on a host, seconds."""
        shown = subprocess.run(
            lab_host.shell(NETWORK.name, f"bench-{number}", ["cat", "/var/lib/slipway/manifest.json"]),
            capture_output=True,
            text=True,
            check=True,
        )
        return {name: role["seconds"] for name, role in json.loads(shown.stdout)["playbooks"]["bench"]["roles"].items()}


@contextlib.contextmanager
def lab(folder: Path, count: int) -> Iterator[Lab]:
    """Make lab hosts, and take them away at the end."""
    key, public = ssh_key(folder / "key")
    hosts = []
    lab_network.ensure(NETWORK)
    try:
        for number in range(count):
            spec = lab_host.HostSpec(
                name=f"bench-{number}",
                network=NETWORK.name,
                address=NETWORK.cidr.network_address + 10 + number,
                authorized_key=public,
            )
            made = lab_host.ensure(spec, progress=lambda _: None)
            hosts.append({"name": spec.name, "address": made.address, "hostKey": made.host_key})
        yield Lab(hosts, key)
    finally:
        for name in lab_host.names(NETWORK.name):
            lab_host.destroy(NETWORK.name, name)
        lab_network.destroy(NETWORK.name)


# -- parts -------------------------------------------------------------------------------------------------------------

FIRST, NOTHING, LINE, PLAIN = "first run", "nothing to do", "one line of a role", "the same, plain strategy"


def converges(checkout: Checkout, machines: Lab, counts: Sequence[int]) -> Iterator[Table]:
    """Converge new hosts, so many at a time: what it cost, and how long the roles took on one of them."""
    costs = Table("run", "hosts", "controller CPU s", "wall s", title="lab hosts: roles host, storage and pki")
    seconds: dict[str, dict[str, float]] = {}
    spent: dict[str, dict[int, float]] = {name: {} for name in (FIRST, NOTHING, LINE, PLAIN)}
    begin = 0
    for number, count in enumerate(counts, 1):
        state = None
        for run in spent:
            if run in (LINE, PLAIN):
                checkout.change_a_line(10 * number + (run == PLAIN))
            figures = checkout.work(
                what="converge",
                play=checkout.play(machines.hosts[begin : begin + count], machines.key),
                state=state,
                strategy="linear" if run == PLAIN else None,
            )
            state, used = figures["came"], figures["steps"]["converge"]
            spent[run][count] = used["cpu"]
            costs.add_row(run, str(count), f"{used['cpu']:.2f}", f"{used['wall']:.1f}")
            seconds[run] = machines.roles(begin)
        begin += count
    for run, cpu in spent.items():
        costs.add_row(f"[bold]{run}", "each", f"[bold]{slope(cpu):.3f}", "")
    yield costs
    names = list(seconds[FIRST])
    roles = Table("seconds on a host", *names, "all", title=f"the last of {counts[-1]} hosts side by side")
    for run, took in seconds.items():
        if run != NOTHING:
            roles.add_row(run, *(f"{took[name]:.1f}" for name in names), f"{sum(took.values()):.1f}")
    yield roles


def reads(checkout: Checkout, machines: Lab, times: int) -> tuple[float, Table]:
    """Read the hosts over and over; return CPU seconds a read, and a table."""
    figures = checkout.work(what="reads", play=checkout.play(machines.hosts, machines.key), times=times)
    came, used = figures["came"], figures["steps"]["read"]
    if came["failed"]:
        raise SystemExit(f"{len(came['failed'])} reads failed: {came['failed'][0]}")
    each = used["cpu"] / came["hosts"]
    table = Table("reads", "controller CPU s", "wall s", "CPU ms a read", title="one SSH connection a read")
    table.add_row(str(came["hosts"]), f"{used['cpu']:.2f}", f"{used['wall']:.1f}", f"[bold]{each * 1e3:.2f}")
    return each, table


def synthetic(checkout: Checkout, counts: Sequence[int], each_read: float) -> Table:
    """Take plays of hosts that nobody reaches through the provider; with the reads that they would cost."""
    table = Table("CPU s", *(f"{count} hosts" for count in counts), "ms a host", title="a play at no change, by digest")
    found = [checkout.work(what="synthetic", hosts=count) for count in counts]
    rows = {name: [one["steps"][name]["cpu"] for one in found] for name in found[0]["steps"]}
    ssh, start = "SSH of one read a host", "start of the provider"
    rows |= {ssh: [each_read * count for count in counts], start: [one["start"] for one in found]}
    for name, cpu in rows.items():
        each = "" if name == start else f"{slope(dict(zip(counts, cpu, strict=True))) * 1e3:.3f}"
        table.add_row(name, *(f"{seconds:.2f}" for seconds in cpu), each)
    for what, names in {
        "an up": ["up: check", "up: diff", start],
        "a refresh": ["refresh: read by digest", ssh, start],
        "an up that reads all": ["up: check", "up: diff", "up: make (all at their digest)", ssh, start],
    }.items():
        total = [sum(rows[name][index] for name in names) for index in range(len(counts))]
        table.add_row(f"[bold]{what}", *(f"[bold]{each:.1f}" for each in total), "")
    sizes = [f"{one['came']['state'] / 1e6:.1f}" for one in found]
    table.add_row("state, MB", *sizes, "")
    return table


def engine(folder: Path, count: int) -> Table:
    """Bring a play of so many hosts through Pulumi; each is a real SSH connection, to one server that is them all."""
    (folder / "engine").mkdir()
    project = Project(folder / "engine", overlay=ROOT / "tests/bench/project")
    table = Table("step", "provider CPU s", "engine and program CPU s", "wall s", title=f"{count} hosts through Pulumi")
    with answering(folder, work.declared(count, network=127)) as play:
        file = folder / "play.json"
        file.write_text(json.dumps(play))
        project.configure(play=str(file))
        for name, *command in (
            ("up that reads all", "up", "--yes", "--skip-preview"),
            ("preview at no change", "preview", "--expect-no-changes"),
            ("up at no change", "up", "--yes", "--skip-preview", "--expect-no-changes"),
            ("refresh by digest", "refresh", "--yes", "--skip-preview", "--expect-no-changes"),
        ):
            with Spent(project.home) as spent:
                project.pulumi(*command, timeout=3600)
            table.add_row(name, f"{spent.provider:.1f}", f"{spent.total - spent.provider:.1f}", f"{spent.wall:.1f}")
        if any(result["tasks"] for result in project.results().values()):
            raise SystemExit("hosts at their digest were run")
    return table


@contextlib.contextmanager
def answering(folder: Path, play: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Have all hosts of a play answered for; the play as it reaches them."""
    key, public = ssh_key(folder / "engine-key")
    digests = PlayInputs.model_validate(play).digests()
    job = {
        "authorized_key": public,
        "playbook": play["playbook"],
        "digests": {host["address"]: digests[host["name"]] for host in play["hosts"]},
    }
    (folder / "answering.json").write_text(json.dumps(job))
    with (
        (folder / "answering.json").open() as told,
        subprocess.Popen(
            [sys.executable, ROOT / "tests/bench/answering.py"],
            stdin=told,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT / "infra")},
        ) as server,
    ):
        assert server.stdout is not None
        try:
            where = json.loads(server.stdout.readline())
            reached = {"port": where["port"], "hostKey": where["host_key"]}
            yield {**play, "sshKey": key, "hosts": [host | reached for host in play["hosts"]]}
        finally:
            server.kill()


def ssh_key(file: Path) -> tuple[str, str]:
    """Make an SSH key; return its private and its public part."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file.read_text(), file.with_suffix(".pub").read_text().strip()


class Spent:
    """CPU and wall seconds of all that is started inside; those of our provider and its children also apart.

    Args:
        home: the home that the provider is given, by which it is told from others.
    """

    def __init__(self, home: Path) -> None:
        self._mark = f"SLIPWAY_HOME={home}\0".encode()

    def __enter__(self) -> Spent:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._end = threading.Event()
        self._seen: dict[str, float] = {}
        self._wall, self._cpu = time.monotonic(), children_cpu()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.monotonic() - self._wall
        self._end.set()
        self._thread.join()
        reap()
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)
        self.total = children_cpu() - self._cpu
        self.provider = sum(self._seen.values())

    def _watch(self) -> None:
        while not self._end.wait(0.1):
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):  # gone meanwhile
                    ours = self._mark in (process / "environ").read_bytes()
                    if ours and b"\0slipway.provider\0" in (process / "cmdline").read_bytes():
                        fields = (process / "stat").read_text().rpartition(")")[2].split()
                        self._seen[process.name] = sum(map(int, fields[11:15])) / TICKS


def children_cpu() -> float:
    """CPU seconds of ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap(seconds: float = 3.0) -> None:
    """Wait for orphans that come to us, such as the engine's plugins, which end a moment after it."""
    end = time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < end:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                time.sleep(0.1)


def slope(figures: Mapping[int, float]) -> float:
    """Return what one more host costs: between the smallest and the largest number of hosts."""
    few, many = min(figures), max(figures)
    return (figures[many] - figures[few]) / (many - few) if many > few else figures[few] / few


def machine() -> str:
    """Return the machine in a line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(": ")[2] if models else "unknown CPU"
    load = os.getloadavg()[0]
    return f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({model}), {memory:.0f} GiB, load {load:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description="What hosts cost the controller.")
    numbers = lambda text: [int(each) for each in text.split(",")]  # noqa: E731
    parser.add_argument("--hosts", type=numbers, default=[1, 4, 12], help="numbers of lab hosts, the smallest first")
    parser.add_argument("--reads", type=int, default=600, help="reads over SSH")
    parser.add_argument("--synthetic", type=numbers, default=[1000, 7500], help="numbers of synthetic hosts")
    parser.add_argument("--engine", type=int, default=7500, help="hosts of the play through Pulumi; 0 leaves it out")
    options = parser.parse_args(arguments)
    console = Console(width=130)
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        folder = Path(name)
        os.environ["SLIPWAY_HOME"] = str(folder / "home")
        checkout = Checkout(folder / "checkout")
        with lab(folder, sum(options.hosts)) as machines:
            for table in converges(checkout, machines, options.hosts):
                console.print(table)
            each, table = reads(checkout, machines, options.reads)
            console.print(table)
        console.print(synthetic(checkout, options.synthetic, each))
        if options.engine:
            console.print(engine(folder, options.engine))


if __name__ == "__main__":
    main()
