"""Ansible module: install a pinned third-party program, keep the version before for rollback."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slipway_io import SlipwayError, link_atomic, make_directory, room_for

DOCUMENTATION = r"""
module: slipway_artifact
short_description: Install pinned programs under /opt/slipway and link them
description:
  - Fetches each source once, checks its sha256, installs to C(<root>/<component>/<version>/<name>) and links the names.
  - A stamp beside the files makes a run that finds everything in place cost a few stat calls; a file that was touched
    is hashed again.
  - Versions other than the wanted one and the one used before it are removed when something is installed.
options:
  component: {description: Name of the component., type: str, required: true}
  version: {description: Version; names the folder., type: str, required: true}
  files:
    description: Files of the component.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: File name in the version's folder., type: str, required: true}
      source: {description: "Where it comes from: C(file:///), C(http://) or C(https://)", type: str, required: true}
      sha256: {description: Digest of the source., type: str, required: true}
      member:
        description: Path inside the source when that is a tar archive; the source itself is the file when left out.
        type: str
      mode: {description: Octal mode., type: str, default: "0755"}
  links:
    description: Where a name is linked; an empty string means nowhere. Names left out are linked in O(link_directory).
    type: dict
    default: {}
  link_directory: {description: Folder of the links., type: path, default: /usr/local/bin}
  root: {description: Folder of all components., type: path, default: /opt/slipway}
  keep: {description: How many versions stay - the wanted one included., type: int, default: 2}
author: [Slipway]
"""

EXAMPLES = r"""
- name: Install etcd
  slipway_artifact:
    component: etcd
    version: 3.6.14
    files:
      - name: etcd
        source: https://example.org/etcd-v3.6.14-linux-amd64.tar.gz
        sha256: 0f1e2d…
        member: etcd-v3.6.14-linux-amd64/etcd
  notify: Restart etcd
"""

RETURN = r"""
path: {description: Folder of the wanted version., returned: always, type: str}
installed: {description: Names that were (would be) installed., returned: always, type: list}
linked: {description: Links that were (would be) set., returned: always, type: list}
removed: {description: Old versions that were removed., returned: always, type: list}
"""

STAMP = ".slipway.json"
CHUNK = 1 << 20
ATTEMPTS = 3
TIMEOUT_SECONDS = 60

Stamp = dict[str, dict[str, Any]]


def hash_file(path: str) -> str:
    """sha256 of a file in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def read_stamp(directory: str) -> Stamp:
    """What was installed here: name → source digest, digest, size and time of the file. Empty when unreadable."""
    try:
        with open(os.path.join(directory, STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(directory: str, stamp: Stamp) -> None:
    """Record what is installed."""
    temporary = os.path.join(directory, STAMP + ".new")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(stamp, file, indent=1, sort_keys=True)
    os.replace(temporary, os.path.join(directory, STAMP))


def is_current(path: str, wanted: dict[str, Any], stamped: dict[str, Any] | None) -> bool:
    """Whether the file at ``path`` is what ``wanted`` asks for, by the stamp; hashes only a file that was touched."""
    if not stamped or (stamped.get("source_sha256"), stamped.get("member")) != (wanted["sha256"], wanted["member"]):
        return False
    try:
        found = os.lstat(path)
    except OSError:
        return False
    if found.st_mode & 0o7777 != int(wanted["mode"], 8) or found.st_uid != 0:
        return False
    if (found.st_size, found.st_mtime_ns) == (stamped.get("size"), stamped.get("mtime_ns")):
        return True
    return hash_file(path) == stamped.get("sha256")


def open_source(source: str) -> Any:
    """Open a source for reading; one line tells what failed."""
    if not source.startswith(("file:///", "http://", "https://")):
        raise SlipwayError(f"{source}: expected file:///, http:// or https://")
    request = urllib.request.Request(source, headers={"User-Agent": "slipway"})  # noqa: S310 checked above
    return urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)  # noqa: S310 checked above


def fetch(source: str, sha256: str, target: str) -> None:
    """Copy ``source`` to ``target``, checked against ``sha256``.

    A broken transfer is tried again, a wrong digest is not.
    """
    for attempt in range(1, ATTEMPTS + 1):
        digest = hashlib.sha256()
        try:
            with open_source(source) as reader, open(target, "wb") as writer:
                expected = int(reader.headers.get("Content-Length") or -1)
                with room_for(os.path.dirname(target), max(expected, 0)):
                    for chunk in iter(lambda: reader.read(CHUNK), b""):
                        digest.update(chunk)
                        writer.write(chunk)
                # A connection that ends early looks like the end of the file.
                if expected not in (-1, writer.tell()):
                    raise OSError(f"ended after {writer.tell()} of {expected} bytes")
            break
        except (OSError, urllib.error.URLError) as error:
            # A missing file or a clear "no" of the server does not get better by asking again.
            permanent = source.startswith("file:") or (
                isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
            )
            if permanent or attempt == ATTEMPTS:
                raise SlipwayError(f"{source}: cannot be fetched ({error})") from None
            time.sleep(2**attempt)
    if digest.hexdigest() != sha256:
        raise SlipwayError(
            f"{source}: sha256 is {digest.hexdigest()}, expected {sha256}; the release file or the source is wrong"
        )


def extract(archive: str, member: str, target: str, source: str) -> None:
    """Copy one plain file out of a tar archive."""
    try:
        with tarfile.open(archive) as tar:
            names = {name.lstrip("./"): name for name in tar.getnames()}
            found = names.get(member.lstrip("./"))
            reader = tar.extractfile(found) if found is not None else None
            if reader is None:
                raise SlipwayError(
                    f"{source}: holds no file {member}; expected one of {', '.join(sorted(names)[:8])} …"
                )
            size = tar.getmember(str(found)).size
            with reader, room_for(os.path.dirname(target), size), open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer, CHUNK)
    except tarfile.TarError as error:
        raise SlipwayError(f"{source}: not a tar archive ({error})") from None


