"""Pulumi's provider protocol: one server for the provider's life, which is no longer than the engine's.

The server does what is the same for every resource: it checks inputs against their model, tells what changed, marks
secrets, answers previews without touching anything, and turns every error into one line (its traceback goes to the log
file). It ends when the engine does, however the engine does.
"""

# The stubs describe a blocking server; this one is asynchronous.
# mypy: disable-error-code="override"
# ruff: noqa: N802  (the protocol's own names)

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import engine_pb2_grpc, plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2
from pydantic import ValidationError

from slipway.provider import wire
from slipway.provider.log import DETAILS, Log, details_file, open_details
from slipway.provider.registry import resource_of, resources
from slipway.provider.resource import Call, InitFailed, Inputs, Resource, ResourceError, State
from slipway.provider.views import Views
from slipway.report.recorder import Recorder

VERSION = "0.1.0"

_THREADS = 64
"""Blocking work at one time: this many hosts are made side by side."""

_STOP_SECONDS = 20.0
"""How long running work may take to stop once the engine has gone."""

_MESSAGE_BYTES = 400 * 1024 * 1024
"""The engine's own limit on a message."""

_Context = grpc.aio.ServicerContext[Any, Any]


def serve(engine: str | None) -> int:
    """Serve the engine at an address until it goes away; return the exit code.

    The port goes to standard output, as the protocol asks; nothing else ever does.
    """
    open_details()
    return asyncio.run(_serve(engine))


async def _serve(engine: str | None) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="work"))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", _MESSAGE_BYTES)])
    servicer = Servicer(engine)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)  # type: ignore[no-untyped-call,unused-ignore]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    watch = loop.create_task(_set_when_orphaned(stop))
    await stop.wait()
    watch.cancel()
    await servicer.stop()
    # Not an ordinary exit: that would wait for threads whose work nobody is left to hear about.
    os._exit(0)


