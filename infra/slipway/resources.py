"""The provider's resources as a Pulumi program sees them.

Each class takes its inputs as keyword arguments and has its outputs as attributes. What they do is in
`slipway.provider`; inputs are checked there, and an error names the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, overload

import pulumi
from pulumi import Input, Output, ResourceOptions

T = TypeVar("T")


class _Out(Generic[T]):
    """An output by the name that the provider has for it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, resource: None, owner: type) -> _Out[T]: ...
    @overload
    def __get__(self, resource: pulumi.Resource, owner: type) -> Output[T]: ...
    def __get__(self, resource: pulumi.Resource | None, owner: type) -> _Out[T] | Output[T]:
        return self if resource is None else cast("Output[T]", resource.__dict__[self._name])


class _Resource(pulumi.CustomResource):
    """A resource of our provider: knows its outputs and which of them are secret."""

    _outputs: ClassVar[tuple[str, ...]] = ()
    _secrets: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: ResourceOptions | None) -> None:
        properties = {key: value for key, value in inputs.items() if value is not None}
        marked = ResourceOptions(additional_secret_outputs=list(self._secrets))
        super().__init__(
            f"slipway:index:{type(self).__name__}",
            name,
            properties | dict.fromkeys(self._outputs),
            ResourceOptions.merge(marked, opts),
        )


