"""One play of many hosts, as a file describes it."""

import json
from pathlib import Path

import pulumi

from slipway import resources

play = json.loads(Path(pulumi.Config().require("play")).read_text())
resources.Play(
    "pool",
    playbook=play["playbook"],
    hosts=play["hosts"],
    digest=play["digest"],
    release=play["release"],
    release_digest=play["releaseDigest"],
    ssh_key=play["sshKey"],
    variables=play["vars"],
    rollout=play["rollout"],
    preview=play["preview"],
)
