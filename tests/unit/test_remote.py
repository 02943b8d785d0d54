"""Scripts on many hosts, against SSH servers of this process that really run them."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time

import asyncssh
import pytest

from slipway.play import remote
from slipway.play.runner import Target

OURS = asyncssh.generate_private_key("ssh-ed25519")
HOSTS = asyncssh.generate_private_key("ssh-ed25519")
OTHER = asyncssh.generate_private_key("ssh-ed25519")


def pem(key):
    return key.export_private_key().decode()


def line(key):
    return key.export_public_key().decode().strip()


class Server:
    """One SSH server; `commands` is what it was asked to run."""

    def __init__(self):
        self.commands = []
        self.at_once = self.most_at_once = 0

    async def handle(self, process):
        self.commands.append(process.command)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        command = process.command.removeprefix("sudo -n -- ")
        child = await asyncio.create_subprocess_shell(
            command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        if "hang up" in command:
            process.channel.get_connection().abort()
        try:
            output, errors = await child.communicate(await process.stdin.read())
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        process.stdout.write(output)
        process.stderr.write(errors)
        self.at_once -= 1
        process.exit(child.returncode)

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[HOSTS],
            authorized_client_keys=asyncssh.import_authorized_keys(line(OURS)),
            process_factory=self.handle,
            encoding=None,
        )
        async with server:
            yield server.get_port()


def target(port, name="a", user="root", host_key=None, address="127.0.0.1"):
    return Target(name, address, port, user, host_key or line(HOSTS))


def run(script, *, targets=None, ssh_key=None, cancelled=None, seconds=20, server=None, **more):
    """Run against a server; `targets` makes them from its port. Returns the replies."""

    async def go():
        async with (server or Server()).running() as port:
            return await remote.run(
                targets(port) if targets else [target(port)],
                script,
                ssh_key=ssh_key or pem(OURS),
                cancelled=cancelled or threading.Event(),
                seconds=seconds,
                **more,
            )

    return asyncio.run(go())


def test_each_host_gets_its_script_and_its_input_and_gives_its_output():
    replies = run(
        {"a": "cat; echo one", "b": "cat; echo two"},
        targets=lambda port: [target(port, "a"), target(port, "b")],
        stdin={"a": b"read "},
    )
    assert replies == {
        "a": remote.Reply(ok=True, status=0, output="read one\n"),
        "b": remote.Reply(ok=True, status=0, output="two\n"),
    }


def test_a_script_that_fails_is_told_with_its_status_and_its_last_words():
    replies = run("echo before; echo first >&2; echo 'no such thing' >&2; exit 3")
    assert replies["a"] == remote.Reply(ok=False, status=3, output="before\n", reason="status 3: no such thing")


def test_a_user_who_is_not_root_uses_sudo():
    server = Server()
    assert run("id -u", targets=lambda port: [target(port, user="admin")], server=server)["a"].ok
    assert server.commands == ["sudo -n -- sh -c 'id -u'"]


def test_no_other_host_key_is_accepted():
    server = Server()
    reply = run("true", targets=lambda port: [target(port, host_key=line(OTHER))], server=server)["a"]
    assert reply.unreachable
    assert reply.reason == "unreachable: cannot connect: Host key verification failed."
    assert not server.commands


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"ssh_key": pem(OTHER)}, "root@127.0.0.1: Permission denied (publickey)."),
        ({"ssh_key": "none"}, "a key cannot be read: "),
        ({"targets": lambda port: [target(port, host_key="ssh-ed25519 AAAA")]}, "a key cannot be read: "),
    ],
)
def test_a_login_that_is_refused_says_why(how, reason):
    reply = run("true", **how)["a"]
    assert (reply.ok, reply.unreachable) == (False, True)
    assert reply.reason.startswith(f"unreachable: cannot connect: {reason}")


def test_a_host_that_does_not_answer_does_not_hold_up_the_others():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = closed.getsockname()[1]
        replies = run("echo here", targets=lambda port: [target(nobody, "gone"), target(port, "b")])
    assert replies["b"].output == "here\n"
    assert replies["gone"].unreachable
    where = f"ssh: connect to host 127.0.0.1 port {nobody}"
    assert replies["gone"].reason == f"unreachable: cannot connect: {where}: Connection refused"


def test_a_host_that_answers_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(remote, "CONNECT_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        reply = run("true", targets=lambda _: [target(port)])["a"]
    assert reply.unreachable
    assert reply.reason.endswith(f"ssh: connect to host 127.0.0.1 port {port}: Connection timed out")


def test_a_connection_that_breaks_is_no_failure_of_the_script():
    reply = run("sleep 0.1 # hang up")["a"]
    assert (reply.ok, reply.unreachable, reply.status) == (False, True, -1)
    assert reply.reason.startswith("unreachable: connection lost: ")


def test_a_script_that_takes_too_long_is_left():
    reply = run("sleep 3", seconds=0.3)["a"]
    assert reply == remote.Reply(ok=False, reason="did not end within 0.3 s")


def test_when_cancelled_hosts_that_ended_keep_their_reply():
    cancelled = threading.Event()
    threading.Timer(0.7, cancelled.set).start()
    started = time.monotonic()
    replies = run(
        {"a": "echo quick", "b": "sleep 20", "c": "echo never"},
        targets=lambda port: [target(port, name) for name in "abc"],
        cancelled=cancelled,
        at_once=1,
    )
    assert time.monotonic() - started < 5
    assert replies["a"].output == "quick\n"
    assert replies["b"] == replies["c"] == remote.CANCELLED


def test_no_more_hosts_at_once_than_asked_for():
    server = Server()
    replies = run(
        "sleep 0.05", targets=lambda port: [target(port, str(n)) for n in range(12)], server=server, at_once=3
    )
    assert all(reply.ok for reply in replies.values())
    assert server.most_at_once == 3


def test_no_hosts_are_no_work():
    assert run("true", targets=lambda _: []) == {}
