"""What a stack file may say.

`load(path)` reads `config: {slipway:cluster: {...}}` of a Pulumi stack file and returns a frozen `Cluster`;
`parse(data, where)` does the same for the value alone. Everything wrong is reported at once in one `SpecError`, a line
each, with the path in the file. Cloud-neutral above `fleet`. Reads nothing but the stack file; knows neither Pulumi nor
Ansible.
"""

from __future__ import annotations

import datetime as dt
import difflib
import ipaddress
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from slipway import documents

CONFIG_KEY = "slipway:cluster"

GROUPS = ("etcd", "etcd_events", "apiservers", "load_balancers")
"""Groups of fixed hosts, in the order in which they are built. Pools come after them."""

_NAME = r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$"
_LABEL_KEY = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$"
_LABEL_VALUE = r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$"
_FLAG = r"^[a-z][a-z0-9-]*$"
_RULE = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
_UPSTREAM = r"^[A-Za-z0-9.:/_-]+( [A-Za-z0-9.:/_-]+)*$"
_WEB = r"^https?://[^\s/]+(/\S*)?$"
_FINGERPRINT = r"^[0-9A-F]{40}$"
_NO_PROXY = r"^[A-Za-z0-9.*:/_-]+$"
_CERTIFICATE = r"^-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+\n-----END CERTIFICATE-----\n*$"
_EXPECTED = {
    _WEB: "an address that begins with http:// or https://",
    _FINGERPRINT: "a fingerprint: 40 upper-case hexadecimal digits",
    _NO_PROXY: "a host, a domain such as .example.com or a network",
    _CERTIFICATE: "one certificate in PEM",
    _NAME: "a name of at most 20 lower-case letters, digits and -, beginning with a letter",
    _LABEL_KEY: "a label key such as example.com/team",
    _LABEL_VALUE: "a label value: at most 63 letters, digits, -, _ and ., or nothing",
    _FLAG: "a flag without its dashes",
    _RULE: "the id of a rule, such as fabric-manager-version",
    _UPSTREAM: "addresses or a file, with single spaces between",
}
"""What a pattern means, for people."""

Name = Annotated[str, Field(pattern=_NAME)]
"""A DNS label of at most 20 characters, so that `<cluster>-<pool>-<number>` stays within 63."""

LabelKey = Annotated[str, Field(pattern=_LABEL_KEY)]
LabelValue = Annotated[str, Field(pattern=_LABEL_VALUE)]

Flag = Annotated[str, Field(pattern=_FLAG)]
"""A program's flag without its dashes."""

Upstream = Annotated[str, Field(pattern=_UPSTREAM)]
"""Words that CoreDNS takes as addresses or a file: nothing that would end its line."""


def _network(value: object) -> ipaddress.IPv4Network:
    if isinstance(value, ipaddress.IPv4Network):
        return value
    return ipaddress.IPv4Network(str(value), strict=True)


def _date(value: object) -> dt.date:
    # Pulumi hands a day of a stack file on as a text with a time: 2027-01-31 00:00:00 +0000 UTC.
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    try:
        return dt.date.fromisoformat(str(value)[:10])
    except ValueError:
        raise ValueError("expected a day such as 2027-01-31") from None


Web = Annotated[str, Field(pattern=_WEB)]
"""An address of a web server."""

Cidr = Annotated[ipaddress.IPv4Network, BeforeValidator(_network), PlainSerializer(str)]
Address = Annotated[ipaddress.IPv4Address, PlainSerializer(str)]
Date = Annotated[dt.date, BeforeValidator(_date), PlainSerializer(str)]


