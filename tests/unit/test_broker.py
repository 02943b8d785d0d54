"""The broker: hosts get what is declared for them, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from csr import SERVER, request
from slipway import pki
from slipway.play.broker import Broker, BrokerError, Declaration, Order, declared

AUTHORITY = pki.make_authority("etcd", 30)
DECLARED = {
    "name": "etcd/server",
    "authority": "etcd",
    "common_name": SERVER.common_name,
    "organizations": list(SERVER.organizations),
    "dns_names": list(SERVER.dns_names),
    "ip_addresses": list(SERVER.ip_addresses),
    "usages": list(SERVER.usages),
    "owner": "etcd",
}
ORDERS = {
    "a": Order({"playbook": "etcd", "secrets": {"k": "v"}}, declared({"pki_certificates": [DECLARED]})),
    "b": Order({"playbook": "etcd"}),
}


class Host:
    """A converge action's side of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self.reader, self.writer, self.name = reader, writer, name

    async def say(self, **line: Any) -> None:
        self.writer.write(json.dumps({"host": self.name, **line}).encode() + b"\n")
        await self.writer.drain()

    async def hear(self) -> dict[str, Any]:
        return json.loads(await asyncio.wait_for(self.reader.readline(), 5))

    async def ask(self, **line: Any) -> dict[str, Any]:
        await self.say(**line)
        return await self.hear()


def talk(
    tmp_path: Path,
    talks: Callable[[Broker, Callable[[str], Awaitable[Host]]], Awaitable[None]],
    make_token: Callable[[str], Awaitable[str]] | None = None,
    listener: Callable[[str, dict[str, Any]], None] = lambda _host, _event: None,
) -> None:
    socket = tmp_path / "s"

    async def connect(name: str) -> Host:
        return Host(*await asyncio.open_unix_connection(socket), name)

    async def run() -> None:
        async with Broker(socket, ORDERS, {"etcd": AUTHORITY}, make_token, listener) as broker:
            assert socket.stat().st_mode & 0o777 == 0o600
            await talks(broker, connect)

    asyncio.run(run())


def certificate(csr: str, **changes: Any) -> dict[str, Any]:
    line = {"event": "request", "id": 7, "kind": "certificate", "name": "etcd/server", "authority": "etcd", "csr": csr}
    return line | changes


def test_a_host_gets_its_inputs_and_its_declared_certificate(tmp_path):
    async def talks(_broker, connect):
        host = await connect("a")
        assert (await host.ask(event="inputs"))["inputs"] == {"playbook": "etcd", "secrets": {"k": "v"}}
        answer = await host.ask(**certificate(request(SERVER)))
        assert (answer["id"], answer["ok"]) == (7, True)
        issued = x509.load_pem_x509_certificate(answer["certificate"].encode())
        issued.verify_directly_issued_by(x509.load_pem_x509_certificate(AUTHORITY.certificate.encode()))

    talk(tmp_path, talks)


@pytest.mark.parametrize(
    ("host_name", "changes", "error"),
    [
        ("b", {}, "the certificate etcd/server is not declared for b"),
        ("a", {"name": "etcd/peer"}, "the certificate etcd/peer is not declared for a"),
        ("a", {"authority": "kubernetes"}, "etcd/server of a is declared to be signed by etcd, not kubernetes"),
        ("a", {"csr": "rubbish"}, "etcd/server of a: no valid certificate request"),
        ("a", {"kind": "root_password"}, "no such request: root_password"),
        ("a", {"kind": "bootstrap_token"}, "no kubeconfig was given"),
    ],
)
def test_anything_else_is_refused_in_one_line(tmp_path, host_name, changes, error):
    async def talks(_broker, connect):
        host = await connect(host_name)
        await host.ask(event="inputs")
        answer = await host.ask(**(certificate(request(SERVER)) | changes))
        assert not answer["ok"]
        assert answer["error"].startswith(error)

    talk(tmp_path, talks)


def test_a_connection_speaks_for_the_host_it_began_with(tmp_path):
    heard = []

    async def talks(_broker, connect):
        host = await connect("b")
        await host.ask(event="inputs")
        host.name = "a"
        answer = await host.ask(**certificate(request(SERVER)))
        assert answer["error"] == "the certificate etcd/server is not declared for b"
        await host.say(event="task", status="ok")
        await asyncio.sleep(0.05)

    talk(tmp_path, talks, listener=lambda host, event: heard.append((host, event["status"])))
    assert heard == [("b", "ok")]


def test_a_stranger_is_turned_away(tmp_path):
    async def talks(_broker, connect):
        host = await connect("z")
        assert (await host.ask(event="inputs"))["error"] == "z is no host of this run"
        assert await host.reader.read() == b""

    talk(tmp_path, talks)


def test_lines_that_are_no_objects_end_the_connection_only(tmp_path):
    async def talks(_broker, connect):
        bad = await connect("a")
        bad.writer.write(b"[1]\n")
        assert not (await bad.hear())["ok"]
        good = await connect("a")
        assert (await good.ask(event="inputs"))["ok"]

    talk(tmp_path, talks)


def test_cancel_reaches_hosts_that_run_and_those_that_begin_later(tmp_path):
    async def talks(broker, connect):
        first = await connect("a")
        await first.ask(event="inputs")
        broker.cancel()
        assert await first.hear() == {"cancel": True}
        second = await connect("b")
        assert (await second.ask(event="inputs"))["ok"]
        assert await second.hear() == {"cancel": True}

    talk(tmp_path, talks)


def test_a_slow_request_does_not_hold_up_the_host_s_other_lines(tmp_path):
    heard = []
    asked = asyncio.Event()

    async def make_token(host: str) -> str:
        await asked.wait()
        return f"token-of-{host}"

    async def talks(_broker, connect):
        host = await connect("a")
        await host.ask(event="inputs")
        await host.say(event="request", id=1, kind="bootstrap_token")
        await host.say(event="task", status="ok")
        await asyncio.sleep(0.05)
        assert heard == ["task"]
        asked.set()
        assert await host.hear() == {"id": 1, "ok": True, "token": "token-of-a"}

    talk(tmp_path, talks, make_token, lambda _host, event: heard.append(event["event"]))


def test_a_wrong_declaration_is_named():
    with pytest.raises(BrokerError, match=r"^pki_certificates\[0\]\.usages: "):
        declared({"pki_certificates": [DECLARED | {"usages": []}]})
    assert isinstance(declared({"pki_certificates": [DECLARED]})["etcd/server"], Declaration)
