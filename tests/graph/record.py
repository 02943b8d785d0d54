"""Run the program under mocks in a process of its own and print what it declared, as JSON.

Usage: record.py STACK CLUSTER.json. Prints {"resources": {name: {type, inputs, depends_on}}, "outputs": {...}}.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import mocks, rpc

from slipway import artifacts, paths
from slipway.artifacts import images

RECORDED: dict[str, dict[str, Any]] = {}

# What the provider would return, where a program's later inputs are made of it.
OUTPUTS: dict[str, dict[str, Any]] = {
    "slipway:index:LabNetwork": {"gateway": "10.98.0.1", "prefix": 24},
    "slipway:index:LabHost": {"hostKey": "ssh-ed25519 AAAA", "user": "root", "running": True},
    "slipway:index:CertificateAuthority": {"certificate": "<certificate>", "privateKey": "<key>"},
    "slipway:index:Certificate": {"certificate": "<certificate>", "privateKey": "<key>"},
    "slipway:index:SshKey": {"publicKey": "ssh-ed25519 BBBB", "privateKey": "<ssh key>"},
    "slipway:index:SigningKey": {"publicKey": "<public>", "privateKey": "<signing key>"},
    "slipway:index:RandomSecret": {"value": "c2VjcmV0"},
}


def plain(value: Any) -> Any:
    """The value without the marks of secrets."""
    if isinstance(value, dict):
        if rpc._special_sig_key in value:
            return plain(value["value"])
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


class Recorder(mocks.Mocks):
    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        key = f"{args.typ}::{args.name}"
        assert key not in RECORDED, f"declared twice: {key}"
        RECORDED[key] = {"type": args.typ, "name": args.name, "inputs": plain(args.inputs)}
        return f"{args.name}-id", {**args.inputs, **OUTPUTS.get(args.typ, {})}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        raise AssertionError(f"the program calls {args.token}; it should ask nothing of a provider")


def files(component: str, release: object, source: str = "") -> dict[str, Any]:
    """Every engine, as if it were in the cache."""
    names = {
        "kubernetes": [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ]
    }
    listed = names.get(component, [component])
    version = release.version(component)
    entries = [{"name": name, "source": f"{source}/{component}/{name}", "sha256": "0" * 64} for name in listed]
    return {"component": component, "version": version, "files": entries}


def main(stack: str, cluster: Path) -> None:
    artifacts.files = files  # type: ignore[assignment]
    images.files = lambda release, source="": []  # type: ignore[assignment]
    pulumi.runtime.set_all_config({"slipway:cluster": cluster.read_text()})
    mocks.set_mocks(Recorder(), project="slipway", stack=stack, preview=False)
    outputs: dict[str, Any] = {}
    pulumi.export = lambda name, value: pulumi.Output.from_input(value).apply(
        lambda known: outputs.update({name: known})
    )

    async def program() -> None:
        runpy.run_path(str(paths.root() / "infra/__main__.py"), run_name="__main__")

    pulumi.runtime.test(program)()
    json.dump({"resources": RECORDED, "outputs": outputs}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
