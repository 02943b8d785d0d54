"""Pulumi stacks in the file backend: made when missing, mended after a run that died.

Pulumi writes a line `encryptionsalt:` into the stack file, and all of the file anew in its own layout. The salt belongs
to this machine's passphrase, not to the declaration. So the file is put back as it was with the salt as its last line:
Pulumi then has no reason to write. Git is told (by .gitattributes and a filter in the checkout's own configuration) to
look past that line, so the work tree stays clean.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slipway import orphans, paths, private

_FILTER = "filter.slipway-salt.clean"
_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105  (Pulumi's mark of a secret in an exported state)
_STRIP = "sed '/^encryptionsalt: /d'"


class StackError(RuntimeError):
    """A stack that is not there or cannot be used; one line."""


def project() -> str:
    """Return the name of the Pulumi project."""
    loaded: dict[str, Any] = yaml.safe_load((paths.root() / "Pulumi.yaml").read_text())
    return str(loaded["name"])


def file(stack: str) -> Path:
    """Return the stack file.

    Raises:
        StackError: there is none; the message lists those that are.
    """
    folder = paths.root() / "stacks"
    path = folder / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(one.name.split(".")[1] for one in folder.glob("Pulumi.*.yaml")))
        raise StackError(f"stacks/Pulumi.{stack}.yaml is missing; there are: {known or 'none'}")
    return path


def ensure(stack: str, environment: dict[str, str]) -> list[str]:
    """Make the stack when the backend has none, and put its salt into the stack file.

    Args:
        stack: name of the stack.
        environment: as `slipway.environment.merged` returns it.

    Returns:
        Lines that say what was done.
    """
    path = file(stack)
    said = []
    if not is_there(stack):
        before = _without_salt(path.read_text())
        path.write_text(before)  # a salt of another machine's passphrase would be refused
        try:
            pulumi(["stack", "init", stack, "--non-interactive"], environment)
        finally:
            path.write_text(before)
        said.append(f"stack {stack}: made in {paths.state()}")
    _settle(path, _salt(stack))
    return said


def recover(stack: str, environment: dict[str, str]) -> list[str]:
    """Mend what a run that died left behind, so that the next one takes up there.

    Locks whose process is gone are removed, and what that process had started is ended. Operations that were under way
    are forgotten: our resources find what an earlier try left and go on with it.

    Returns:
        Lines that say what was done.

    Raises:
        StackError: a run is under way.
    """
    said = []
    for lock in sorted((paths.state() / ".pulumi" / "locks" / "organization" / project() / stack).glob("*.json")):
        holder = json.loads(lock.read_text() or "{}")
        here = holder.get("hostname", socket.gethostname()) == socket.gethostname()
        if not here or orphans.is_pulumi(int(holder.get("pid", 0))):
            raise StackError(
                f"stack {stack}: another run holds it (process {holder.get('pid')} on "
                f"{holder.get('hostname')}, since {holder.get('timestamp')}); wait for it"
            )
        lock.unlink(missing_ok=True)
        said.append(f"stack {stack}: a run that died (process {holder.get('pid')}) held it; its lock is removed")
    if left := orphans.find(environment["PULUMI_BACKEND_URL"]):
        orphans.end(left)
        said.append(f"stack {stack}: ended {len(left)} processes of a run that died")
    checkpoint = _checkpoint(stack)
    if checkpoint.exists() and (pending := _latest(stack).get("pending_operations")):
        exported = json.loads(pulumi(["stack", "export", "--stack", stack], environment))
        exported["deployment"].pop("pending_operations", None)
        pulumi(["stack", "import", "--stack", stack], environment, feed=json.dumps(exported))
        names = ", ".join(one["resource"]["urn"].rsplit("::", 1)[-1] for one in pending)
        said.append(f"stack {stack}: taking up where a run died ({names})")
    return said


def is_there(stack: str) -> bool:
    """Say whether the backend has a stack."""
    return _checkpoint(stack).exists()


def deployed(stack: str) -> dict[str, dict[str, Any]]:
    """Return the inputs of each play of a stack that has converged a host, by the play's name; secrets are not open."""
    if not is_there(stack):
        return {}
    plays = (one for one in _latest(stack).get("resources") or () if one["type"] == "slipway:index:Play")
    return {
        play["urn"].rpartition("::")[2]: play["inputs"]
        for play in plays
        if any(result.get("digest") for result in (play.get("outputs", {}).get("results") or {}).values())
    }


