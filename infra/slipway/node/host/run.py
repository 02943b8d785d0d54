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

from slipway.node.host import costs, manifest, places, proof, space, steps
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
        self._task_began = 0.0
        self._changed: list[tuple[str, str]] = []
        self._reboot: list[str] = []
        self._cost = "none"
        self._before: dict[str, Any] = {}
        self._ansible: Ansible | None = None
        self._broker: Broker | None = None
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
        with selectors.DefaultSelector() as self._selector:
            self._catch_signals()
            self._selector.register(self._controller.incoming.fd, selectors.EVENT_READ, self._read_controller)
            self._before = manifest.entry(self._inputs["playbook"])
            if steps.is_at(self._before, self._inputs["digest"]) and not self._inputs.get("force"):
                return self._go_on(self._before)
            return self._converge()

    def _go_on(self, entry: dict[str, Any]) -> int:
        """Take the steps that are left when the host is at its digest, as far as they are not the controller's."""
        if not steps.unfinished(entry):
            return self._result(ok=True, manifest=entry, unchanged=True)
        reasons = steps.left_reasons(entry)
        if self._inputs.get("check"):
            self._cost = "reboot" if reasons else "none"
            return self._result(ok=True, manifest=entry)
        if steps.has_rebooted(entry):
            return self._converge()  # what could not be done before the boot is done now
        if reasons:
            return self._result(ok=True, manifest=entry, reboot=reasons)
        if entry["step"] != "proven":
            return self._prove(entry)
        return self._result(ok=True, manifest=entry)

    def _prove(self, entry: dict[str, Any]) -> int:
        """Prove that the host works, after a run that went well."""
        self._controller.send({"event": "state", "state": "proving"})
        about: dict[str, Any] = {}
        try:
            proof.prove(proof.checks(entry["roles"]), self._pause)
            entry = steps.proven(entry)
        except proof.ProofError as error:
            reason = f"not proven: {error}"
            about = {"msg": reason, "unproven": error.check}
            entry = {**entry, "result": "failed", "reason": reason, "finished": manifest.now()}
        except proof.StoppedError:
            cancelled = self._stopping == BY_CONTROLLER
            return self._result(ok=False, manifest=entry, cancelled=cancelled, msg=self._stopping)
        manifest.write(self._inputs["playbook"], entry)
        return self._result(ok=not about, manifest=entry, **about)

    def _converge(self) -> int:
        """Run Ansible, and go on from there."""
        self._started, self._began = manifest.now(), time.monotonic()
        if not self._inputs.get("check"):
            space.set_aside()
        self._steps = steps.begun(self._before, drained=bool(self._inputs.get("drained")))
        self._reboot = list(self._steps["reboot"])
        self._record("running")
        status = self._supervise()
        if self._stopping:
            outcome, self._reason = "cancelled", self._stopping
        elif status != 0:
            outcome = "failed"
        elif not self._playbook_applies:
            outcome, self._reason = "failed", f"playbooks/{self._inputs['playbook']}.yml has no play for this host"
        else:
            outcome, self._reason, self._failed_task = "ok", None, None  # what failed was rescued
        self._add_up()
        entry = self._record(outcome)
        if outcome == "ok":
            tidy(self._inputs["bundles"]["runtime"]["digest"])
            if not self._inputs.get("check"):
                return self._go_on(entry)
        about = {"msg": self._reason, "failed_task": self._failed_task, "cancelled": self._stopping == BY_CONTROLLER}
        about = {key: value for key, value in about.items() if value}
        return self._result(ok=outcome == "ok", manifest=entry, **about)

    def _add_up(self) -> None:
        """Add up what this run's changes cost those who use the host, and why it must reboot.

        A host that nobody uses yet has nothing to lose, one that has just rebooted did what its tasks ask for: only
        what a module says itself counts there.
        """
        if self._steps["served"] and self._steps["step"] != "rebooted":
            roles, was = manifest.index("costs"), self._before.get("costly")
            now = costs.costly_variables(roles, self._inputs.get("vars") or {})
            other = [] if was is None else [name for name in {*was, *now} if was.get(name) != now.get(name)]
            self._cost = costs.total(roles, self._changed, other)
            self._reboot += costs.reboots(roles, self._changed, other)
        self._reboot = list(dict.fromkeys(self._reboot))
        if self._reboot:
            self._cost = "reboot"

    def _record(self, result: str) -> dict[str, Any]:
        """Return what this run makes of the host, and keep it in the manifest unless this is a check run."""
        digests = manifest.index("roles")
        own = dict(self._steps, reboot=self._reboot)
        if result == "ok":
            own = steps.done(own, "rebooted" if own["step"] == "rebooted" else "changed")
            own["costly"] = costs.costly_variables(manifest.index("costs"), self._inputs.get("vars") or {})
        else:
            own["costly"] = self._before.get("costly")
        entry = {
            "release": self._inputs.get("release", ""),
            "release_digest": self._inputs.get("release_digest", ""),
            "digest": self._inputs["digest"],
            "result": result,
            "reason": self._reason,
            "failed_task": self._failed_task,
            "changed": len(self._changed),
            "roles": {name: {**role, "digest": digests.get(name, "")} for name, role in self._roles.items()},
            "started": self._started,
            "finished": None if result == "running" else manifest.now(),
            "seconds": round(time.monotonic() - self._began, 1),
            "by": self._inputs.get("by", ""),
            **own,
        }
        if not self._inputs.get("check"):
            manifest.write(self._inputs["playbook"], entry)
        return entry

    def _result(self, *, ok: bool, **more: Any) -> int:
        about = {"ok": ok, "changed": len(self._changed), "digest": self._inputs.get("digest", ""), "cost": self._cost}
        self._controller.send({"event": "result", **about, **more})
        return 0 if ok else 1

    # -- while Ansible runs -------------------------------------------------------------------------------------------

    def _supervise(self) -> int:
        """Run Ansible and serve everybody who talks until it ends; returns its exit status."""
        self._ansible = ansible = Ansible(self._inputs, self._on_event)
        ansible.give_inputs()
        self._broker = Broker(self._selector, self._controller)
        try:
            ansible.start(self._lock.fd, self._selector)
            timeout = self._inputs.get("timeout_seconds", TIMEOUT_SECONDS)
            self._after(timeout, lambda: self._stop(f"not done after {timeout} s"))
            self._controller.send({"event": "state", "state": "running"})
            while (status := ansible.status()) is None:
                self._wait(self._next_deadline())
            if status != 0:
                self._reason = self._reason or self._controller.hidden(ansible.last_words())[:500]
            return status
        finally:
            ansible.clean_up()
            self._broker.close()
            self._ansible = self._broker = None
            self._deadlines.clear()

    def _wait(self, seconds: float | None) -> None:
        """Serve whoever talks, at most for so many seconds if it is not None."""
        for key, _ in self._selector.select(seconds):
            key.data()
        self._meet_deadlines()

    def _pause(self, seconds: float) -> bool:
        """Wait; return at once, and true, when it is time to stop."""
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            self._wait(left)
        return bool(self._stopping)

    def _catch_signals(self) -> None:
        """Wake up when a child ends; stop in good order when asked to."""
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
            elif "id" in message and self._broker:
                self._controller.hide(message.get("token"))
                self._broker.answer(message)
        if self._controller.incoming.ended:
            self._selector.unregister(self._controller.incoming.fd)
            self._controller.attached = False
            self._lock.note(attached=False)
            if self._broker:
                self._broker.hang_up()

    def _on_event(self, event: dict[str, Any]) -> None:
        """Take in an event of the callback plugin."""
        kind = event.get("event")
        if kind == "play" and self._ansible:
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
            if event.get("reboot"):
                self._reboot.append(f"{event['role']} : {event['name']}: {self._controller.hidden(event['reboot'])}")
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
            self._changed.append((event["role"], event["name"]))
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
        if ansible := self._ansible:
            ansible.stop()
            grace = self._inputs.get("grace_seconds", GRACE_SECONDS)
            self._after(grace, lambda: ansible.kill(signal.SIGTERM))
            self._after(grace + KILL_SECONDS, lambda: ansible.kill(signal.SIGKILL))

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
