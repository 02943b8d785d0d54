"""What each host's roles are told: the variables of a playbook, from the declared cluster.

Pure: plain values in, dicts out; certificates may be promises (Pulumi outputs), which pass through untouched. The names
are those of the roles' `meta/argument_specs.yml`. A host's own variables never depend on another worker.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from slipway.fleet import addresses
from slipway.fleet.addresses import Host
from slipway.spec import Cluster, EtcdGroup, Pool

API_PORT = 6443
API_READY_PATH = "/readyz?exclude=etcd-override-0&exclude=etcd-override-readiness-0"
"""Readiness of an API server without the events etcd: losing all of that must not take the API away."""

Artifact = Callable[..., dict[str, Any]]
"""`artifact(component, *files)` → {component, version, files: [{name, source, sha256}]} for slipway_artifact."""


@dataclasses.dataclass(frozen=True)
class Sources:
    """Where content comes from: engines by component, images to preload, authorities' certificates by name.

    `storage` and `nodes` are what the fleet adds for its kind of machine. `mirror_key` is the public key of the stack's
    mirror, None without one.
    """

    artifact: Artifact
    images: list[dict[str, str]]
    sandbox_image: str
    authorities: Mapping[str, Any]
    storage: Mapping[str, Any]
    nodes: Mapping[str, Any]
    mirror_key: str | None = None


def etcd(cluster: Cluster, group: str, sources: Sources) -> dict[str, Any]:
    """Variables of all members of one etcd cluster: `group` is etcd or etcd_events."""
    declared: EtcdGroup = getattr(cluster, group)
    authority = _etcd_authority(group)
    trusted = {name: sources.authorities[name] for name in (authority, "etcd-client")}
    return {
        **_outside(cluster, sources),
        **sources.storage,
        "host_users": [{"name": "etcd", "description": "etcd"}],
        "storage_directories": [{"path": "etcd", "owner": "etcd", "mode": "0700"}],
        "pki_authorities": trusted,
        "etcd_artifact": sources.artifact("etcd"),
        "etcd_authority": authority,
        "etcd_client_authorities": list(trusted),
        "etcd_authorities": trusted,
        "etcd_cluster_token": f"{cluster.name}-{authority}",
        "etcd_members": etcd_members(cluster, group),
        "etcd_quota_backend_bytes": declared.quota_bytes,
        "etcd_snapshot_count": declared.snapshot_count,
        "etcd_heartbeat_interval": declared.heartbeat_ms,
        "etcd_election_timeout": declared.election_ms,
    }


def etcd_members(cluster: Cluster, group: str) -> list[dict[str, str]]:
    """Members of one etcd cluster: `[{name, peer_url, client_url}]`."""
    return [
        {
            "name": host.name,
            "peer_url": f"https://{host.address}:2380",
            "client_url": f"https://{host.address}:2379",
        }
        for host in addresses.group(cluster, group)
    ]


def etcd_host(group: str, host: Host) -> dict[str, Any]:
    """Variables of one etcd member."""
    authority = _etcd_authority(group)
    names = {"dns_names": [host.name, "localhost"], "ip_addresses": [str(host.address), "127.0.0.1"]}
    return {
        "etcd_name": host.name,
        "etcd_address": str(host.address),
        "pki_certificates": [
            _certificate("etcd/server", authority, host.name, ["server", "client"], owner="etcd", **names),
            _certificate("etcd/peer", authority, host.name, ["server", "client"], owner="etcd", **names),
            _certificate("etcd/client", authority, f"etcdctl-{host.name}", ["client"], owner="etcd"),
        ],
    }


def load_balancer(cluster: Cluster, sources: Sources) -> dict[str, Any]:
    """Variables of load balancers: haproxy before the API servers, and the route reflector of the pod network."""
    trusted = {"kubernetes": sources.authorities["kubernetes"]}
    return {
        **_outside(cluster, sources),
        "pki_authorities": trusted,
        "pki_certificates": [],
        "load_balancer_port": API_PORT,
        "load_balancer_authorities": trusted,
        "load_balancer_servers": [
            {"name": host.name, "address": f"{host.address}:{API_PORT}"}
            for host in addresses.group(cluster, "apiservers")
        ],
        "load_balancer_check_path": API_READY_PATH,
        **_pod_network(cluster, "reflector"),
    }


def load_balancer_host(host: Host) -> dict[str, Any]:
    """Variables of one load balancer."""
    return {"load_balancer_address": str(host.address), "pod_network_address": str(host.address)}


def apiserver(cluster: Cluster, sources: Sources) -> dict[str, Any]:
    """Variables of all API server hosts."""
    network = cluster.network
    users = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "csr-approver")
    return {
        **_outside(cluster, sources),
        "host_users": [{"name": user, "description": user} for user in users],
        "pki_authorities": {
            name: sources.authorities[name]
            for name in ("kubernetes", "kubelet", "etcd", "etcd-events", "etcd-client", "front-proxy")
        },
        "apiserver_artifact": sources.artifact("kubernetes", "kube-apiserver", "kubectl"),
        "apiserver_count": cluster.apiservers.count,
        "apiserver_port": API_PORT,
        "apiserver_etcd_servers": _etcd_urls(cluster, "etcd"),
        "apiserver_etcd_events_servers": _etcd_urls(cluster, "etcd_events"),
        "apiserver_authorities": {
            name: sources.authorities[name] for name in ("kubernetes", "kubelet", "etcd", "etcd-events")
        },
        "apiserver_service_cidr": str(network.services),
        "apiserver_domain": network.domain,
        "apiserver_ready_path": API_READY_PATH,
        "apiserver_extra_flags": dict(cluster.apiservers.flags),
        "controllers_artifact": sources.artifact("kubernetes", "kube-controller-manager", "kube-scheduler"),
        "controllers_approver_artifact": sources.artifact("csr-approver"),
        "controllers_cluster_name": cluster.name,
        "controllers_kubelet_authority": sources.authorities["kubelet"],
        "controllers_service_cidr": str(network.services),
        "controllers_pod_cidr": str(network.pods),
        "controllers_node_mask": network.pod_prefix,
        "controllers_approver_cidrs": [str(network.hosts)],
        **_pod_network(cluster, "listener"),
    }


def apiserver_host(cluster: Cluster, host: Host) -> dict[str, Any]:
    """Variables of one API server host."""
    network = cluster.network
    serving_names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{network.domain}",
        host.name,
        "localhost",
    ]
    balancers = [str(balancer.address) for balancer in addresses.group(cluster, "load_balancers")]
    serving_addresses = [str(network.kubernetes_service), str(host.address), *balancers, "127.0.0.1"]
    client: list[str] = ["client"]
    return {
        "apiserver_address": str(host.address),
        "pod_network_address": str(host.address),
        "pki_certificates": [
            _certificate(
                "kube-apiserver/serving",
                "kubernetes",
                "kube-apiserver",
                ["server"],
                owner="kube-apiserver",
                dns_names=serving_names,
                ip_addresses=serving_addresses,
            ),
            _certificate("kube-apiserver/etcd-client", "etcd-client", "kube-apiserver", client, owner="kube-apiserver"),
            _certificate(
                "kube-apiserver/kubelet-client",
                "kubernetes",
                "kube-apiserver-kubelet-client",
                client,
                owner="kube-apiserver",
            ),
            _certificate(
                "kube-apiserver/front-proxy-client", "front-proxy", "front-proxy-client", client, owner="kube-apiserver"
            ),
            _certificate(
                "kube-controller-manager/client",
                "kubernetes",
                "system:kube-controller-manager",
                client,
                owner="kube-controller-manager",
            ),
            _certificate(
                "kube-scheduler/client", "kubernetes", "system:kube-scheduler", client, owner="kube-scheduler"
            ),
            _certificate("csr-approver/client", "kubernetes", "slipway:csr-approver", client, owner="csr-approver"),
        ],
    }


def node(cluster: Cluster, pool: Pool, sources: Sources) -> dict[str, Any]:
    """Variables of all nodes of one pool."""
    network = cluster.network
    return {
        **_outside(cluster, sources),
        **({"containerd_proxy": _proxy(cluster)} if _proxy(cluster) else {}),
        **sources.storage,
        **sources.nodes,
        "pki_authorities": {"kubernetes": sources.authorities["kubernetes"]},
        "pki_certificates": [],
        "containerd_artifact": sources.artifact("containerd"),
        "containerd_runc_artifact": sources.artifact("runc"),
        "containerd_cni_artifact": sources.artifact("cni-plugins"),
        "containerd_sandbox_image": sources.sandbox_image,
        "containerd_images": sources.images,
        "kubelet_artifact": sources.artifact("kubernetes", "kubelet"),
        "kubelet_api_server": _api_server(cluster),
        "kubelet_cluster_dns": [str(network.cluster_dns)],
        "kubelet_domain": network.domain,
        "kubelet_labels": _labels(pool),
        "kubelet_taints": [taint.model_dump() for taint in pool.taints],
        "kubelet_max_pods": pool.max_pods,
        **({"kubelet_extra_config": dict(pool.kubelet)} if pool.kubelet else {}),
        "kube_proxy_artifact": sources.artifact("kubernetes", "kube-proxy"),
        "kube_proxy_api_server": _api_server(cluster),
        "kube_proxy_cluster_cidr": str(network.pods),
        "pod_network_api_server": _api_server(cluster),
        **_pod_network(cluster, "node"),
    }


def node_host(pool: Pool, host: Host) -> dict[str, Any]:
    """Variables of one node."""
    places = {"topology.kubernetes.io/zone": host.failure_domain, "slipway.dev/unit": host.unit}
    labels = {key: place for key, place in places.items() if place}
    return {
        **({"kubelet_labels": _labels(pool) | labels} if labels else {}),
        "kubelet_node_name": host.name,
        "kubelet_node_ip": str(host.address),
        "kube_proxy_node_name": host.name,
        "pod_network_node_name": host.name,
        "pod_network_address": str(host.address),
    }


def _labels(pool: Pool) -> dict[str, str]:
    return {"slipway.dev/pool": pool.name, "slipway.dev/platform": pool.platform, **pool.labels}


def _outside(cluster: Cluster, sources: Sources) -> dict[str, Any]:
    """How a host reaches what is outside: nothing where the stack says nothing."""
    said: dict[str, Any] = {}
    if cluster.mirror:
        url, key = cluster.mirror.url.rstrip("/"), sources.mirror_key
        said["host_mirror"] = {"url": url, "release": cluster.release, "key": key}
    elif _proxy(cluster):
        said["host_proxy"] = _proxy(cluster)
    if cluster.upstream.authorities:
        said["host_authorities"] = list(cluster.upstream.authorities)
    return said


def _proxy(cluster: Cluster) -> dict[str, str]:
    """Proxies as programs know them: `{http, https, direct}`; empty without any."""
    found = {"http": cluster.upstream.http_proxy, "https": cluster.upstream.https_proxy}
    known = {name: value for name, value in found.items() if value}
    return {**known, "direct": ",".join(addresses.direct(cluster))} if known else {}


def _pod_network(cluster: Cluster, part: str) -> dict[str, Any]:
    """Every host that must reach pods takes part: nodes, the reflector, API servers (webhooks, aggregated APIs)."""
    network = cluster.network
    reflectors = [str(host.address) for host in addresses.group(cluster, "load_balancers")]
    return {
        "pod_network_mode": network.pod_network,
        "pod_network_role": part,
        "pod_network_as": network.bgp_as,
        "pod_network_cidr": str(network.pods),
        "pod_network_prefix": network.pod_prefix,
        "pod_network_hosts_cidr": str(network.hosts),
        "pod_network_services_cidr": str(network.services),
        "pod_network_peers": [] if part == "reflector" else [{"address": address} for address in reflectors],
    }


def _api_server(cluster: Cluster) -> str:
    return f"https://{addresses.api_endpoint(cluster)}:{API_PORT}"


def _etcd_authority(group: str) -> str:
    return {"etcd": "etcd", "etcd_events": "etcd-events"}[group]


def _etcd_urls(cluster: Cluster, group: str) -> list[str]:
    return [f"https://{host.address}:2379" for host in addresses.group(cluster, group)]


def _certificate(
    name: str,
    authority: str,
    common_name: str,
    usages: list[str],
    *,
    owner: str,
    dns_names: list[str] | None = None,
    ip_addresses: list[str] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "authority": authority,
        "common_name": common_name,
        "organizations": [],
        "dns_names": dns_names or [],
        "ip_addresses": ip_addresses or [],
        "usages": usages,
        "owner": owner,
        "group": owner,
        # Of a year. Hosts are gone through again at least every 60 days (provider.play_state), so none is missed.
        "renew_before_days": 120,
    }
