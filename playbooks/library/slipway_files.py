"""Ansible module: many files, directories and removals in one task."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import tempfile
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import (
    Attributes,
    SlipwayError,
    attributes,
    attributes_differ,
    make_directory,
    read_if_present,
    set_attributes,
    write_atomic,
)

DOCUMENTATION = r"""
module: slipway_files
short_description: Write many files and directories in one task
description:
  - Makes directories, writes files (each in one rename) and removes paths. One task costs a host as much as one file of
    M(ansible.builtin.copy).
  - Order is directories, files, removals. Missing parent directories are made with mode 0755, owned by root.
options:
  directories:
    description: Directories that exist, with owner, group and mode.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      owner: {description: User name or id., type: str, default: root}
      group: {description: Group name or id; the owner's own group when left out., type: str}
      mode: {description: Octal mode., type: str, default: "0755"}
  files:
    description: Files with exactly this content, owner, group and mode.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The whole text of the file. Shown in diffs., type: str}
      secret_content: {description: The whole text of a file that must not appear in diffs or logs., type: str}
      owner: {description: User name or id., type: str, default: root}
      group: {description: Group name or id; the owner's own group when left out., type: str}
      mode: {description: Octal mode., type: str, default: "0644"}
      validate:
        description: Command run on the new text before it is put in place; C(%s) stands for its temporary path.
        type: str
      unless:
        description: Absolute path. While it is there the file is left as it is, be it missing.
        type: path
  absent:
    description: Files, links or empty directories that must not exist.
    type: list
    elements: path
    default: []
  relative_to:
    description: Folder that relative paths start from. Without it they are refused.
    type: path
author: [Slipway]
"""

EXAMPLES = r"""
- name: Write the configuration
  slipway_files:
    directories:
      - {path: /etc/example, mode: "0750", group: example}
    files:
      - path: /etc/example/example.conf
        content: "{{ lookup('ansible.builtin.template', 'example.conf.j2') }}"
      - path: /etc/example/token
        secret_content: "{{ example_token }}"
        owner: example
        mode: "0600"
    absent: [/etc/example/old.conf]
  notify: Restart example
"""

RETURN = r"""
changed_paths:
  description: The paths that were (in check mode - would be) made, changed or removed, in order.
  returned: always
  type: list
"""

Diff = dict[str, str]


def resolve(path: str, relative_to: str | None) -> str:
    """An absolute path. Raises SlipwayError for a relative one that starts nowhere."""
    if relative_to is None and not os.path.isabs(path):
        raise SlipwayError(f"{path}: expected an absolute path")
    return os.path.normpath(os.path.join(relative_to or "/", path))


def ensure_directory(entry: dict[str, Any], check: bool, diffs: list[Diff]) -> bool:
    """Make one directory right; returns whether that changes anything."""
    path = entry["path"]
    wanted = attributes(entry["owner"], entry["group"], entry["mode"], check)
    if not os.path.isdir(path):
        if os.path.lexists(path):
            raise SlipwayError(f"{path}: expected a directory, found something else; move it away first")
        diffs.append(
            {
                "before": "",
                "after": f"directory {entry['owner']} {entry['mode']}\n",
                "before_header": path,
                "after_header": path,
            }
        )
        if not check:
            make_directory(path)
            set_attributes(path, wanted)
        return True
    return ensure_attributes(entry, wanted, check, diffs)


def ensure_attributes(entry: dict[str, Any], wanted: Attributes, check: bool, diffs: list[Diff]) -> bool:
    """Make owner, group and mode of what is there right; returns whether that changes anything."""
    path = entry["path"]
    if not attributes_differ(path, wanted):
        return False
    diffs.append(
        {
            "before": describe(path),
            "after": f"{entry['owner']}:{entry['group'] or ''} {entry['mode']}\n",
            "before_header": path,
            "after_header": path,
        }
    )
    if not check:
        set_attributes(path, wanted)
    return True


def ensure_file(entry: dict[str, Any], check: bool, diffs: list[Diff]) -> bool:
    """Make one file right; returns whether that changes anything."""
    path = entry["path"]
    if entry["unless"] and os.path.lexists(entry["unless"]):
        return False
    secret = entry["secret_content"] is not None
    text = entry["secret_content"] if secret else entry["content"]
    data = text.encode("utf-8")
    wanted = attributes(entry["owner"], entry["group"], entry["mode"], check)
    before = read_if_present(path)
    if before == data:
        return ensure_attributes(entry, wanted, check, diffs)
    if secret:
        diffs.append(
            {
                "before": "(secret)\n" if before is not None else "",
                "after": "(another secret)\n",
                "before_header": path,
                "after_header": path,
            }
        )
    else:
        old = (before or b"").decode("utf-8", "replace")
        diffs.append({"before": old, "after": text, "before_header": path, "after_header": path})
    if not check:
        if entry["validate"]:
            validate(entry["validate"], path, data)
        write_atomic(path, data, wanted)
    return True


def validate(command: str, path: str, data: bytes) -> None:
    """Run ``command`` on a temporary copy of the new text; raises SlipwayError when it exits other than 0."""
    with tempfile.NamedTemporaryFile(suffix=os.path.basename(path)) as file:
        file.write(data)
        file.flush()
        argv = [part.replace("%s", file.name) for part in shlex.split(command)]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        said = " ".join(done.stdout.decode("utf-8", "replace").split())
        raise SlipwayError(
            f"{path}: the new text is refused by {argv[0]} (exit {done.returncode}), the old file stays: {said[-600:]}"
        )


def ensure_absent(path: str, check: bool, diffs: list[Diff]) -> bool:
    """Remove one path; returns whether it was there."""
    if not os.path.lexists(path):
        return False
    is_directory = os.path.isdir(path) and not os.path.islink(path)
    if is_directory and os.listdir(path):
        raise SlipwayError(f"{path}: a directory that is not empty is never removed; empty it first")
    diffs.append({"before": describe(path), "after": "", "before_header": path, "after_header": path})
    if not check:
        if is_directory:
            os.rmdir(path)
        else:
            os.unlink(path)
    return True


def describe(path: str) -> str:
    """Owner ids and mode as one line for a diff."""
    found = os.lstat(path)
    return f"{found.st_uid}:{found.st_gid} {stat.S_IMODE(found.st_mode):04o}\n"


def main() -> None:
    """Entry point."""
    owner: dict[str, Any] = {"type": "str", "default": "root"}
    module = AnsibleModule(
        argument_spec={
            "directories": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "owner": owner,
                    "group": {"type": "str"},
                    "mode": {"type": "str", "default": "0755"},
                },
            },
            "files": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "no_log": False},
                    "secret_content": {"type": "str", "no_log": True},
                    "owner": owner,
                    "group": {"type": "str"},
                    "mode": {"type": "str", "default": "0644"},
                    "validate": {"type": "str"},
                    "unless": {"type": "path"},
                },
                "mutually_exclusive": [["content", "secret_content"]],
                "required_one_of": [["content", "secret_content"]],
            },
            "absent": {"type": "list", "elements": "path", "default": []},
            "relative_to": {"type": "path"},
        },
        supports_check_mode=True,
    )
    diffs: list[Diff] = []
    changed: list[str] = []
    try:
        check = module.check_mode
        absent = [resolve(path, module.params["relative_to"]) for path in module.params["absent"]]
        for each in module.params["directories"] + module.params["files"]:
            each["path"] = resolve(each["path"], module.params["relative_to"])
        changed += (each["path"] for each in module.params["directories"] if ensure_directory(each, check, diffs))
        changed += (each["path"] for each in module.params["files"] if ensure_file(each, check, diffs))
        changed += (path for path in absent if ensure_absent(path, check, diffs))
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=str(error), changed=bool(changed) and not module.check_mode, changed_paths=changed)
    module.exit_json(changed=bool(changed), changed_paths=changed, diff=diffs)


if __name__ == "__main__":
    main()
