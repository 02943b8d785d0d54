"""Lines under a resource's row while it is worked on, and the provider's own log file."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from slipway import paths

DETAILS = logging.getLogger("slipway.provider")
"""What a user should not have to read: tracebacks and other details, in `details_file()`."""

_streams = itertools.count(1)


def details_file() -> Path:
    """Return the file that `DETAILS` writes to. It is made with the first line in it."""
    return paths.runs() / "provider.log"


def open_details() -> None:
    """Send `DETAILS` to its file, the last few megabytes of it, in a folder of the user's own."""
    paths.home().mkdir(parents=True, exist_ok=True)
    paths.runs().mkdir(mode=0o700, exist_ok=True)
    handler = RotatingFileHandler(details_file(), maxBytes=2_000_000, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    DETAILS.addHandler(handler)
    DETAILS.setLevel(logging.INFO)
    DETAILS.propagate = False


class Log:
    """Sends one resource's lines to the engine, in order. Every method may be called from any thread."""

    def __init__(self, engine: engine_pb2_grpc.EngineStub | None, urn: str) -> None:
        self._engine = engine
        self._urn = urn
        self._loop = asyncio.get_running_loop()
        self._stream = next(_streams)
        self._queue: asyncio.Queue[tuple[int, bool, str]] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None

    def info(self, line: str) -> None:
        """Show a line that stays."""
        self._put(engine_pb2.INFO, line)

    def warning(self, line: str) -> None:
        """Show a line that stays, as a warning."""
        self._put(engine_pb2.WARNING, line)

    def status(self, line: str) -> None:
        """Show a line in the resource's row until the next one."""
        self._put(engine_pb2.INFO, line, ephemeral=True)

    async def close(self) -> None:
        """Wait until every line has been sent."""
        if self._sender is not None:
            await self._queue.join()
            self._sender.cancel()
            self._sender = None

    def _put(self, severity: int, line: str, *, ephemeral: bool = False) -> None:
        self._loop.call_soon_threadsafe(self._enqueue, severity, ephemeral, line)

    def _enqueue(self, severity: int, ephemeral: bool, line: str) -> None:
        self._queue.put_nowait((severity, ephemeral, line))
        if self._sender is None:
            self._sender = self._loop.create_task(self._send())

    async def _send(self) -> None:
        while True:
            severity, ephemeral, line = await self._queue.get()
            try:
                if self._engine is not None:
                    # The engine puts nothing between two messages of a stream, so each brings its own line end.
                    request = engine_pb2.LogRequest(
                        severity=severity,  # type: ignore[arg-type]  # the stubs' enum is an int at run time
                        message=line + "\n",
                        urn=self._urn,
                        ephemeral=ephemeral,
                        streamId=self._stream,
                    )
                    await self._engine.Log(request)  # type: ignore[misc]  # the stubs know only the blocking client
            except grpc.aio.AioRpcError as error:
                DETAILS.warning("the engine did not take a log line: %s", error.details())
            finally:
                self._queue.task_done()


def stamp() -> str:
    """Return the time now in UTC, as it is kept in the state."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
