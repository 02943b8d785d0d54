"""The provider's server as the engine sees it, without an engine: checks, diffs, previews and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2, status_pb2

from slipway import pki
from slipway.provider import registry, wire
from slipway.provider.resource import Call, InitFailed, Inputs, Resource, ResourceError, State
from slipway.provider.server import Servicer
from slipway.provider.wire import UNKNOWN, Secret

AUTHORITY = pki.make_authority("kubernetes", 100)
DIFF = provider_pb2.DiffResponse


class AbortedError(Exception):
    def __init__(self, message: str, metadata: tuple[tuple[str, bytes], ...]) -> None:
        super().__init__(message)
        self.status = status_pb2.Status.FromString(dict(metadata)["grpc-status-details-bin"])


class Context:
    async def abort(self, code: grpc.StatusCode, message: str, metadata: Any) -> None:
        assert code == grpc.StatusCode.UNKNOWN
        raise AbortedError(message, metadata)


def urn(kind: str, name: str = "it") -> str:
    return f"urn:pulumi:test::project::slipway:index:{kind}::{name}"


def run(request: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(request)


async def call(method: str, request: Any) -> Any:
    return await getattr(Servicer(None), method)(request, Context())


def check(kind: str, news: dict[str, Any]) -> dict[str, str]:
    answer = run(call("Check", provider_pb2.CheckRequest(urn=urn(kind), news=wire.encode(news))))
    named = [[failure.property, failure.reason] for failure in answer.failures]
    return dict(each if each[0] else each[1].split(": ", 1) for each in named)


def diff(kind: str, old: dict[str, Any], new: dict[str, Any], outputs: dict[str, Any] | None = None) -> Any:
    request = provider_pb2.DiffRequest(
        id="it", urn=urn(kind), olds=wire.encode(outputs or {}), old_inputs=wire.encode(old), news=wire.encode(new)
    )
    return run(call("Diff", request))


HOST = {"name": "a", "address": "10.0.0.1", "hostKey": "ssh-ed25519 AAAA", "vars": {"x": 1}}
PLAY = {"playbook": "etcd", "hosts": [HOST], "digest": "d", "release": "r", "sshKey": Secret("key")}


class TestCheck:
    def test_good_inputs(self):
        assert check("Play", PLAY) == {}

    def test_every_failure_names_its_property(self):
        host = {"name": "a", "address": "10.0.0.1", "port": 70_000, "colour": "blue"}
        assert check("Play", PLAY | {"hosts": [host], "rollout": {"mode": "sideways"}}) == {
            "hosts[0].hostKey": "is missing",
            "hosts[0].port": "Input should be less than or equal to 65535",
            "hosts[0].colour": "is not an input of this resource",
            "rollout.mode": "Input should be 'together', 'quorum' or 'waves'",
        }

    def test_what_is_not_known_yet_is_not_judged_but_what_is_missing_is(self):
        host = {"name": "a", "address": UNKNOWN, "port": UNKNOWN}
        assert check("Play", PLAY | {"hosts": [host]}) == {"hosts[0].hostKey": "is missing"}
        assert check("Play", PLAY | {"hosts": UNKNOWN}) == {}

    def test_a_certificate_without_its_authority_is_found_before_anything_runs(self):
        certificate = {"name": "etcd/server", "authority": "etcd", "common_name": "a", "usages": ["server"]}
        failures = check("Play", PLAY | {"hosts": [HOST | {"vars": {"pki_certificates": [certificate]}}]})
        assert failures == {"hosts[0].vars": "a: pki_certificates name etcd, not in authorities"}

    def test_a_message_never_shows_a_value(self):
        failures = check("Play", PLAY | {"sshKey": Secret({"not": "a string but secret"})})
        assert "secret" not in failures["sshKey"]

    def test_two_hosts_of_one_name(self):
        assert "a is there more than once" in str(check("Play", PLAY | {"hosts": [HOST, HOST]}))

    def test_the_engine_is_given_the_name_only_of_what_it_may_print(self):
        news = wire.encode({"playbook": 1, "sshKey": Secret({}), "hosts": [{}], "digest": "d", "release": "r"})
        answer = run(call("Check", provider_pb2.CheckRequest(urn=urn("Play"), news=news)))
        assert {failure.property for failure in answer.failures} == {"playbook", ""}


class TestDiff:
    def test_no_change(self):
        assert diff("Play", PLAY, PLAY).changes == DIFF.DIFF_NONE

    def test_a_changed_variable_is_an_update_with_its_path(self):
        changed = PLAY | {"hosts": [HOST | {"vars": {"x": 2}}]}
        answer = diff("Play", PLAY, changed)
        assert answer.changes == DIFF.DIFF_SOME
        assert list(answer.detailedDiff) == ["hosts[0].vars.x"]
        assert list(answer.diffs) == ["hosts"]
        assert not answer.replaces

    def test_a_changed_secret_has_no_path_into_it(self):
        answer = diff("Play", PLAY | {"secrets": Secret({"a": 1})}, PLAY | {"secrets": Secret({"a": 2})})
        assert list(answer.detailedDiff) == ["secrets"]

    def test_failed_hosts_are_a_reason_for_an_update(self):
        answer = diff("Play", PLAY, PLAY, {"failedHosts": ["a"]})
        assert list(answer.detailedDiff) == ["failedHosts"]
        assert not answer.detailedDiff["failedHosts"].inputDiff

    def test_another_name_is_another_network_and_the_old_one_goes_first(self):
        old = {"name": "lab", "cidr": "10.0.0.0/24", "bridge": "br-lab"}
        answer = diff("LabNetwork", old, old | {"name": UNKNOWN})
        assert list(answer.replaces) == ["name"]
        assert answer.deleteBeforeReplace
        assert answer.detailedDiff["name"].kind == provider_pb2.PropertyDiff.UPDATE_REPLACE

    @pytest.mark.parametrize(("days", "changes"), [(20, DIFF.DIFF_SOME), (40, DIFF.DIFF_NONE)])
    def test_a_certificate_near_its_end_is_renewed(self, days, changes):
        inputs = {
            "authorityCertificate": AUTHORITY.certificate,
            "authorityKey": Secret(AUTHORITY.key),
            "commonName": "admin",
            "renewBeforeDays": 30,
        }
        issued = pki.issue(AUTHORITY, pki.CertificateRequestSpec("admin", days=days))
        outputs = {"certificate": issued.certificate, "privateKey": Secret(issued.key)}
        assert diff("Certificate", inputs, inputs, outputs).changes == changes

    def test_a_certificate_that_ends_with_its_authority_is_not_renewed_for_ever(self):
        authority = pki.make_authority("old", 5)
        inputs = {"authorityCertificate": authority.certificate, "authorityKey": authority.key, "commonName": "admin"}
        outputs = {"certificate": pki.issue(authority, pki.CertificateRequestSpec("admin")).certificate}
        assert diff("Certificate", inputs, inputs, outputs).changes == DIFF.DIFF_NONE


def test_a_preview_promises_no_value_and_keeps_secrets_marked():
    request = provider_pb2.CreateRequest(urn=urn("RandomSecret"), properties=wire.encode({}), preview=True)
    answer = run(call("Create", request))
    assert wire.decode(answer.properties) == {"value": Secret(UNKNOWN)}


def test_created_secrets_are_marked():
    answer = run(call("Create", provider_pb2.CreateRequest(urn=urn("SshKey"), properties=wire.encode({}))))
    outputs = wire.decode(answer.properties)
    assert isinstance(outputs["privateKey"], Secret)
    assert outputs["publicKey"].startswith("ssh-ed25519 ")


class Stubborn(Resource[Inputs]):
    kind = "slipway:index:Stubborn"
    inputs = Inputs
    outputs = frozenset({"seen", "key"})
    secrets = frozenset({"key"})

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def create(self, call: Call, inputs: Inputs) -> State:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ResourceError("no such\n network; run: slipway up"), "no such network; run: slipway up"),
        (KeyError("boom"), "KeyError: 'boom' (a fault in Slipway; details: "),
    ],
)
def test_an_error_is_one_line(monkeypatch, tmp_path, error, message):
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    monkeypatch.setattr("slipway.provider.server.resource_of", lambda _urn: Stubborn(error))
    with pytest.raises(AbortedError) as aborted:
        run(call("Create", provider_pb2.CreateRequest(urn=urn("Stubborn"), properties=wire.encode({}))))
    assert str(aborted.value).startswith(message)
    assert "\n" not in str(aborted.value)


def test_a_half_made_resource_is_saved_with_its_reasons(monkeypatch):
    failed = InitFailed("it-1", {"seen": 1, "key": "k"}, ["a: one", "b: two"])
    monkeypatch.setattr("slipway.provider.server.resource_of", lambda _urn: Stubborn(failed))
    with pytest.raises(AbortedError) as aborted:
        run(call("Create", provider_pb2.CreateRequest(urn=urn("Stubborn"), properties=wire.encode({}))))
    details = provider_pb2.ErrorResourceInitFailed()
    assert aborted.value.status.details[0].Unpack(details)
    assert (details.id, list(details.reasons)) == ("it-1", ["a: one", "b: two"])
    assert wire.decode(details.properties) == {"seen": 1, "key": Secret("k")}


def test_every_resource_loads_and_is_what_its_name_says():
    for kind in registry.resources():
        assert registry.resource_of(f"urn:pulumi:s::p::{kind}::n").kind == kind


def test_an_unknown_resource_is_refused():
    with pytest.raises(ResourceError, match="slipway has no resource slipway:index:Ship; expected one of Certificate"):
        registry.resource_of(urn("Ship"))


class TestDelete:
    """A resource learns whether the program, which still declares others, has left it out."""

    @pytest.mark.parametrize(
        ("declared", "left_out"),
        [(["other"], True), ([], False), (["other", "it"], False)],
        ids=["update", "destroy", "replacement"],
    )
    def test_left_out(self, monkeypatch, declared, left_out):
        seen = []

        class Leaving(Stubborn):
            async def delete(self, call: Call, inputs: Inputs, state: State) -> None:
                seen.append(call.left_out)

        monkeypatch.setattr("slipway.provider.server.resource_of", lambda _urn: Leaving(KeyError()))

        async def lifetime() -> None:
            servicer = Servicer(None)
            for name in declared:
                news = wire.encode({})
                await servicer.Check(provider_pb2.CheckRequest(urn=urn("Leaving", name), news=news), Context())
            await servicer.Delete(provider_pb2.DeleteRequest(id="it", urn=urn("Leaving")), Context())

        run(lifetime())
        assert seen == [left_out]
