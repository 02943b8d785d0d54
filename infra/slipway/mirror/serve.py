"""Serve a mirror's folder by HTTP: what is for everyone, read-only, with ranges for resumed downloads."""

from __future__ import annotations

import re
import shutil
import ssl
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from slipway.mirror.content import SERVED

_CHUNK = 1 << 20


class Server(ThreadingHTTPServer):
    """Serves one mirror.

    Args:
        folder: the mirror.
        address: host and port to listen on; port 0 takes any.
        certificate: files of a certificate chain and its private key (PEM), for HTTPS.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder: Path, address: tuple[str, int], certificate: tuple[Path, Path] | None = None) -> None:
        super().__init__(address, _Handler)
        self.folder = folder.resolve()
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            # Hands are shaken in the thread of the request: a client that stays silent holds up nobody.
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def file(self, path: str) -> Path | None:
        """Return the file for the path of a request, None if it is not for everyone."""
        parts = [part for part in unquote(urlsplit(path).path).split("/") if part]
        if not parts or parts[0] not in SERVED or any(part.startswith(".") for part in parts):
            return None
        found = self.folder.joinpath(*parts).resolve()
        return found if found.is_relative_to(self.folder) and found.is_file() else None


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 120

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        file = self.server.file(self.path)
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with file.open("rb") as opened:
            size = file.stat().st_size
            match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            start = int(match[1]) if match else 0
            if start >= size > 0:
                self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
                return
            self.send_response(HTTPStatus.PARTIAL_CONTENT if match else HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(size - start))
            if match:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.end_headers()
            if body:
                self._send(opened, start)

    def _send(self, opened: IO[bytes], start: int) -> None:
        opened.seek(start)
        try:
            shutil.copyfileobj(opened, self.wfile, _CHUNK)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
