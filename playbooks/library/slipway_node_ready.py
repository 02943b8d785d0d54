"""Wait until this host's own Node object is Ready."""

from __future__ import annotations

import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_node_api import ApiError, get_node, not_ready_reason

DOCUMENTATION = r"""
module: slipway_node_ready
short_description: Wait until this host's Node is Ready
description:
  - Reads the Node object with the kubelet's own certificate and so needs no other credentials.
  - Never changes anything; in check mode it does not wait.
options:
  name: {description: Name of the Node., type: str, required: true}
  server: {description: URL of the API., type: str, required: true}
  authority_file: {description: File with the authority of the API's certificate., type: path, required: true}
  client_certificate: {description: The kubelet's certificate and key in one file., type: path, required: true}
  seconds: {description: Deadline in seconds., type: int, default: 120}
author: [Slipway]
"""
EXAMPLES = r"""
- name: Wait until the node is Ready
  slipway_node_ready:
    name: gpu-0
    server: https://10.0.0.2:6443
    authority_file: /etc/slipway/pki/authorities/kubernetes.crt
    client_certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
"""
RETURN = r"""
seconds: {description: Seconds waited., type: float, returned: success}
"""

POLL_SECONDS = 1.0


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "server": {"type": "str", "required": True},
            "authority_file": {"type": "path", "required": True},
            "client_certificate": {"type": "path", "required": True},
            "seconds": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, seconds=0.0)
    params = module.params
    begin = time.monotonic()
    while True:
        try:
            node = get_node(params["server"], params["authority_file"], params["client_certificate"], params["name"])
            reason = not_ready_reason(node)
        except ApiError as error:
            reason = str(error)
        waited = time.monotonic() - begin
        if not reason:
            module.exit_json(changed=False, seconds=round(waited, 1))
        if waited >= params["seconds"]:
            break
        time.sleep(POLL_SECONDS)
    module.fail_json(
        msg=f"Node {params['name']} is not Ready after {waited:.0f} s: {reason} (see: journalctl -u kubelet)"
    )


if __name__ == "__main__":
    main()
