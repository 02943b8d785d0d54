"""The variables that roles are told: exactly those that they declare, and constant in size for a worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from slipway import paths, spec
from slipway.fleet import addresses
from slipway.play import inventory

LAB = yaml.safe_load((paths.root() / "stacks/Pulumi.lab.yaml").read_text())["config"][spec.CONFIG_KEY]
CLUSTER = spec.parse(LAB, "stack.yaml")

# Secrets are added by the program (slipway.plays), not by the inventory.
SECRETS = {
    "apiserver_service_account_key",
    "apiserver_service_account_public_keys",
    "apiserver_encryption_keys",
    "controllers_service_account_key",
    "controllers_kubelet_authority_key",
}


def artifact(component: str, *files: str) -> dict[str, Any]:
    return {"component": component, "version": "1.2.3", "files": [{"name": file} for file in files or (component,)]}


SOURCES = inventory.Sources(
    artifact=artifact,
    images=[],
    sandbox_image="slipway.local/pause:1",
    authorities={
        name: f"<{name}>" for name in ("kubernetes", "kubelet", "etcd", "etcd-events", "etcd-client", "front-proxy")
    },
    storage={"storage_mode": "bound"},
    nodes={"pod_network_masquerade_hosts": True},
)


def variables(cluster: spec.Cluster, playbook: str) -> dict[str, Any]:
    """All variables of the first host of a playbook."""
    match playbook:
        case "etcd":
            host = addresses.group(cluster, "etcd")[0]
            return inventory.etcd(cluster, "etcd", SOURCES) | inventory.etcd_host("etcd", host)
        case "load_balancer":
            host = addresses.group(cluster, "load_balancers")[0]
            return inventory.load_balancer(cluster, SOURCES) | inventory.load_balancer_host(host)
        case "apiserver":
            host = addresses.group(cluster, "apiservers")[0]
            return inventory.apiserver(cluster, SOURCES) | inventory.apiserver_host(cluster, host)
        case "node":
            host = addresses.pool(cluster, "gpu")[0]
            pool = next(pool for pool in cluster.pools if pool.name == "gpu")
            return inventory.node(cluster, pool, SOURCES) | inventory.node_host(pool, host)
    raise AssertionError(playbook)


def roles(playbook: str) -> list[str]:
    (play,) = yaml.safe_load((paths.root() / f"playbooks/{playbook}.yml").read_text())
    return [entry["role"] for entry in play["roles"]]


def options(role: str) -> dict[str, Any]:
    specs = yaml.safe_load((paths.root() / f"roles/{role}/meta/argument_specs.yml").read_text())
    declared: dict[str, Any] = specs["argument_specs"]["main"]["options"]
    return declared


PLAYBOOKS = ["etcd", "load_balancer", "apiserver", "node"]


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_variable_is_declared_by_a_role_of_the_playbook(playbook: str) -> None:
    declared = {name for role in roles(playbook) for name in options(role)}
    assert set(variables(CLUSTER, playbook)) <= declared


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_every_required_variable_is_given(playbook: str) -> None:
    required = {name for role in roles(playbook) for name, option in options(role).items() if option.get("required")}
    assert required <= set(variables(CLUSTER, playbook)) | SECRETS


def test_secrets_are_declared_as_such() -> None:
    declared = options("apiserver") | options("controllers")
    assert set(declared) >= SECRETS


def test_users_of_certificates_are_made_before_them() -> None:
    for playbook in PLAYBOOKS:
        given = variables(CLUSTER, playbook)
        owners = {certificate["owner"] for certificate in given["pki_certificates"]}
        assert owners <= {user["name"] for user in given.get("host_users", [])} | {"root"}


def test_api_server_is_reached_under_each_name_that_clients_use() -> None:
    for host in addresses.group(CLUSTER, "apiservers"):
        serving = inventory.apiserver_host(CLUSTER, host)["pki_certificates"][0]
        expected = {"10.97.0.1", "127.0.0.1", str(host.address), str(addresses.api_endpoint(CLUSTER))}
        assert set(serving["ip_addresses"]) == expected
        assert "kubernetes.default.svc.cluster.local" in serving["dns_names"]


def test_two_etcds_share_no_authority_but_the_api_servers() -> None:
    main, events = (inventory.etcd(CLUSTER, group, SOURCES) for group in ("etcd", "etcd_events"))
    assert set(main["etcd_authorities"]) & set(events["etcd_authorities"]) == {"etcd-client"}
    assert main["etcd_cluster_token"] != events["etcd_cluster_token"]
    assert not {m["client_url"] for m in main["etcd_members"]} & {m["client_url"] for m in events["etcd_members"]}


def test_a_node_is_told_nothing_of_other_nodes() -> None:
    small = variables(CLUSTER, "node")
    pools = [{**pool, "count": 20} for pool in LAB["pools"]]
    large = variables(spec.parse({**LAB, "pools": pools}, "stack.yaml"), "node")
    assert json.dumps(small) == json.dumps(large)


def test_a_node_is_told_its_place_as_labels_and_without_one_nothing_changes() -> None:
    gpu = {"name": "gpu", "count": 5, "unit_size": 2, "failure_domains": 2, "labels": {"example.com/team": "vision"}}
    cluster = spec.parse(LAB | {"pools": [gpu, {"name": "cpu", "count": 1}]}, "stack.yaml")
    with_places, without = cluster.pools
    labels = inventory.node_host(with_places, addresses.pool(cluster, "gpu")[4])["kubelet_labels"]
    assert labels == {
        "slipway.dev/pool": "gpu",
        "slipway.dev/platform": "generic",
        "example.com/team": "vision",
        "topology.kubernetes.io/zone": "zone-0",
        "slipway.dev/unit": "gpu-2",
    }
    assert "kubelet_labels" not in inventory.node_host(without, addresses.pool(cluster, "cpu")[0])
