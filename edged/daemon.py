"""The daemon: builds everything, listens, obeys signals, stops cleanly. The only file that knows all parts.

`run()` is what the command line calls. The hub gives it other surroundings: the nodes of its cluster.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio

from edged.config.options import Options
from edged.ports import LocalRouter, Surroundings
from edged.server.lame_duck import leave_slowly
from edged.server.listener import Listener, ListenError, bind
from edged.server.log import Log
from edged.server.monitoring import Monitor
from edged.server.reload import Reloader, ReloadRefused
from edged.server.server import Server
from edged.server.system import SystemServices
from edged.server.tls_context import TlsConfigError
from edged.store.errors import StoreError
from edged.systemd import notify
from edged.version import EDGED_VERSION, NATS_VERSION

LoadOptions = Callable[[], Options]

# What clients sent just before the daemon is told to stop lies in the kernel: time to read and route it.
SETTLE_S = 0.02
# How long connected clients may take to read what was already sent to them when the daemon is told to stop.
DRAIN_S = 1.0
# How long a thread that compresses old messages may keep the event loop waiting each time the loop comes
# back from the kernel, which is several times for every batch. Python's own 5 ms are an age to a client.
SWITCH_S = 0.0005
# So many objects are made before the garbage collector looks for circles. Messages of a batch are objects:
# Python's own 700 would have it look at thousands of them several times while they only pass by.
GC_OBJECTS = 50_000


class Alone:
    """The surroundings of an edge: there is nobody."""

    def __init__(self) -> None:
        self.router = LocalRouter()

    async def open(self, server: Server) -> None:
        """Open the store before anybody can connect: what was acknowledged is there from the first moment."""
        if server.options.jetstream is not None:
            # Much code that a daemon without JetStream does not need.
            from edged.server.jetstream.jetstream import JetStream

            server.jetstream = await JetStream.open(server)

    async def run(self) -> None:
        """Nothing to do."""

    async def leave(self) -> None:
        """Nobody to tell."""


def run(
    options: Options,
    config_path: Path | None,
    flags_reapply: Callable[[Options], Options],
    make_surroundings: Callable[[Options], Surroundings] = lambda _options: Alone(),
) -> int:
    """Run a daemon until it is told to stop; returns the exit code."""

    def load_again() -> Options:
        from edged.config.load import load_file

        if config_path is None:
            return options
        return flags_reapply(load_file(config_path, os.environ).options)

    log = Log(options.logging)
    exit_code = 0
    try:
        around = make_surroundings(options)
        trio.run(serve, options, log, around, load_again, strict_exception_groups=True)
    except* (ListenError, TlsConfigError, StoreError, OSError) as group:
        for error in _leaves(group):
            log.fatal(str(error))
        exit_code = 1
    log.close()
    return exit_code


async def serve(options: Options, log: Log, around: Surroundings, load_again: LoadOptions) -> None:
    """Serve until a signal ends it."""
    async with trio.open_nursery() as nursery:
        server = Server(options, log, around.router, nursery)
        log.info(
            "starting edged", version=EDGED_VERSION, nats_version=NATS_VERSION, id=server.id, name=server.name
        )
        monitor = Monitor(server)
        system = SystemServices(server, monitor)
        await around.open(server)
        listeners = _listen(server)
        for listener in listeners:
            nursery.start_soon(listener.run)
        await monitor.start(nursery)
        nursery.start_soon(server.deadlines.run)
        nursery.start_soon(server.reactor.run)
        nursery.start_soon(system.run)
        if server.jetstream is not None:
            nursery.start_soon(server.jetstream.run)
        nursery.start_soon(around.run)
        reloader = Reloader(server, monitor, listeners, load_again)
        system.reload = partial(_reload, server, reloader)
        with _pid_file(options), _ports_file(options, listeners, monitor):
            for listener in listeners:
                name = "websocket clients" if listener.is_websocket else "client connections"
                log.info(f"Listening for {name} on {_address(listener.host, listener.port)}")
            _settle()
            log.info("Server is ready")
            notify.ready()
            await _obey_signals(server, listeners, reloader, system)
            notify.stopping()
            await around.leave()
            await _stop(server, listeners, system)
            if server.jetstream is not None:
                server.jetstream.close()
        nursery.cancel_scope.cancel()


async def _obey_signals(
    server: Server, listeners: list[Listener], reloader: Reloader, system: SystemServices
) -> None:
    """Return when the daemon should stop."""
    wanted = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGTERM)
    async with trio.open_nursery() as nursery:

        async def lame_duck() -> None:
            for listener in listeners:
                listener.close()
            system.announce_lame_duck()
            await leave_slowly(server)
            nursery.cancel_scope.cancel()

        async def lame_duck_when_asked() -> None:
            await server.lame_duck_asked.wait()
            await lame_duck()

        nursery.start_soon(lame_duck_when_asked)
        with trio.open_signal_receiver(*wanted) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    await _reload(server, reloader)
                elif number == signal.SIGUSR1:
                    server.log.configure(server.log.options)
                    server.log.info("log reopened")
                elif number == signal.SIGUSR2:
                    server.lame_duck_asked.set()
                elif number == signal.SIGINT or not server.is_lame_duck:
                    break
        nursery.cancel_scope.cancel()


async def _reload(server: Server, reloader: Reloader) -> str | None:
    """Read the configuration again; returns why it was refused, or None."""
    notify.reloading()
    try:
        await reloader.reload()
    except ReloadRefused as refusal:
        server.log.error("reload refused, the configuration in force stays", reason=refusal)
        return str(refusal)
    finally:
        notify.ready()
    return None


async def _stop(server: Server, listeners: list[Listener], system: SystemServices) -> None:
    """Close what is open; what clients sent before is routed, and they may read what was sent to them."""
    for listener in listeners:
        listener.close()
    await trio.sleep(SETTLE_S)
    if server.jetstream is not None:
        server.jetstream.leave()
    system.announce_shutdown()
    with trio.move_on_after(DRAIN_S):
        for connection in list(server.connections.values()):
            await connection.writer.drained()
    server.log.info("Server exiting")


def _listen(server: Server) -> list[Listener]:
    options = server.options
    listeners = [Listener(server, bind(options.host, options.port))]
    if options.websocket is not None and options.websocket.port != 0:
        websocket = bind(options.websocket.host, options.websocket.port)
        listeners.append(Listener(server, websocket, is_websocket=True))
        server.info.websocket_port = listeners[1].port
    server.info.port = listeners[0].port
    return listeners


def _settle() -> None:
    """Leave start-up behind: its garbage is freed, what stays is not scanned again, and memory goes back."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, *gc.get_threshold()[1:])
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:  # only glibc has it
        release(0)


@contextmanager
def _pid_file(options: Options):  # type: ignore[no-untyped-def]
    if options.pid_file is None:
        yield
        return
    path = Path(options.pid_file)
    path.write_text(str(os.getpid()))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _ports_file(options: Options, listeners: list[Listener], monitor: Monitor):  # type: ignore[no-untyped-def]
    from edged.server.ports_file import ports_document

    if options.ports_file_dir is None:
        yield
        return
    path = Path(options.ports_file_dir) / f"{options.executable_name}_{os.getpid()}.ports"
    partial = path.with_suffix(".tmp")
    partial.write_text(ports_document(options, listeners, monitor.addresses))
    partial.rename(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The exceptions of a group, however deep."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
