"""Ansible module: authorities, keys and certificates of a host.

Keys are made here and never leave the host: a signing request goes over the broker's socket to whoever drives the
run, a certificate comes back. The host's ``openssl`` does the cryptography, keys are handed to it by file.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import re
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_broker import exchange
from ansible.module_utils.slipway_io import (
    SlipwayError,
    attributes,
    attributes_differ,
    make_directory,
    read_if_present,
    set_attributes,
    write_atomic,
)

DOCUMENTATION = r"""
module: slipway_certificates
short_description: Keep the authorities, keys and certificates of a host right
description:
  - Writes C(<directory>/authorities/<authority>.crt) (0644) and, for each certificate, C(<directory>/<name>.crt)
    (0644) and
    C(<directory>/<name>.key) (0600), both owned by the service's user.
  - Makes a new P-256 key and has it signed when the certificate is missing, unreadable, near its end, signed by
    another authority, does not
    belong to its key, or carries other names or usages than wanted.
  - Signing goes through the broker's socket. A run that has nothing to renew needs no broker.
options:
  authorities:
    description: Name to PEM text (one certificate, or several while an authority is being replaced).
    type: dict
    default: {}
  certificates:
    description: Certificates this host holds.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: "Path below O(directory) without ending, for example V(etcd/server)"
        type: str
        required: true
      authority: {description: Name of the authority that signs it., type: str, required: true}
      common_name: {description: Subject CN., type: str, required: true}
      organizations: {description: Subject O., type: list, elements: str, default: []}
      dns_names: {description: Subject alternative DNS names., type: list, elements: str, default: []}
      ip_addresses: {description: Subject alternative addresses., type: list, elements: str, default: []}
      usages: {description: Extended key usages., type: list, elements: str, choices: [server, client], required: true}
      owner: {description: User that reads the key., type: str, default: root}
      group: {description: Group of both files; the owner's own group when left out., type: str}
      renew_before_days:
        description: Renewed when fewer days are left; at most a third of the certificate's whole life counts.
        type: int
        default: 30
  directory: {description: Folder of all of it., type: path, default: /etc/slipway/pki}
  socket: {description: Socket of the broker., type: path, default: /run/slipway/broker.sock}
  timeout_seconds: {description: How long one signature may take., type: int, default: 60}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Certificates of an etcd member
  slipway_certificates:
    authorities: {etcd: "{{ pki_authorities.etcd }}"}
    certificates:
      - name: etcd/server
        authority: etcd
        common_name: etcd-0
        dns_names: [etcd-0, localhost]
        ip_addresses: [192.0.2.10, 127.0.0.1]
        usages: [server, client]
        owner: etcd
"""

RETURN = r"""
changed_names: {description: Certificates that were (would be) made new., returned: always, type: list}
changed_authorities: {description: Authorities whose text changed., returned: always, type: list}
changed_paths: {description: All files that changed., returned: always, type: list}
reasons: {description: Name to the reason why the certificate was (would be) made new., returned: always, type: dict}
"""

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
# What may stand in a subject or DNS name: the request is an openssl configuration, where other signs have a meaning.
TEXT = re.compile(r"[A-Za-z0-9*][A-Za-z0-9 ._:@*/-]*")
USAGES = {"server": "serverAuth", "client": "clientAuth"}
USAGE_TEXTS = {"TLS Web Server Authentication": "server", "TLS Web Client Authentication": "client"}


class Certificate(NamedTuple):
    """What an installed certificate says."""

    common_name: str
    organizations: set[str]
    names: set[str]
    usages: set[str]
    not_before: dt.datetime
    not_after: dt.datetime


def openssl(*arguments: str, stdin: bytes = b"") -> str:
    """Run the host's openssl; raises SlipwayError with its last line."""
    try:
        done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=False)
    except FileNotFoundError:
        raise SlipwayError("openssl is not installed on this host; expected it from role host") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        raise SlipwayError(f"openssl {arguments[0]} failed: {said[-1] if said else f'exit {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def parse_time(text: str) -> dt.datetime:
    """'Nov 30 20:40:00 2027 GMT' as a time in UTC, whatever the locale."""
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    month, day, clock, year = text.split()[:4]
    hour, minute, second = (int(part) for part in clock.split(":"))
    return dt.datetime(int(year), months.index(month) + 1, int(day), hour, minute, second, tzinfo=dt.timezone.utc)


def parse_certificate(text: str) -> Certificate:
    """Read what ``openssl x509 -subject -dates -ext …`` prints."""
    common_name = ""
    organizations: set[str] = set()
    names: set[str] = set()
    usages: set[str] = set()
    for line in text.splitlines():
        key, found, value = (part.strip() for part in line.partition("="))
        if found and key == "commonName":
            common_name = value
        elif found and key == "organizationName":
            organizations.add(value)
    for name in re.findall(r"DNS:([^,\s]+)", text):
        names.add(name)
    for address in re.findall(r"IP Address:([0-9A-Fa-f:.]+)", text):
        names.add(str(ipaddress.ip_address(address)))
    for shown, usage in USAGE_TEXTS.items():
        if shown in text:
            usages.add(usage)
    dates = dict(re.findall(r"^(notBefore|notAfter)=(.*)$", text, re.MULTILINE))
    if len(dates) != 2:
        raise SlipwayError("unreadable certificate")
    return Certificate(
        common_name,
        organizations,
        names,
        usages,
        parse_time(dates["notBefore"]),
        parse_time(dates["notAfter"]),
    )


def read_certificate(path: str) -> Certificate:
    """What the certificate in a file says."""
    shown = ["-subject", "-dates", "-nameopt", "multiline,utf8", "-ext", "subjectAltName,extendedKeyUsage"]
    return parse_certificate(openssl("x509", "-in", path, "-noout", *shown))


def wanted_names(entry: dict[str, Any]) -> set[str]:
    """DNS names and addresses of a wanted certificate in one normal form."""
    return set(entry["dns_names"]) | {str(ipaddress.ip_address(address)) for address in entry["ip_addresses"]}


def renewal_reason(
    entry: dict[str, Any], certificate_path: str, key_path: str, authority_path: str, now: dt.datetime
) -> str | None:
    """Why the certificate has to be made new, None when it is right."""
    if not os.path.isfile(certificate_path) or not os.path.isfile(key_path):
        return "missing"
    try:
        found = read_certificate(certificate_path)
    except SlipwayError as error:
        return f"unreadable ({error})"
    try:
        # Compares the two without starting a process.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate_path, key_path, password="")
    except (OSError, ssl.SSLError):
        return "does not belong to its key"
    if found.common_name != entry["common_name"] or found.organizations != set(entry["organizations"]):
        return "another subject is wanted"
    if found.names != wanted_names(entry):
        return "other names are wanted"
    if found.usages != set(entry["usages"]):
        return "other usages are wanted"
    window = min(dt.timedelta(days=entry["renew_before_days"]), (found.not_after - found.not_before) / 3)
    if now > found.not_after - window:
        return f"ends {found.not_after:%Y-%m-%d}"
    try:
        verify(certificate_path, authority_path)
    except SlipwayError:
        return "signed by another authority"
    return None


def verify(certificate_path: str, authority_path: str) -> None:
    """Raises SlipwayError unless the authority (and no other) signed the certificate."""
    openssl("verify", "-no-CApath", "-no-CAstore", "-partial_chain", "-CAfile", authority_path, certificate_path)


def request_configuration(entry: dict[str, Any]) -> str:
    """The openssl configuration of a signing request."""
    subject = [f"{index}.O = {name}" for index, name in enumerate(entry["organizations"])] + [
        f"CN = {entry['common_name']}"
    ]
    names = [f"DNS.{index} = {name}" for index, name in enumerate(entry["dns_names"])]
    names += [f"IP.{index} = {address}" for index, address in enumerate(entry["ip_addresses"])]
    extensions = ["basicConstraints = critical, CA:FALSE", "keyUsage = critical, digitalSignature"]
    extensions.append("extendedKeyUsage = " + ", ".join(USAGES[usage] for usage in entry["usages"]))
    if names:
        extensions.append("subjectAltName = @names")
    sections = {
        "req": ["prompt = no", "utf8 = yes", "distinguished_name = subject", "req_extensions = extensions"],
        "subject": subject,
        "extensions": extensions,
        "names": names,
    }
    return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items()) + "\n"


