"""The controller, at the other end of stdin and stdout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

SECRET_LENGTH = 8
"""Shorter values are no secrets worth hiding, and would hide ordinary words."""

Line = dict[str, Any]


class Lines:
    """Lines from a file descriptor that is read whenever something is there; `ended` after its end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._rest = b""

    def read(self) -> list[bytes]:
        """Return the whole lines that have come."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line.strip()]


class Controller:
    """JSON lines to and from the controller; `attached` until it hangs up."""

    def __init__(self, incoming: int = 0, outgoing: int = 1) -> None:
        self.incoming = Lines(incoming)
        self.attached = True
        self._outgoing = outgoing
        self._secrets: list[str] = []

    def first_line(self) -> Line:
        """Return the inputs, {} when the controller hangs up before it has sent them.

        Raises:
            ValueError: the line is not JSON.
        """
        while not self.incoming.ended:
            lines = self.incoming.read()
            if lines:
                inputs: Line = json.loads(lines[0])
                return inputs
        return {}

    def hide(self, value: object) -> None:
        """Remember the strings inside this value as secret, their single lines too."""
        found = set(self._secrets)
        for text in strings_in(value):
            pieces = [text, *text.splitlines()]
            found.update(piece.strip() for piece in pieces if len(piece.strip()) >= SECRET_LENGTH)
        self._secrets = sorted(found, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without secrets, should a module have put one into its message or diff."""
        for secret in self._secrets:
            text = text.replace(secret, "********")
        return text

    def send(self, line: Line) -> None:
        """Send one event; a controller that is gone is noticed and not an error."""
        data = json.dumps(line).encode() + b"\n"
        try:
            while data and self.attached:
                data = data[os.write(self._outgoing, data) :]
        except OSError:
            self.attached = False


def strings_in(value: object) -> Iterator[str]:
    """Yield the strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_in(each)
