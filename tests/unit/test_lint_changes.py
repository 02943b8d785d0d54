"""What a cluster that is there cannot become."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway import lint, paths, spec, stack

LAB: dict[str, Any] = yaml.safe_load((paths.root() / "stacks/Pulumi.lab.yaml").read_text())["config"][spec.CONFIG_KEY]
DEPLOYED: dict[str, dict[str, Any]] = {
    "apiservers": {"vars": {"apiserver_service_cidr": "10.97.0.0/16", "controllers_node_mask": 24}},
}


def problems(section: str, key: str, value: object, deployed: dict[str, Any] = DEPLOYED) -> list[str]:
    data = copy.deepcopy(LAB)
    data[section][key] = value
    try:
        lint.refuse(lint.Case(cluster=spec.parse(data, "f"), deployed=deployed, stack_file="f"))
    except spec.SpecError as error:
        return error.problems
    return []


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("network", "services", "10.90.0.0/16", "f: network.services: the cluster that is there has 10.97.0.0/16 and "),
        ("network", "pod_prefix", 25, "f: network.pod_prefix: the cluster that is there has 24 and "),
    ],
)
def test_refused(section: str, key: str, value: object, said: str) -> None:
    (problem,) = problems(section, key, value)
    assert problem.startswith(said)
    assert "or first run: ./slipway destroy lab [" in problem
    assert problems(section, key, value, {}) == []


def test_other_changes_are_let_through() -> None:
    assert problems("apiservers", "count", 3) == problems("etcd", "heartbeat_ms", 200) == []
    assert problems("etcd", "count", 1) == problems("etcd_events", "count", 5) == []


def test_deployed_is_what_has_converged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    assert stack.deployed("lab") == {}
    checkpoint = paths.state() / ".pulumi/stacks/slipway/lab.json"
    checkpoint.parent.mkdir(parents=True)

    def play(name: str, digest: str) -> dict[str, Any]:
        return {
            "type": "slipway:index:Play",
            "urn": f"urn:pulumi:lab::slipway::slipway:index:Play::{name}",
            "inputs": {"hosts": []},
            "outputs": {"results": {"a": {"digest": digest}}},
        }

    resources = [play("etcd", "abc"), play("cpu", ""), {"type": "slipway:index:SshKey", "urn": "x"}]
    checkpoint.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    assert stack.deployed("lab") == {"etcd": {"hosts": []}}
