"""Keeps CoreDNS in step with the number of nodes: one pod for so many nodes, within the stack file's limits."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from slipway.addons import Context

NAMESPACE = "kube-system"
_NAME = "dns-autoscaler"
_LABELS = {"app": _NAME}


def create(context: Context) -> list[pulumi.Resource]:
    """Service account, the two permissions that it needs, and one pod."""
    metadata = {"name": _NAME, "namespace": NAMESPACE, "labels": _LABELS}
    subjects = [{"kind": "ServiceAccount", "name": _NAME, "namespace": NAMESPACE}]
    rbac = "rbac.authorization.k8s.io"
    account = k8s.core.v1.ServiceAccount(_NAME, metadata=metadata, opts=context.options())
    count = k8s.rbac.v1.ClusterRole(
        _NAME,
        metadata={"name": "slipway:dns-autoscaler"},
        rules=[{"api_groups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        opts=context.options(),
    )
    bind_count = k8s.rbac.v1.ClusterRoleBinding(
        f"bind-{_NAME}",
        metadata={"name": "slipway:dns-autoscaler"},
        role_ref={"api_group": rbac, "kind": "ClusterRole", "name": "slipway:dns-autoscaler"},
        subjects=subjects,
        opts=context.options(),
    )
    scale = k8s.rbac.v1.Role(
        _NAME,
        metadata=metadata,
        rules=[
            {
                "api_groups": ["apps"],
                "resources": ["deployments/scale"],
                "resource_names": ["coredns"],
                "verbs": ["get", "update"],
            }
        ],
        opts=context.options(),
    )
    bind_scale = k8s.rbac.v1.RoleBinding(
        f"bind-{_NAME}",
        metadata=metadata,
        role_ref={"api_group": rbac, "kind": "Role", "name": _NAME},
        subjects=subjects,
        opts=context.options(),
    )
    deployment = k8s.apps.v1.Deployment(
        _NAME,
        metadata=metadata,
        spec={
            "replicas": 1,
            "selector": {"match_labels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(context)},
        },
        opts=pulumi.ResourceOptions.merge(
            context.options(custom_timeouts=pulumi.CustomTimeouts(create="3m", update="5m")),
            pulumi.ResourceOptions(depends_on=[account, count, bind_count, scale, bind_scale]),
        ),
    )
    return [account, count, bind_count, scale, bind_scale, deployment]


def _pod(context: Context) -> dict[str, object]:
    wanted = context.cluster.addons.coredns
    return {
        "service_account_name": _NAME,
        "priority_class_name": "system-cluster-critical",
        "tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}],
        "security_context": {"run_as_non_root": True, "run_as_user": 65532, "run_as_group": 65532},
        "containers": [
            {
                "name": _NAME,
                "image": context.images[_NAME],
                "image_pull_policy": "IfNotPresent",
                "args": [
                    "--deployment=coredns",
                    f"--namespace={NAMESPACE}",
                    f"--min={wanted.min_replicas}",
                    f"--max={wanted.max_replicas}",
                    f"--nodes-per-replica={wanted.nodes_per_replica}",
                ],
                "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"memory": "128Mi"}},
                "liveness_probe": {"http_get": {"path": "/healthz", "port": 8080}, "period_seconds": 30},
                "security_context": {
                    "allow_privilege_escalation": False,
                    "read_only_root_filesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