class LabNetwork(_Resource):
    """A bridge on this machine, with address translation: the network of lab hosts.

    Args:
        resource_name: its name in the program.
        name: the network's name.
        cidr: its addresses, such as `10.98.0.0/24`.
        bridge: the bridge's name, at most 15 characters.
    """

    _outputs = ("gateway", "prefix")

    gateway = _Out[str]("gateway")
    """The bridge's own address: the hosts' gateway."""
    prefix = _Out[int]("prefix")
    """How long the network's prefix is."""
    bridge = _Out[str]("bridge")
    """The bridge's name, known when the bridge is there."""

    def __init__(
        self,
        resource_name: str,
        *,
        name: Input[str],
        cidr: Input[str],
        bridge: Input[str],
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__(resource_name, {"name": name, "cidr": cidr, "bridge": bridge}, opts)


class LabHost(_Resource):
    """A host of the lab: a whole Debian with systemd on this machine.

    Args:
        resource_name: its name in the program.
        name: the host's name, one of this name on the machine.
        network: the network's name.
        bridge: the network's bridge.
        gateway: the network's gateway.
        prefix: how long the network's prefix is.
        address: the host's address.
        os: the operating system of the base it stands on, such as `debian-13`.
        authorized_key: the public SSH key that may log in as root.
        group: what the host is there for, such as `etcd`.
        pool: the node pool it belongs to.
    """

    _outputs = ("hostKey", "user", "running")

    host_key = _Out[str]("hostKey")
    """The host's public SSH key, one line. It is made with the host."""
    user = _Out[str]("user")
    """Who logs in: root."""
    running = _Out[bool]("running")
    """Whether the host was running when it was last looked at."""
    address = _Out[str]("address")
    """The host's address, known when the host is there."""

    def __init__(
        self,
        resource_name: str,
        *,
        name: Input[str],
        network: Input[str],
        bridge: Input[str],
        gateway: Input[str],
        prefix: Input[int],
        address: Input[str],
        os: Input[str],
        authorized_key: Input[str],
        group: Input[str] | None = None,
        pool: Input[str] | None = None,
        opts: ResourceOptions | None = None,
    ) -> None:
        inputs = {
            "name": name,
            "network": network,
            "bridge": bridge,
            "gateway": gateway,
            "prefix": prefix,
            "address": address,
            "os": os,
            "authorizedKey": authorized_key,
            "group": group,
            "pool": pool,
        }
        super().__init__(resource_name, inputs, opts)


class CertificateAuthority(_Resource):
    """A certificate authority whose key is nowhere but in the stack's encrypted state.

    Args:
        resource_name: its name in the program.
        common_name: its name in the certificates that it signs.
        days: how long it is valid; 10 years if not given.
    """

    _outputs = ("certificate", "privateKey")
    _secrets = ("privateKey",)

    certificate = _Out[str]("certificate")
    """The authority's certificate, PEM."""
    private_key = _Out[str]("privateKey")
    """The authority's key, PEM; secret."""

    def __init__(
        self,
        resource_name: str,
        *,
        common_name: Input[str],
        days: Input[int] | None = None,
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__(resource_name, {"commonName": common_name, "days": days}, opts)


class Certificate(_Resource):
    """A key and a certificate for somebody who is no host, such as the cluster's administrator.

    Args:
        resource_name: its name in the program.
        authority: who signs it.
        common_name: the user's or server's name.
        organizations: the user's groups.
        dns_names: names that a server answers to.
        ip_addresses: addresses that a server answers to.
        usages: `server`, `client` or both; `client` if not given.
        days: how long it is valid; a year if not given.
        renew_before_days: an `up` this long before its end makes a new one; a third of `days` if not given.
    """

    _outputs = ("certificate", "privateKey")
    _secrets = ("privateKey",)

    certificate = _Out[str]("certificate")
    """The certificate, PEM."""
    private_key = _Out[str]("privateKey")
    """Its key, PEM; secret."""

    def __init__(
        self,
        resource_name: str,
        *,
        authority: CertificateAuthority,
        common_name: Input[str],
        organizations: Sequence[Input[str]] = (),
        dns_names: Sequence[Input[str]] = (),
        ip_addresses: Sequence[Input[str]] = (),
        usages: Sequence[Literal["server", "client"]] = ("client",),
        days: Input[int] | None = None,
        renew_before_days: Input[float] | None = None,
        opts: ResourceOptions | None = None,
    ) -> None:
        inputs = {
            "authorityCertificate": authority.certificate,
            "authorityKey": authority.private_key,
            "commonName": common_name,
            "organizations": list(organizations),
            "dnsNames": list(dns_names),
            "ipAddresses": list(ip_addresses),
            "usages": list(usages),
            "days": days,
            "renewBeforeDays": renew_before_days,
        }
        super().__init__(resource_name, inputs, opts)


class SshKey(_Resource):
    """The key with which the controller reaches hosts.

    Args:
        resource_name: its name in the program.
        comment: what `authorized_keys` says about it.
    """

    _outputs = ("publicKey", "privateKey")
    _secrets = ("privateKey",)

    public_key = _Out[str]("publicKey")
    """The public key, one line as in `authorized_keys`."""
    private_key = _Out[str]("privateKey")
    """The private key as OpenSSH has it; secret."""

    def __init__(
        self, resource_name: str, *, comment: Input[str] | None = None, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__(resource_name, {"comment": comment}, opts)


class RandomSecret(_Resource):
    """Random bytes.

    Args:
        resource_name: its name in the program.
        bytes: how many; 32 if not given.
    """

    _outputs = ("value",)
    _secrets = ("value",)

    value = _Out[str]("value")
    """The bytes in base64; secret."""

    def __init__(
        self,
        resource_name: str,
        *,
        bytes: Input[int] | None = None,  # noqa: A002  (the input's name)
        opts: ResourceOptions | None = None,
    ) -> None:
        super().__init__(resource_name, {"bytes": bytes}, opts)


class SigningKey(_Resource):
    """The key that signs service account tokens.

    Args:
        resource_name: its name in the program.
    """

    _outputs = ("publicKey", "privateKey")
    _secrets = ("privateKey",)

    public_key = _Out[str]("publicKey")
    """The public key, PEM."""
    private_key = _Out[str]("privateKey")
    """The private key, PEM; secret."""

    def __init__(self, resource_name: str, *, opts: ResourceOptions | None = None) -> None:
        super().__init__(resource_name, {}, opts)


class Play(_Resource):
    """A playbook brought to a set of hosts. Its task lines stream under its row; see `slipway.provider.play`.

    A host that fails does not stop the others in the same wave; the resource is then saved with one reason a failed
    host, and the next `up` takes up there.

    Args:
        resource_name: its name in the program.
        playbook: the playbook's name in `playbooks/`, without `.yml`.
        hosts: the hosts, each `{name, address, port, user, hostKey, group, pool, failureDomain, unit, vars}`.
        digest: the digest of the playbook's content and of its roles.
        release: the release's id.
        release_digest: SHA-256 (hex) of the release; hosts and nodes are marked with it.
        ssh_key: the private key that the hosts accept.
        variables: variables of all hosts.
        secrets: secret variables of all hosts.
        authorities: who signs the certificates that hosts ask for: name → `{certificate, key}`.
        kubeconfig: an administrator's kubeconfig, for plays whose hosts join the cluster.
        rollout: `{mode: together | quorum | waves, drainSeconds: 300}` and more; `together` if not given.
        gate: `etcd` or `apiservers`, where a change of one host must not be felt by those who use it.
        balancers: the load balancers before API servers, each as in `hosts`.
        preview: how previews and refreshes look at hosts: `check`, `sample` or `digest`; by the number of hosts if not
            given.
        timeout_seconds: how long one host may take.
    """

    _outputs = ("results", "failedHosts", "drifted")

    results = _Out[Mapping[str, Any]]("results")
    """What came of each host: name → `{ok, changed, digest, at}`."""
    failed_hosts = _Out[Sequence[str]]("failedHosts")
    """The hosts that are not as they should be."""
    drifted = _Out[Mapping[str, Sequence[str]]]("drifted")
    """What the last refresh found changed on hosts: name → a few lines. The next `up` mends it."""

    def __init__(
        self,
        resource_name: str,
        *,
        playbook: Input[str],
        hosts: Input[Sequence[Input[Mapping[str, Any]]]],
        digest: Input[str],
        release: Input[str],
        release_digest: Input[str],
        ssh_key: Input[str],
        variables: Input[Mapping[str, Any]] | None = None,
        secrets: Input[Mapping[str, Any]] | None = None,
        authorities: Input[Mapping[str, Any]] | None = None,
        kubeconfig: Input[str] | None = None,
        rollout: Input[Mapping[str, Any]] | None = None,
        gate: Literal["etcd", "apiservers"] | None = None,
        balancers: Input[Sequence[Input[Mapping[str, Any]]]] | None = None,
        preview: Input[str] | None = None,
        timeout_seconds: Input[int] | None = None,
        opts: ResourceOptions | None = None,
    ) -> None:
        inputs = {
            "playbook": playbook,
            "hosts": hosts,
            "digest": digest,
            "release": release,
            "releaseDigest": release_digest,
            "sshKey": Output.secret(ssh_key),
            "vars": variables,
            "secrets": None if secrets is None else Output.secret(secrets),
            "authorities": None if authorities is None else Output.secret(authorities),
            "kubeconfig": None if kubeconfig is None else Output.secret(kubeconfig),
            "rollout": rollout,
            "gate": gate,
            "balancers": balancers,
            "preview": preview,
            "timeoutSeconds": timeout_seconds,
        }
        super().__init__(resource_name, inputs, opts)


class Membership(_Resource):
    """Hosts of a service that goes on when some of them leave; see `slipway.provider.membership`.

    Args:
        resource_name: its name in the program.
        service: `etcd` or `apiservers`.
        hosts: the hosts, each `{name, address, user, hostKey}`.
        ssh_key: the private key that the hosts accept.
        peers: of an etcd: host → where its member is reached by others.
        balancers: of API servers: the load balancers before them, each as in `hosts`.
    """

    def __init__(
        self,
        resource_name: str,
        *,
        service: Literal["etcd", "apiservers"],
        hosts: Input[Sequence[Input[Mapping[str, Any]]]],
        ssh_key: Input[str],
        peers: Mapping[str, str] | None = None,
        balancers: Input[Sequence[Input[Mapping[str, Any]]]] | None = None,
        opts: ResourceOptions | None = None,
    ) -> None:
        inputs = {
            "service": service,
            "hosts": hosts,
            "peers": peers,
            "balancers": balancers,
            "sshKey": Output.secret(ssh_key),
        }
        super().__init__(resource_name, inputs, opts)
