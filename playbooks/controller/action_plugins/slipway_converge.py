"""Bring one host to its wanted state: the controller's half of `slipway_node.py`.

It asks the provider, over the socket in SLIPWAY_BROKER, what the host should be; reads the host's manifest; and
unless that is at the wanted digest already sends the bundles the host lacks and starts the run, relaying JSON lines
between the two until the result is there. All of it goes through the SSH connection that Ansible set up, each step a
channel of its own. Secrets pass through this process's memory only: no file, no argument, no variable of Ansible.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from slipway.play import clock, reading, shell

Line = dict[str, Any]

SSH_FAILED = 255  # ssh's own exit status: the connection, not the command
NO_SPACE = 28  # exit status of UNPACK; as the errno

UNPACK = f"""set -eu; umask 077; b={reading.STATE}/bundles; d=$b/DIGEST
if [ -d $d ]; then cat >/dev/null; exit 0; fi
p=$b; while [ ! -d $p ]; do p=$(dirname $p); done
free=$(df --output=avail -k $p | tail -n 1); free=$((free / 1024))
[ $free -ge NEEDED ] || {{ echo "no space left on $p ($free MiB free, NEEDED needed)" >&2; exit {NO_SPACE}; }}
mkdir -p $b
t=$(mktemp -d $b/.new-XXXXXX); trap 'rm -rf $t' EXIT
cat >$t/archive; echo "DIGEST  $t/archive" | sha256sum --check --quiet -
mkdir $t/tree; tar -xzf $t/archive -C $t/tree --no-same-owner
mv -T $t/tree $d 2>/dev/null || test -d $d"""


class ConvergeError(Exception):
    """The host was not converged; the message is one line."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """`slipway_converge: {}`: everything it needs comes from the provider."""

    _supports_check_mode = True
    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        host = str((task_vars or {})["inventory_hostname"])
        try:
            provider = Provider(os.environ.get("SLIPWAY_BROKER", ""), host)
        except OSError as error:
            return failed(f"the provider does not answer ({error.strerror}); run: pulumi up")
        with contextlib.closing(provider):
            unreachable = False
            try:
                result = self._converge(provider)
            except ConvergeError as error:
                result = {"event": "result", "ok": False, "changed": 0, "msg": str(error)}
            except AnsibleConnectionFailure as error:
                unreachable = True
                result = {"event": "result", "ok": False, "changed": 0, "unreachable": True, "msg": str(error)}
            provider.send(result)
        message = result.get("msg", "")
        if result.get("failed_task"):
            message = f"{result['failed_task']}: {message}"
        return {
            "changed": bool(result["changed"]),
            "changed_count": result["changed"],
            "failed": not result["ok"] and not unreachable,
            "unreachable": unreachable,
            "cancelled": bool(result.get("cancelled")),
            "digest": result.get("digest", ""),
            "msg": message,
        }

    def _converge(self, provider: Provider) -> Line:
        """Return the result line of this host."""
        inputs = provider.inputs()
        asked = time.time()
        found = reading.parse(self._on_host(reading.SCRIPT).decode(errors="replace"))
        answered = time.time()
        entry, at = found.entry(inputs["playbook"]), found.finished(inputs["playbook"])
        if not inputs.get("force") and at == inputs["digest"]:
            provider.send({"event": "state", "state": "unchanged"})
            return {
                "event": "result",
                "ok": True,
                "changed": 0,
                "digest": inputs["digest"],
                "manifest": entry,
                "unchanged": True,
                "before": entry,
            }
        off = clock.ahead(found.clock, asked, answered) if found.clock is not None else 0
        if wrong := clock.complaint(off, answered):
            raise ConvergeError(wrong)
        for bundle in inputs["bundles"].values():
            if bundle["digest"] not in found.bundles:
                provider.send({"event": "state", "state": "sending"})
                self._send_bundle(bundle)
        return {**self._run(provider, inputs), "before": entry}

    def _send_bundle(self, bundle: dict[str, str]) -> None:
        with open(bundle["path"], "rb") as archive:
            script = UNPACK.replace("DIGEST", bundle["digest"]).replace("NEEDED", str(unpacked_mib(bundle["path"])))
            self._on_host(script, stdin=archive)

    def _run(self, provider: Provider, inputs: Line) -> Line:
        """Start the run on the host and pass lines on, both ways, until its result."""
        program = f"{reading.STATE}/bundles/{inputs['bundles']['content']['digest']}/slipway_node.py"
        with self._channel(f"exec /usr/bin/python3 -I {program} run", stdin=subprocess.PIPE) as (process, complaint):
            assert process.stdin is not None  # noqa: S101 - it is a pipe, see above
            assert process.stdout is not None  # noqa: S101
            write(process.stdin.fileno(), dict(inputs, host=provider.host))
            result = relay(provider, process.stdout.fileno(), process.stdin.fileno())
            process.stdin.close()
            status = process.wait()
            why = complaint()
        if result is not None:
            return result
        if status == SSH_FAILED:
            raise AnsibleConnectionFailure(
                f"connection lost during the run: {why}; a host that is still up goes on by itself"
            )
        raise ConvergeError(f"the run on the host ended without a result (status {status}): {why}")

    # -- SSH -----------------------------------------------------------------------------------------------------------

    def _on_host(self, script: str, stdin: Any = subprocess.DEVNULL) -> bytes:
        """Run a shell script on the host as root and return its output.

        Raises:
            AnsibleConnectionFailure: the host cannot be reached.
            ConvergeError: the script failed.
        """
        with self._channel(script, stdin) as (process, complaint):
            output, _ = process.communicate()
            why = complaint()
        if process.returncode == SSH_FAILED:
            raise AnsibleConnectionFailure(shell.cannot_connect(why))
        if process.returncode == NO_SPACE:
            raise ConvergeError(f"{why}; make room and run it again")
        if process.returncode != 0:
            raise ConvergeError(f"the host could not be prepared (status {process.returncode}): {why}")
        return bytes(output)

    @contextlib.contextmanager
    def _channel(self, script: str, stdin: Any) -> Iterator[tuple[subprocess.Popen[bytes], Any]]:
        """Start a script on the host in its own channel of the host's one connection.

        Yields the process and a function that returns the last line of its stderr. That is a file and not a pipe: the
        first channel leaves the shared connection behind as a process that keeps it open.
        """
        command = self._ssh_command(script)
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command, stdin=stdin, stdout=subprocess.PIPE, stderr=errors, start_new_session=False
            ) as process,
        ):

            def complaint() -> str:
                errors.seek(0)
                return shell.last_line(errors.read().decode(errors="replace"))

            try:
                yield process, complaint
            except BaseException:
                process.kill()
                raise

    def _ssh_command(self, script: str) -> list[bytes]:
        """Return the command line that runs a script as root on the host through Ansible's own SSH settings."""
        connection = self._connection
        if getattr(connection, "transport", "") != "ssh":
            raise ConvergeError(f"connection {getattr(connection, 'transport', '?')} is not ssh")
        connection.host = connection.get_option("host")
        user = connection.get_option("remote_user")
        remote = shell.as_root(user, script)
        return list(
            connection._build_command(connection.get_option("ssh_executable"), "ssh", "-T", connection.host, remote)
        )


