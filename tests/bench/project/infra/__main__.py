"""One play of many hosts, as a file describes it; `count` of them, which share the addresses of a few."""

import json
from pathlib import Path

import pulumi

from slipway import resources

config = pulumi.Config()
play = json.loads(Path(config.require("play")).read_text())
hosts = play["hosts"]
resources.Play(
    "pool",
    playbook=play["playbook"],
    hosts=[{**hosts[n % len(hosts)], "name": f"gpu-{n:05d}"} for n in range(config.require_int("count"))],
    digest=play["digest"],
    release=play["release"],
    ssh_key=play["sshKey"],
    variables=play["vars"],
    preview="digest",
)
