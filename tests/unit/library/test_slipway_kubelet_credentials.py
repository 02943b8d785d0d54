"""slipway_kubelet_credentials: when a token is asked for, what is written, what is removed."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from library import slipway_kubelet_credentials as credentials

from unit.library.modules import run

SERVER = "https://10.0.0.2:6443"
TOKEN = "abcdef.0123456789abcdef"


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    return {
        "server": SERVER,
        "authority_file": "/etc/ca.crt",
        "bootstrap_kubeconfig": str(tmp_path / "bootstrap"),
        "kubeconfig": str(tmp_path / "kubeconfig"),
        "client_certificate": str(tmp_path / "client.pem"),
        "broker": str(tmp_path / "broker.sock"),
        "seconds": 0,
    }


@pytest.fixture
def root_is_me(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    owner = tmp_path.stat()
    monkeypatch.setattr(credentials, "ROOT_ONLY", credentials.Attributes(owner.st_uid, owner.st_gid, 0o600))


def certificate(path: str) -> None:
    """A certificate and its key, good for a day."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-days", "1", "-subj", "/CN=x", "-keyout", path, "-out", f"{path}.crt"],
        check=True,
        capture_output=True,
    )
    Path(path).write_text(Path(f"{path}.crt").read_text() + Path(path).read_text())


@pytest.fixture
def broker(arguments: dict[str, Any]) -> Iterator[list[Any]]:
    """Answers each request with the next of a list."""
    answers: list[Any] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(arguments["broker"])
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                assert json.loads(stream.readline()) == {"kind": "bootstrap_token"}
                stream.write(answers.pop(0))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield answers
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


@pytest.mark.usefixtures("root_is_me")
def test_token_is_written_for_root_alone(arguments: dict[str, Any], broker: list[Any]) -> None:
    broker.append(json.dumps({"ok": True, "token": TOKEN}).encode() + b"\n")
    result = run(credentials, **arguments)
    assert (result["changed"], result["joining"]) == (True, True)
    assert TOKEN not in json.dumps(result)
    written = Path(arguments["bootstrap_kubeconfig"])
    assert written.stat().st_mode & 0o777 == 0o600
    assert f"token: {TOKEN}" in written.read_text()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b'{"ok": false, "error": "host lab-x is not declared"}\n', "host lab-x is not declared"),
        (b'{"ok": true, "token": "x\\ny"}\n', "the controller gave none"),
        (b"", "the controller is gone"),
    ],
)
def test_refusals_are_one_line(arguments: dict[str, Any], broker: list[Any], answer: bytes, said: str) -> None:
    broker.append(answer)
    result = run(credentials, **arguments)
    assert result["failed"]
    assert said in result["msg"]
    assert "\n" not in result["msg"]
    assert not Path(arguments["bootstrap_kubeconfig"]).exists()


def test_without_a_runner(arguments: dict[str, Any]) -> None:
    assert "run this play from the controller" in run(credentials, **arguments)["msg"]


def test_check_asks_nobody(arguments: dict[str, Any]) -> None:
    assert run(credentials, check=True, **arguments)["changed"]


@pytest.mark.usefixtures("root_is_me")
def test_kubeconfig_follows_the_server(arguments: dict[str, Any]) -> None:
    certificate(arguments["client_certificate"])
    assert run(credentials, **arguments)["changed"]
    assert not run(credentials, **arguments)["changed"]
    moved = {**arguments, "server": "https://10.0.0.3:6443"}
    assert run(credentials, **moved)["changed"]
    assert "server: https://10.0.0.3:6443" in Path(arguments["kubeconfig"]).read_text()


def test_what_the_kubelet_wrote_itself_is_left_alone(arguments: dict[str, Any]) -> None:
    certificate(arguments["client_certificate"])
    pem = arguments["client_certificate"]
    Path(arguments["kubeconfig"]).write_text(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority: /etc/ca.crt\n"
        f"    server: {SERVER}\n  name: default-cluster\nkind: Config\nusers:\n- name: default-auth\n  user:\n"
        f"    client-certificate: {pem}\n    client-key: {pem}\n"
    )
    assert not run(credentials, **arguments)["changed"]


def test_joined_removes_the_token(arguments: dict[str, Any]) -> None:
    certificate(arguments["client_certificate"])
    Path(arguments["bootstrap_kubeconfig"]).write_text("token")
    assert run(credentials, check=True, state="joined", **arguments)["changed"]
    assert run(credentials, state="joined", **arguments)["changed"]
    assert not Path(arguments["bootstrap_kubeconfig"]).exists()
    assert not run(credentials, state="joined", **arguments)["changed"]


def test_joined_gives_up_with_a_reason(arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_last_words", lambda: ": it last said: E1130 no route to host")
    message = run(credentials, state="joined", **arguments)["msg"]
    assert message.startswith(f"the kubelet got no client certificate from {SERVER}")
    assert "no route to host" in message