class SpecError(Exception):
    """Something in a stack file is not allowed. `problems` holds one line each: what, where, what was expected."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class LabFleet(_Model):
    """Hosts are systemd containers on this machine, joined by the Linux bridge `bridge` (at most 15 characters)."""

    kind: Literal["lab"] = Field(description="where the machines come from")
    os: Literal["debian13"] = Field(default="debian13", description="operating system of the hosts")
    bridge: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,14}$")] | None = Field(
        default=None, description="name of the Linux bridge, at most 15 characters; `slipway-<name>` when left out"
    )


class Network(_Model):
    """Address plan. `pod_prefix` is the prefix length of one node's pod network."""

    hosts: Cidr = Field(description="network of the hosts, a /24 or larger; its first address is the gateway")
    pods: Cidr = Field(description="network of all pods")
    services: Cidr = Field(
        description="network of Services, /12 to /26; its first address is the API, its tenth the cluster DNS"
    )
    pod_prefix: int = Field(default=24, ge=16, le=28, description="prefix length of one node's pod network")
    domain: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")] = Field(
        default="cluster.local", description="DNS domain of the cluster"
    )
    pod_network: Literal["routed", "none"] = Field(
        default="routed", description="`routed`: BIRD announces pod networks by BGP; `none`: you bring a CNI"
    )
    bgp_as: int = Field(default=64512, ge=64512, le=65534, description="private AS number of the routed pod network")

    @property
    def cluster_dns(self) -> ipaddress.IPv4Address:
        """The tenth address of the service network, by custom."""
        return self.services[10]

    @property
    def kubernetes_service(self) -> ipaddress.IPv4Address:
        """The first address of the service network: the Service `kubernetes`."""
        return self.services[1]


class EtcdGroup(_Model):
    """An etcd cluster on hosts of its own. `quota_bytes`: 8 GiB is the largest that etcd suggests."""

    count: int = Field(ge=1, le=7, description="members, an odd number")
    quota_bytes: int = Field(
        default=8 * 1024**3,
        ge=256 * 1024**2,
        le=8 * 1024**3,
        description="size of the database at which writes are refused, bytes",
    )
    snapshot_count: int = Field(default=10_000, ge=1_000, description="writes between two snapshots of a member")
    heartbeat_ms: int = Field(default=100, ge=10, le=5_000, description="time between a leader's heartbeats, ms")
    election_ms: int = Field(
        default=1_000,
        ge=100,
        le=50_000,
        description="silence after which members elect a leader, ms; five heartbeats or more",
    )
    failure_domains: list[Name] = Field(
        default_factory=list, description="failure domain (zone, rack, power feed) of each member in order, if known"
    )


class ApiServers(_Model):
    """API server hosts. `flags` are added to the API server's and win over ours."""

    count: int = Field(ge=1, le=9, description="hosts with an API server, a controller manager and a scheduler")
    flags: dict[Flag, str] = Field(
        default_factory=dict, description="more flags of kube-apiserver, without dashes; they win over Slipway's"
    )


class LoadBalancers(_Model):
    """Hosts with haproxy before the API servers; the routed pod network's route reflector is there too."""

    count: int = Field(default=1, ge=1, le=1, description="hosts with haproxy; one, for now")


class Taint(_Model):
    """A taint that a pool's nodes register with."""

    key: LabelKey = Field(description="key of the taint")
    value: LabelValue = Field(default="", description="value of the taint")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        description="what happens to pods that do not tolerate it"
    )

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


class Budget(_Model):
    """How many hosts of a pool may fail, or not be reached, before no other wave begins: none when nothing is given."""

    hosts: int | None = Field(default=None, ge=0, description="so many")
    percent: int | None = Field(
        default=None, ge=0, le=100, description="a share of the pool's hosts, rounded down; the lower limit counts"
    )


