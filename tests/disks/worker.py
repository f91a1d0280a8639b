"""The process that has the store open, and the handle by which the harness drives it.

Rules: the two speak msgpack lists over pipes; every request has one reply, in order, and several may be under
way. The worker decides nothing. What the harness has asked for may be in the store; what it has read
an outcome for must be.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import msgpack

from tests.disks.model import StreamState
from tests.disks.operations import packed, unpacked
from tests.disks.subject import open_subject

PATIENCE_S: Final = 120.0
_READ_BYTES: Final = 1 << 16
_MEMORY_BYTES_MAX: Final = 2 << 30
_PR_SET_PDEATHSIG: Final = 1


class WorkerError(Exception):
    """The worker ended, or did not answer, when it should have."""


def serve(subject_name: str, root: Path) -> None:
    """The process: open the store, say what it holds, then answer requests from standard input."""
    # Nobody is left to drive it when the harness is gone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # A store that asks for more has gone astray, and must not take the machine with it.
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
    started_s = time.monotonic()
    subject, watch = open_subject(subject_name, root)
    _say(["opened", _packed_states(subject.states()), time.monotonic() - started_s])
    requests = msgpack.Unpacker(max_buffer_size=0)
    while chunk := os.read(0, _READ_BYTES):
        requests.feed(chunk)
        for kind, *arguments in requests:
            if kind == "commit":
                operations = unpacked(arguments[0])
                started_s = time.monotonic()
                outcomes = subject.commit(operations)
                _say(["outcomes", packed(outcomes), time.monotonic() - started_s])
            elif kind == "states":
                _say(["states", _packed_states(subject.states())])
            elif kind == "syncs":
                _say(["syncs", watch.failures, watch.repetitions])
            elif kind == "rotate":
                subject.rotate()
                _say(["rotated"])
            else:
                assert kind == "close", kind
                subject.close()
                _say(["closed"])


def _packed_states(states: dict[int, StreamState]) -> list[Any]:
    return [[number, state.packed()] for number, state in states.items()]


def _say(reply: list[Any]) -> None:
    view = memoryview(msgpack.packb(reply))
    while view:
        view = view[os.write(1, view) :]


def unpacked_states(lists: list[Any]) -> dict[int, StreamState]:
    """What the worker says about its streams."""
    return {number: StreamState.unpacked(fields) for number, fields in lists}


class Worker:
    """A worker process; leaving the context ends it by SIGKILL."""

    def __init__(self, subject_name: str, root: Path) -> None:
        self._errors: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115  It is closed when the worker ends.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.disks", "worker", "--subject", subject_name, "--root", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        self._replies = msgpack.Unpacker(max_buffer_size=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, *request: Any) -> None:
        """Send a request. The pipe must have room for it, for a worker that is busy does not read."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgpack.packb(request))
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None

    def receive(self, deadline_s: float) -> list[Any] | None:
        """The next reply; None when it has not come by then. WorkerError when it will not come."""
        while True:
            reply = next(self._replies, None)
            if reply is not None:
                return list(reply)
            patience_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([self._output], [], [], patience_s)[0]:
                return None
            chunk = os.read(self._output, _READ_BYTES)
            if not chunk:
                raise WorkerError(self._last_words())
            self._replies.feed(chunk)

    def answer(self, *request: Any) -> list[Any]:
        """Send a request when none is under way, and wait for its reply."""
        self.ask(*request)
        return self.wait_reply()

    def wait_reply(self) -> list[Any]:
        reply = self.receive(time.monotonic() + PATIENCE_S)
        if reply is None:
            raise WorkerError(f"no answer for {PATIENCE_S:.0f} s")
        return reply

    def kill(self) -> None:
        """End the process by SIGKILL and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def rest(self) -> Iterator[list[Any]]:
        """What a worker said before it was killed and nobody has read yet."""
        while chunk := os.read(self._output, _READ_BYTES):
            self._replies.feed(chunk)
        for reply in self._replies:
            yield list(reply)

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read()[-3000:].decode(errors="replace")
        return f"the worker ended with status {self._process.returncode}:\n{text}"
