from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from library import slipway_etcd_health

from unit.library.modules import run

Answers = Callable[[list[tuple[int, str]]], str]


@pytest.fixture
def answers() -> Iterator[Answers]:
    """Serves the answers one after another (the last one for ever); returns the URL."""
    running: list[http.server.HTTPServer] = []

    def serve(script: list[tuple[int, str]]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = script.pop(0) if len(script) > 1 else script[0]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        running.append(server)
        return f"http://127.0.0.1:{server.server_port}/readyz"

    yield serve
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose systemctl and journalctl print files."""
    (tmp_path / "state").write_text("ActiveState=active\nJob=\nResult=success\n")
    (tmp_path / "journal").write_text('{"level":"error","msg":"no space","error":"disk full"}\nplain text\n')
    for name, file in (("systemctl", "state"), ("journalctl", "journal")):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat {tmp_path}/{file}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(slipway_etcd_health, "POLL_SECONDS", 0.01)
    return tmp_path


def members(port: int) -> list[dict[str, str]]:
    return [
        {"name": "one", "peer_url": "https://127.0.0.1:1"},
        {"name": "two", "peer_url": f"https://127.0.0.1:{port}"},
    ]


def test_waits_until_ready(answers: Answers, unit: Path) -> None:
    url = answers([(503, "[+]data_corruption ok\n[-]linearizable_read failed\n"), (200, "ok")])
    result = run(slipway_etcd_health, name="one", members=members(1), url=url, seconds=5)
    assert result["waited_seconds"] >= 0
    assert not result["changed"]


def test_names_the_missing_member(answers: Answers, unit: Path) -> None:
    url = answers([(503, "[-]linearizable_read failed: no leader\n")])
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        failed = run(slipway_etcd_health, name="one", members=members(unused.getsockname()[1]), url=url, seconds=0)
    assert "etcd member one is not ready after 0 s: [-]linearizable_read failed: no leader" in failed["msg"]
    assert "no answer from two (https://127.0.0.1:" in failed["msg"]
    assert "Connection refused" in failed["msg"]


def test_says_what_the_unit_said_when_all_members_answer(answers: Answers, unit: Path) -> None:
    (unit / "state").write_text("ActiveState=activating\nJob=\nResult=exit-code\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        failed = run(
            slipway_etcd_health,
            name="one",
            members=members(other.getsockname()[1]),
            url=answers([(200, "")]),
            seconds=0,
        )
    assert "its unit is activating (exit-code)" in failed["msg"]
    assert "it last said: no space disk full" in failed["msg"]


def test_check_mode_does_not_wait() -> None:
    assert not run(slipway_etcd_health, check=True, name="one", members=members(1))["changed"]
