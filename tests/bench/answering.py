"""Stand-ins for thousands of hosts: one SSH server on all addresses of 127.0.0.0/8, which answers as each host would.

    python tests/bench/answering.py < job.json

The job is `{authorized_key, playbook, digests: {address: digest}}`; the first line of output `{port, host_key}`. Hosts
are at their digest, and run nothing that they are told to. It goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import asyncssh
from work import manifest


async def main(job: dict[str, Any]) -> None:
    """Answer."""
    key = asyncssh.generate_private_key("ssh-ed25519")

    def answer(process: asyncssh.SSHServerProcess[str]) -> None:
        address = process.get_extra_info("sockname")[0]
        process.stdout.write(manifest(job["playbook"], job["digests"][address]))
        process.exit(0)

    server = await asyncssh.listen(
        "0.0.0.0",  # noqa: S104 - the loopback network, and nobody else has the key
        0,
        backlog=1024,
        server_host_keys=[key],
        authorized_client_keys=asyncssh.import_authorized_keys(job["authorized_key"]),
        process_factory=answer,
    )
    told = {"port": server.get_port(), "host_key": key.export_public_key().decode().strip()}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(json.load(sys.stdin)))