def install(directory: str, files: list[dict[str, Any]], stamp: Stamp) -> None:
    """Fetch and put in place ``files``; ``stamp`` gains what was installed. Each source is fetched once."""
    make_directory(directory)
    sources: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for wanted in files:
        sources.setdefault((wanted["source"], wanted["sha256"]), []).append(wanted)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=directory) as scratch:
        for (source, sha256), group in sources.items():
            fetched = os.path.join(scratch, "source")
            fetch(source, sha256, fetched)
            for wanted in group:
                ready = os.path.join(scratch, "ready")
                if wanted["member"]:
                    extract(fetched, wanted["member"], ready, source)
                elif len(group) > 1:
                    shutil.copyfile(fetched, ready)
                else:
                    os.rename(fetched, ready)
                os.chmod(ready, int(wanted["mode"], 8))
                path = os.path.join(directory, wanted["name"])
                digest = hash_file(ready) if wanted["member"] else sha256
                # A rename onto a running program is fine: the process keeps the old file.
                os.replace(ready, path)
                found = os.lstat(path)
                stamp[wanted["name"]] = {
                    "source": source,
                    "source_sha256": sha256,
                    "member": wanted["member"],
                    "sha256": digest,
                    "size": found.st_size,
                    "mtime_ns": found.st_mtime_ns,
                }
    write_stamp(directory, stamp)


def wanted_links(params: dict[str, Any], directory: str) -> dict[str, str]:
    """Link → target for every name that is linked."""
    links = {}
    for wanted in params["files"]:
        name = wanted["name"]
        link = params["links"].get(name, os.path.join(params["link_directory"], name))
        if link:
            links[link] = os.path.join(directory, name)
    return links


def current_link(link: str) -> str | None:
    """Where a link leads, None when there is none. Raises SlipwayError on anything that is not a link."""
    if not os.path.lexists(link):
        return None
    if not os.path.islink(link):
        raise SlipwayError(f"{link}: exists and is not a link; expected nothing or a link of ours; move it away first")
    return os.readlink(link)


def prune(component_directory: str, version: str, keep: int) -> list[str]:
    """Remove all but the ``keep`` versions used last; only folders with a stamp are ours."""
    stamped = []
    for name in os.listdir(component_directory):
        stamp = os.path.join(component_directory, name, STAMP)
        if name != version and os.path.isfile(stamp):
            stamped.append((os.stat(stamp).st_mtime_ns, name))
    removed = [name for _, name in sorted(stamped, reverse=True)[max(keep - 1, 0) :]]
    for name in removed:
        shutil.rmtree(os.path.join(component_directory, name))
    return removed


def run(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Do the work; returns the module's result."""
    component_directory = os.path.join(params["root"], params["component"])
    directory = os.path.join(component_directory, params["version"])
    stamp = read_stamp(directory)
    missing = [
        wanted
        for wanted in params["files"]
        if not is_current(os.path.join(directory, wanted["name"]), wanted, stamp.get(wanted["name"]))
    ]
    before = {link: current_link(link) for link in wanted_links(params, directory)}
    after = wanted_links(params, directory)
    to_link = {link: target for link, target in after.items() if before[link] != target}
    removed: list[str] = []
    if not check:
        if missing:
            install(directory, missing, stamp)
        for link, target in to_link.items():
            link_atomic(link, target)
        if to_link and not missing:
            os.utime(os.path.join(directory, STAMP))  # "used last" decides what stays
        if missing or to_link:
            removed = prune(component_directory, params["version"], params["keep"])
    old_lines = [f"{link} -> {target or '(none)'}\n" for link, target in sorted(before.items())]
    new_lines = [f"{link} -> {target}\n" for link, target in sorted(after.items())]
    new_lines += [f"{os.path.join(directory, wanted['name'])} sha256 {wanted['sha256']}\n" for wanted in missing]
    return {
        "changed": bool(missing or to_link),
        "path": directory,
        "installed": [wanted["name"] for wanted in missing],
        "linked": sorted(to_link),
        "removed": removed,
        "diff": {"before": "".join(old_lines), "after": "".join(new_lines)},
    }


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "component": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "files": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "source": {"type": "str", "required": True},
                    "sha256": {"type": "str", "required": True},
                    "member": {"type": "str"},
                    "mode": {"type": "str", "default": "0755"},
                },
            },
            "links": {"type": "dict", "default": {}},
            "link_directory": {"type": "path", "default": "/usr/local/bin"},
            "root": {"type": "path", "default": "/opt/slipway"},
            "keep": {"type": "int", "default": 2},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except (SlipwayError, OSError) as error:
        module.fail_json(msg=f"{module.params['component']} {module.params['version']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
