"""Bootstrap tokens: what is sent to the API, and how long one waits for it."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import re
import ssl

import httpx
import pytest
import tenacity
import yaml

from slipway import pki
from slipway.play import tokens
from slipway.play.broker import BrokerError

CLUSTER = tokens.Cluster("https://10.0.0.1:6443", ssl.create_default_context())


def make(handler) -> str:
    return asyncio.run(tokens.make_token(CLUSTER, "node-7", httpx.MockTransport(handler)))


def test_a_token_is_created_for_an_hour_and_for_joining_only():
    sent = []

    def api(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(201)

    token = make(api)
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token)
    assert str(sent[0].url) == "https://10.0.0.1:6443/api/v1/namespaces/kube-system/secrets"
    secret = json.loads(sent[0].content)
    assert secret["type"] == "bootstrap.kubernetes.io/token"
    assert secret["metadata"] == {"name": f"bootstrap-token-{token[:6]}", "namespace": "kube-system"}
    data = secret["stringData"]
    assert f"{data['token-id']}.{data['token-secret']}" == token
    assert data["auth-extra-groups"] == "system:bootstrappers:slipway"
    assert data["usage-bootstrap-authentication"] == "true"
    assert "usage-bootstrap-signing" not in data
    left = dt.datetime.fromisoformat(data["expiration"]) - dt.datetime.now(dt.UTC)
    assert dt.timedelta(minutes=55) < left <= dt.timedelta(hours=1)


def test_an_api_that_is_not_there_yet_is_waited_for():
    answers = [httpx.ConnectError("refused"), httpx.Response(503), httpx.Response(404), httpx.Response(201)]

    def api(_request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert make(api)
    assert not answers


def test_an_answer_that_got_lost_is_no_failure():
    answers = [httpx.ReadTimeout("lost"), httpx.Response(409)]

    def api(_request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert make(api)


def test_a_refusal_is_told_at_once():
    with pytest.raises(BrokerError, match="refused a bootstrap token: HTTP 403 no, not you"):
        make(lambda _request: httpx.Response(403, json={"message": "no, not you"}))


def test_patience_ends(monkeypatch):
    monkeypatch.setattr(tokens.tenacity, "stop_after_delay", lambda _seconds: tenacity.stop_after_attempt(2))
    with pytest.raises(BrokerError, match="gave no bootstrap token within 90 s: HTTP 503"):
        make(lambda _request: httpx.Response(503))


def kubeconfig(**user) -> str:
    authority = pki.make_authority("kubernetes", 10)
    pair = pki.issue(authority, pki.CertificateRequestSpec("admin", ("system:masters",)))

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    user = user or {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    return yaml.safe_dump(
        {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
            "clusters": [
                {
                    "name": "lab",
                    "cluster": {"server": "https://x", "certificate-authority-data": encoded(authority.certificate)},
                }
            ],
            "users": [{"name": "admin", "user": user}],
        }
    )


def test_a_kubeconfig_is_read_and_leaves_no_file(tmp_path):
    cluster = tokens.cluster(kubeconfig(), tmp_path)
    assert cluster.server == "https://x"
    assert cluster.tls.verify_mode == ssl.CERT_REQUIRED
    assert list(tmp_path.iterdir()) == []
    assert "PRIVATE" not in repr(cluster)


def test_a_kubeconfig_without_embedded_certificates_is_refused(tmp_path):
    with pytest.raises(BrokerError, match="has no usable 'client-certificate-data'; expected embedded certificates"):
        tokens.cluster(kubeconfig(token="secret"), tmp_path)