async def _set_when_orphaned(stop: asyncio.Event) -> None:
    """Set an event when the engine has died.

    By polling: the kernel's parent-death signal follows the engine's *thread*, and Go ends threads as it likes.
    """
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(0.5)
    DETAILS.warning("the engine has gone")
    stop.set()


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """The protocol's requests."""

    def __init__(self, engine: str | None) -> None:
        self._engine: engine_pb2_grpc.EngineStub | None = None
        self._cancelled = threading.Event()
        self._running = 0
        self._declared: set[str] = set()
        self._recorders: dict[str, Recorder] = {}
        if engine:
            self._connect(engine)

    def _connect(self, address: str) -> None:
        channel = grpc.aio.insecure_channel(address)
        self._engine = engine_pb2_grpc.EngineStub(channel)  # type: ignore[call-overload,unused-ignore]

    async def stop(self) -> None:
        """Tell running work to stop, and wait for it for a while."""
        self._cancelled.set()
        for _ in range(int(_STOP_SECONDS * 10)):
            if not self._running:
                return
            await asyncio.sleep(0.1)
        DETAILS.warning("%d operations did not stop in time", self._running)

    # The provider itself

    async def Handshake(self, request: provider_pb2.ProviderHandshakeRequest, context: _Context) -> Any:
        """Say what the provider can do, before it is configured."""
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=False, accept_outputs=False)

    async def Attach(self, request: plugin_pb2.PluginAttach, context: _Context) -> Any:
        """Take the engine's address when it was not the first argument."""
        self._connect(request.address)
        return empty_pb2.Empty()

    async def GetPluginInfo(self, request: empty_pb2.Empty, context: _Context) -> Any:
        """Return the provider's version."""
        return plugin_pb2.PluginInfo(version=VERSION)

    async def GetSchema(self, request: provider_pb2.GetSchemaRequest, context: _Context) -> Any:
        """Return the smallest schema there is: the classes for programs are in `slipway.resources`."""
        schema = {
            "name": "slipway",
            "version": VERSION,
            "resources": {name: {"properties": {}} for name in sorted(resources())},
        }
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    async def CheckConfig(self, request: provider_pb2.CheckRequest, context: _Context) -> Any:
        """Accept the provider's configuration: it has none."""
        return provider_pb2.CheckResponse(inputs=request.news)

    async def DiffConfig(self, request: provider_pb2.DiffRequest, context: _Context) -> Any:
        """Say that a new configuration changes nothing."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    async def Configure(self, request: provider_pb2.ConfigureRequest, context: _Context) -> Any:
        """Ask for secrets to be marked, and for previews of creates and updates."""
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    async def Cancel(self, request: empty_pb2.Empty, context: _Context) -> Any:
        """Stop running work as soon as it is safe (the first Ctrl-C)."""
        self._cancelled.set()
        return empty_pb2.Empty()

    # Resources

    async def Check(self, request: provider_pb2.CheckRequest, context: _Context) -> Any:
        """Check inputs; every failure names its property."""
        async with self._errors(request.urn, context):
            self._declared.add(request.urn)
            resource = resource_of(request.urn)
            marked = wire.decode(request.news)
            news = wire.reveal(marked)
            try:
                inputs = resource.inputs.model_validate(news)
            except ValidationError as error:
                failures = _failures(error, news)
            else:
                failures = {} if wire.has_unknown(news) else dict(resource.check(inputs))
            return provider_pb2.CheckResponse(
                inputs=request.news,
                failures=[_check_failure(name, reason, marked) for name, reason in failures.items()],
            )

    async def Diff(self, request: provider_pb2.DiffRequest, context: _Context) -> Any:
        """Say what changed and what that replaces."""
        async with self._errors(request.urn, context):
            return await _diff(resource_of(request.urn), request)

    async def Create(self, request: provider_pb2.CreateRequest, context: _Context) -> Any:
        """Make a resource; in a preview, only say which outputs it will have."""
        async with self._errors(request.urn, context, request.properties), self._call(request) as call:
            resource = resource_of(request.urn)
            if request.preview:
                await resource.preview(call, None, wire.reveal(wire.decode(request.properties)), None)
                unknown = dict.fromkeys(resource.outputs, wire.UNKNOWN)
                return provider_pb2.CreateResponse(properties=_mark(resource, unknown))
            state = await resource.create(call, _inputs(resource, request.properties))
            return provider_pb2.CreateResponse(id=state.id, properties=_mark(resource, state.outputs))

    async def Read(self, request: provider_pb2.ReadRequest, context: _Context) -> Any:
        """Look at a resource in the world. An empty id says that it is gone."""
        async with self._errors(request.urn, context, request.inputs), self._call(request) as call:
            resource = resource_of(request.urn)
            if not request.inputs.fields and not request.properties.fields:
                raise ResourceError(f"{resource.kind} {request.id} cannot be imported; declare it and run: pulumi up")
            state = State(request.id, wire.reveal(wire.decode(request.properties)))
            found = await resource.read(call, _inputs(resource, request.inputs), state)
            if found is None:
                return provider_pb2.ReadResponse()
            return provider_pb2.ReadResponse(
                id=found.id, properties=_mark(resource, found.outputs), inputs=request.inputs
            )

    async def Update(self, request: provider_pb2.UpdateRequest, context: _Context) -> Any:
        """Bring a resource to new inputs; in a preview, only say which outputs are no longer known."""
        async with self._errors(request.urn, context, request.news), self._call(request) as call:
            resource = resource_of(request.urn)
            state = State(request.id, wire.reveal(wire.decode(request.olds)))
            old = _inputs(resource, request.old_inputs)
            if request.preview:
                await resource.preview(call, old, wire.reveal(wire.decode(request.news)), state)
                outputs = state.outputs | dict.fromkeys(resource.volatile, wire.UNKNOWN)
                return provider_pb2.UpdateResponse(properties=_mark(resource, outputs))
            updated = await resource.update(call, old, _inputs(resource, request.news), state)
            return provider_pb2.UpdateResponse(properties=_mark(resource, updated.outputs))

    async def Delete(self, request: provider_pb2.DeleteRequest, context: _Context) -> Any:
        """Remove a resource."""
        async with self._errors(request.urn, context), self._call(request) as call:
            resource = resource_of(request.urn)
            state = State(request.id, wire.reveal(wire.decode(request.properties)))
            left_out = bool(self._declared) and request.urn not in self._declared
            await resource.delete(replace(call, left_out=left_out), _inputs(resource, request.old_inputs), state)
            await call.views.publish([], must=True)  # rows that stay without their owner break the stack's state
            return empty_pb2.Empty()

    @asynccontextmanager
    async def _call(self, request: Any) -> AsyncIterator[Call]:
        views = Views(request, getattr(request, "old_views", ()))
        stack = request.urn.removeprefix("urn:pulumi:").partition("::")[0]
        call = Call(
            request.urn.rpartition("::")[2],
            Log(self._engine, request.urn),
            self._cancelled,
            views=views,
            journal=self._recorders.setdefault(stack, Recorder(stack)).journal(),
        )
        self._running += 1
        try:
            yield call
        finally:
            self._running -= 1
            await call.log.close()

    @asynccontextmanager
    async def _errors(
        self, urn: str, context: _Context, inputs: struct_pb2.Struct | None = None
    ) -> AsyncIterator[None]:
        """Turn every error into one line for the user."""
        try:
            yield
        except InitFailed as error:
            details = provider_pb2.ErrorResourceInitFailed(
                id=error.id,
                properties=_mark(resource_of(urn), error.outputs),
                inputs=inputs,
                reasons=error.reasons,
            )
            await _abort(context, _one_line(str(error)), details)
        except ResourceError as error:
            await _abort(context, _one_line(str(error)))
        except ValidationError as error:
            first = _failures(error, {})
            await _abort(context, "; ".join(f"{name}: {reason}" for name, reason in first.items()))
        except Exception as error:  # noqa: BLE001  (the last line of defence: a user never sees a traceback)
            DETAILS.exception("%s", urn)
            kind = type(error).__name__
            await _abort(context, _one_line(f"{kind}: {error} (a fault in Slipway; details: {details_file()})"))


def _check_failure(name: str, reason: str, marked: Mapping[str, Any]) -> provider_pb2.CheckFailure:
    """Return a failure for the engine.

    The engine prints the value of the property that a failure names: of an inner one it knows none, of a secret it must
    not. The reason says the name of these.
    """
    if name in marked and not isinstance(marked[name], wire.Secret):
        return provider_pb2.CheckFailure(property=name, reason=reason)
    return provider_pb2.CheckFailure(reason=f"{name}: {reason}" if name else reason)


async def _diff(resource: Resource[Any], request: provider_pb2.DiffRequest) -> provider_pb2.DiffResponse:
    old, new = wire.decode(request.old_inputs), wire.decode(request.news)
    changes = wire.difference(old, new)
    ignored = resource.quiet | set(request.ignoreChanges)
    changes = {path: kind for path, kind in changes.items() if _top(path) not in ignored}
    detailed = {path: _property_diff(path, kind, resource, from_input=True) for path, kind in changes.items()}
    if not wire.has_unknown(new):
        state = State(request.id, wire.reveal(wire.decode(request.olds)))
        drifted = await resource.drift(state, _inputs(resource, request.news))
        detailed |= {path: _property_diff(path, "update", resource, from_input=False) for path in sorted(drifted)}
    replaces = sorted({_top(path) for path in changes} & resource.replaces)
    kind = provider_pb2.DiffResponse.DIFF_SOME if detailed else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(
        changes=kind,
        diffs=sorted({_top(path) for path in detailed}),
        replaces=replaces,
        deleteBeforeReplace=bool(replaces) and resource.one_at_a_time,
        detailedDiff=detailed,
        hasDetailedDiff=True,
    )


def _property_diff(
    path: str, kind: wire.Kind, resource: Resource[Any], *, from_input: bool
) -> provider_pb2.PropertyDiff:
    kinds = provider_pb2.PropertyDiff.Kind
    name = kind.upper() + ("_REPLACE" if from_input and _top(path) in resource.replaces else "")
    return provider_pb2.PropertyDiff(kind=kinds.Value(name), inputDiff=from_input)


def _top(path: str) -> str:
    """Return the input that a path leads into: `hosts` of `hosts[0].vars`."""
    return path.split(".", 1)[0].split("[", 1)[0]


def _inputs(resource: Resource[Any], struct: struct_pb2.Struct) -> Inputs:
    """Return a request's inputs as their model.

    They were checked before they came into the state, maybe by a newer Slipway: names unknown here are left out.

    Raises:
        ValidationError: they do not fit.
    """
    inputs: Inputs = resource.inputs.model_validate(wire.reveal(wire.decode(struct)), extra="ignore")
    return inputs


def _mark(resource: Resource[Any], outputs: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return outputs for the engine, the secret ones marked."""
    return wire.encode(
        {name: wire.Secret(value) if name in resource.secrets else value for name, value in outputs.items()}
    )


