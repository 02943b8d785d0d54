"""Downloads, against a server of our own on the loopback interface."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from slipway.artifacts import download

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT in the ways that a real server does, good and bad."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str, str | None]] = []
        self.breaks = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append((self.command, self.path, wanted))
        name = self.path.strip("/")
        if name == "missing":
            self.send_error(404)
        elif name == "moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
        else:
            self._file(name, wanted)

    def _file(self, name: str, wanted: str | None) -> None:
        content = CONTENT if name != "other" else CONTENT[::-1]
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and name != "no-ranges" else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(content)
        if name.startswith("breaks") and self.server.breaks > 0:
            self.server.breaks -= 1
            end = start + 100_000
            self.close_connection = True
        self.wfile.write(content[start:end])


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    threading.Thread(target=started.serve_forever, args=(0.01,), daemon=True).start()
    yield started
    started.shutdown()
    started.server_close()
    download.unreachable.cache_clear()


@pytest.fixture
def fetch(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def run(path: str, digest: str = SHA256, algorithm: str = "sha256") -> Path:
        return download.fetch(server.url(path), algorithm, digest, tmp_path, wait=0.0)

    return run


def test_right_digest(fetch: Callable[..., Path]) -> None:
    assert fetch("file").read_bytes() == CONTENT


def test_sha512(fetch: Callable[..., Path]) -> None:
    digest = hashlib.sha512(CONTENT).hexdigest()
    assert fetch("file", digest, "sha512").name == digest


def test_second_time_asks_nothing(fetch: Callable[..., Path], server: Server) -> None:
    fetch("file")
    server.requests.clear()
    fetch("file")
    assert server.requests == []


def test_wrong_digest_is_one_line_and_leaves_nothing(
    fetch: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    with pytest.raises(download.WrongDigestError) as caught:
        fetch("other")
    message = str(caught.value)
    got = hashlib.sha256(CONTENT[::-1]).hexdigest()
    assert message == f"{server.url('other')}: wanted sha256 {SHA256}, got {got}; the file was thrown away"
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == []


def test_follows_a_redirect(fetch: Callable[..., Path]) -> None:
    assert fetch("moved").read_bytes() == CONTENT


def test_missing_is_one_line(fetch: Callable[..., Path], server: Server) -> None:
    with pytest.raises(download.DownloadError, match=r"/missing: answers 404$"):
        fetch("missing")
    assert len(server.requests) == 1, "a 404 is not tried again"


def test_broken_connection_is_resumed_where_it_broke(fetch: Callable[..., Path], server: Server) -> None:
    server.breaks = 2
    assert fetch("breaks").read_bytes() == CONTENT
    assert [wanted for _, _, wanted in server.requests] == [None, "bytes=100000-", "bytes=200000-"]


def test_gives_up_after_some_tries_and_keeps_the_part(
    fetch: Callable[..., Path], server: Server, tmp_path: Path
) -> None:
    server.breaks = 99
    with pytest.raises(download.DownloadError) as caught:
        fetch("breaks")
    assert "\n" not in str(caught.value)
    assert len(server.requests) == download.ATTEMPTS
    assert (tmp_path / f"{SHA256}.part").stat().st_size == 100_000 * download.ATTEMPTS
    server.breaks = 0
    assert fetch("breaks").read_bytes() == CONTENT


def test_server_without_ranges_starts_over(fetch: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / f"{SHA256}.part").write_bytes(b"something else")
    assert fetch("no-ranges").read_bytes() == CONTENT


def test_part_that_is_whole_already(fetch: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / f"{SHA256}.part").write_bytes(CONTENT)
    assert fetch("file").read_bytes() == CONTENT


def test_two_at_once_download_once(fetch: Callable[..., Path], server: Server) -> None:
    threads = [threading.Thread(target=fetch, args=("file",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 1


def test_progress_counts_to_the_end(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    download.fetch(server.url("file"), "sha256", SHA256, tmp_path, progress=lambda *now: seen.append(now))
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_unreachable_says_why(server: Server) -> None:
    assert download.unreachable(server.url("file")) is None
    assert download.unreachable(server.url("moved")) is None
    assert download.unreachable(server.url("missing")) == "cannot be reached: answers 404"
    refused = download.unreachable("http://127.0.0.1:1/file")
    assert refused is not None
    assert refused.startswith("cannot be reached: ")