@dataclass(frozen=True)
class PlayState:
    """A play as the state has it: inputs and outputs as plain values, secrets in the open."""

    name: str
    inputs: dict[str, Any] = field(repr=False)
    outputs: dict[str, Any] = field(repr=False)


def plays(stack: str, environment: dict[str, str]) -> list[PlayState]:
    """Return the plays of a stack, in the order in which they were made; none when it is not there.

    Secrets pass through a pipe from Pulumi, which opens them, and are in this process's memory only.
    """
    if not is_there(stack):
        return []
    exported = json.loads(pulumi(["stack", "export", "--show-secrets", "--stack", stack], environment))
    return [
        PlayState(one["urn"].rpartition("::")[2], _plain(one.get("inputs") or {}), _plain(one.get("outputs") or {}))
        for one in exported["deployment"].get("resources") or ()
        if one["type"] == "slipway:index:Play"
    ]


def _plain(value: Any) -> Any:
    """Return a value of an exported state without the wrapping of secrets."""
    match value:
        case {"plaintext": str(text), **rest} if _SECRET in rest:
            return _plain(json.loads(text))
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value


def pulumi(arguments: list[str], environment: dict[str, str], feed: str | None = None) -> str:
    """Run pulumi quietly in the checkout and return what it printed.

    Raises:
        StackError: it failed; the message has the reason that it gave.
    """
    done = subprocess.run(
        [_program(environment), *arguments],
        cwd=paths.root(),
        env=environment,
        input=feed or "",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        reasons = [line.removeprefix("error: ") for line in done.stderr.splitlines() if line.strip()]
        raise StackError(f"pulumi {' '.join(arguments[:2])}: {reasons[0] if reasons else done.returncode}")
    return done.stdout


def stream(arguments: list[str], environment: dict[str, str]) -> int:
    """Run pulumi in the checkout with this terminal, and return its exit code.

    Ctrl-C reaches pulumi itself, which stops its providers cleanly; we wait for it. SIGTERM is passed on.
    """
    child = subprocess.Popen([_program(environment), *arguments], cwd=paths.root(), env=environment)
    try:
        with _signals({signal.SIGINT: lambda: None, signal.SIGTERM: child.terminate}):
            return child.wait()
    finally:
        private.remove_left()


@contextlib.contextmanager
def _signals(handlers: dict[signal.Signals, Any]) -> Iterator[None]:
    before = {number: signal.signal(number, lambda *_, act=act: act()) for number, act in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _program(environment: dict[str, str]) -> str:
    program = shutil.which("pulumi", path=environment["PATH"])
    if program is None:
        raise StackError("no pulumi; run: ./slipway engines --only pulumi")
    return program


def _checkpoint(stack: str) -> Path:
    """Return the file in which the backend keeps a stack."""
    return paths.state() / ".pulumi" / "stacks" / project() / f"{stack}.json"


def _latest(stack: str) -> dict[str, Any]:
    loaded = json.loads(_checkpoint(stack).read_text())
    return loaded.get("checkpoint", {}).get("latest") or {}


def _salt(stack: str) -> str | None:
    """Return the salt that the state of a stack is encrypted with."""
    salt = _latest(stack).get("secrets_providers", {}).get("state", {}).get("salt")
    return str(salt) if salt else None


def _without_salt(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("encryptionsalt: "))


def _settle(path: Path, salt: str | None) -> None:
    """Let the stack file end with the salt, unseen by Git."""
    text = path.read_text()
    if salt is None or f"encryptionsalt: {salt}\n" in text:
        return
    _hide_salt_from_git()
    plain = _without_salt(text)
    path.write_text(f"{plain}{'' if plain.endswith(chr(10)) else chr(10)}encryptionsalt: {salt}\n")
    # Git trusts sizes before content: let it look once. Nothing is staged, since what it sees is what it has.
    if _git("diff", "--quiet", "--", str(path)) == 0 and _git("ls-files", "--error-unmatch", "--", str(path)) == 0:
        _git("add", "--", str(path))


def _hide_salt_from_git() -> None:
    if _git("rev-parse", "--git-dir") == 0:
        _git("config", "--local", _FILTER, _STRIP)


def _git(*arguments: str) -> int:
    """Run git in the checkout, quietly; 1 when there is no git."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=paths.root(), stdin=subprocess.DEVNULL, capture_output=True, check=False
        ).returncode
    except FileNotFoundError:
        return 1
