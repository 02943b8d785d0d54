"""Import OCI archives into containerd's namespace for pods, only those that are missing."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: slipway_images
short_description: Preload images into containerd
description:
  - Imports OCI archives into containerd's namespace C(k8s.io) when the image is missing there or has another digest.
  - Pins them, so that the kubelet never collects them as garbage; there may be no registry to have them from again.
  - Images that this module preloaded earlier and that are no longer wanted lose the pin and go when nothing uses them.
options:
  images:
    description: Images.
    type: list
    elements: dict
    required: true
    suboptions:
      ref: {description: Name for pods., type: str, required: true}
      source: {description: "URL of an OCI archive: file, http or https.", type: str, required: true}
      digest: {description: Digest of the image in it., type: str, required: true}
  address:
    description: Socket of containerd.
    type: path
    default: /run/containerd/containerd.sock
  ctr:
    description: The ctr program.
    type: path
    default: /usr/local/bin/ctr
author: Slipway
"""

EXAMPLES = r"""
- name: Preload images
  slipway_images:
    images:
      - ref: registry.example/pause:1.0
        source: file:///srv/slipway/images/pause.tar
        digest: sha256:0123…
"""

RETURN = r"""
imported: {description: Names of images that were (would be) imported., returned: always, type: list}
pinned: {description: Names of images that were (would be) pinned., returned: always, type: list}
released: {description: Names of images that lost (would lose) the pin., returned: always, type: list}
"""

PIN = "io.cri-containerd.pinned"
OURS = "slipway.io/preloaded"


class ImagesError(Exception):
    """One line for the user."""


Images = dict[str, tuple[str, dict[str, str]]]
"""Name → digest and labels."""


def parse_list(text: str) -> Images:
    """Read the table of `ctr images ls`.

    Columns are REF TYPE DIGEST SIZE PLATFORMS LABELS; the size has a space in it ("1.5 MiB").
    """
    found: Images = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 3:
            labels = dict(pair.split("=", 1) for pair in fields[-1].split(",") if "=" in pair)
            found[fields[0]] = (fields[2], labels)
    return found


def missing(wanted: list[dict[str, str]], present: Images) -> list[dict[str, str]]:
    """Those of the wanted images that are absent or have another digest."""
    return [image for image in wanted if present.get(image["ref"], ("", {}))[0] != image["digest"]]


class Ctr:
    """The ctr program in the namespace of pods."""

    def __init__(self, program: str, address: str) -> None:
        self._command = [program, "--address", address, "--namespace", "k8s.io", "images"]

    def __call__(self, *arguments: str, archive: Any = None) -> str:
        """Run one sub-command of `ctr images`; `archive` is fed to its standard input. Raises ImagesError."""
        command = [*self._command, *arguments]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if archive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise ImagesError(f"{command[0]}: {error.strerror}; expected containerd's ctr there") from None
        if archive and process.stdin:
            try:
                while chunk := archive.read(1 << 20):
                    process.stdin.write(chunk)
            except BrokenPipeError:
                pass  # ctr ended early and says why
        output = process.communicate()[0].decode(errors="replace")
        if process.returncode:
            last = (output.strip().splitlines() or ["no output"])[-1]
            raise ImagesError(f"ctr images {arguments[0]} ended with {process.returncode}: {last}")
        return output

    def list(self) -> Images:
        """Images that are there."""
        return parse_list(self("ls"))


def import_image(ctr: Ctr, image: dict[str, str]) -> None:
    """Import one archive and check that it holds the image it should. Raises ImagesError."""
    try:
        with urllib.request.urlopen(image["source"], timeout=60) as archive:  # noqa: S310 (file is meant, too)
            ctr("import", "--digests=false", "-", archive=archive)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise ImagesError(f"{image['source']}: {reason}; expected an OCI archive of {image['ref']}") from None
    got = ctr.list().get(image["ref"], ("no such image", {}))[0]
    if got != image["digest"]:
        raise ImagesError(
            f"{image['source']}: {image['ref']} is {got}, expected {image['digest']}; make the archive again"
        )


def run(ctr: Ctr, images: list[dict[str, str]], check: bool) -> dict[str, Any]:
    """Bring the images there. Returns the module's result."""
    present = ctr.list()
    absent = missing(images, present)
    if absent and not check:
        for image in absent:
            import_image(ctr, image)
        present = ctr.list()
    wanted = {image["ref"] for image in images}
    pinned = [ref for ref in sorted(wanted) if not {PIN, OURS} <= present.get(ref, ("", {}))[1].keys()]
    released = [ref for ref, (_, labels) in sorted(present.items()) if OURS in labels and ref not in wanted]
    if not check:
        for ref in pinned:
            ctr("label", ref, f"{PIN}=pinned", f"{OURS}=yes")
        for ref in released:
            ctr("label", ref, f"{PIN}=", f"{OURS}=")
    return {
        "changed": bool(absent or pinned or released),
        "imported": [image["ref"] for image in absent],
        "pinned": pinned,
        "released": released,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "images": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "ref": {"type": "str", "required": True},
                    "source": {"type": "str", "required": True},
                    "digest": {"type": "str", "required": True},
                },
            },
            "address": {"type": "path", "default": "/run/containerd/containerd.sock"},
            "ctr": {"type": "path", "default": "/usr/local/bin/ctr"},
        },
        supports_check_mode=True,
    )
    ctr = Ctr(module.params["ctr"], module.params["address"])
    try:
        result = run(ctr, module.params["images"], module.check_mode)
    except ImagesError as error:
        if module.check_mode:  # before the first run there is no containerd to ask
            refs = [image["ref"] for image in module.params["images"]]
            result = {"changed": bool(refs), "imported": refs, "pinned": refs, "released": []}
        else:
            module.fail_json(msg=str(error))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