class Provider:
    """The provider at the other end of SLIPWAY_BROKER: JSON lines, one connection a host."""

    def __init__(self, path: str, host: str) -> None:
        if not path:
            raise OSError(0, "SLIPWAY_BROKER is not set")
        self.host = host
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._rest = b""
        self.ended = False

    def inputs(self) -> Line:
        """Ask what the host should be."""
        self.send({"event": "inputs"})
        while not self.ended:
            for line in self.read():
                if line.get("cancel"):
                    raise ConvergeError("stopped by the controller")
                if line.get("ok"):
                    inputs: Line = line["inputs"]
                    return inputs
                raise ConvergeError(str(line.get("error", "the provider gives no inputs")))
        raise ConvergeError("the provider hung up")

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, line: Line) -> None:
        """Send one line; when the provider is gone, the host's run still ends by itself."""
        try:
            self._socket.sendall(json.dumps(dict(line, host=self.host)).encode() + b"\n")
        except OSError:
            self.ended = True

    def read(self) -> list[Line]:
        """Return the lines that have come; sets `ended` when the provider has hung up."""
        try:
            data = self._socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def close(self) -> None:
        self._socket.close()


def relay(provider: Provider, from_host: int, to_host: int) -> Line | None:
    """Pass lines on until the host sends its result; None when the channel ends without one.

    A provider that hangs up has died: the host is told to stop at the end of its task.
    """
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(from_host, selectors.EVENT_READ)
        selector.register(provider, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is provider:
                    lines = provider.read()
                    if provider.ended:
                        selector.unregister(provider)
                        lines.append({"cancel": True})
                    for line in lines:
                        write(to_host, line)
                    continue
                data = os.read(from_host, 65536)
                if not data:
                    return None
                *complete, rest = (rest + data).split(b"\n")
                for text in complete:
                    line = parsed(text)
                    if line.get("event") == "result":
                        return line
                    provider.send(line)


def parsed(text: bytes) -> Line:
    """Return a line of the host; what is no JSON (a login banner) becomes an empty one."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def write(fd: int, line: Line) -> None:
    """Write one line whole; a host that is gone is noticed at the other end."""
    data = json.dumps(line).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(fd, data) :]


def unpacked_mib(path: str) -> int:
    """Return the MiB that a host needs to unpack an archive: the archive, and its files in whole blocks of a disk."""
    with open(path, "rb") as archive:
        packed = archive.seek(-4, os.SEEK_END) + 4
        (unpacked,) = struct.unpack("<I", archive.read())  # the end of a gzip file: its length before
    return int((packed + 2 * unpacked) // 2**20) + 1


def failed(message: str) -> dict[str, Any]:
    """Return the result of a task that could not start."""
    return {"changed": False, "changed_count": 0, "failed": True, "cancelled": False, "digest": "", "msg": message}
