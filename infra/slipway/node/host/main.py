"""Converge this host: `run`, or say what it is: `status`.

`run` takes what to do as one JSON line on stdin, runs the playbook with the bundled Ansible against this host, and
says what happens in JSON lines on stdout. While it runs, modules may ask the controller for what only it can give (a
signed certificate, a bootstrap token) through the socket `broker.sock`; the request goes out as a line on stdout and
the answer comes in as a line on stdin.

When the controller goes away the run goes on to its end, except that a request that needs the controller fails. A
later run takes over: it asks an abandoned run to stop at the end of its task.
"""

from __future__ import annotations

import json
import os
import sys

from slipway.node.host import manifest, places
from slipway.node.host.controller import Controller
from slipway.node.host.run import Run


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status: 0 done, 1 the host did not converge, 2 wrong use."""
    if arguments == ["status"]:
        sys.stdout.write(json.dumps(manifest.read()) + "\n")
        return 0
    if arguments == ["run"]:
        os.umask(0o077)
        for folder in (places.STATE, places.RUN):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
        return Run(Controller()).run()
    sys.stderr.write("usage: slipway_node.py run|status\n")
    return 2
