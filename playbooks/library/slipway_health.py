#!/usr/bin/python
"""Wait until a systemd unit runs and its health URL answers 200; when it does not, say in one line what is failing."""

from __future__ import annotations

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: slipway_health
short_description: Wait until a unit is healthy
description:
  - Polls until the unit is active with no job pending and, where C(url) is given, the URL answers 200.
  - Never changes anything; in check mode it does not wait.
  - On failure the message names the failing checks (lines that start with C([-])), else the unit's state, and the
    last error in its journal.
options:
  unit: {description: systemd unit that serves the URL., type: str, required: true}
  url: {description: http or https URL; the unit alone is looked at when empty., type: str}
  authority: {description: File with the authority that signed the server's certificate., type: path}
  certificate: {description: Client certificate file., type: path}
  key: {description: Client key file., type: path}
  verify:
    description: Check the server's certificate. May be false only for loopback addresses.
    type: bool
    default: true
  seconds: {description: Deadline in seconds., type: int, default: 120}
author: [Slipway]
"""
EXAMPLES = r"""
- name: Wait until kube-scheduler is healthy
  slipway_health: {unit: kube-scheduler, url: "https://127.0.0.1:10259/healthz", verify: false}
"""
RETURN = r"""
seconds: {description: Seconds waited., type: float, returned: success}
"""

LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Long enough for a check that itself asks a slow etcd.
REQUEST_SECONDS = 10
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """What one look found: healthy, or in a few words why not."""

    healthy: bool
    reason: str = ""


def failing_checks(body: str) -> list[str]:
    """Names of the failing checks in a verbose answer of a Kubernetes component ("[-]etcd failed: …")."""
    return [line[3:].split(" ", 1)[0] for line in body.splitlines() if line.startswith("[-]")]


def describe_error(error: Exception) -> str:
    """One short phrase for an exception of urllib."""
    if isinstance(error, urllib.error.HTTPError):
        body = error.read(65536).decode("utf-8", "replace")
        checks = failing_checks(body)
        if checks:
            return "failing checks: " + ", ".join(checks)
        return f"HTTP {error.code} {body.strip().splitlines()[0][:200] if body.strip() else error.reason}"
    reason = getattr(error, "reason", error)
    return str(reason) or type(error).__name__


def unit_state(unit: str) -> tuple[str, str]:
    """(ActiveState, id of the pending job or "")."""
    out = subprocess.run(
        ["systemctl", "show", "--property=ActiveState,Job", unit], capture_output=True, text=True, check=False
    ).stdout
    values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    job = values.get("Job", "")
    return values.get("ActiveState", "unknown"), "" if job == "0" else job


def last_words(unit: str) -> str:
    """The unit's last journal line that reports an error, else its last line; "" if there is none."""
    out = subprocess.run(
        ["journalctl", "--unit", unit, "--lines", "40", "--output", "cat", "--no-pager"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    errors = [line for line in lines if is_error(line)]
    return plain((errors or lines or [""])[-1])[:300]


def plain(line: str) -> str:
    """Message and error of a JSON log line; other lines as they are."""
    try:
        entry = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return line
    return ": ".join(str(entry[field]) for field in ("msg", "error") if entry.get(field)) if entry else line


def is_error(line: str) -> bool:
    """Whether a log line reports an error: klog's E/F prefix, or a JSON or logfmt level."""
    if line[:1] in "EF" and line[1:5].isdigit():
        return True
    if line.startswith("{"):
        try:
            return str(json.loads(line).get("level", "")) in {"error", "fatal", "panic"}
        except ValueError:
            return False
    return line.lower().startswith("error:") or "level=error" in line or "level=fatal" in line


def context(authority: str | None, certificate: str | None, key: str | None, verify: bool) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority)
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if certificate:
        made.load_cert_chain(certificate, key)
    return made


def look(unit: str, url: str | None, tls: ssl.SSLContext | None) -> Answer:
    """One look at the unit and its URL."""
    state, job = unit_state(unit)
    if state != "active" or job:
        return Answer(False, f"unit is {state}{' with a job pending' if job else ''}")
    if not url:
        return Answer(True)
    try:
        # A new connection each time; proxies of the environment have no say about a host's own services.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls))
        with opener.open(url, timeout=REQUEST_SECONDS):
            return Answer(True)
    except (OSError, ValueError) as error:
        return Answer(False, describe_error(error))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "url": {"type": "str"},
            "authority": {"type": "path"},
            "certificate": {"type": "path"},
            "key": {"type": "path", "no_log": False},
            "verify": {"type": "bool", "default": True},
            "seconds": {"type": "int", "default": 120},
        },
        required_together=[("certificate", "key")],
        supports_check_mode=True,
    )
    unit: str = module.params["unit"]
    url: str | None = module.params["url"]
    if url and not module.params["verify"] and urllib.parse.urlsplit(url).hostname not in LOOPBACK:
        module.fail_json(msg=f"verify: false is only for loopback addresses, not {url}")
    if module.check_mode:
        module.exit_json(changed=False, seconds=0.0)
    try:
        tls = context(
            module.params["authority"], module.params["certificate"], module.params["key"], module.params["verify"]
        )
    except OSError as error:
        module.fail_json(msg=f"{unit}: the files to check {url} with cannot be read: {error}")
    begin = time.monotonic()
    deadline = begin + module.params["seconds"]
    while True:
        answer = look(unit, url, tls)
        waited = time.monotonic() - begin
        if answer.healthy:
            module.exit_json(changed=False, seconds=round(waited, 1))
        if time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
    words = last_words(unit)
    said = f"; it last said: {words}" if words else ""
    module.fail_json(
        msg=f"{unit} is not healthy after {waited:.0f} s: {answer.reason}{said} (see: journalctl -u {unit})"
    )


if __name__ == "__main__":
    main()