def _failures(error: ValidationError, values: Mapping[str, Any]) -> dict[str, str]:
    """Return one line for each property that does not fit, except those whose value is not known yet."""
    failures: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_input=False):
        location = problem["loc"]
        match problem["type"]:
            case "missing":
                reason = "is missing"
            case "extra_forbidden":
                reason = "is not an input of this resource"
            case _ if wire.has_unknown(_at(values, location)):
                continue
            case _:
                reason = problem["msg"].removeprefix("Value error, ")
        failures.setdefault(_path(location), _one_line(reason))
    return failures


def _at(values: Any, location: tuple[int | str, ...]) -> Any:
    """Return the value at a place, or the innermost one on the way there."""
    for step in location:
        try:
            values = values[step]
        except (KeyError, IndexError, TypeError):
            break
    return values


def _path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")


def _one_line(message: str) -> str:
    return " ".join(message.split())


async def _abort(
    context: _Context, message: str, details: provider_pb2.ErrorResourceInitFailed | None = None
) -> NoReturn:
    """End a request with an error. Details travel as the protocol wants: packed in the trailing metadata."""
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=message)
    if details is not None:
        status.details.add().Pack(details)
    await context.abort(grpc.StatusCode.UNKNOWN, message, (("grpc-status-details-bin", status.SerializeToString()),))
    raise AssertionError  # abort always raises; the stubs do not say so
