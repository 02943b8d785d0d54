#!/usr/bin/python3 -I
"""Converge this host: `slipway_node.py run` and `slipway_node.py status`. Runs as root, from the content bundle.

`run` takes what to do as one JSON line on stdin, runs the playbook with the
bundled Ansible against this host, and says what happens in JSON lines on stdout. While it runs, modules may ask the
controller for what only it can give (a signed certificate, a bootstrap token) through the socket `broker.sock`; the request
goes out as a line on stdout and the answer comes in as a line on stdin.

When the controller goes away the run goes on to its end, except that a request that needs the controller fails. A later run
takes over: it asks an abandoned run to stop at the end of its task.

Plain standard library, Python 3.9 or newer.
"""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time

STATE = os.environ.get("SLIPWAY_NODE_STATE", "/var/lib/slipway")
RUN = os.environ.get("SLIPWAY_NODE_RUN", "/run/slipway")
HERE = os.path.dirname(os.path.abspath(__file__))

GRACE_SECONDS = 20  # from "stop at the end of the task" to SIGTERM
KILL_SECONDS = 5  # from SIGTERM to SIGKILL
LOCK_SECONDS = 120
TIMEOUT_SECONDS = 1800
BUNDLES_KEPT = 4  # runtime and content of this release and of the one before
OUTPUT_KEPT = 16_384  # bytes of Ansible's own output that are kept to say why it did not start
SECRET_LENGTH = 8  # shorter values are no secrets worth hiding, and would hide ordinary words


def main(arguments):
    """Run one command; returns the exit status: 0 done, 1 the host did not converge, 2 wrong use."""
    if arguments == ["status"]:
        print(json.dumps(read_manifest()))
        return 0
    if arguments == ["run"]:
        os.umask(0o077)
        for folder in (STATE, RUN):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
        return Run(Controller()).run()
    print("usage: slipway_node.py run|status", file=sys.stderr)
    return 2


# -- manifest -----------------------------------------------------------------------------------------------------------