def ask_broker(path: str, request: dict[str, str], timeout: int) -> dict[str, Any]:
    """One JSON line to the broker, one back. Raises SlipwayError when there is no broker or it says no."""
    what = f"certificate {request['name']}"
    try:
        line = exchange(path, request, timeout)
    except (FileNotFoundError, ConnectionRefusedError):
        raise SlipwayError(
            f"{what}: no controller is connected (nothing listens on {path}); run it through `slipway up`"
        ) from None
    except socket.timeout:
        raise SlipwayError(f"{what}: the controller did not answer within {timeout} s") from None
    except OSError as error:
        raise SlipwayError(f"{what}: the broker on {path} cannot be reached ({error})") from None
    try:
        answer = json.loads(line)
    except ValueError:
        raise SlipwayError(f"{what}: the controller went away before it answered") from None
    if not isinstance(answer, dict) or not answer.get("ok"):
        error_text = answer.get("error") if isinstance(answer, dict) else line.decode("utf-8", "replace")
        raise SlipwayError(f"{what}: the controller refuses to sign: {error_text}")
    return answer


def make(entry: dict[str, Any], authority_path: str, params: dict[str, Any], scratch: str) -> dict[str, bytes]:
    """A new key and its signed certificate, checked, as {"key": …, "crt": …}."""
    key_path = os.path.join(scratch, "key")
    # The scratch folder has mode 0700, and openssl makes key files with 0600.
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key_path)
    configuration = os.path.join(scratch, "request.cnf")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(request_configuration(entry))
    csr = openssl("req", "-new", "-sha256", "-key", key_path, "-config", configuration)
    request = {"kind": "certificate", "name": entry["name"], "csr": csr, "authority": entry["authority"]}
    answer = ask_broker(params["socket"], request, params["timeout_seconds"])
    signed = str(answer.get("certificate", "")).encode()
    certificate_path = os.path.join(scratch, "crt")
    with open(certificate_path, "wb") as file:
        file.write(signed)
    now = dt.datetime.now(dt.timezone.utc)
    reason = renewal_reason(entry, certificate_path, key_path, authority_path, now)
    if reason is not None:
        raise SlipwayError(
            f"certificate {entry['name']}: what the controller signed is not what was asked for: {reason}"
        )
    with open(key_path, "rb") as file:
        return {"key": file.read(), "crt": signed}


