"""Runs one role of the load generator in a process of its own and brings its result back.

A role is a module-level function `role(plan, control) -> result`. It tells the runner it is ready through
`control`, waits there for the start, and returns its result; an exception travels back as text.
The processes are spawned, not forked: they import only what a role needs, and inherit no state.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from benchmarks.wire import GeneratorError

STOP_TIMEOUT_S = 5.0

Plan = TypeVar("Plan")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Limit:
    """When a role stops: after so many seconds, after so many messages, or at whichever comes first."""

    seconds: float | None
    messages: int | None


@dataclass(frozen=True, slots=True)
class _Ready:
    pass


@dataclass(frozen=True, slots=True)
class _Failed:
    reason: str


class Control:
    """A role's end of the line to the runner."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ready(self) -> None:
        self._connection.send(_Ready())

    def wait(self) -> Any:
        """The next word from the runner."""
        return self._connection.recv()

    def fileno(self) -> int:
        return self._connection.fileno()


class Worker(Generic[Result]):
    """The runner's end: a role that is starting, ready, running or finished."""

    def __init__(self, role: Callable[[Plan, Control], Result], plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, child_connection = context.Pipe()
        self.name = role.__name__
        self._process = context.Process(target=_run, args=(child_connection, role, plan), daemon=True)
        self._process.start()
        child_connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(STOP_TIMEOUT_S if error is None else 0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()

    def wait_ready(self) -> None:
        message = self._receive()
        assert isinstance(message, _Ready), message

    def say(self, word: object = None) -> None:
        self._connection.send(word)

    def result(self) -> Result:
        result: Result = self._receive()
        return result

    def _receive(self) -> Any:
        # There is no timeout here: a role gives up by itself when the server does not answer it.
        try:
            message = self._connection.recv()
        except EOFError:
            raise GeneratorError(f"{self.name} ended without a word") from None
        if isinstance(message, _Failed):
            raise GeneratorError(f"{self.name}: {message.reason}")
        return message


def _run(connection: Connection, role: Callable[[Any, Control], Any], plan: Any) -> None:
    # The terminal's interrupt reaches the whole process group; the runner alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A collection in the middle of a measurement would show up as latency of the server.
    gc.disable()
    try:
        message = role(plan, Control(connection))
    except EOFError:
        return  # The runner gave up on this run and closed its end.
    except (GeneratorError, OSError) as error:
        message = _Failed(f"{type(error).__name__}: {error}")
    except Exception:
        message = _Failed(traceback.format_exc())
    try:
        connection.send(message)
    except BrokenPipeError:
        return  # As above: nobody waits for the result any more.