class Rollout(_Model):
    """How changes come to hosts. What a pool does not set itself in `pools[].rollout` is as here.

    Waves are for pools; members of etcd and API servers go one at a time. Only running hosts count: new ones serve
    nobody yet.
    """

    preview: Literal["check", "sample", "digest"] | None = Field(
        default=None,
        description="how previews and refreshes look at hosts: `check` runs the roles in check mode on each, `sample` "
        "on two a pool, `digest` only reads each host's manifest; if not given, `check` for plays of up to 20 hosts, "
        "else `digest`",
    )
    canary: int = Field(default=1, ge=1, description="hosts in the first wave; when one fails, no other wave begins")
    growth: int = Field(default=2, ge=1, description="how many times larger each wave may be than the one before")
    hosts: int = Field(default=50, ge=1, le=5_000, description="hosts in the largest wave")
    percent: int = Field(
        default=100, ge=1, le=100, description="the same as a share of the pool's hosts; the lower limit counts"
    )
    budget: Budget = Field(default_factory=Budget, description="how many hosts may fail before it stops")
    reboot_seconds: int = Field(
        default=1200, ge=30, le=7200, description="how long a host may take to be back from a reboot, s"
    )

    def of(self, pool: Pool) -> Rollout:
        """Return how changes come to the hosts of a pool: what it sets itself goes before."""
        return self.model_copy(update={name: value for name, value in pool.rollout if value not in (None, Budget())})


class PoolRollout(_Model):
    """How changes come to the hosts of this pool; what is left out is as in `rollout`."""

    canary: int | None = Field(default=None, ge=1, description="hosts in the first wave")
    growth: int | None = Field(default=None, ge=1, description="how many times larger each wave may be")
    hosts: int | None = Field(default=None, ge=1, le=5_000, description="hosts in the largest wave")
    percent: int | None = Field(default=None, ge=1, le=100, description="the same as a share of the pool's hosts")
    budget: Budget = Field(default_factory=Budget, description="how many hosts may fail before it stops")


class Gpu(_Model):
    """How a pool's GPUs are used. Today this is only checked against driver, CUDA and fabric: no role sets it yet."""

    mig: str | None = Field(default=None, description="MIG layout, such as `all-1g.18gb`; whole GPUs if not given")
    gpudirect: Literal["none", "dma-buf", "peermem"] = Field(
        default="none", description="how network adapters reach GPU memory"
    )
    rdma: Literal["doca", "inbox", "none"] | None = Field(
        default=None, description="RDMA modules; `doca` on InfiniBand, else `none`, if not given"
    )
    coherent_memory: Literal["driver", "numa"] = Field(
        default="driver", description="of Grace: who manages GPU memory (`NVreg_CoherentGPUMemoryMode`)"
    )


class Pool(_Model):
    """Machines of one kind that run pods. `max_pods` must fit into one node's pod network."""

    name: Name = Field(description="name of the pool; its hosts are `<cluster>-<pool>-<number>`")
    count: int = Field(ge=0, le=5_000, description="nodes")
    platform: str = Field(
        default="generic",
        description="machine type, one of `infra/slipway/platforms/machines.yaml`; the label `slipway.dev/platform`",
    )
    max_pods: int = Field(default=110, ge=8, le=250, description="pods on one node; they must fit into its pod network")
    drain_seconds: int = Field(
        default=300, ge=0, le=86_400, description="how long a node's pods may take to go before its host leaves, s"
    )
    kubelet: dict[str, Any] = Field(
        default_factory=dict,
        description="more fields of KubeletConfiguration, which win over Slipway's; nodes are drained for a change",
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="labels that nodes get when they register"
    )
    taints: list[Taint] = Field(default_factory=list, description="taints that nodes get when they register")
    failure_domains: int = Field(
        default=0,
        ge=0,
        le=64,
        description="failure domains that hosts are dealt out to, by their number; a rollout finishes one before the "
        "next. The label `topology.kubernetes.io/zone` of nodes that register; 0: all hosts share one without a name",
    )
    unit_size: int = Field(
        default=0,
        ge=0,
        le=1_000,
        description="so many hosts with neighbouring numbers are a unit, such as an NVLink rack: a rollout changes "
        "them together. The label `slipway.dev/unit` of nodes that register; 0: each host on its own",
    )
    rollout: PoolRollout = Field(default_factory=PoolRollout, description="how changes come to this pool's hosts")
    gpu: Gpu = Field(default_factory=Gpu, description="how its GPUs are used")
    secure_boot: bool = Field(default=False, description="its machines take signed kernel modules only")
    fabric: Name | None = Field(
        default=None, description="RDMA fabric, shared by all pools that name it; that of its platform if not given"
    )


