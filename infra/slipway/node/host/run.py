"""One converge of this host: from the inputs on stdin to the result line and the manifest."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any

from slipway.node.host import manifest, places, space
from slipway.node.host.ansible import Ansible
from slipway.node.host.broker import Broker
from slipway.node.host.controller import Controller, Line
from slipway.node.host.lock import Lock, LockError

GRACE_SECONDS = 20
"""From "stop at the end of the task" to SIGTERM."""

KILL_SECONDS = 5
"""From SIGTERM to SIGKILL."""

BY_CONTROLLER = "stopped by the controller"

LOCK_SECONDS = 120
TIMEOUT_SECONDS = 1800
BUNDLES_KEPT = 4
"""Runtime and content of this release and of the one before."""

ABANDONED_SECONDS = 3600
"""After this time a half-received bundle is rubbish."""


class Run:
    """Everything that one run knows; `run()` returns the exit status."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._inputs: Line = {}
        self._roles: dict[str, dict[str, Any]] = {}
        self._changed = 0
        self._task_began = 0.0
        self._failed_task: str | None = None
        self._reason: str | None = None
        self._stopping: str | None = None
        self._playbook_applies = True
        self._deadlines: list[tuple[float, Callable[[], None]]] = []

    def run(self) -> int:
        """Converge, and say so when that cannot even be written down; what was written before stays whole."""
        try:
            return self._run()
        except OSError as error:
            return self._result(ok=False, msg=space.told(error))

    def _run(self) -> int:
        """Converge, unless the host was brought to the wanted digest while this run waited for the lock."""
        try:
            self._inputs = self._controller.first_line()
        except ValueError:
            return self._result(ok=False, msg="the first line on stdin is not JSON")
        if missing := [key for key in ("host", "playbook", "digest", "bundles") if not self._inputs.get(key)]:
            return self._result(ok=False, msg=f"the inputs lack {', '.join(missing)}")
        self._controller.hide(self._inputs.get("secrets"))
        self._lock = Lock()
        try:
            self._lock.take(
                self._inputs.get("lock_seconds", LOCK_SECONDS),
                lambda msg: self._controller.send({"event": "state", "state": "waiting", "msg": msg}),
            )
        except LockError as error:
            return self._result(ok=False, msg=str(error))
        entry = manifest.entry(self._inputs["playbook"])
        at_digest = entry.get("result") == "ok" and entry.get("digest") == self._inputs["digest"]
        if at_digest and not self._inputs.get("force"):
            return self._result(ok=True, manifest=entry, unchanged=True)
        return self._converge()

    def _converge(self) -> int:
        self._started, self._began = manifest.now(), time.monotonic()
        if not self._inputs.get("check"):
            space.set_aside()
        self._record("running")
        status = self._supervise()
        if self._stopping:
            outcome, self._reason = "cancelled", self._stopping
        elif status != 0:
            outcome = "failed"
            self._reason = self._reason or self._controller.hidden(self._ansible.last_words())[:500]
        elif not self._playbook_applies:
            outcome, self._reason = "failed", f"playbooks/{self._inputs['playbook']}.yml has no play for this host"
        else:
            outcome, self._reason, self._failed_task = "ok", None, None  # what failed was rescued
        entry = self._record(outcome)
        if outcome == "ok":
            tidy(self._inputs["bundles"]["runtime"]["digest"])
        cancelled = self._stopping == BY_CONTROLLER
        about = {"msg": self._reason, "failed_task": self._failed_task, "cancelled": cancelled}
        return self._result(ok=outcome == "ok", manifest=entry, **{key: value for key, value in about.items() if value})

    def _record(self, result: str) -> dict[str, Any]:
        """Return what this run makes of the host, and keep it in the manifest unless this is a check run."""
        digests = manifest.role_digests()
        entry = {
            "release": self._inputs.get("release", ""),
            "release_digest": self._inputs.get("release_digest", ""),
            "digest": self._inputs["digest"],
            "result": result,
            "reason": self._reason,
            "failed_task": self._failed_task,
            "changed": self._changed,
            "roles": {name: {**role, "digest": digests.get(name, "")} for name, role in self._roles.items()},
            "started": self._started,
            "finished": None if result == "running" else manifest.now(),
            "seconds": round(time.monotonic() - self._began, 1),
            "by": self._inputs.get("by", ""),
        }
        if not self._inputs.get("check"):
            manifest.write(self._inputs["playbook"], entry)
        return entry

    def _result(self, *, ok: bool, **more: Any) -> int:
        about = {"ok": ok, "changed": self._changed, "digest": self._inputs.get("digest", "")}
        self._controller.send({"event": "result", **about, **more})
        return 0 if ok else 1

    # -- while Ansible runs -------------------------------------------------------------------------------------------

    def _supervise(self) -> int:
        """Run Ansible and serve everybody who talks until it ends; returns its exit status."""
        self._ansible = Ansible(self._inputs, self._on_event)
        self._ansible.give_inputs()
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            self._catch_signals()
            self._broker = Broker(selector, self._controller)
            try:
                self._ansible.start(self._lock.fd, selector)
                selector.register(self._controller.incoming.fd, selectors.EVENT_READ, self._read_controller)
                timeout = self._inputs.get("timeout_seconds", TIMEOUT_SECONDS)
                self._after(timeout, lambda: self._stop(f"not done after {timeout} s"))
                self._controller.send({"event": "state", "state": "running"})
                while (status := self._ansible.status()) is None:
                    for key, _ in selector.select(self._next_deadline()):
                        key.data()
                    self._meet_deadlines()
                return status
            finally:
                self._ansible.clean_up()
                self._broker.close()

    def _catch_signals(self) -> None:
        """Wake up when Ansible ends; stop in good order when asked to."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        self._selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 512))
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(each, lambda number, _: self._stop(f"stopped by {signal.Signals(number).name}"))

    def _read_controller(self) -> None:
        for line in self._controller.incoming.read():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("cancel"):
                self._stop(BY_CONTROLLER)
            elif "id" in message:
                self._controller.hide(message.get("token"))
                self._broker.answer(message)
        if self._controller.incoming.ended:
            self._selector.unregister(self._controller.incoming.fd)
            self._controller.attached = False
            self._lock.note(attached=False)
            self._broker.hang_up()

    def _on_event(self, event: dict[str, Any]) -> None:
        """Take in an event of the callback plugin."""
        kind = event.get("event")
        if kind == "play":
            self._ansible.forget_inputs()
            self._task_began = time.monotonic()
        elif kind == "empty":
            self._playbook_applies = False
        elif kind == "waiting":
            self._controller.send({**event, "event": "state", "state": "retrying"})
        elif kind == "task":
            for key in ("name", "item", "msg", "diff"):
                if key in event:
                    event[key] = self._controller.hidden(event[key])
            if "what" in event:
                event["what"] = [self._controller.hidden(each) for each in event["what"]]
            self._count(event)
            self._controller.send(event)

    def _count(self, event: dict[str, Any]) -> None:
        role: dict[str, Any] = {"result": "ok", "changed": 0, "seconds": 0.0}
        if event["role"]:
            role = self._roles.setdefault(event["role"], role)
        now = time.monotonic()  # tasks follow each other: what passed since the last one was for this one
        role["seconds"] = round(role["seconds"] + now - self._task_began, 2)
        self._task_began = now
        if event["status"] == "changed":
            self._changed += 1
            role["changed"] += 1
        elif event["status"] == "failed":
            role["result"] = "failed"
            self._failed_task = " : ".join(part for part in (event["role"], event["name"]) if part)
            self._reason = event.get("msg", "failed without a message")

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        """Stop at the end of the current task; by force when that takes too long."""
        if self._stopping:
            return
        self._stopping = why
        self._ansible.stop()
        grace = self._inputs.get("grace_seconds", GRACE_SECONDS)
        self._after(grace, lambda: self._ansible.kill(signal.SIGTERM))
        self._after(grace + KILL_SECONDS, lambda: self._ansible.kill(signal.SIGKILL))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._deadlines.append((time.monotonic() + seconds, action))
        self._deadlines.sort(key=lambda each: each[0])

    def _next_deadline(self) -> float | None:
        return max(0.0, self._deadlines[0][0] - time.monotonic()) if self._deadlines else None

    def _meet_deadlines(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= time.monotonic():
            self._deadlines.pop(0)[1]()


def tidy(runtime: str) -> None:
    """Remove bundles that the last runs did not use, and what interrupted transfers left."""
    used = {os.path.basename(places.CONTENT), runtime}
    for name in used:
        with contextlib.suppress(OSError):
            os.utime(os.path.join(places.BUNDLES, name))
    old = []
    for entry in os.scandir(places.BUNDLES):
        age = time.time() - entry.stat().st_mtime
        if entry.name.startswith(".new-"):
            if age > ABANDONED_SECONDS:
                shutil.rmtree(entry.path, ignore_errors=True)
        elif entry.name not in used:
            old.append((age, entry.path))
    for _, path in sorted(old)[max(0, BUNDLES_KEPT - len(used)) :]:
        shutil.rmtree(path, ignore_errors=True)
