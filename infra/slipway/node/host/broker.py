"""The socket where modules ask for what only the controller can give."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
from typing import Any

from slipway.node.host import places
from slipway.node.host.controller import Controller, Lines


class Broker:
    """One connection a request: one JSON line in, one out. Only root reaches the socket: its folder is 0700."""

    def __init__(self, selector: selectors.BaseSelector, controller: Controller) -> None:
        self._selector = selector
        self._controller = controller
        self._waiting: dict[str, tuple[socket.socket, str]] = {}
        self._number = 0
        self.path = places.run("broker.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(8)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def answer(self, line: dict[str, Any]) -> None:
        """Hand an answer of the controller to the module that waits for it."""
        client, _ = self._waiting.pop(str(line.get("id")), (None, None))
        if client is not None:
            _reply(client, line)

    def hang_up(self) -> None:
        """Tell all who wait that no answer will come."""
        for client, kind in self._waiting.values():
            _reply(client, _gone(kind))
        self._waiting.clear()

    def close(self) -> None:
        """Hang up and take the socket away."""
        self.hang_up()
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _accept(self) -> None:
        client, _ = self._socket.accept()
        lines = Lines(client.fileno())
        self._selector.register(client, selectors.EVENT_READ, lambda: self._read(client, lines))

    def _read(self, client: socket.socket, lines: Lines) -> None:
        complete = lines.read()
        if not complete and not lines.ended:
            return
        self._selector.unregister(client)
        if complete:
            self._request(client, complete[0])
        else:
            client.close()

    def _request(self, client: socket.socket, line: bytes) -> None:
        try:
            request = json.loads(line)
            kind = str(request["kind"])
        except (ValueError, TypeError, KeyError):
            _reply(client, {"ok": False, "error": 'a request is one JSON object with "kind"'})
            return
        if kind == "waiting":  # no question: a module says what holds it up
            msg = self._controller.hidden(str(request.get("msg", "")))
            self._controller.send({"event": "state", "state": "waiting", "msg": msg})
            _reply(client, {"ok": True})
            return
        if not self._controller.attached:
            _reply(client, _gone(kind))
            return
        self._number += 1
        request.update(event="request", id=str(self._number))
        self._waiting[request["id"]] = (client, kind)
        self._controller.send(request)


def _reply(client: socket.socket, line: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), client:
        client.sendall(json.dumps(line).encode() + b"\n")


def _gone(kind: str) -> dict[str, Any]:
    what = kind.replace("_", " ")
    return {"ok": False, "error": f"no controller is connected to give a {what}; run the play again"}