class CoreDns(_Model):
    """`nodes_per_replica`: one CoreDNS pod for that many nodes, never fewer than `min_replicas`."""

    min_replicas: int = Field(
        default=2, ge=1, le=100, description="fewest CoreDNS pods, but never more than one a node"
    )
    max_replicas: int = Field(default=50, ge=1, le=500, description="most CoreDNS pods")
    nodes_per_replica: int = Field(default=100, ge=1, description="one CoreDNS pod for so many nodes")
    forward_to: Upstream = Field(
        default="/etc/resolv.conf", description="upstream: addresses, or a resolv.conf of the node"
    )


class Addons(_Model):
    """What runs in the cluster."""

    coredns: CoreDns = Field(default_factory=CoreDns, description="cluster DNS")


class Waiver(_Model):
    """Lets an error of `slipway check` pass until a day; after that the waiver itself is an error."""

    rule: Annotated[str, Field(pattern=_RULE)] = Field(description="id of the rule, as `slipway check` shows it")
    reason: Annotated[str, Field(min_length=10)] = Field(description="why it may pass, for those who read it later")
    until: Date = Field(description="last day, such as 2027-01-31")


class Mirror(_Model):
    """A mirror that `slipway mirror build` made, served by any web server.

    Hosts and the controller then take packages, programs and images from it and from nowhere else.
    """

    url: Web = Field(description="its address, such as `http://10.0.0.5:8080`")
    fingerprint: Annotated[str, Field(pattern=_FINGERPRINT)] = Field(
        description="fingerprint of its key, as `mirror build` prints it"
    )


class Outside(_Model):
    """The way to what is outside: for hosts' packages and images, and for what the controller downloads."""

    http_proxy: Web | None = Field(default=None, description="proxy for `http://` addresses")
    https_proxy: Web | None = Field(default=None, description="proxy for `https://` addresses")
    no_proxy: list[Annotated[str, Field(pattern=_NO_PROXY)]] = Field(
        default_factory=list, description="hosts, domains and networks without proxy; the cluster's own are added"
    )
    authorities: list[Annotated[str, Field(pattern=_CERTIFICATE)]] = Field(
        default_factory=list,
        max_length=8,
        description="certificates (PEM) of private authorities that hosts and controller trust besides the public ones",
    )
    addresses: dict[Web, Web] = Field(
        default_factory=dict,
        description="beginnings of publishers' addresses, and what to ask instead; digests stay those of the release",
    )


class Cluster(_Model):
    """One cluster: the whole of what a stack file declares."""

    name: Name = Field(description="name of the cluster; the first part of every host's name")
    release: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")] = Field(
        description="release file `stacks/releases/<release>.yaml` that pins every version"
    )
    fleet: LabFleet = Field(description="where the machines come from")
    network: Network = Field(description="addresses")
    etcd: EtcdGroup = Field(description="the main etcd cluster")
    etcd_events: EtcdGroup = Field(description="the etcd cluster of events")
    apiservers: ApiServers = Field(description="API server hosts")
    load_balancers: LoadBalancers = Field(
        default_factory=LoadBalancers, description="haproxy before the API servers, and the route reflector"
    )
    pools: list[Pool] = Field(
        default_factory=list, description="node pools, at most eight; add new ones at the end, so that no host moves"
    )
    addons: Addons = Field(default_factory=Addons, description="what runs in the cluster")
    rollout: Rollout = Field(default_factory=Rollout, description="how changes come to hosts")
    waivers: list[Waiver] = Field(default_factory=list, description="rules that may be broken for a while")
    mirror: Mirror | None = Field(default=None, description="where everything comes from; publishers if not given")
    upstream: Outside = Field(default_factory=Outside, description="proxies, private authorities, other addresses")

    @property
    def nodes(self) -> int:
        """Declared nodes of all pools together."""
        return sum(pool.count for pool in self.pools)


