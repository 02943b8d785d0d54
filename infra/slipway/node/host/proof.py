"""Proof that this host works: checks as data, from the `proof` of the roles' `meta/slipway.yml`.

| A check has | It holds when |
|---|---|
| `unit` | the systemd unit is active |
| `url` | it answers with status 200. A certificate is not looked at: only a loopback address may be https |
| `command` | the program ends with status 0 and, with `expect`, prints what that regular expression finds |

Each is tried again until it holds, for its `seconds`; a program that still runs then is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from slipway.node.host import manifest

Check = dict[str, Any]
Pause = Callable[[float], bool]
"""Waits for so many seconds; returns at once, and true, when it is time to stop."""

SECONDS = 30
_PAUSE = 0.5
_REQUEST_SECONDS = 10
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


class ProofError(Exception):
    """A check does not hold; the message is one line.

    Args:
        check: `role : check`.
        reason: what was found instead.
    """

    def __init__(self, check: str, reason: str) -> None:
        super().__init__(f"{check}: {reason}")
        self.check = check


class StoppedError(Exception):
    """The proof was stopped before its end."""


def checks(roles: Iterable[str]) -> list[tuple[str, Check]]:
    """Return the checks of some roles, each with its title `role : check`, in the order of the roles."""
    index = manifest.index("proof")
    return [(f"{role} : {check['name']}", check) for role in roles for check in index.get(role, ())]


def prove(wanted: Iterable[tuple[str, Check]], pause: Pause) -> None:
    """Go through checks until each holds.

    Raises:
        ProofError: one does not.
        StoppedError: it was time to stop.
    """
    for title, check in wanted:
        seconds = check.get("seconds", SECONDS)
        end = time.monotonic() + seconds
        last = ""
        while reason := _look(check, end, pause):
            if time.monotonic() >= end:
                raise ProofError(title, f"{last or reason} (for {seconds} s)")  # this try may have been cut short
            last = reason
            if pause(_PAUSE):
                raise StoppedError


def prove_all() -> int:
    """Go through the checks of every playbook that was run here and say in JSON what came of it; for `prove`.

    Returns the exit status.
    """
    playbooks = manifest.read()["playbooks"].values()
    roles = list(dict.fromkeys(role for entry in playbooks for role in entry.get("roles") or ()))
    wanted = checks(roles)
    about: dict[str, Any] = {"ok": True, "checks": [title for title, _ in wanted]}
    try:
        prove(wanted, _sleep)
    except ProofError as error:
        about.update(ok=False, check=error.check, reason=str(error))
    sys.stdout.write(json.dumps(about) + "\n")
    return 0 if about["ok"] else 1


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _look(check: Check, end: float, pause: Pause) -> str:
    """Return why a check does not hold, one line, "" when it does."""
    if "unit" in check:
        return _unit(check["unit"])
    if "url" in check:
        return _url(check["url"])
    return _command(check["command"], check.get("expect", ""), end, pause)


def _unit(unit: str) -> str:
    asked = subprocess.run(["systemctl", "is-active", unit], capture_output=True, text=True, check=False)
    return "" if asked.returncode == 0 else f"{unit} is {asked.stdout.strip() or 'unknown'}"


def _url(url: str) -> str:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=tls), urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_REQUEST_SECONDS) as answer:
            return "" if answer.status == 200 else f"{url} answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"{url} answers {error.code}"
    except (OSError, ValueError) as error:
        return f"{url} does not answer: {getattr(error, 'reason', None) or error}"


def _command(command: list[str], expect: str, end: float, pause: Pause) -> str:
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        except OSError as error:
            return f"{command[0]} cannot be started: {error.strerror}"
        try:
            while (status := process.poll()) is None and time.monotonic() < end:
                if pause(0.1):
                    raise StoppedError
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started goes along
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if status is None:
        return f"{command[0]} does not end"
    last = ([line.strip() for line in text.splitlines() if line.strip()] or ["no output"])[-1][:200]
    if status != 0:
        return f"{command[0]} ended with status {status}: {last}"
    return "" if re.search(expect, text) else f"{command[0]} prints nothing like {expect!r}: {last}"
