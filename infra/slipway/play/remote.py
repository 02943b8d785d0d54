"""A shell script run as root on many hosts at once, beside Ansible, for a few milliseconds of CPU time a host.

SSH in this process, by asyncssh. A process of OpenSSH costs three times as much, and ten times as much again with the
key exchange that it prefers. The key that hosts accept stays in memory: it is in no file, argument or environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncssh

from slipway.play import shell
from slipway.play.runner import Target

AT_ONCE = 128
"""Hosts that are talked to at one time. More gain nothing: the controller's CPU is the limit."""

CONNECT_SECONDS = 20.0
"""How long a host may take from the first packet to the login."""

_POLL_SECONDS = 0.2

# Preferred, others stay allowed: what is fast in a library without assembly of its own, and safe. Nothing that goes
# through here would have to stay secret from a quantum computer of a later day.
_KEY_EXCHANGE = "^curve25519-sha256"
_CIPHER = "^aes128-gcm@openssh.com"

# asyncssh would tell of every connection and every command.
logging.getLogger("asyncssh").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Reply:
    """What came of a script on one host.

    Args:
        ok: it ran and ended with status 0.
        status: its exit status; -1 when it has none.
        output: what it wrote to standard output.
        reason: one line when not ok.
        unreachable: the host does not answer, or not as the host that it should be.
    """

    ok: bool
    status: int = -1
    output: str = ""
    reason: str = ""
    unreachable: bool = False


CANCELLED = Reply(ok=False, reason="cancelled")


async def run(
    targets: Sequence[Target],
    script: str | Mapping[str, str],
    *,
    ssh_key: str,
    stdin: Mapping[str, bytes] | None = None,
    cancelled: threading.Event,
    seconds: float,
    at_once: int = AT_ONCE,
) -> dict[str, Reply]:
    """Run a script on hosts side by side and return a reply for each of them, by name. Never raises for a host.

    Args:
        targets: the hosts. Only their pinned host keys are accepted.
        script: for `sh`, the same for all or one for each name. With no secret in it: all users of a host can see it.
        ssh_key: the private key that they accept.
        stdin: what the script reads, by name; secrets may be in it. Nothing for hosts that are not named.
        cancelled: when it is set, hosts that have not ended are left, and their reply is `CANCELLED`.
        seconds: how long the script may take on a host, after the login (`CONNECT_SECONDS`).
        at_once: how many hosts are talked to at one time.
    """
    replies: dict[str, Reply] = {}
    waiting = iter(targets)
    logins = _Logins(ssh_key)

    async def work() -> None:
        for target in waiting:
            command = script if isinstance(script, str) else script[target.name]
            given = stdin.get(target.name) if stdin else None
            replies[target.name] = await _reply(logins, target, command, given, seconds)

    async def all_work() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(targets))):
                group.create_task(work())

    working, stopping = asyncio.create_task(all_work()), asyncio.create_task(_until(cancelled))
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    return {target.name: replies.get(target.name, CANCELLED) for target in targets}


async def _until(event: threading.Event) -> None:
    while not event.is_set():
        await asyncio.sleep(_POLL_SECONDS)


class _Logins:
    """What is the same for many connections, worked out once."""

    def __init__(self, ssh_key: str) -> None:
        self._ssh_key = ssh_key
        self._options: dict[str, asyncssh.SSHClientConnectionOptions] = {}

    async def connect(self, target: Target) -> asyncssh.SSHClientConnection:
        """Log in to a host.

        Raises:
            OSError, TimeoutError, asyncssh.Error, asyncssh.KeyImportError: it cannot be done.
        """
        trusted = asyncssh.import_public_key(target.host_key)
        if target.user not in self._options:
            self._options[target.user] = asyncssh.SSHClientConnectionOptions(
                username=target.user,
                client_keys=[asyncssh.import_private_key(self._ssh_key)],
                preferred_auth=["publickey"],
                agent_path=None,
                config=None,
                kex_algs=_KEY_EXCHANGE,
                encryption_algs=_CIPHER,
                compression_algs=["none"],
            )
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncssh.connect(
                target.address,
                target.port,
                options=self._options[target.user],
                config=None,
                known_hosts=([trusted], [], []),
            )


async def _reply(logins: _Logins, target: Target, script: str, stdin: bytes | None, seconds: float) -> Reply:
    try:
        connection = await logins.connect(target)
    except (OSError, asyncssh.Error, asyncssh.KeyImportError) as error:
        return Reply(ok=False, reason=shell.unreachable(shell.cannot_connect(_why(error, target))), unreachable=True)
    try:
        async with asyncio.timeout(seconds):
            ended = await connection.run(
                shell.as_root(target.user, script),
                encoding=None,
                **({"stdin": asyncssh.DEVNULL} if stdin is None else {"input": stdin}),
            )
    except TimeoutError:
        return Reply(ok=False, reason=f"did not end within {seconds:g} s")
    except (OSError, asyncssh.Error) as error:
        return Reply(ok=False, reason=shell.unreachable(shell.connection_lost(_why(error, target))), unreachable=True)
    finally:
        connection.close()  # says goodbye, and waits for nothing
    output, complaint = (_text(stream) for stream in (ended.stdout, ended.stderr))
    if ended.exit_status == 0:
        return Reply(ok=True, status=0, output=output)
    if ended.exit_status is None and not ended.exit_signal:
        why = shell.connection_lost(f"{target.address} port {target.port} closed it")
        return Reply(ok=False, output=output, reason=shell.unreachable(why), unreachable=True)
    status = ended.exit_status if ended.exit_status is not None else -1
    how = f"status {status}" if not ended.exit_signal else f"signal {ended.exit_signal[0]}"
    return Reply(ok=False, status=status, output=output, reason=f"{how}: {shell.last_line(complaint)}")


def _text(stream: bytes | str | None) -> str:
    return stream.decode(errors="replace") if isinstance(stream, bytes) else stream or ""


def _why(error: Exception, target: Target) -> str:
    """Return why a host cannot be reached, in the words of OpenSSH, which says so when Ansible goes there."""
    where = f"{target.address} port {target.port}"
    match error:
        case TimeoutError():
            return f"ssh: connect to host {where}: Connection timed out"
        case OSError():
            return f"ssh: connect to host {where}: {os.strerror(error.errno) if error.errno else error}"
        case asyncssh.HostKeyNotVerifiable():
            return "Host key verification failed."
        case asyncssh.PermissionDenied():
            return f"{target.user}@{target.address}: Permission denied (publickey)."
        case asyncssh.ConnectionLost():
            return f"Connection closed by {where}"
        case asyncssh.Error():
            return " ".join(error.reason.split())
        case _:
            return f"a key cannot be read: {error}"