def load(path: Path) -> Cluster:
    """Read the stack file `path`, which is called `Pulumi.<stack>.yaml`. Raises SpecError."""
    where = documents.shown(path)
    return parse(_declaration(path, where), where, _stack(path))


def read(path: Path) -> Cluster:
    """Read a stack file without judging it by any rule: for those who report what the rules find. Raises SpecError."""
    where = documents.shown(path)
    return _validated(_declaration(path, where), where, _stack(path))


def parse(data: object, where: str, stack: str | None = None) -> Cluster:
    """Check one cluster declaration. Raises SpecError with all problems at once.

    Args:
        data: the value of `slipway:cluster`.
        where: names its file in messages.
        stack: the stack that it belongs to, when that is known: stacks that share a cluster's name would share hosts.
    """
    from slipway import lint  # the rules know this module's types

    cluster = _validated(data, where)
    problems = [str(finding) for finding in lint.structural(cluster, where)]
    problems += _of_another_stack(cluster, where, stack)
    if problems:
        raise SpecError(problems)
    return cluster


def _declaration(path: Path, where: str) -> object:
    try:
        document = documents.load(path)
    except FileNotFoundError:
        raise SpecError([f"{where}: there is no such stack file"]) from None
    except documents.DocumentError as error:
        raise SpecError([str(error)]) from None
    config = document.get("config") if isinstance(document, Mapping) else None
    if not isinstance(config, Mapping) or CONFIG_KEY not in config:
        raise SpecError([f"{where}: config.{CONFIG_KEY} is missing; it holds the cluster (see stacks/Pulumi.lab.yaml)"])
    return config[CONFIG_KEY]


def _stack(path: Path) -> str:
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def _validated(data: object, where: str, stack: str | None = None) -> Cluster:
    try:
        cluster = Cluster.model_validate(data)
    except pydantic.ValidationError as error:
        raise SpecError(f"{where}: {_line(problem)}" for problem in error.errors()) from None
    if problems := _of_another_stack(cluster, where, stack):
        raise SpecError(problems)
    return cluster


def _of_another_stack(cluster: Cluster, where: str, stack: str | None) -> list[str]:
    if stack is None or cluster.name == stack:
        return []
    return [f"{where}: name: {cluster.name} is not the name of the stack; its hosts are found by it: use {stack}"]


def _line(problem: Any) -> str:
    """One line for one pydantic error, with the path in the file and, for an unknown key, the nearest known one."""
    location = problem["loc"]
    path = _path(location)
    if problem["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return f"{path}: unknown key; {hint}"
    if problem["type"] == "missing":
        return f"{path}: is missing"
    if problem["type"] in ("model_type", "dict_type"):
        return f"{path}: should be a mapping of keys to values"
    if problem["type"] == "string_pattern_mismatch" and problem["ctx"]["pattern"] in _EXPECTED:
        return f"{path}: expected {_EXPECTED[problem['ctx']['pattern']]} (got {problem['input']!r})"
    if problem["type"] == "string_type" and isinstance(problem["input"], int | float):
        # YAML has made a number of it, and of 2026.10 the number 2026.1.
        return f"{path}: should be text; put it in quotes (got {problem['input']!r})"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = problem.get("input")
    shown = f" (got {value!r})" if isinstance(value, (str, int, float, bool)) else ""
    return f"{path}: {message}{shown}"


def _path(location: tuple[str | int, ...]) -> str:
    """`('pools', 0, 'count')` → `pools[0].count`."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path or CONFIG_KEY


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    """The keys that the model at `location` knows."""
    model: Any = Cluster
    for step in location:
        if isinstance(step, int):
            continue
        field = getattr(model, "model_fields", {}).get(step)
        if field is None:
            return []
        model = field.annotation
        if getattr(model, "__origin__", None) is list:
            model = model.__args__[0]
    return list(getattr(model, "model_fields", {}))
