"""Who may do what: kubelet bootstrap, the API server towards kubelets, the CSR approver, kube-proxy on nodes."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.addons import Context

BOOTSTRAP_GROUP = "system:bootstrappers:slipway"
APPROVER_USER = "slipway:csr-approver"
KUBELET_CLIENT_USER = "kube-apiserver-kubelet-client"

_RBAC = "rbac.authorization.k8s.io"


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"api_groups": [group], "resources": resources, "verbs": verbs}
    return {**rule, "resource_names": names} if names else rule


CLUSTER_ROLES: dict[str, list[dict[str, Any]]] = {
    # Approves serving certificates of kubelets and nothing else.
    "slipway:csr-approver": [
        _rule("certificates.k8s.io", ["certificatesigningrequests"], ["get", "list", "watch"]),
        _rule("certificates.k8s.io", ["certificatesigningrequests/approval"], ["update", "patch"]),
        _rule("certificates.k8s.io", ["signers"], ["approve"], ["kubernetes.io/kubelet-serving"]),
        _rule("", ["nodes"], ["get"]),
    ],
    # kube-proxy runs with its kubelet's certificate. The Node authorizer already lets a node read itself.
    "slipway:node-proxier": [
        _rule("", ["services"], ["list", "watch"]),
        _rule("discovery.k8s.io", ["endpointslices"], ["list", "watch"]),
        _rule("networking.k8s.io", ["servicecidrs"], ["list", "watch"]),
        _rule("", ["events"], ["create", "patch", "update"]),
        _rule("events.k8s.io", ["events"], ["create", "patch", "update"]),
    ],
}

# binding name → (cluster role, kind of subject, subject)
BINDINGS: dict[str, tuple[str, str, str]] = {
    "slipway:node-bootstrapper": ("system:node-bootstrapper", "Group", BOOTSTRAP_GROUP),
    "slipway:approve-bootstrap": (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        "Group",
        BOOTSTRAP_GROUP,
    ),
    "slipway:approve-renewal": (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        "Group",
        "system:nodes",
    ),
    "slipway:kubelet-api": ("system:kubelet-api-admin", "User", KUBELET_CLIENT_USER),
    "slipway:csr-approver": ("slipway:csr-approver", "User", APPROVER_USER),
    "slipway:node-proxier": ("slipway:node-proxier", "Group", "system:nodes"),
}


def create(context: Context) -> list[pulumi.Resource]:
    """Cluster roles and bindings, and the approver's own lease in kube-system."""
    made: list[pulumi.Resource] = []
    for name, rules in CLUSTER_ROLES.items():
        made.append(
            k8s.rbac.v1.ClusterRole(_resource_name(name), metadata={"name": name}, rules=rules, opts=context.options())
        )
    for name, (role, kind, subject) in BINDINGS.items():
        made.append(
            k8s.rbac.v1.ClusterRoleBinding(
                f"bind-{_resource_name(name)}",
                metadata={"name": name},
                role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": role},
                subjects=[{"api_group": _RBAC, "kind": kind, "name": subject}],
                opts=context.options(),
            )
        )
    lease = {"name": "slipway-csr-approver", "namespace": "kube-system"}
    made.append(
        k8s.rbac.v1.Role(
            "csr-approver-lease",
            metadata=lease,
            rules=[
                _rule("coordination.k8s.io", ["leases"], ["create"]),
                _rule("coordination.k8s.io", ["leases"], ["get", "update", "patch"], ["slipway-csr-approver"]),
            ],
            opts=context.options(),
        )
    )
    made.append(
        k8s.rbac.v1.RoleBinding(
            "bind-csr-approver-lease",
            metadata=lease,
            role_ref={"api_group": _RBAC, "kind": "Role", "name": lease["name"]},
            subjects=[{"api_group": _RBAC, "kind": "User", "name": APPROVER_USER}],
            opts=context.options(),
        )
    )
    return made


def _resource_name(name: str) -> str:
    return name.removeprefix("slipway:")
