"""The way out that a stack declares: what the controller's environment and the hosts' variables become."""

from __future__ import annotations

import dataclasses
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from publishers import running, sha256
from slipway import outside, paths, pki, spec
from slipway.artifacts import download
from slipway.play import inventory
from slipway.play.inventory import Sources

NAMES = ("http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An environment without proxies, put back afterwards with what is kept of it."""
    monkeypatch.setattr(os, "environ", {key: value for key, value in os.environ.items() if key.lower() not in NAMES})
    os.environ.pop("SSL_CERT_FILE", None)
    monkeypatch.setattr(paths, "cache", lambda: tmp_path)
    yield
    download.use_instead({})
    download.tls.cache_clear()


def cluster(**more: Any) -> spec.Cluster:
    declared = yaml.safe_load((paths.root() / "stacks/Pulumi.tiny.yaml").read_text())["config"]["slipway:cluster"]
    return spec.parse({**declared, **more}, "here")


def authority() -> str:
    return pki.make_authority("a site", 1).certificate


def test_nothing_said_changes_nothing() -> None:
    before = dict(os.environ)
    outside.enter(cluster())
    assert dict(os.environ) == before


def test_proxies() -> None:
    outside.enter(cluster(upstream={"https_proxy": "http://proxy.example:3128", "no_proxy": [".example.com"]}))
    assert os.environ["https_proxy"] == os.environ["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert "http_proxy" not in os.environ
    direct = os.environ["NO_PROXY"].split(",")
    # Nothing of the cluster itself is asked for by proxy: its hosts, its API, its services.
    assert {".example.com", "10.99.0.0/24", "10.245.0.0/16", "10.100.0.0/16", "127.0.0.1"} <= set(direct)


def test_the_users_own_proxies_come_first() -> None:
    os.environ["https_proxy"] = "http://mine:1"
    os.environ["no_proxy"] = "mine.example"
    outside.enter(cluster(upstream={"https_proxy": "http://proxy.example:3128"}))
    assert os.environ["https_proxy"] == "http://mine:1"
    assert os.environ["no_proxy"].startswith("mine.example,")


def test_private_authorities_are_trusted_besides_the_public_ones() -> None:
    pem = authority()
    public = len(ssl.create_default_context().get_ca_certs())
    outside.enter(cluster(upstream={"authorities": [pem]}))
    text = Path(os.environ["SSL_CERT_FILE"]).read_text()
    assert pem.strip() in text
    assert text.count("BEGIN CERTIFICATE") >= max(public, 1)


def test_other_addresses_with_the_digests_of_the_release(tmp_path: Path) -> None:
    with running() as server:
        server.files["/github/etcd"] = b"etcd"
        outside.enter(cluster(upstream={"addresses": {"https://github.com/": server.url("/github/")}}))
        fetched = download.fetch("https://github.com/etcd", "sha256", sha256(b"etcd"), tmp_path / "files")
        assert fetched.read_bytes() == b"etcd"
        server.files["/github/etcd"] = b"evil"
        with pytest.raises(download.WrongDigestError, match=r"^https://github.com/etcd: wanted"):
            download.fetch("https://github.com/etcd", "sha256", "0" * 64, tmp_path / "files")
        assert download.unreachable("https://github.com/other") == "cannot be reached: answers 404"


def test_of_two_addresses_the_longer_counts() -> None:
    download.use_instead({"https://a/": "https://b/", "https://a/x/": "https://c/"})
    assert [download.address(url) for url in ("https://a/1", "https://a/x/1", "https://d/1")] == [
        "https://b/1",
        "https://c/1",
        "https://d/1",
    ]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"mirror": {"url": "10.0.0.5"}}, "mirror.url: expected an address that begins with http:// or https://"),
        ({"mirror": {"url": "http://m", "fingerprint": "38af"}}, "mirror.fingerprint: expected a fingerprint: 40"),
        (
            {"upstream": {"authorities": ["-----BEGIN PRIVATE KEY-----"]}},
            "upstream.authorities[0]: expected one certif",
        ),
        ({"upstream": {"proxy": "x"}}, "upstream.proxy: unknown key; did you mean no_proxy?"),
    ],
)
def test_mistakes_are_told(said: dict[str, Any], problem: str) -> None:
    with pytest.raises(spec.SpecError) as refused:
        cluster(**said)
    assert any(line.startswith(f"here: {problem}") for line in refused.value.problems), refused.value.problems


SOURCES = Sources(
    artifact=lambda *_: {},
    images=[],
    sandbox_image="pause",
    authorities=dict.fromkeys(("kubernetes", "kubelet", "etcd", "etcd-events", "etcd-client", "front-proxy"), "pem"),
    storage={},
    nodes={},
)


def every_play(declared: spec.Cluster, sources: Sources = SOURCES) -> list[dict[str, Any]]:
    return [
        inventory.etcd(declared, "etcd", sources),
        inventory.load_balancer(declared, sources),
        inventory.apiserver(declared, sources),
        inventory.node(declared, declared.pools[0], sources),
    ]


def test_hosts_are_told_of_the_mirror_and_of_no_proxy() -> None:
    mirror = {"url": "https://mirror.example/", "fingerprint": "A" * 40}
    declared = cluster(mirror=mirror, upstream={"http_proxy": "http://proxy.example:3128"})
    for told in every_play(declared, dataclasses.replace(SOURCES, mirror_key="key")):
        assert told["host_mirror"] == {"url": "https://mirror.example", "release": "lab", "key": "key"}
        assert "host_proxy" not in told


def test_hosts_are_told_of_proxies_and_authorities() -> None:
    pem = authority()
    told = every_play(cluster(upstream={"http_proxy": "http://proxy.example:3128", "authorities": [pem]}))
    assert all(one["host_proxy"]["http"] == "http://proxy.example:3128" for one in told)
    assert all(one["host_authorities"] == [pem] for one in told)
    assert "10.100.0.0/16" in told[-1]["containerd_proxy"]["direct"]


def test_hosts_of_other_stacks_are_told_nothing() -> None:
    """Else their digests would be others, and all of them be gone through again."""
    for told in every_play(cluster()):
        assert not {"host_mirror", "host_proxy", "host_authorities", "containerd_proxy"} & told.keys()