def check_entry(entry: dict[str, Any], authorities: Sequence[str]) -> None:
    """Raises SlipwayError when an entry cannot be asked for."""
    where = f"certificate {entry['name']}"
    if not NAME.fullmatch(entry["name"]) or entry["name"].startswith("authorities/"):
        raise SlipwayError(f"{where}: expected a name such as 'etcd/server'")
    if entry["authority"] not in authorities:
        raise SlipwayError(
            f"{where}: authority {entry['authority']!r} is not among {', '.join(sorted(authorities)) or '(none)'}"
        )
    for text in [entry["common_name"], *entry["organizations"], *entry["dns_names"]]:
        if not TEXT.fullmatch(text):
            raise SlipwayError(f"{where}: {text!r} has signs that are not allowed in a subject or DNS name")
    try:
        wanted_names(entry)
    except ValueError as error:
        raise SlipwayError(f"{where}: {error}") from None
    if not entry["usages"]:
        raise SlipwayError(f"{where}: expected usages server, client or both")


class Files:
    """Writes files and remembers which changed."""

    def __init__(self, check: bool) -> None:
        self.check = check
        self.changed: list[str] = []

    def directory(self, path: str) -> None:
        """A folder everyone may enter."""
        if not os.path.isdir(path) and path not in self.changed:
            self.changed.append(path)
            if not self.check:
                make_directory(path)

    def write(self, path: str, data: bytes, owner: str, group: str | None, mode: str) -> bool:
        """A file with this content; returns whether the content changed."""
        if read_if_present(path) == data:
            self.own(path, owner, group, mode)
            return False
        self.changed.append(path)
        if not self.check:
            write_atomic(path, data, attributes(owner, group, mode))
        return True

    def own(self, path: str, owner: str, group: str | None, mode: str) -> None:
        """Owner and mode of a file that is there."""
        wanted = attributes(owner, group, mode, self.check)
        if attributes_differ(path, wanted):
            self.changed.append(path)
            if not self.check:
                set_attributes(path, wanted)


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""
    directory = params["directory"]
    now = dt.datetime.now(dt.timezone.utc)
    files = Files(check)
    changed_authorities: list[str] = []
    reasons: dict[str, str] = {}
    for entry in params["certificates"]:
        check_entry(entry, list(params["authorities"]))

    def authority_path(authority: str) -> str:
        return os.path.join(directory, "authorities", f"{authority}.crt")

    with tempfile.TemporaryDirectory(prefix="slipway-pki-") as scratch:
        files.directory(os.path.join(directory, "authorities"))
        for authority, pem in sorted(params["authorities"].items()):
            if not NAME.fullmatch(authority) or "-----BEGIN CERTIFICATE-----" not in str(pem):
                raise SlipwayError(f"authority {authority}: expected a name and a PEM certificate")
            if files.write(authority_path(authority), (str(pem).strip() + "\n").encode(), "root", "root", "0644"):
                changed_authorities.append(authority)
        for entry in params["certificates"]:
            stem = os.path.join(directory, entry["name"])
            # In check mode the authority's file may still be the old one: judge by the text that is wanted.
            judge = os.path.join(scratch, "authority.crt")
            with open(judge, "w", encoding="utf-8") as file:
                file.write(str(params["authorities"][entry["authority"]]).strip() + "\n")
            reason = renewal_reason(entry, f"{stem}.crt", f"{stem}.key", judge, now)
            files.directory(os.path.dirname(stem))
            if reason is None:
                files.own(f"{stem}.key", entry["owner"], entry["group"], "0600")
                files.own(f"{stem}.crt", entry["owner"], entry["group"], "0644")
                continue
            reasons[entry["name"]] = reason
            if check:
                files.changed += [f"{stem}.key", f"{stem}.crt"]
                continue
            attributes(entry["owner"], entry["group"], "0600")  # an unknown user is found before anything is signed
            made = make(entry, judge, params, scratch)
            files.write(f"{stem}.key", made["key"], entry["owner"], entry["group"], "0600")
            files.write(f"{stem}.crt", made["crt"], entry["owner"], entry["group"], "0644")
    lines = [f"authority {name}: new text\n" for name in changed_authorities]
    lines += [f"certificate {name}: made new ({reason})\n" for name, reason in sorted(reasons.items())]
    return {
        "changed": bool(files.changed),
        "changed_names": sorted(reasons),
        "changed_authorities": changed_authorities,
        "changed_paths": files.changed,
        "reasons": reasons,
        "diff": {"before": "", "after": "".join(lines)},
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "authorities": {"type": "dict", "default": {}},
            "certificates": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "authority": {"type": "str", "required": True},
                    "common_name": {"type": "str", "required": True},
                    "organizations": {"type": "list", "elements": "str", "default": []},
                    "dns_names": {"type": "list", "elements": "str", "default": []},
                    "ip_addresses": {"type": "list", "elements": "str", "default": []},
                    "usages": {"type": "list", "elements": "str", "choices": ["server", "client"], "required": True},
                    "owner": {"type": "str", "default": "root"},
                    "group": {"type": "str"},
                    "renew_before_days": {"type": "int", "default": 30},
                },
            },
            "directory": {"type": "path", "default": "/etc/slipway/pki"},
            "socket": {"type": "path", "default": "/run/slipway/broker.sock"},
            "timeout_seconds": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
