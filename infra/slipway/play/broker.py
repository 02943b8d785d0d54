"""What hosts can ask of the controller while they converge, and what they tell it.

A unix socket in a folder of root's own. Each host's converge action opens one connection and speaks JSON lines (the
protocol is described in `slipway.node`): it fetches the host's inputs, passes on the host's task lines and requests,
and ends with a result. Certificates are signed only as declared for that very host, so that a host that was broken
into gets nothing that it did not have. Keys never leave this process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slipway import pki

_LINE_BYTES = 32 * 1024 * 1024
"""The longest line: a host's inputs, or a diff."""

Event = dict[str, Any]
Listener = Callable[[str, Event], None]
TokenMaker = Callable[[str], Awaitable[str]]


class BrokerError(Exception):
    """A request cannot be met; the message is one line and goes to the host."""


class Declaration(BaseModel):
    """A certificate that a host may ask for: one of its `pki_certificates`.

    Args:
        name: path below the host's PKI folder, such as `etcd/server`.
        authority: who signs it.
        common_name: subject CN.
        organizations: subject O.
        dns_names: alternative names.
        ip_addresses: alternative addresses.
        usages: `server`, `client` or both.
        days: how long it is valid.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")  # the role has more to say, such as the file's owner

    name: str
    authority: str
    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    usages: tuple[pki.Usage, ...] = Field(min_length=1)
    days: int = 365

    def request(self) -> pki.CertificateRequestSpec:
        """Return what the certificate says."""
        return pki.CertificateRequestSpec(
            common_name=self.common_name,
            organizations=self.organizations,
            dns_names=self.dns_names,
            ip_addresses=self.ip_addresses,
            usages=self.usages,
            days=self.days,
        )


@dataclass(frozen=True)
class Order:
    """What one host is to become.

    Args:
        inputs: what the host gets: playbook, vars, secrets, bundles and so on.
        certificates: what it may have signed, by name.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    certificates: Mapping[str, Declaration] = field(default_factory=dict)


def declared(variables: Mapping[str, Any]) -> dict[str, Declaration]:
    """Return the certificates that a host's variables declare, by name.

    Raises:
        BrokerError: a declaration does not fit.
    """
    found: dict[str, Declaration] = {}
    for index, entry in enumerate(variables.get("pki_certificates", ())):
        try:
            declaration = Declaration.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise BrokerError(f"pki_certificates[{index}].{where}: {first['msg']}") from None
        found[declaration.name] = declaration
    return found


class Broker:
    """Serves one run. Use it as an async context manager.

    Args:
        path: where the socket is to be; its folder must be the user's own.
        orders: the hosts that may connect.
        authorities: who can sign, by name.
        make_token: returns a bootstrap token for a host; None if hosts of this run do not join anything.
        listener: gets every event of a host, in order. It must not block.
    """

    def __init__(
        self,
        path: Path,
        orders: Mapping[str, Order],
        authorities: Mapping[str, pki.KeyPair],
        make_token: TokenMaker | None,
        listener: Listener,
    ) -> None:
        self._path = path
        self._orders = orders
        self._authorities = authorities
        self._make_token = make_token
        self._listener = listener
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._cancelled = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_LINE_BYTES)
        self._path.chmod(0o600)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._writers):
            writer.close()
        self._path.unlink(missing_ok=True)

    def cancel(self) -> None:
        """Tell every host to stop at the end of its current task."""
        self._cancelled = True
        for writer in self._writers:
            _send(writer, {"cancel": True})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        host: str | None = None
        answers: set[asyncio.Task[None]] = set()
        try:
            while line := await reader.readline():
                event = _parse(line)
                # A connection speaks for the host that it began with, whatever a later line says.
                host = host or str(event.get("host"))
                if host not in self._orders:
                    _send(writer, {"ok": False, "error": f"{host} is no host of this run"})
                    return
                match event.get("event"):
                    case "inputs":
                        _send(writer, {"ok": True, "inputs": dict(self._orders[host].inputs)})
                        if self._cancelled:
                            _send(writer, {"cancel": True})
                    case "request":
                        answer = asyncio.create_task(self._answer(host, event, writer))
                        answers.add(answer)
                        answer.add_done_callback(answers.discard)
                    case _:
                        self._listener(host, event)
        except (BrokerError, ValueError, ConnectionError) as error:
            _send(writer, {"ok": False, "error": str(error)})
        finally:
            for answer in answers:
                answer.cancel()
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, host: str, event: Event, writer: asyncio.StreamWriter) -> None:
        try:
            reply: Event = {"ok": True, **await self._met(host, event)}
        except BrokerError as error:
            reply = {"ok": False, "error": str(error)}
        _send(writer, {"id": event.get("id"), **reply})

    async def _met(self, host: str, event: Event) -> Event:
        match event.get("kind"):
            case "certificate":
                return {"certificate": await asyncio.to_thread(self._sign, host, event)}
            case "bootstrap_token":
                if self._make_token is None:
                    raise BrokerError("no kubeconfig was given to this play, so its hosts cannot join a cluster")
                return {"token": await self._make_token(host)}
            case kind:
                raise BrokerError(f"no such request: {kind}; expected certificate or bootstrap_token")

    def _sign(self, host: str, event: Event) -> str:
        name, authority = event.get("name"), event.get("authority")
        declaration = self._orders[host].certificates.get(str(name))
        if declaration is None:
            raise BrokerError(f"the certificate {name} is not declared for {host}")
        if declaration.authority != authority:
            raise BrokerError(f"{name} of {host} is declared to be signed by {declaration.authority}, not {authority}")
        pair = self._authorities.get(declaration.authority)
        if pair is None:
            raise BrokerError(f"this play has no key of the authority {declaration.authority}, which {name} needs")
        try:
            return pki.sign_csr(str(event.get("csr")), pair, declaration.request())
        except pki.RequestRefused as error:
            raise BrokerError(f"{name} of {host}: {error}") from None


def _parse(line: bytes) -> Event:
    event = json.loads(line)
    if not isinstance(event, dict):
        raise BrokerError("expected a JSON object a line")
    return event


def _send(writer: asyncio.StreamWriter, message: Mapping[str, Any]) -> None:
    if not writer.is_closing():
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
