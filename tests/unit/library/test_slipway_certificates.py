"""Real openssl, a broker in this process that signs with real authorities."""

from __future__ import annotations

import json
import os
import socketserver
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from library import slipway_certificates

from unit.library.modules import run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="authorities are root's files")


def openssl(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout


class Broker(socketserver.ThreadingUnixStreamServer):
    """Signs what it is asked to, or answers `says`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.days = "365"
        self.signs_with = ""
        self.says: dict[str, Any] | None = None
        self.asked: list[str] = []
        super().__init__(str(folder / "broker.sock"), Connection)

    def sign(self, request: dict[str, str]) -> str:
        authority = self.signs_with or request["authority"]
        (self.folder / "request.csr").write_text(request["csr"])
        signed = ["x509", "-req", "-in", "request.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"]
        return openssl(*signed, "-copy_extensions", "copyall", "-days", self.days, cwd=self.folder)


class Connection(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        broker = self.server
        assert isinstance(broker, Broker)
        request = json.loads(self.rfile.readline())
        assert request["kind"] == "certificate"
        broker.asked.append(request["name"])
        answer = broker.says or {"ok": True, "certificate": broker.sign(request)}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("authorities")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for name in ("etcd", "other"):
        # The same name on purpose: only the key tells them apart.
        files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
        openssl("req", "-x509", *curve, *files, "-subj", "/CN=authority", "-days", "3650", cwd=folder)
    return folder


@pytest.fixture
def broker(authorities: Path) -> Iterator[Broker]:
    (authorities / "broker.sock").unlink(missing_ok=True)
    with Broker(authorities) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def wanted(tmp_path: Path, authorities: Path) -> dict[str, Any]:
    return {
        "directory": str(tmp_path / "pki"),
        "socket": str(authorities / "broker.sock"),
        "timeout_seconds": 10,
        "authorities": {"etcd": (authorities / "etcd.crt").read_text()},
        "certificates": [
            {
                "name": "etcd/server",
                "authority": "etcd",
                "common_name": "system:node:one",
                "organizations": ["system:nodes", "second"],
                "dns_names": ["one", "localhost"],
                "ip_addresses": ["192.0.2.1", "fd00::1"],
                "usages": ["server", "client"],
                "owner": "root",
            },
            {"name": "etcd/client", "authority": "etcd", "common_name": "client", "usages": ["client"]},
        ],
    }


def test_makes_keys_and_certificates_once(wanted: dict[str, Any], broker: Broker) -> None:
    said = run(slipway_certificates, check=True, **wanted)
    assert broker.asked == []
    assert not Path(wanted["directory"]).exists()
    done = run(slipway_certificates, **wanted)
    assert said["changed_names"] == done["changed_names"] == ["etcd/client", "etcd/server"]
    assert sorted(said["changed_paths"]) == sorted(done["changed_paths"])
    assert done["reasons"]["etcd/server"] == "missing"
    pki = Path(wanted["directory"])
    modes = {str(p.relative_to(pki)): stat.S_IMODE(p.stat().st_mode) for p in pki.rglob("*") if p.is_file()}
    assert modes == {
        "authorities/etcd.crt": 0o644,
        "etcd/client.crt": 0o644,
        "etcd/client.key": 0o600,
        "etcd/server.crt": 0o644,
        "etcd/server.key": 0o600,
    }
    found = slipway_certificates.read_certificate(str(pki / "etcd/server.crt"))
    assert found.common_name == "system:node:one"
    assert found.organizations == {"system:nodes", "second"}
    assert found.names == {"one", "localhost", "192.0.2.1", "fd00::1"}
    assert found.usages == {"server", "client"}
    assert "prime256v1" in openssl("ec", "-in", str(pki / "etcd/server.key"), "-text", "-noout", cwd=pki)
    assert "PRIVATE" not in json.dumps(done)


def test_second_run_needs_no_broker(wanted: dict[str, Any], broker: Broker) -> None:
    run(slipway_certificates, **wanted)
    broker.asked.clear()
    wanted["socket"] = "/nonexistent"
    again = run(slipway_certificates, **wanted)
    assert not again["changed"]
    assert again["changed_paths"] == []
    assert broker.asked == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"common_name": "other"}, "another subject is wanted"),
        ({"organizations": ["system:nodes"]}, "another subject is wanted"),
        ({"dns_names": ["one"]}, "other names are wanted"),
        ({"ip_addresses": ["192.0.2.1", "fd00::2"]}, "other names are wanted"),
        ({"usages": ["server"]}, "other usages are wanted"),
    ],
)
def test_makes_new_what_is_wanted_otherwise(
    wanted: dict[str, Any], broker: Broker, change: dict[str, Any], reason: str
) -> None:
    run(slipway_certificates, **wanted)
    wanted["certificates"][0].update(change)
    assert run(slipway_certificates, **wanted)["reasons"] == {"etcd/server": reason}
    assert not run(slipway_certificates, **wanted)["changed"]


def test_another_authority(wanted: dict[str, Any], broker: Broker, authorities: Path) -> None:
    run(slipway_certificates, **wanted)
    wanted["authorities"]["etcd"] = (authorities / "other.crt").read_text()
    broker.signs_with = "other"
    said = run(slipway_certificates, check=True, **wanted)
    done = run(slipway_certificates, **wanted)
    assert said["reasons"] == done["reasons"]
    assert done["changed_authorities"] == ["etcd"]
    assert done["reasons"] == dict.fromkeys(["etcd/server", "etcd/client"], "signed by another authority")
    assert not run(slipway_certificates, **wanted)["changed"]


def test_both_authorities_while_one_is_replaced(wanted: dict[str, Any], broker: Broker, authorities: Path) -> None:
    run(slipway_certificates, **wanted)
    wanted["authorities"]["etcd"] = (authorities / "other.crt").read_text() + wanted["authorities"]["etcd"]
    done = run(slipway_certificates, **wanted)
    assert (done["changed_authorities"], done["changed_names"]) == (["etcd"], [])


def test_renews_in_time(wanted: dict[str, Any], broker: Broker) -> None:
    broker.days = "20"
    run(slipway_certificates, **wanted)
    # 30 days before the end would be before the beginning: a third of the life counts.
    assert not run(slipway_certificates, **wanted)["changed"]
    broker.days = "365"
    pki = Path(wanted["directory"])
    now = slipway_certificates.dt.datetime.now(slipway_certificates.dt.timezone.utc)
    entry = {"renew_before_days": 30, "organizations": [], "dns_names": [], "ip_addresses": [], "usages": ["client"]}
    entry["common_name"] = "client"
    files = [str(pki / f"etcd/client.{ending}") for ending in ("crt", "key")]
    authority = str(pki / "authorities/etcd.crt")
    for days, expected in ((0, False), (13, False), (14, True), (21, True)):
        later = now + slipway_certificates.dt.timedelta(days=days)
        reason = slipway_certificates.renewal_reason(entry, *files, authority, later)
        assert bool(reason and reason.startswith("ends ")) is expected


def test_damage(wanted: dict[str, Any], broker: Broker) -> None:
    run(slipway_certificates, **wanted)
    pki = Path(wanted["directory"])
    (pki / "etcd/server.key").write_bytes((pki / "etcd/client.key").read_bytes())
    (pki / "etcd/client.crt").write_text("nonsense")
    reasons = run(slipway_certificates, **wanted)["reasons"]
    assert reasons["etcd/server"] == "does not belong to its key"
    assert reasons["etcd/client"].startswith("unreadable")
    (pki / "etcd/server.key").chmod(0o644)
    mended = run(slipway_certificates, **wanted)
    assert mended["changed_paths"] == [str(pki / "etcd/server.key")]
    assert mended["changed_names"] == []
    assert stat.S_IMODE((pki / "etcd/server.key").stat().st_mode) == 0o600


def test_no_controller(wanted: dict[str, Any]) -> None:
    wanted["socket"] = "/nonexistent"
    failed = run(slipway_certificates, **wanted)
    assert "etcd/server: no controller is connected" in failed["msg"]
    assert not list(Path(wanted["directory"]).rglob("*.key"))


def test_controller_says_no(wanted: dict[str, Any], broker: Broker) -> None:
    broker.says = {"ok": False, "error": "not declared for this host"}
    assert "refuses to sign: not declared for this host" in run(slipway_certificates, **wanted)["msg"]


def test_controller_signs_with_the_wrong_authority(wanted: dict[str, Any], broker: Broker) -> None:
    broker.signs_with = "other"
    assert "signed by another authority" in run(slipway_certificates, **wanted)["msg"]
    assert not list(Path(wanted["directory"]).rglob("*.key"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": "../escape"}, "expected a name such as"),
        ({"name": "authorities/etcd"}, "expected a name such as"),
        ({"authority": "unknown"}, "authority 'unknown' is not among etcd"),
        ({"common_name": "a\nb = c"}, "not allowed"),
        ({"dns_names": ["$ENV::HOME"]}, "not allowed"),
        ({"ip_addresses": ["300.0.0.1"]}, "300.0.0.1"),
        ({"usages": []}, "expected usages"),
    ],
)
def test_refuses_what_cannot_be_asked_for(wanted: dict[str, Any], change: dict[str, Any], expected: str) -> None:
    wanted["certificates"][0].update(change)
    assert expected in run(slipway_certificates, **wanted)["msg"]
