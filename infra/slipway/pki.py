"""Certificate authorities, the certificates that they sign, and the other keys of a cluster.

Pure functions: nothing here reads or writes a file. Keys and certificates are PEM text. Certificates have P-256 keys.
A host makes its own key and sends a request; `sign_csr` signs it only if it asks for exactly what was declared.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Usage = Literal["server", "client"]

_USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}

_CLOCK_SKEW = dt.timedelta(minutes=10)
"""How far a host's clock may be behind and still accept a certificate that was made just now."""


class RequestRefused(Exception):  # noqa: N818  (an answer, not a fault)
    """A certificate request asks for something else than what was declared. The message is one line."""


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key.

    Args:
        certificate: PEM.
        key: PEM, PKCS 8, not encrypted.
    """

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "KeyPair(…)"


@dataclass(frozen=True)
class CertificateRequestSpec:
    """What a certificate says.

    Args:
        common_name: the user's or server's name, at most 64 characters.
        organizations: the user's groups.
        dns_names: names that a server answers to.
        ip_addresses: addresses that a server answers to.
        usages: `server`, `client` or both.
        days: how long it is valid, at most as long as its authority.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    usages: tuple[Usage, ...] = ("client",)
    days: int = 365


def make_authority(common_name: str, days: int) -> KeyPair:
    """Return a new self-signed authority that may sign certificates, but no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    start = _now() - _CLOCK_SKEW
    certificate = (
        _builder(name, name, key.public_key(), start, start + dt.timedelta(days=days) + _CLOCK_SKEW)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return KeyPair(_certificate_pem(certificate), _key_pem(key))


def issue(authority: KeyPair, spec: CertificateRequestSpec) -> KeyPair:
    """Return a new key with a certificate for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    return KeyPair(_certificate_pem(_sign(authority, key.public_key(), spec)), _key_pem(key))


def sign_csr(csr_pem: str, authority: KeyPair, allowed: CertificateRequestSpec) -> str:
    """Return the certificate (PEM) for a request that asks for exactly what is allowed.

    Of the request only its key is used; everything that the certificate says comes from `allowed`.

    Raises:
        RequestRefused: the request is no valid one or asks for anything else.
    """
    try:
        request = x509.load_pem_x509_csr(csr_pem.encode())
        key = request.public_key()
        extensions = list(request.extensions)
        sound = request.is_signature_valid
    except (ValueError, TypeError, InvalidSignature, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise RequestRefused(f"no valid certificate request: {' '.join(str(error).split())[:200]}") from None
    if not sound:
        raise RequestRefused("the request is not signed by its own key")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise RequestRefused(f"expected a P-256 key, got {_key_name(key)}")
    _check_subject(request.subject, allowed)
    _check_extensions(extensions, allowed)
    return _certificate_pem(_sign(authority, key, allowed))


def not_after(certificate_pem: str) -> dt.datetime:
    """Return when a certificate ends, in UTC."""
    return x509.load_pem_x509_certificate(certificate_pem.encode()).not_valid_after_utc


def expires_within(certificate_pem: str, days: float) -> bool:
    """Say whether a certificate ends within so many days, or has ended."""
    return not_after(certificate_pem) - _now() < dt.timedelta(days=days)


def make_signing_key() -> tuple[str, str]:
    """Return a new key that signs service account tokens: its public and private PEM.

    RSA, as the clouds' workload identity federations take nothing else.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return _public_pem(key.public_key()), _key_pem(key)


def make_ssh_key(comment: str) -> tuple[str, str]:
    """Return a new Ed25519 key for SSH: its public line and its private key as OpenSSH has it."""
    key = ed25519.Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return f"{public.decode()} {comment}".strip(), private.decode()


def _sign(authority: KeyPair, key: ec.EllipticCurvePublicKey, spec: CertificateRequestSpec) -> x509.Certificate:
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    issuer_key = serialization.load_pem_private_key(authority.key.encode(), password=None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"expected a P-256 key of the authority, got {_key_name(issuer_key)}")
    start = max(_now() - _CLOCK_SKEW, issuer.not_valid_before_utc)
    end = min(_now() + dt.timedelta(days=spec.days), issuer.not_valid_after_utc)
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in spec.organizations]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name)])
    builder = (
        _builder(subject, issuer.subject, key, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGES[usage] for usage in spec.usages]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
    )
    alternatives = [
        *(x509.DNSName(name) for name in spec.dns_names),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in spec.ip_addresses),
    ]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _check_subject(subject: x509.Name, allowed: CertificateRequestSpec) -> None:
    known = {NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME}
    for attribute in subject:
        if attribute.oid not in known:
            raise RequestRefused(f"the subject has {attribute.rfc4514_attribute_name}, which is not declared")
    common_names = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if common_names != [allowed.common_name]:
        raise RequestRefused(f"expected the common name {allowed.common_name}, got {_listed(common_names)}")
    organizations = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    _check_same("organizations", allowed.organizations, organizations)


def _check_extensions(extensions: list[x509.Extension[x509.ExtensionType]], allowed: CertificateRequestSpec) -> None:
    dns_names: list[str] = []
    addresses: list[str] = []
    for extension in extensions:
        match extension.value:
            case x509.SubjectAlternativeName() as names:
                dns_names = names.get_values_for_type(x509.DNSName)
                addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
                if len(dns_names) + len(addresses) != len(list(names)):
                    raise RequestRefused("expected DNS names and IP addresses only among the alternative names")
            case x509.ExtendedKeyUsage() as usages:
                wanted = [_USAGES[usage].dotted_string for usage in allowed.usages]
                _check_same("usages", wanted, [usage.dotted_string for usage in usages])
            case x509.KeyUsage() as usage:
                if usage != _key_usage(authority=False):
                    raise RequestRefused("expected the key usage digitalSignature and no other")
            case x509.BasicConstraints() as constraints:
                if constraints.ca:
                    raise RequestRefused("the request is for an authority")
            case x509.SubjectKeyIdentifier():
                pass  # says nothing that the key does not
            case _:
                raise RequestRefused(f"the extension {extension.oid.dotted_string} is not declared")
    _check_same("DNS names", allowed.dns_names, dns_names)
    _check_same("IP addresses", map(_canonical, allowed.ip_addresses), addresses)


def _check_same(what: str, expected: Iterable[str], got: Iterable[str]) -> None:
    wanted, asked = sorted(expected), sorted(got)
    if wanted != asked:
        raise RequestRefused(f"expected {what} {_listed(wanted)}, got {_listed(asked)}")


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))


def _listed(values: Iterable[str]) -> str:
    return (", ".join(values) or "none")[:300]


def _key_name(key: object) -> str:
    match key:
        case ec.EllipticCurvePublicKey() | ec.EllipticCurvePrivateKey():
            return f"an elliptic curve key on {key.curve.name}"
        case rsa.RSAPublicKey() | rsa.RSAPrivateKey():
            return f"an RSA key of {key.key_size} bits"
        case _:
            return type(key).__name__


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _public_pem(key: rsa.RSAPublicKey) -> str:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
