"""Converge this host: `run`; say what it is: `status`; prove that it works: `prove`; take it on: `reboot`, `returned`.

`run` takes what to do as one JSON line on stdin, runs the playbook with the bundled Ansible against this host, and
says what happens in JSON lines on stdout. While it runs, modules may ask the controller for what only it can give (a
signed certificate, a bootstrap token) through the socket `broker.sock`; the request goes out as a line on stdout and
the answer comes in as a line on stdin.

When the controller goes away the run goes on to its end, except that a request that needs the controller fails. A
later run takes over: it asks an abandoned run to stop at the end of its task.

`reboot PLAYBOOK` and `returned PLAYBOOK` are steps that the controller takes between runs (`steps.py`).
"""

from __future__ import annotations

import json
import os
import sys

from slipway.node.host import manifest, places, proof, steps
from slipway.node.host.controller import Controller
from slipway.node.host.lock import LockError
from slipway.node.host.run import Run


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status: 0 done, 1 the host did not converge, 2 wrong use."""
    if arguments == ["status"]:
        sys.stdout.write(json.dumps(manifest.read()) + "\n")
        return 0
    if arguments == ["prove"]:
        return proof.prove_all()
    os.umask(0o077)
    if arguments == ["run"]:
        for folder in (places.STATE, places.RUN):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
        return Run(Controller()).run()
    if arguments[:1] == ["returned"] and len(arguments) == 2:
        return steps.mark_returned(arguments[1])
    if arguments[:1] == ["reboot"] and len(arguments) == 2:
        try:
            return steps.reboot(arguments[1])
        except LockError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    sys.stderr.write("usage: slipway_node.py run|status|prove, reboot|returned PLAYBOOK\n")
    return 2
