"""Publishers of files, packages and images on the loopback interface, with the layouts that real ones have."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a path answers; `sent` is how much of it arrives before the connection ends."""

    content: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    sent: int | None = None


class Publisher(ThreadingHTTPServer):
    """Answers what `files` says; all else is 404."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, Answer | bytes] = {}
        self.asked: list[str] = []

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def redirect(self, path: str, to: str) -> None:
        self.files[path] = Answer(status=302, headers=(("Location", to),))

    def truncate(self, path: str, sent: int) -> None:
        known = self.files[path]
        assert isinstance(known, bytes)
        self.files[path] = Answer(known, sent=sent)


class _Handler(BaseHTTPRequestHandler):
    server: Publisher

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self._answer()

    def _answer(self) -> None:
        known = self.server.files.get(self.path.partition("?")[0], Answer(status=404))
        answer = Answer(known) if isinstance(known, bytes) else known
        if answer.status == 401 and self.headers.get("Authorization") == "Bearer good":
            answer = dataclasses.replace(answer, status=200, headers=())
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(answer.content[: answer.sent])
        self.close_connection = answer.sent is not None


@contextmanager
def running() -> Iterator[Publisher]:
    """A publisher that answers."""
    with Publisher() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


class Gpg:
    """GnuPG with a home of its own."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self._environment = {**os.environ, "GNUPGHOME": str(home)}

    def __call__(self, *arguments: str, feed: bytes = b"") -> bytes:
        command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *arguments]
        done = subprocess.run(command, env=self._environment, input=feed, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def key(self, name: str, *options: str, made: str = "", life: str = "never") -> str:
        """Make a signing key and return its fingerprint; `made` is a time such as 20200101T000000."""
        past = ["--faked-system-time", made] if made else []
        self(*past, *options, "--quick-gen-key", name, "ed25519", "sign", life)
        listed = self("--with-colons", "--list-keys", name).decode().splitlines()
        return next(line.split(":")[9] for line in listed if line.startswith("fpr:"))

    def public(self, name: str) -> bytes:
        return self("--armor", "--export", name)

    def close(self) -> None:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=self._environment, capture_output=True)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def package(name: str, version: str, arch: str, content: bytes) -> tuple[str, bytes, str]:
    """Return (path, content, paragraph of the index) of a package."""
    path = f"pool/{name}_{version.rpartition(':')[2]}_{arch}.deb"
    fields = {"Package": name, "Version": version, "Architecture": arch, "Filename": path}
    fields |= {"Size": str(len(content)), "SHA256": sha256(content), "Description": "one\n more: words"}
    return path, content, "".join(f"{key}: {value}\n" for key, value in fields.items())


def deb(folder: Path, name: str, version: str, arch: str, depends: str = "") -> tuple[str, bytes, str]:
    """Build a real package; return (path, content, paragraph of the index)."""
    tree = folder / f"{name}_{version.replace(':', '_')}_{arch}"
    (tree / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: {arch}\nMaintainer: test <test@example.com>\n"
    control += f"Depends: {depends}\n" if depends else ""
    control += "Description: a package\n of two lines\n"
    (tree / "DEBIAN/control").write_text(control)
    command = ["dpkg-deb", "--build", "--root-owner-group", str(tree), f"{tree}.deb"]
    subprocess.run(command, check=True, capture_output=True)
    content = Path(f"{tree}.deb").read_bytes()
    path = f"pool/{name}_{version.rpartition(':')[2]}_{arch}.deb"
    known = f"Filename: {path}\nSize: {len(content)}\nSHA256: {sha256(content)}\n"
    return path, content, control + known


def release_file(indices: dict[str, bytes], extra: str = "") -> bytes:
    """Return the text of an apt repository's `Release`."""
    lines = "".join(f" {sha256(content)} {len(content)} {path}\n" for path, content in indices.items())
    return f"Origin: test\n{extra}SHA256:\n{lines}".encode()


def publish_repository(
    server: Publisher, gpg: Gpg, key: str, top: str, packages: list[tuple[str, bytes, str]], suite: str = ""
) -> None:
    """Publish an apt repository at a path: flat, or with a suite whose only component is `main`, for amd64."""
    plain = "\n".join(paragraph for _, _, paragraph in packages).encode()
    index = gzip.compress(plain, mtime=0)
    name = "main/binary-amd64/Packages.gz" if suite else "Packages.gz"
    folder = f"{top}/dists/{suite}" if suite else top
    server.files[f"{folder}/{name}"] = index
    listed = {name: index, name.removesuffix(".gz"): plain}  # apt wants both, though only one is published
    server.files[f"{folder}/InRelease"] = gpg("-u", key, "--clearsign", feed=release_file(listed))
    for path, content, _ in packages:
        server.files[f"{top}/{path}"] = content


def publish_image(server: Publisher, repository: str, tag: str, layer: bytes) -> str:
    """Publish an image in a registry that wants a token; return the digest of its manifest."""
    config = json.dumps({"architecture": "amd64", "os": "linux"}).encode()
    blobs = {f"sha256:{sha256(one)}": one for one in (config, layer)}
    described = [{"mediaType": "x", "digest": digest, "size": len(one)} for digest, one in blobs.items()]
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described[0],
            "layers": described[1:],
        }
    ).encode()
    digest = f"sha256:{sha256(manifest)}"
    challenge = f'Bearer realm="{server.url("/token")}",service="registry",scope="repository:{repository}:pull"'
    for path, content in {f"manifests/{tag}": manifest, f"manifests/{digest}": manifest}.items():
        server.files[f"/v2/{repository}/{path}"] = Answer(content, 401, (("WWW-Authenticate", challenge),))
    for name, content in blobs.items():
        server.files[f"/v2/{repository}/blobs/{name}"] = Answer(content, 401, (("WWW-Authenticate", challenge),))
    server.files["/token"] = b'{"token": "good"}'
    return digest
