"""The kubelet's way into the API: a fresh token, but only while it has no certificate of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_broker import exchange
from ansible.module_utils.slipway_io import Attributes, SlipwayError, read_if_present, write_atomic

DOCUMENTATION = r"""
module: slipway_kubelet_credentials
short_description: Bootstrap and client credentials of the kubelet
description:
  - With C(state=present) a valid client certificate leaves the host alone, except that the kubelet's kubeconfig follows
    a changed server or authority. Without one, a short-lived token is asked from the controller and written to the
    bootstrap kubeconfig (0600).
  - With C(state=joined) it waits until the kubelet has its certificate, then removes the bootstrap kubeconfig, so that
    no token stays.
options:
  state: {description: See above., type: str, choices: [present, joined], default: present}
  server: {description: URL of the API., type: str, required: true}
  authority_file: {description: File with the authority of the API's certificate., type: path, required: true}
  bootstrap_kubeconfig: {description: File for the token., type: path, required: true}
  kubeconfig: {description: File that the kubelet writes when it joins., type: path, required: true}
  client_certificate: {description: The kubelet's certificate and key in one file., type: path, required: true}
  broker: {description: Socket of the runner on this host., type: path, default: /run/slipway/broker.sock}
  seconds: {description: Deadline of C(state=joined)., type: int, default: 120}
author: [Slipway]
"""
EXAMPLES = r"""
- name: Give the kubelet a way in
  slipway_kubelet_credentials:
    server: https://10.0.0.2:6443
    authority_file: /etc/slipway/pki/authorities/kubernetes.crt
    bootstrap_kubeconfig: /etc/kubernetes/kubelet-bootstrap.kubeconfig
    kubeconfig: /var/lib/kubelet/kubeconfig
    client_certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
"""
RETURN = r"""
joining: {description: Whether the kubelet has no valid client certificate yet., type: bool, returned: success}
"""

ROOT_ONLY = Attributes(0, 0, 0o600)
BROKER_SECONDS = 60
POLL_SECONDS = 0.5
TOKEN = re.compile(r"[a-z0-9]{6}\.[a-z0-9]{16}")


def bootstrap_text(server: str, authority_file: str, token: str) -> str:
    """A kubeconfig that holds a bootstrap token."""
    return _kubeconfig(server, authority_file, [f"    token: {token}"])


def kubelet_text(server: str, authority_file: str, client_certificate: str) -> str:
    """A kubeconfig that uses the certificate the kubelet rotates."""
    return _kubeconfig(
        server,
        authority_file,
        [f"    client-certificate: {client_certificate}", f"    client-key: {client_certificate}"],
    )


def _kubeconfig(server: str, authority_file: str, user: list[str]) -> str:
    lines = [
        "apiVersion: v1",
        "kind: Config",
        "clusters:",
        "- name: default-cluster",
        "  cluster:",
        f"    certificate-authority: {authority_file}",
        f"    server: {server}",
        "users:",
        "- name: default-auth",
        "  user:",
        *user,
        "contexts:",
        "- name: default-context",
        "  context:",
        "    cluster: default-cluster",
        "    namespace: default",
        "    user: default-auth",
        "current-context: default-context",
    ]
    return "\n".join(lines) + "\n"


def essence(text: str) -> dict[str, str]:
    """What matters of a kubeconfig, whoever wrote it: server, authority and client certificate."""
    keys = ("server", "certificate-authority", "client-certificate", "client-key")
    found = {}
    for key in keys:
        match = re.search(rf"^\s*{key}: (.*)$", text, re.MULTILINE)
        found[key] = match.group(1).strip().strip("\"'") if match else ""
    return found


def certificate_valid(path: str) -> bool:
    """Whether the file holds a certificate that has not expired."""
    if not os.path.exists(path):
        return False
    command = ["openssl", "x509", "-noout", "-checkend", "0", "-in", path]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def ask_token(broker: str) -> str:
    """Ask the controller, through the runner on this host, for a bootstrap token. Raises SlipwayError."""
    where = "run this play from the controller (pulumi up), which makes the tokens"
    try:
        line = exchange(broker, {"kind": "bootstrap_token"}, BROKER_SECONDS)
    except OSError as error:
        raise SlipwayError(f"{broker}: no bootstrap token: {error}; {where}") from None
    try:
        answer: dict[str, Any] = json.loads(line)
    except ValueError:
        raise SlipwayError(f"{broker}: no bootstrap token: the controller is gone; {where}") from None
    token = str(answer.get("token", ""))
    if not answer.get("ok") or not TOKEN.fullmatch(token):
        raise SlipwayError(f"no bootstrap token: {answer.get('error', 'the controller gave none')}")
    return token


def present(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """See DOCUMENTATION: state=present."""
    server, authority_file = params["server"], params["authority_file"]
    if not certificate_valid(params["client_certificate"]):
        if not check:
            text = bootstrap_text(server, authority_file, ask_token(params["broker"]))
            write_atomic(params["bootstrap_kubeconfig"], text.encode(), ROOT_ONLY)
        return {"changed": True, "joining": True}
    wanted = kubelet_text(server, authority_file, params["client_certificate"])
    current = _text(params["kubeconfig"])
    changed = current is None or essence(current) != essence(wanted)
    if changed and not check:
        write_atomic(params["kubeconfig"], wanted.encode(), ROOT_ONLY)
    return {"changed": changed, "joining": False}


def joined(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """See DOCUMENTATION: state=joined. Raises SlipwayError after the deadline."""
    begin = time.monotonic()
    while not check and not certificate_valid(params["client_certificate"]):
        if time.monotonic() - begin >= params["seconds"]:
            raise SlipwayError(
                f"the kubelet got no client certificate from {params['server']} within {params['seconds']} s"
                f"{_last_words()} (see: journalctl -u kubelet)"
            )
        time.sleep(POLL_SECONDS)
    leftover = os.path.exists(params["bootstrap_kubeconfig"])
    if leftover and not check:
        os.unlink(params["bootstrap_kubeconfig"])
    return {"changed": leftover, "joining": False}


def _text(path: str) -> str | None:
    content = read_if_present(path)
    return None if content is None else content.decode(errors="replace")


def _last_words() -> str:
    """The kubelet's last error or, without one, its last line, as the end of a sentence."""
    command = ["journalctl", "--unit", "kubelet", "--lines", "40", "--output", "cat", "--no-pager"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[EF]\d{4} ", line)]
    last = (errors or lines or [""])[-1][:400]
    return f": it last said: {last}" if last else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "joined"], "default": "present"},
            "server": {"type": "str", "required": True},
            "authority_file": {"type": "path", "required": True},
            "bootstrap_kubeconfig": {"type": "path", "required": True},
            "kubeconfig": {"type": "path", "required": True},
            "client_certificate": {"type": "path", "required": True},
            "broker": {"type": "path", "default": "/run/slipway/broker.sock"},
            "seconds": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    act = present if module.params["state"] == "present" else joined
    try:
        result = act(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