def read_manifest():
    """Return `{"version": 1, "playbooks": {name: entry}}`; an unreadable file counts as none."""
    try:
        with open(os.path.join(STATE, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if manifest.get("version") == 1 and isinstance(manifest.get("playbooks"), dict):
            return manifest
    except (OSError, ValueError, AttributeError):
        pass
    return {"version": 1, "playbooks": {}}


def write_manifest(playbook, entry):
    """Put one playbook's entry into the manifest: one line of JSON, 0600, whole or not at all."""
    manifest = read_manifest()
    manifest["playbooks"][playbook] = entry
    write_file(os.path.join(STATE, "manifest.json"), json.dumps(manifest) + "\n")
    return entry


def write_file(path, text):
    """Write a file 0600, whole or not at all, and on the disk when this returns."""
    new = path + ".new"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def now():
    """Return the time in UTC as 2026-01-31T12:00:00Z."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- the two ends of the line -------------------------------------------------------------------------------------------


class Lines:
    """Lines from a file descriptor that is read whenever something is there."""

    def __init__(self, fd):
        self.fd, self._rest, self.ended = fd, b"", False

    def read(self):
        """Return the whole lines that have come; sets `ended` at the end of the stream."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line for line in lines if line.strip()]


class Controller:
    """The controller at the other end of stdin and stdout; `attached` until it hangs up."""

    def __init__(self):
        self.lines = Lines(0)
        self.attached = True
        self.secrets = []

    def first_line(self):
        """Return the inputs, None when the controller hangs up before it has sent them."""
        while not self.lines.ended:
            lines = self.lines.read()
            if lines:
                return json.loads(lines[0])
        return None

    def hide(self, value):
        """Remember the strings inside this value as secret, their single lines too."""
        found = set(self.secrets)
        for text in strings_in(value):
            found.update(piece.strip() for piece in [text, *text.splitlines()] if len(piece.strip()) >= SECRET_LENGTH)
        self.secrets = sorted(found, key=len, reverse=True)

    def hidden(self, text):
        """Return a text without secrets, should a module have put one into its message or diff."""
        for secret in self.secrets:
            text = text.replace(secret, "********")
        return text

    def send(self, line):
        """Send one event; a controller that is gone is noticed and not an error."""
        data = json.dumps(line).encode() + b"\n"
        try:
            while data and self.attached:
                data = data[os.write(1, data) :]
        except OSError:
            self.attached = False


def strings_in(value):
    """Yield the strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_in(each)


# -- one run at a time --------------------------------------------------------------------------------------------------


class Lock:
    """The lock that one run on this host holds. Its file says who: `{"pid", "attached"}`."""

    def __init__(self):
        self.fd = os.open(os.path.join(STATE, "run.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, seconds, waiting):
        """Take the lock within some seconds; returns None, or why not, in one line.

        A run that lost its controller is asked to stop; one that has a controller is waited for.
        """
        end, asked, told = time.monotonic() + seconds, None, False
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            else:
                self.note(attached=True)
                return None
            holder = self.holder()
            if not holder.get("attached", True) and holder.get("pid") != asked:
                asked = holder.get("pid")
                with contextlib.suppress(ProcessLookupError, TypeError):
                    os.kill(asked, signal.SIGTERM)
            if time.monotonic() > end:
                return "another run (process %s) has held the lock for %d s; try again when it is done" % (
                    holder.get("pid", "?"),
                    seconds,
                )
            if not told:
                waiting()
                told = True
            time.sleep(0.2)

    def holder(self):
        try:
            return json.loads(os.pread(self.fd, 1000, 0))
        except ValueError:
            return {}

    def note(self, attached):
        """Write down who holds the lock, and whether a controller listens."""
        text = json.dumps({"pid": os.getpid(), "attached": attached}).encode()
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text, 0)


# -- the broker's socket ------------------------------------------------------------------------------------------------


class Broker:
    """The socket where modules ask for what only the controller can give: one line in, one line out a connection."""

    def __init__(self, selector, controller):
        self._selector, self._controller = selector, controller
        self._waiting = {}
        self._number = 0
        path = os.path.join(RUN, "broker.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(path)
        self._socket.listen(8)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def _accept(self):
        client, _ = self._socket.accept()
        lines = Lines(client.fileno())
        self._selector.register(client, selectors.EVENT_READ, lambda: self._request(client, lines))

    def _request(self, client, lines):
        for line in lines.read()[:1]:
            self._selector.unregister(client)
            try:
                request = json.loads(line)
                kind = request["kind"]
            except (ValueError, TypeError, KeyError):
                self._answer(client, {"ok": False, "error": 'a request is one JSON object with "kind"'})
                return
            if not self._controller.attached:
                self._answer(client, gone(kind))
                return
            self._number += 1
            request.update(event="request", id=str(self._number))
            self._waiting[request["id"]] = (client, kind)
            self._controller.send(request)
            return
        if lines.ended:
            self._selector.unregister(client)
            client.close()

    def answer(self, line):
        """Hand an answer of the controller to the module that waits for it."""
        client, _ = self._waiting.pop(str(line.get("id")), (None, None))
        if client is not None:
            self._answer(client, line)

    def hang_up(self):
        """Tell all who wait that no answer will come."""
        for client, kind in self._waiting.values():
            self._answer(client, gone(kind))
        self._waiting.clear()

    def _answer(self, client, line):
        with contextlib.suppress(OSError), client:
            client.sendall(json.dumps(line).encode() + b"\n")

    def close(self):
        self.hang_up()
        self._socket.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(RUN, "broker.sock"))


def gone(kind):
    return {"ok": False, "error": "no controller is connected to give a %s; run the play again" % kind.replace("_", " ")}


# -- one run ------------------------------------------------------------------------------------------------------------


class Run:
    """One converge: from the inputs on stdin to the result line and the manifest."""

    def __init__(self, controller):
        self.controller = controller
        self.inputs = {}
        self.roles = {}
        self.changed = 0
        self.failure = None  # (task, message) of the last task that failed
        self.stopping = None  # why the run is being stopped, None while it is not
        self.deadlines = []  # (monotonic time, what to do then)
        self.output = b""
        self.matched = True

    def run(self):
        try:
            self.inputs = self.controller.first_line() or {}
        except ValueError:
            self.inputs = {}
        missing = [key for key in ("host", "playbook", "digest", "bundles") if not self.inputs.get(key)]
        if missing:
            return self.result(ok=False, msg="the inputs lack %s" % ", ".join(missing))
        self.controller.hide(self.inputs.get("secrets"))
        self.lock = Lock()
        why_not = self.lock.take(
            self.inputs.get("lock_seconds", LOCK_SECONDS), lambda: self.controller.send({"event": "state", "state": "waiting"})
        )
        if why_not:
            return self.result(ok=False, msg=why_not)
        entry = read_manifest()["playbooks"].get(self.inputs["playbook"], {})
        if self.is_at(entry):
            return self.result(ok=True, manifest=entry, unchanged=True)
        return self.converge()

    def is_at(self, entry):
        """Return whether the host was brought to the wanted digest while this run waited for the lock."""
        inputs = self.inputs
        return (
            not inputs.get("force")
            and not inputs.get("check")
            and entry.get("result") == "ok"
            and entry.get("digest") == inputs["digest"]
        )

    def converge(self):
        check = bool(self.inputs.get("check"))
        started, began = now(), time.monotonic()
        if not check:
            write_manifest(self.inputs["playbook"], self.entry("running", started, None, began))
        files = self.write_inputs()
        try:
            status = self.supervise()
        finally:
            for file in files:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file)
        task, message = self.failure or (None, None)
        outcome = "ok"
        if self.stopping:
            outcome, message = "cancelled", self.stopping
        elif status != 0:
            outcome, message = "failed", message or self.ansible_said(status)
        elif not self.matched:
            outcome, message = "failed", "playbook %s has no play for this host" % self.inputs["playbook"]
        entry = self.entry(outcome, started, now(), began, task if outcome != "ok" else None, message if outcome != "ok" else None)
        if not check:
            write_manifest(self.inputs["playbook"], entry)
            if outcome == "ok":
                self.tidy()
        line = {"ok": outcome == "ok", "manifest": entry}
        if outcome != "ok":
            line["msg"] = message
            if task:
                line["failed_task"] = task
        if outcome == "cancelled":
            line["cancelled"] = True
        return self.result(**line)

    def entry(self, result, started, finished, began, task=None, reason=None):
        """Return what the manifest says about this run."""
        digests = {}
        with contextlib.suppress(OSError, ValueError, KeyError), open(os.path.join(HERE, "index.json"), encoding="utf-8") as file:
            digests = json.load(file)["roles"]
        return {
            "release": self.inputs.get("release", ""),
            "digest": self.inputs["digest"],
            "result": result,
            "reason": reason,
            "failed_task": task,
            "changed": self.changed,
            "roles": {name: dict(role, digest=digests.get(name, "")) for name, role in self.roles.items()},
            "started": started,
            "finished": finished,
            "seconds": round(time.monotonic() - began, 1),
            "by": self.inputs.get("by", ""),
        }

    def result(self, ok, msg=None, manifest=None, **more):
        line = {"event": "result", "ok": ok, "changed": self.changed, "digest": self.inputs.get("digest", "")}
        if msg:
            line["msg"] = msg
        if manifest is not None:
            line["manifest"] = manifest
        self.controller.send(dict(line, **more))
        return 0 if ok else 1

    # -- Ansible as a child ---------------------------------------------------------------------------------------------

    def write_inputs(self):
        """Write the inventory that Ansible reads; it is taken away as soon as the first play starts."""
        inputs = self.inputs
        variables = data_only(dict(inputs.get("vars") or {}, **(inputs.get("secrets") or {})))
        variables.update(ansible_connection="local", ansible_python_interpreter=sys.executable)
        host = inputs["host"]
        inventory = {"all": {"hosts": {host: variables}}}
        for group in inputs.get("groups") or []:
            inventory[group] = {"hosts": {host: None}}
        self.inventory = os.path.join(RUN, "inputs.json")
        self.cancel_file = os.path.join(RUN, "cancel")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.cancel_file)
        write_file(self.inventory, json.dumps(inventory))
        return [self.inventory, self.cancel_file]

    def command(self):
        inputs = self.inputs
        runtime = os.path.join(os.path.dirname(HERE), inputs["bundles"]["runtime"]["digest"])
        command = [sys.executable, "-I", os.path.join(HERE, "ansible_playbook.py"), runtime, "-i", self.inventory]
        command += ["--check"] if inputs.get("check") else []
        command += ["--diff"] if inputs.get("diff") else []
        command.append(os.path.join(HERE, "playbooks", inputs["playbook"] + ".yml"))
        return command, runtime

    def environment(self, runtime, events):
        strategy = self.inputs.get("strategy", "mitogen_linear")
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TMPDIR": "/tmp",
            "ANSIBLE_CONFIG": os.path.join(HERE, "ansible.cfg"),
            "ANSIBLE_STRATEGY": strategy,
            "ANSIBLE_STRATEGY_PLUGINS": os.path.join(runtime, "ansible_mitogen", "plugins", "strategy"),
            "ANSIBLE_HOME": os.path.join(RUN, "ansible"),
            "ANSIBLE_LOCAL_TEMP": os.path.join(RUN, "ansible", "tmp"),
            "ANSIBLE_REMOTE_TMP": os.path.join(RUN, "ansible", "tmp"),
            "SLIPWAY_EVENTS_FD": str(events),
            "SLIPWAY_LOCK_FD": str(self.lock.fd),
            "SLIPWAY_CANCEL": self.cancel_file,
            "SLIPWAY_PENDING": "" if self.inputs.get("check") else os.path.join(STATE, "pending.json"),
            "SLIPWAY_PLAYBOOK": self.inputs["playbook"],
            "SLIPWAY_BROKER": os.path.join(RUN, "broker.sock"),
        }

    def supervise(self):
        """Run Ansible and serve everybody who talks until it ends; returns its exit status."""
        self.selector = selectors.DefaultSelector()
        self.broker = Broker(self.selector, self.controller)
        events, events_end = os.pipe()
        output, output_end = os.pipe()
        woken, wake = os.pipe()
        for fd in (wake, events, output):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda number, _: self.stop("stopped by %s" % signal.Signals(number).name))
        command, runtime = self.command()
        self.child = subprocess.Popen(
            command,
            cwd=HERE,
            env=self.environment(runtime, events_end),
            stdin=subprocess.DEVNULL,
            stdout=output_end,
            stderr=output_end,
            pass_fds=(events_end, self.lock.fd),
            start_new_session=True,
        )
        os.close(events_end)
        os.close(output_end)
        self.after(self.inputs.get("timeout_seconds", TIMEOUT_SECONDS), self.time_out)
        self.event_lines = Lines(events)
        self.selector.register(events, selectors.EVENT_READ, self.read_events)
        self.selector.register(output, selectors.EVENT_READ, lambda: self.read_output(output))
        self.selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 512))
        if self.controller.attached:
            self.selector.register(0, selectors.EVENT_READ, self.read_controller)
        self.controller.send({"event": "state", "state": "running"})
        try:
            while self.child.poll() is None:
                for key, _ in self.selector.select(self.next_deadline()):
                    key.data()
                self.meet_deadlines()
            self.read_events()
            self.read_output(output)
            return self.child.returncode
        finally:
            self.end_group(signal.SIGKILL)  # what Ansible may have left behind; services that tasks started are not in it
            self.broker.close()
            self.selector.close()

    def read_controller(self):
        lines = self.controller.lines
        for line in lines.read():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("cancel"):
                self.stop("stopped by the controller")
            elif "id" in message:
                self.controller.hide(message.get("token"))
                self.broker.answer(message)
        if lines.ended:
            self.selector.unregister(0)
            self.controller.attached = False
            self.lock.note(attached=False)
            self.broker.hang_up()

    def read_events(self):
        for line in self.event_lines.read():
            try:
                self.on_event(json.loads(line))
            except ValueError:
                continue
        if self.event_lines.ended:
            with contextlib.suppress(KeyError):
                self.selector.unregister(self.event_lines.fd)

    def on_event(self, event):
        kind = event.get("event")
        if kind == "play":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.inventory)
        elif kind == "empty":
            self.matched = False
        elif kind == "waiting":
            self.controller.send({"event": "state", "state": "retrying", "name": event["name"], "role": event["role"]})
        elif kind == "task":
            for key in ("msg", "diff", "item", "name"):
                if key in event:
                    event[key] = self.controller.hidden(event[key])
            self.count(event)
            self.controller.send(event)

    def count(self, event):
        status, name = event["status"], event["role"]
        role = self.roles.setdefault(name, {"result": "ok", "changed": 0}) if name else {"changed": 0}
        if status == "changed":
            self.changed += 1
            role["changed"] += 1
        elif status == "failed":
            role["result"] = "failed"
            task = "%s : %s" % (name, event["name"]) if name else event["name"]
            self.failure = (task, event.get("msg", "failed without a message"))

    def read_output(self, fd):
        with contextlib.suppress(BlockingIOError):
            data = os.read(fd, 65536)
            if not data:
                with contextlib.suppress(KeyError):
                    self.selector.unregister(fd)
            self.output = (self.output + data)[-OUTPUT_KEPT:]

    def ansible_said(self, status):
        """Return the line of Ansible's own output that says why it ended."""
        lines = [line.strip() for line in self.output.decode(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("[ERROR]", "ERROR!"))]
        said = (errors or lines or ["no output"])[-1]
        said = self.controller.hidden(said.removeprefix("[ERROR]: "))[:500]
        return "ansible-playbook ended with status %d: %s" % (status, said)

    # -- stopping -------------------------------------------------------------------------------------------------------

    def stop(self, why):
        """Stop at the end of the current task; by force when that takes too long."""
        if self.stopping:
            return
        self.stopping = why
        with open(self.cancel_file, "w", encoding="utf-8"):
            pass
        self.after(self.inputs.get("grace_seconds", GRACE_SECONDS), lambda: self.end_group(signal.SIGTERM))
        self.after(self.inputs.get("grace_seconds", GRACE_SECONDS) + KILL_SECONDS, lambda: self.end_group(signal.SIGKILL))

    def time_out(self):
        task = " (last: %s)" % self.failure[0] if self.failure else ""
        self.stop("not done after %d s%s" % (self.inputs.get("timeout_seconds", TIMEOUT_SECONDS), task))

    def end_group(self, number):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, number)

    def after(self, seconds, action):
        self.deadlines.append((time.monotonic() + seconds, action))
        self.deadlines.sort(key=lambda each: each[0])

    def next_deadline(self):
        return max(0.0, self.deadlines[0][0] - time.monotonic()) if self.deadlines else None

    def meet_deadlines(self):
        while self.deadlines and self.deadlines[0][0] <= time.monotonic():
            self.deadlines.pop(0)[1]()

    # -- tidying --------------------------------------------------------------------------------------------------------

    def tidy(self):
        """Remove bundles that the last runs did not use, and what interrupted transfers left."""
        folder = os.path.dirname(HERE)
        used = {os.path.basename(HERE), self.inputs["bundles"]["runtime"]["digest"]}
        for name in used:
            with contextlib.suppress(OSError):
                os.utime(os.path.join(folder, name))
        old = []
        for entry in os.scandir(folder):
            age = time.time() - entry.stat().st_mtime
            if entry.name.startswith(".new-"):
                if age > 3600:
                    shutil.rmtree(entry.path, ignore_errors=True)
            elif entry.name not in used:
                old.append((age, entry.path))
        for _, path in sorted(old)[max(0, BUNDLES_KEPT - len(used)) :]:
            shutil.rmtree(path, ignore_errors=True)


def data_only(value):
    """Return a value in which Ansible expands no string: what the controller sends is data, not templates."""
    if isinstance(value, str) and any(mark in value for mark in ("{{", "{%", "{#")):
        return {"__ansible_unsafe": value}
    if isinstance(value, dict):
        return {key: data_only(each) for key, each in value.items()}
    if isinstance(value, list):
        return [data_only(each) for each in value]
    return value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
