"""Two lab hosts, one of each kind of key, and a play on both hosts. What changes from test to test is configuration."""

import signal

import pulumi

from slipway import resources
from slipway.node import bundle

signal.signal(signal.SIGINT, signal.SIG_DFL)  # told to stop: end at once, without a traceback
config = pulumi.Config()
name_of_network = config.get("network") or "provider-test"
subnet = config.get("subnet") or "10.96.0"
playbook = config.get("playbook") or "probe"
key = resources.SshKey("ssh", comment="provider test")
authority = resources.CertificateAuthority("authority", common_name="probe")
admin = resources.Certificate(
    "admin", authority=authority, common_name="admin", organizations=["system:masters"], days=30, renew_before_days=10
)
secret = resources.RandomSecret("secret")
signing = resources.SigningKey("signing")
network = resources.LabNetwork(
    "network",
    name=name_of_network,
    cidr=config.get("cidr") or f"{subnet}.0/24",
    bridge=config.get("bridge") or "slipway-test-p",
)

hosts = []
for number in range(config.get_int("count") or 2):
    name = f"probe-{number}"
    address = f"{subnet}.{10 + number}"
    host = resources.LabHost(
        name,
        name=name,
        network=name_of_network,
        bridge=network.bridge,
        gateway=network.gateway,
        prefix=network.prefix,
        address=address,
        os="debian13",
        authorized_key=key.public_key,
        group="probe",
    )
    certificate = {
        "name": "probe/server",
        "authority": "probe",
        "common_name": name,
        "organizations": [],
        "dns_names": [name],
        "ip_addresses": [address],
        "usages": ["server"],
        "owner": "root",
    }
    hosts.append(
        {
            "name": name,
            "address": host.address,
            "user": host.user,
            "hostKey": host.host_key,
            "group": "probe",
            "vars": {
                "pki_certificates": [certificate],
                "probe_fails": name == config.get("fails"),
                **({"probe_seconds": 0} if name != (config.get("slow") or name) else {}),
            },
        }
    )

play = resources.Play(
    "probe",
    playbook=playbook,
    hosts=hosts,
    digest=bundle.playbook_digest(playbook),
    release="test",
    release_digest="0" * 64,
    ssh_key=key.private_key,
    variables={
        "probe_text": config.get("text") or "first",
        "probe_seconds": config.get_int("seconds") or 0,
        **({"service_root": config.require("root")} if config.get("root") else {}),
        "pki_authorities": {"probe": authority.certificate},
    },
    secrets={"probe_secret": secret.value},
    authorities={"probe": {"certificate": authority.certificate, "key": authority.private_key}},
    rollout={"mode": config.get("mode") or "together", **(config.get_object("rollout") or {})},
    preview=config.get("preview"),
    timeout_seconds=120,
)
pulumi.export("results", play.results)
pulumi.export("publicKeys", [key.public_key, signing.public_key])
pulumi.export("keys", [key.private_key, signing.private_key, admin.private_key, authority.private_key, secret.value])
