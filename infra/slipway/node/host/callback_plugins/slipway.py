"""Tell the runner, one JSON line an event, what Ansible does; stop at a task's start when the runner asks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.playbook.handler import Handler
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """{"name":"slipway","type":"stdout","short_description":"JSON lines for the runner","options":{}}"""

DIFF_LIMIT = 16_384
MESSAGE_LIMIT = 500
WHAT_LIMIT = 20
WHAT_LENGTH = 200
NAMING = ("changed_paths", "changed_units", "changed_modules", "installed", "held", "imported")
"""Results of our modules that name what they changed."""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Events go to the pipe in SLIPWAY_EVENTS_FD; SLIPWAY_CANCEL names the file whose presence means stop.

    Handlers that were notified and have not run are kept in the file SLIPWAY_PENDING, so that a run that was killed
    after it changed a file does not lose the restart: the next run of the same playbook notifies them again. It does so
    when their role begins, not before, so that a restart finds what this run makes of the role's files.
    """

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "slipway"

    def __init__(self) -> None:
        super().__init__()
        self._events = int(os.environ["SLIPWAY_EVENTS_FD"])
        self._cancel = os.environ["SLIPWAY_CANCEL"]
        self._pending = Pending(os.environ.get("SLIPWAY_PENDING", ""), os.environ["SLIPWAY_PLAYBOOK"])
        self._play: Any = None
        self._waiting: list[Any] = []

    # -- what Ansible calls ------------------------------------------------------------------------------------------

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play
        self._emit({"event": "play", "name": play.get_name()})
        self._waiting = [handler for handler in handlers_of(play) if handler.get_name() in self._pending]
        self._notify_waiting(None)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._stop_if_asked()
        self._notify_waiting(task._role)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self._stop_if_asked()

    def v2_runner_on_ok(self, result: Any) -> None:
        task = result.task
        if result.is_changed():
            names = [h.get_name() for h in handlers_of(self._play) if matches(h, task.notify or [])]
            self._pending.add(names)
        if isinstance(task, Handler):
            self._pending.remove(task.get_name())
        self._task(result, "changed" if result.is_changed() else "ok")

    def v2_runner_on_skipped(self, result: Any) -> None:
        if isinstance(result.task, Handler):
            self._pending.remove(result.task.get_name())
        self._task(result, "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if ignore_errors:
            self._task(result, "ok")
        else:
            self._task(result, "failed", msg=message_of(result.result))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._task(result, "failed", msg=message_of(result.result))

    def v2_runner_retry(self, result: Any) -> None:
        left = result.result.get("retries", 0) - result.result.get("attempts", 0)
        self._emit({"event": "waiting", **self._where(result.task), "left": left})

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self._emit({"event": "empty"})

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._emit({"event": "end"})

    # -- inside ------------------------------------------------------------------------------------------------------

    def _notify_waiting(self, role: Any) -> None:
        """Notify the handlers of a role (None: of the play itself) that an earlier run left."""
        due = [handler for handler in self._waiting if handler._role == role]
        if due:
            self._waiting = [handler for handler in self._waiting if handler not in due]
            for host in self._play.get_variable_manager()._inventory.get_hosts(self._play.hosts):
                for handler in due:
                    handler.notify_host(host)

    def _task(self, result: Any, status: str, msg: str | None = None) -> None:
        line: dict[str, Any] = {"event": "task", **self._where(result.task), "status": status}
        if msg:
            line["msg"] = msg
        if status == "failed":
            items = [each for each in results_of(result.result) if each.get("failed")]
            if items:
                line["item"] = str(items[0].get("_ansible_item_label", items[0].get("item", "")))[:200]
                line["msg"] = message_of(items[0])
        if reason := reboot_of(result.result):
            line["reboot"] = reason
        if status == "changed" and not result.result.get("_ansible_no_log"):
            if what := what_of(result.result):
                line["what"] = what
            if diff := self._diff_of(result.result):
                line["diff"] = diff
        self._emit(line)

    def _where(self, task: Any) -> dict[str, str]:
        role = task._role.get_name() if task._role else ""
        name = task.get_name(include_role_fqcn=False)
        return {"name": name.removeprefix(f"{role} : "), "role": role}

    def _diff_of(self, result: Mapping[str, Any]) -> str:
        """Return the diffs of a result and of its items as text, capped."""
        shown = [each for each in (result, *results_of(result)) if each.get("diff") and not each.get("_ansible_no_log")]
        text = "".join(self._get_diff(each["diff"]) for each in shown).strip("\n")
        return text if len(text) <= DIFF_LIMIT else text[:DIFF_LIMIT] + "\n… (cut)"

    def _stop_if_asked(self) -> None:
        if os.path.exists(self._cancel):
            raise KeyboardInterrupt

    def _emit(self, line: Mapping[str, Any]) -> None:
        data = (json.dumps(line, default=str) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._events, data) :]
        except BrokenPipeError:
            # The runner is gone (killed): without it nobody records what happens here.
            sys.stderr.write("slipway: the runner is gone, stopping\n")
            raise KeyboardInterrupt from None


