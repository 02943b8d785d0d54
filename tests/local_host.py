"""A host that is a temporary folder of this machine: the on-host runner with the real Ansible of the runtime bundle."""

import json
import os
import subprocess
import sys
import time

import pytest

from slipway.node import bundle
from slipway.play import manifest


def unpacked_bundles(tmp_path_factory, files):
    """The bundles of a small checkout, unpacked as on a host: folder of bundles, and what is in it."""
    root = tmp_path_factory.mktemp("checkout")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        made = bundle.ensure(root)
    folder = tmp_path_factory.mktemp("bundles")
    for each in (made.runtime, made.content):
        (folder / each.digest).mkdir()
        subprocess.run(["tar", "-xzf", each.path, "-C", folder / each.digest], check=True)
    return folder, made


class Session:
    """One run of the runner, with this test as its controller."""

    def __init__(self, process, inputs):
        self.process = process
        self.lines = []
        self.send(inputs)

    def send(self, line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def until(self, **wanted):
        """Read lines up to the first that has these values, and return it."""
        for text in self.process.stdout:
            line = json.loads(text)
            self.lines.append(line)
            if all(line.get(key) == value for key, value in wanted.items()):
                return line
        pytest.fail(f"no line with {wanted}; stderr: {self.process.stderr.read()}; lines: {self.lines}")

    def result(self):
        result = self.until(event="result")
        self.process.stdin.close()
        self.status = self.process.wait(timeout=10)
        return result

    def until_held(self, host):
        """Wait until the task Hold runs."""
        end = time.monotonic() + 30
        while not (host.folder / "holding").exists():
            assert time.monotonic() < end
            time.sleep(0.1)

    def hang_up(self):
        self.process.stdin.close()
        self.process.stdout.close()


class Host:
    """A host in a temporary folder."""

    def __init__(self, folder, bundles):
        self.folder, (self.bundles, self.made) = folder, bundles
        self.state, self.run_folder, self.boot_id = folder / "state", folder / "run", folder / "boot_id"
        self.boot_id.write_text("first\n")

    def start(self, playbook="box", digest="d1", more=None, **variables):
        inputs = {
            "host": "here",
            "playbook": playbook,
            "groups": ["boxes"],
            "release": "r1",
            "digest": digest,
            "vars": {"box_folder": str(self.folder), **variables},
            "secrets": {},
            "bundles": self.made.as_dict(),
            "by": "a test",
            "lock_seconds": 20,
            **(more or {}),
        }
        process = subprocess.Popen(
            [*self.program, "run"],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Session(process, inputs)

    def converge(self, **arguments):
        session = self.start(**arguments)
        return session.result(), session

    @property
    def program(self):
        return [sys.executable, "-I", str(self.bundles / self.made.content.digest / "slipway_node.py")]

    @property
    def environment(self):
        return {
            "PATH": os.environ["PATH"],
            "SLIPWAY_NODE_STATE": str(self.state),
            "SLIPWAY_NODE_RUN": str(self.run_folder),
            "SLIPWAY_NODE_BOOT_ID": str(self.boot_id),
        }

    def command(self, *arguments, **more):
        """Run another of the program's commands to its end."""
        environment = self.environment | more
        return subprocess.run([*self.program, *arguments], env=environment, capture_output=True, text=True, check=False)

    @property
    def entry(self):
        return manifest.parse((self.state / "manifest.json").read_text()).playbooks["box"]

    @property
    def restarts(self):
        file = self.folder / "restarts"
        return len(file.read_text().splitlines()) if file.exists() else 0


def tasks(session):
    """What a run said of tasks: (name, status)."""
    return [(line["name"], line["status"]) for line in session.lines if line.get("event") == "task"]
