"""slipway_health: what it says about services that do not answer, or answer badly."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest
from library import slipway_health
from library.slipway_health import Answer, failing_checks, is_error, last_words, look, plain

VERBOSE = """[+]ping ok
[-]etcd failed: reason withheld
[+]log ok
[-]informer-sync failed: reason withheld
readyz check failed"""


class Handler(http.server.BaseHTTPRequestHandler):
    """/ready answers 200, /readyz as a Kubernetes component that is not ready, /other a plain 503."""

    def do_GET(self) -> None:
        status, body = {"/ready": (200, "ok"), "/readyz": (500, VERBOSE)}.get(self.path, (503, "starting\n"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's name)
        del format, args


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(slipway_health, "unit_state", lambda unit: ("active", ""))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_address[1]}"
        made.shutdown()


def test_failing_checks_are_named() -> None:
    assert failing_checks(VERBOSE) == ["etcd", "informer-sync"]


def test_a_healthy_service(server: str) -> None:
    assert look("x", server + "/ready", None) == Answer(True)


def test_a_service_that_is_not_ready_says_which_checks_fail(server: str) -> None:
    assert look("x", server + "/readyz", None) == Answer(False, "failing checks: etcd, informer-sync")


def test_another_bad_answer_is_quoted(server: str) -> None:
    assert look("x", server + "/other", None) == Answer(False, "HTTP 503 starting")


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slipway_health, "unit_state", lambda unit: ("active", ""))
    answer = look("x", "http://127.0.0.1:1/", None)
    assert not answer.healthy
    assert "refused" in answer.reason


@pytest.mark.parametrize(
    ("state", "job", "reason"),
    [("failed", "", "unit is failed"), ("active", "17", "unit is active with a job pending")],
)
def test_the_unit_is_looked_at_first(monkeypatch: pytest.MonkeyPatch, state: str, job: str, reason: str) -> None:
    monkeypatch.setattr(slipway_health, "unit_state", lambda unit: (state, job))
    assert look("x", "http://127.0.0.1:1/", None) == Answer(False, reason)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("E1130 21:09:29.922988    2225 run.go:72] command failed", True),
        ("F1130 21:09:29.922988    2225 run.go:72] command failed", True),
        ("Every day", False),
        ("I1130 21:09:29.922988 x", False),
        ('{"level":"fatal","msg":"x"}', True),
        ('{"level":"info","msg":"x"}', False),
        ("{not json", False),
        ("error: no such file", True),
        ('time="…" level=error msg=x', True),
    ],
)
def test_error_lines(line: str, error: bool) -> None:
    assert is_error(line) is error


def test_last_words_prefer_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        stdout = "I1 fine\nE1130 bad thing\nI2 after\n"

    monkeypatch.setattr(slipway_health.subprocess, "run", lambda *_, **__: Done())
    assert last_words("x") == "E1130 bad thing"


def test_json_lines_are_made_readable() -> None:
    assert plain('{"level":"warn","msg":"retrying failed","error":"refused"}') == "retrying failed: refused"
    assert plain("{half") == "{half"
    assert plain("E1130 x] y") == "E1130 x] y"
