"""Certificates: what they say, and what is never signed."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from csr import SERVER, request
from slipway import pki

AUTHORITY = pki.make_authority("etcd", 3650)


def load(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_an_authority_may_sign_certificates_but_no_authorities():
    certificate = load(AUTHORITY.certificate)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert usage.key_cert_sign
    assert not usage.digital_signature


def test_a_signed_request_says_what_was_declared_and_stands_under_its_authority():
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = load(pki.sign_csr(request(SERVER, key), AUTHORITY, SERVER))
    certificate.verify_directly_issued_by(load(AUTHORITY.certificate))
    assert certificate.public_key() == key.public_key()
    assert certificate.subject.rfc4514_string() == "CN=lab-etcd-0,O=members"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["lab-etcd-0", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "127.0.0.1"]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    now = dt.datetime.now(dt.UTC)
    assert now - dt.timedelta(hours=1) < certificate.not_valid_before_utc < now
    assert certificate.serial_number.bit_length() > 100


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"common_name": "root"}, "expected the common name lab-etcd-0, got root"),
        ({"organizations": ("system:masters",)}, "expected organizations members, got system:masters"),
        ({"organizations": ()}, "expected organizations members, got none"),
        ({"dns_names": ("lab-etcd-0", "localhost", "kubernetes")}, "expected DNS names"),
        ({"dns_names": ("lab-etcd-0",)}, "expected DNS names"),
        ({"ip_addresses": ("10.0.0.2", "127.0.0.1")}, "expected IP addresses"),
        ({"usages": ("server",)}, "expected usages"),
    ],
)
def test_a_request_for_anything_else_is_refused(changed, reason):
    with pytest.raises(pki.RequestRefused, match=reason) as refused:
        pki.sign_csr(request(replace(SERVER, **changed)), AUTHORITY, SERVER)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (x509.BasicConstraints(ca=True, path_length=None), "is for an authority"),
        (x509.OCSPNoCheck(), "is not declared"),
        (
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            "expected the key usage",
        ),
    ],
)
def test_a_request_with_a_strange_extension_is_refused(extra, reason):
    with pytest.raises(pki.RequestRefused, match=reason):
        pki.sign_csr(request(SERVER, extra=extra), AUTHORITY, SERVER)


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(public_exponent=65537, key_size=2048)]
)
def test_a_request_with_another_kind_of_key_is_refused(key):
    with pytest.raises(pki.RequestRefused, match="expected a P-256 key, got an"):
        pki.sign_csr(request(SERVER, key), AUTHORITY, SERVER)


def test_a_request_that_its_key_did_not_sign_is_refused():
    request_ = x509.load_pem_x509_csr(request(SERVER).encode())
    der = bytearray(request_.public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(pki.RequestRefused):
        pki.sign_csr(forged, AUTHORITY, SERVER)


def test_rubbish_is_refused_in_one_line():
    with pytest.raises(pki.RequestRefused, match=r"^no valid certificate request: .+$"):
        pki.sign_csr("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----", AUTHORITY, SERVER)


labels = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)
specs = st.builds(
    pki.CertificateRequestSpec,
    common_name=labels,
    organizations=st.lists(labels, max_size=2, unique=True).map(tuple),
    dns_names=st.lists(labels, max_size=3, unique=True).map(tuple),
    ip_addresses=st.lists(st.ip_addresses().map(str), max_size=3, unique=True).map(tuple),
    usages=st.sampled_from([("client",), ("server",), ("server", "client"), ("client", "server")]),
)


def same(one: pki.CertificateRequestSpec, other: pki.CertificateRequestSpec) -> bool:
    fields = ("organizations", "dns_names", "ip_addresses", "usages")
    return one.common_name == other.common_name and all(
        sorted(getattr(one, name)) == sorted(getattr(other, name)) for name in fields
    )


@settings(max_examples=60, deadline=None)
@given(asked=specs, allowed=specs)
def test_exactly_what_is_declared_is_signed(asked, allowed):
    pki.sign_csr(request(allowed), AUTHORITY, allowed)
    if not same(asked, allowed):
        with pytest.raises(pki.RequestRefused):
            pki.sign_csr(request(asked), AUTHORITY, allowed)


def test_no_certificate_outlives_its_authority():
    authority = pki.make_authority("short", 2)
    pair = pki.issue(authority, replace(SERVER, days=100))
    assert pki.not_after(pair.certificate) == pki.not_after(authority.certificate)
    assert pki.expires_within(pair.certificate, 3)
    assert not pki.expires_within(pair.certificate, 1)


def test_keys_do_not_show_in_representations():
    assert "PRIVATE" not in repr(AUTHORITY)


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_openssl_accepts_the_chain(tmp_path):
    pair = pki.issue(AUTHORITY, SERVER)
    (tmp_path / "ca").write_text(AUTHORITY.certificate)
    (tmp_path / "crt").write_text(pair.certificate)
    for purpose in ("sslserver", "sslclient"):
        command = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca", "crt"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen here")
def test_ssh_takes_the_key(tmp_path):
    public, private = pki.make_ssh_key("slipway lab")
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(private)
    done = subprocess.run(["ssh-keygen", "-y", "-f", file], capture_output=True, text=True)
    assert done.stdout.split()[:2] == public.split()[:2]
    assert public.endswith(" slipway lab")
