"""`ansible-playbook` of the runtime bundle: `ansible_playbook.py RUNTIME_FOLDER ARGUMENTS…`.

It starts in a third of the usual time: YAML that the bundle carries as JSON (see slim.py, which wrote it) goes to
Python's JSON parser, and the Galaxy client, which Mitogen would import for its list of collections, stays out.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import types
from typing import Any


def main(runtime: str, arguments: list[str]) -> None:
    """Run Ansible from the bundle; exits with its status."""
    sys.path.insert(0, runtime)
    for name in ("SLIPWAY_EVENTS_FD", "SLIPWAY_LOCK_FD"):
        # Kept open in forks of Ansible, so that a run counts as running until the last is gone, but not in programs
        # that tasks start: a daemon must not hold the lock of the run that started it.
        os.set_inheritable(int(os.environ[name]), False)
    leave_out_galaxy()
    read_json_as_json()
    gc.disable()  # a run is short and each task a fork of this process: collecting would cost a tenth of the time
    os.environ["MITOGEN_POOL_SIZE"] = "4"  # threads; the usual 32 are for many hosts
    from ansible.cli.playbook import main as ansible_playbook

    ansible_playbook(["ansible-playbook", *arguments])


def leave_out_galaxy() -> None:
    """Answer Mitogen's only use of the collection list: there are none here."""
    collections = types.ModuleType("ansible.collections.list")
    vars(collections).update(list_collections=lambda *_, **__: {}, list_collection_dirs=lambda *_, **__: [])
    sys.modules["ansible.collections.list"] = collections


def read_json_as_json() -> None:
    """Make yaml.load() use the JSON parser for text that is a JSON object, keeping the meaning of each loader."""
    import yaml

    load_yaml = yaml.load

    def load(stream: Any, Loader: Any) -> Any:  # noqa: N803 - PyYAML's name
        text = stream if isinstance(stream, (str, bytes)) else stream.read()
        if text[:1] not in ("{", b"{"):
            return load_yaml(text, Loader=Loader)
        try:
            if Loader in (yaml.SafeLoader, yaml.BaseLoader):
                return json.loads(text)
            from ansible._internal._json._profiles import _legacy  # keeps Ansible's tags of origin and trust

            return json.loads(text, cls=_legacy.Decoder)
        except ValueError:
            return load_yaml(text, Loader=Loader)  # a flow mapping that is YAML but not JSON

    yaml.load = load


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