class Pending:
    """Names of handlers that were notified and have not run, in a file that survives the run: `{playbook: [name]}`."""

    def __init__(self, path: str, playbook: str) -> None:
        self._path, self._playbook = path, playbook
        self._all: dict[str, list[str]] = {}
        if path and os.path.exists(path):
            try:
                with open(path, encoding="utf-8") as file:
                    self._all = json.load(file)
            except (OSError, ValueError):
                self._all = {}  # torn by a crash of the disk; the tasks find what is wrong themselves

    def __contains__(self, name: str) -> bool:
        return name in self._all.get(self._playbook, [])

    def add(self, names: Iterable[str]) -> None:
        """Keep the names of handlers that were notified."""
        kept = self._all.setdefault(self._playbook, [])
        new = [name for name in names if name not in kept]
        if new:
            kept += new
            self._write()

    def remove(self, name: str) -> None:
        """Forget a handler that has run or has nothing to do."""
        if name in self:
            self._all[self._playbook].remove(name)
            self._write()

    def _write(self) -> None:
        if not self._path:
            return  # a check run changes nothing
        try:
            self._put()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # The disk is full: the runner has set some room aside for this.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(os.path.dirname(self._path), "reserve"))
            self._put()

    def _put(self) -> None:
        new = f"{self._path}.new"
        with open(new, "w", encoding="utf-8") as file:
            json.dump({key: value for key, value in self._all.items() if value}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)


def results_of(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the results of a loop's items."""
    return [each for each in result.get("results") or [] if isinstance(each, dict)]


def what_of(result: Mapping[str, Any]) -> list[str]:
    """Return what a task changed: paths, units, packages, kernel settings; capped."""
    found: dict[str, None] = {}
    for each in (result, *results_of(result)):
        if not each.get("changed") or each.get("_ansible_no_log"):
            continue
        named = [name for key in NAMING for name in each.get(key) or []]
        named += [f"{key} = {value}" for key, value in (each.get("applied") or {}).items()]
        named = named or [each[key] for key in ("path", "dest") if isinstance(each.get(key), str)]
        diffs = each.get("diff")
        for diff in [] if named or not diffs else diffs if isinstance(diffs, list) else [diffs]:
            if header := diff.get("after_header") or diff.get("before_header"):
                named.append(str(header).removesuffix(" (content)").removesuffix(" (file attributes)"))
        found.update(dict.fromkeys(str(name)[:WHAT_LENGTH] for name in named))
    return list(found)[:WHAT_LIMIT]


def reboot_of(result: Mapping[str, Any]) -> str:
    """Return why a module says that the host must reboot: its `reboot_required`, in one line."""
    reasons = [str(each["reboot_required"]) for each in (result, *results_of(result)) if each.get("reboot_required")]
    return " ".join("; ".join(dict.fromkeys(reasons)).split())[:WHAT_LENGTH]


def handlers_of(play: Any) -> list[Any]:
    """Return the handlers of a play and its roles."""
    return [handler for block in play.handlers for handler in block.block]


def matches(handler: Any, topics: Iterable[str]) -> bool:
    """Return whether one of the notified topics means this handler, as Ansible decides it."""
    names = {handler.name, handler.get_name(include_role_fqcn=False), handler.get_name(include_role_fqcn=True)}
    return any(topic in names or topic in (handler.listen or []) for topic in topics)


def message_of(result: Mapping[str, Any]) -> str:
    """Return why a task failed, in one line."""
    message = str(result.get("msg") or result.get("reason") or result.get("censored") or "failed without a message")
    for error in result.get("argument_errors") or []:
        if str(error) not in message:
            message += f"; {error}"
    for stream in ("stderr", "module_stderr", "stdout", "module_stdout"):
        lines = [line.strip() for line in str(result.get(stream) or "").splitlines() if line.strip()]
        if lines and lines[-1] not in message:
            message += f": {lines[-1]}"
            break
    message = " ".join(message.split())
    return message if len(message) <= MESSAGE_LIMIT else message[: MESSAGE_LIMIT - 1] + "…"
