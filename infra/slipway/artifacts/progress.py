"""Tell a person how the work goes: live lines on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from slipway.timing import elapsed

REMINDER = 60.0
"""Seconds between two lines about a step that still runs, when there is no terminal."""


class Step:
    """One piece of work under way."""

    def __init__(self, name: str, doing: str) -> None:
        self.name = name
        self.doing = doing
        self.started = time.monotonic()

    def line(self) -> str:
        """Return what is said about the step now."""
        return f"{self.name}: {self.doing} ({elapsed(time.monotonic() - self.started)})"


class Progress:
    """Several steps side by side; says what runs, for how long, and what comes next.

    Use it as a context manager. Safe to call from several threads.
    """

    def __init__(self, console: Console | None = None, total: int = 0) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.total = total
        self.finished = 0
        self.waiting: list[str] = []
        self._steps: list[Step] = []
        self._lock = threading.RLock()
        self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=2, transient=True)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        else:
            threading.Thread(target=self._remind, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self.console.is_terminal:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print one line that stays."""
        with self._lock:
            self.console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[Step]:
        """Show a step while the block runs, and its time when it ends well."""
        step = Step(name, doing)
        with self._lock:
            self._steps.append(step)
            if name in self.waiting:
                self.waiting.remove(name)
        self.say(f"{name}: {doing}{self._next()}")
        try:
            yield step
        except BaseException:
            with self._lock:
                self._steps.remove(step)
            raise
        with self._lock:
            self._steps.remove(step)
            self.finished += 1
            count = f"[{self.finished}/{self.total}] " if self.total else ""
        self.say(f"{count}{name}: done in {elapsed(time.monotonic() - step.started)}")

    def _next(self) -> str:
        return f"; next: {', '.join(self.waiting[:3])}" if self.waiting and not self.console.is_terminal else ""

    def _render(self) -> Group:
        with self._lock:
            lines = [Text(f"  {step.line()}", style="cyan") for step in self._steps]
            if self.waiting:
                lines.append(Text(f"  next: {', '.join(self.waiting)}", style="dim"))
        return Group(*lines)

    def _remind(self) -> None:
        while not self._over.wait(REMINDER):
            for step in list(self._steps):
                self.say(f"  {step.line()}")
