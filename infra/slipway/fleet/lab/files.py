"""What is written into a host's tree: pure functions from names and addresses to text."""

from __future__ import annotations

import dataclasses
import re

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

REMOUNT_UNIT = """\
[Unit]
Description=Make the control groups of this lab host writable
DefaultDependencies=no
Before=sysinit.target
# cgroup v1 only: there systemd-nspawn leaves all hierarchies but systemd's own read-only. A plain remount says "busy".
ConditionPathIsMountPoint=/sys/fs/cgroup/memory

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for group in /sys/fs/cgroup/*/; do \\
    if mountpoint -q "$group"; then mount -o remount,bind,rw "$group"; fi; done'

[Install]
WantedBy=sysinit.target
"""

SSHD = """\
# Lab host: root by key, from this machine's lab network only.
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
MaxStartups 100:30:200
MaxSessions 100
"""

NETWORKD = """\
# Routes and rules of pods belong to the pod network's own programs.
[Network]
ManageForeignRoutes=no
ManageForeignRoutingPolicyRules=no
"""

JOURNALD = """\
[Journal]
Storage=persistent
SystemMaxUse=64M
# The kernel's messages are the machine's, not this host's.
ReadKMsg=no
"""


def network_unit(address: str, prefix: int, gateway: str) -> str:
    """Return the systemd-networkd file of a host's only link; its name sorts before systemd's own for `host0`."""
    return f"""\
[Match]
Name=host0

[Network]
Address={address}/{prefix}
Gateway={gateway}
LinkLocalAddressing=no
IPv6AcceptRA=no
LLDP=no
"""


def hosts(name: str, address: str) -> str:
    """Return /etc/hosts."""
    return f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{address} {name}\n"


def resolv_conf(servers: list[str]) -> str:
    """Return /etc/resolv.conf."""
    return "".join(f"nameserver {server}\n" for server in servers)


@dataclasses.dataclass(frozen=True)
class HostKey:
    """An SSH host key: `private` is the key file's content, `public` one line `ssh-ed25519 AAAA…` without comment."""

    private: str = dataclasses.field(repr=False)
    public: str


def new_host_key() -> HostKey:
    """Make a new ed25519 key."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return HostKey(private.decode(), public.decode())


def adapt_one_line(text: str, codename: str, suite: str) -> str:
    """Return the entries of a one-line apt source list that are of this release, moved to another suite."""
    kept = []
    for line in text.splitlines():
        match = re.match(rf"^deb\s+(\[[^]]*\]\s+)?(\S+)\s+{re.escape(codename)}(-\S+)?\s+(.+)$", line.strip())
        if match:
            _, address, pocket, components = match.groups()
            kept.append(f"deb [signed-by={KEYRING}] {address} {suite}{pocket or ''} {components}")
    return "".join(f"{line}\n" for line in kept)


def adapt_deb822(text: str, codename: str, suite: str) -> str:
    """Return the paragraphs of a deb822 apt source that are of this release, moved to another suite."""
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        fields = _deb822(paragraph)
        suites = [word for word in fields.get("suites", "").split() if re.fullmatch(rf"{codename}(-\S+)?", word)]
        if "deb" not in fields.get("types", "").split() or not suites or fields.get("enabled", "yes").lower() == "no":
            continue
        moved = " ".join(suite + word.removeprefix(codename) for word in suites)
        kept.append(
            f"Types: deb\nURIs: {' '.join(fields['uris'].split())}\nSuites: {moved}\n"
            f"Components: {' '.join(fields.get('components', 'main').split())}\nSigned-By: {KEYRING}\n"
        )
    return "\n".join(kept)


KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


_CARRIED = re.compile(
    r"^Acquire::(https?|ftp)::|^Acquire::(Retries|ForceIPv4|ForceIPv6|Check-Valid-Until|Check-Date)\b"
)


def carried_apt_settings(dump: str, environment: dict[str, str]) -> str:
    """Return what hosts take over of the machine's apt settings (`apt-config dump`): proxies, certificates, retries.

    apt itself heeds `http_proxy` and the like; a host has no such environment, so they become settings.
    """
    lines = [
        line
        for line in dump.splitlines()
        if _CARRIED.match(line) and not line.endswith(' "";') and "User-Agent" not in line
    ]
    for scheme in ("http", "https"):
        proxy = environment.get(f"{scheme}_proxy") or environment.get(f"{scheme.upper()}_PROXY")
        if proxy and not any(line.startswith(f"Acquire::{scheme}::Proxy ") for line in lines):
            lines.append(f'Acquire::{scheme}::Proxy "{proxy}";')
    return "".join(f"{line}\n" for line in lines)


def named_files(settings: str) -> list[str]:
    """Return the files of the machine that apt settings name: certificates, keys, proxy scripts."""
    return sorted(
        set(re.findall(r'::(?:CaInfo|SslCert|SslKey|Proxy-Auto-Detect|ProxyAutoDetect) "(/[^"]+)"', settings))
    )


def _deb822(paragraph: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    name = ""
    for line in paragraph.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line[0] in " \t":
            fields[name] += f" {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    return fields
