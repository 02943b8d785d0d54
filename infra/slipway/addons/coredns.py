"""Cluster DNS: CoreDNS, never two pods on one node, as many as the nodes need."""

from __future__ import annotations

import math

import pulumi
import pulumi_kubernetes as k8s

from slipway.addons import Context
from slipway.spec import Cluster

NAMESPACE = "kube-system"
_NAME = "coredns"
_LABELS = {"k8s-app": "kube-dns"}


def replicas(cluster: Cluster) -> int:
    """One pod for `nodes_per_replica` nodes, within the limits of the stack file and at most one a node."""
    wanted = cluster.addons.coredns
    by_nodes = math.ceil(cluster.nodes / wanted.nodes_per_replica)
    return max(1, min(max(by_nodes, wanted.min_replicas), wanted.max_replicas, cluster.nodes))


def corefile(cluster: Cluster) -> str:
    """The configuration: cluster names from the API, everything else from upstream."""
    network = cluster.network
    return f"""\
.:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {network.domain} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    prometheus :9153
    forward . {cluster.addons.coredns.forward_to} {{
        max_concurrent 1000
    }}
    cache 30
    loop
    reload
    loadbalance
}}
"""


def create(context: Context) -> list[pulumi.Resource]:
    """Service account, role, configuration, deployment, disruption budget and the cluster DNS Service."""
    cluster = context.cluster
    metadata = {"name": _NAME, "namespace": NAMESPACE, "labels": _LABELS}
    account = k8s.core.v1.ServiceAccount("coredns", metadata=metadata, opts=context.options())
    role = k8s.rbac.v1.ClusterRole(
        "coredns",
        metadata={"name": "slipway:coredns"},
        rules=[
            {"api_groups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"api_groups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ],
        opts=context.options(),
    )
    binding = k8s.rbac.v1.ClusterRoleBinding(
        "bind-coredns",
        metadata={"name": "slipway:coredns"},
        role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "slipway:coredns"},
        subjects=[{"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}],
        opts=context.options(),
    )
    config = k8s.core.v1.ConfigMap(
        "coredns", metadata=metadata, data={"Corefile": corefile(cluster)}, opts=context.options()
    )
    service = k8s.core.v1.Service(
        "coredns",
        # With no endpoints yet the Service would be waited for; the Deployment is what is waited for.
        metadata={**metadata, "name": "kube-dns", "annotations": {"pulumi.com/skipAwait": "true"}},
        spec={
            "selector": _LABELS,
            "cluster_ip": str(cluster.network.cluster_dns),
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP", "target_port": 53},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP", "target_port": 53},
                {"name": "metrics", "port": 9153, "protocol": "TCP", "target_port": 9153},
            ],
        },
        opts=context.options(),
    )
    budget = k8s.policy.v1.PodDisruptionBudget(
        "coredns",
        metadata=metadata,
        spec={"max_unavailable": 1, "selector": {"match_labels": _LABELS}},
        opts=context.options(),
    )
    deployment = k8s.apps.v1.Deployment(
        "coredns",
        metadata=metadata,
        spec={
            "replicas": replicas(cluster),
            "selector": {"match_labels": _LABELS},
            # A surge pod finds no free node where every node holds one already.
            "strategy": {"type": "RollingUpdate", "rolling_update": {"max_surge": 0, "max_unavailable": 1}},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(context)},
        },
        opts=pulumi.ResourceOptions.merge(
            context.options(custom_timeouts=pulumi.CustomTimeouts(create="3m", update="5m")),
            # From its making on the autoscaler says how many.
            pulumi.ResourceOptions(depends_on=[account, role, binding, config], ignore_changes=["spec.replicas"]),
        ),
    )
    return [account, role, binding, config, service, budget, deployment]


def _pod(context: Context) -> dict[str, object]:
    return {
        "service_account_name": _NAME,
        "priority_class_name": "system-cluster-critical",
        "dns_policy": "Default",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "affinity": {
            "pod_anti_affinity": {
                "required_during_scheduling_ignored_during_execution": [
                    {"topology_key": "kubernetes.io/hostname", "label_selector": {"match_labels": _LABELS}}
                ]
            }
        },
        "containers": [
            {
                "name": _NAME,
                "image": context.images["coredns"],
                "image_pull_policy": "IfNotPresent",
                "args": ["-conf", "/etc/coredns/Corefile"],
                "ports": [
                    {"name": "dns", "container_port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "container_port": 53, "protocol": "TCP"},
                    {"name": "metrics", "container_port": 9153, "protocol": "TCP"},
                ],
                "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}, "limits": {"memory": "340Mi"}},
                "liveness_probe": {
                    "http_get": {"path": "/health", "port": 8080},
                    "initial_delay_seconds": 10,
                    "failure_threshold": 5,
                },
                "readiness_probe": {"http_get": {"path": "/ready", "port": 8181}, "period_seconds": 2},
                "security_context": {
                    "allow_privilege_escalation": False,
                    "read_only_root_filesystem": True,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
                },
                "volume_mounts": [{"name": "config", "mount_path": "/etc/coredns", "read_only": True}],
            }
        ],
        "volumes": [
            {"name": "config", "config_map": {"name": _NAME, "items": [{"key": "Corefile", "path": "Corefile"}]}}
        ],
    }
