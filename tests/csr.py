"""Certificate requests as a host would make them, and as it should not."""

from __future__ import annotations

import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from slipway import pki

SERVER = pki.CertificateRequestSpec(
    common_name="lab-etcd-0",
    organizations=("members",),
    dns_names=("lab-etcd-0", "localhost"),
    ip_addresses=("10.0.0.1", "127.0.0.1"),
    usages=("server", "client"),
)
_EXTENDED = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


def request(
    spec: pki.CertificateRequestSpec,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
    extra: x509.ExtensionType | None = None,
) -> str:
    """Return a request (PEM) for what a spec says, by default with a new P-256 key."""
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in spec.organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name)])
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in spec.dns_names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in spec.ip_addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([_EXTENDED[usage] for usage in spec.usages]), critical=False)
    if extra is not None:
        builder = builder.add_extension(extra, critical=False)
    signed = builder.sign(key or ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()
