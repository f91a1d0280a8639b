"""/raftz, /ipqueuesz, /debug/vars and /stacksz: what developers look at.

Rules: nothing here shows command line arguments, variables or message contents: they may hold secrets.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import TYPE_CHECKING

import trio

from edged.server.monitoring.answers import Document
from edged.server.monitoring.parameters import Kind, option
from edged.server.monitoring.process import Usage

if TYPE_CHECKING:
    from edged.server.server import Server

NO_RAFT = "No Raft nodes registered"
# A server with very many connections has as many tasks, nearly all of them in the same place.
TASKS_SHOWN_MAX = 1000


@dataclass(frozen=True, slots=True)
class RaftzOptions:
    """What /raftz can be asked."""

    account: str = option(Kind.TEXT, "acc", json_name="account")
    group: str = option(Kind.TEXT, "group")


@dataclass(frozen=True, slots=True)
class IpqueueszOptions:
    """What /ipqueuesz can be asked."""

    all: bool = option(Kind.FLAG, "all")
    filter: str = option(Kind.TEXT, "queues", json_name="filter")


@dataclass(frozen=True, slots=True)
class ExpvarzOptions:
    """There is nothing to ask for."""


def raftz(server: Server, options: RaftzOptions) -> Document:
    """Raft groups by account; a server that stands alone has none."""
    return {}


def ipqueuesz(server: Server, options: IpqueueszOptions) -> Document:
    """Queues between threads of the server; there are none, as one loop does all the work."""
    return {}


def expvarz(server: Server, usage: Usage) -> Document:
    """Memory, under Go's names where they mean the same."""
    collections = gc.get_stats()
    return {
        "cmdline": [server.options.executable_name],
        "memstats": {
            "Alloc": usage.resident_bytes,
            "Sys": usage.virtual_bytes,
            "HeapObjects": sum(gc.get_count()),
            "NumGC": sum(generation["collections"] for generation in collections),
        },
    }


def stacksz() -> str:
    """Where every thread and every task of the loop is."""
    lines: list[str] = []
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines.append(f"thread {ident} [{names.get(ident, '')}]:")
        place = frame
        while place is not None:
            lines.append(_line(place.f_code, place.f_lineno))
            place = place.f_back  # type: ignore[assignment]
        lines.append("")
    for number, task in enumerate(_tasks()):
        if number == TASKS_SHOWN_MAX:
            lines.append(f"... and more than {TASKS_SHOWN_MAX} tasks")
            break
        lines.append(f"task {number} [{task.name}]:")
        lines.extend(_line(frame.f_code, frame.f_lineno) for frame in _frames(task.coro))
        lines.append("")
    return "\n".join(lines) + "\n"


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """The root task and all below it."""
    root = trio.lowlevel.current_root_task()
    waiting = [root] if root is not None else []
    while waiting:
        task = waiting.pop()
        yield task
        for nursery in task.child_nurseries:
            waiting.extend(nursery.child_tasks)


def _frames(awaited: object) -> Iterator[FrameType]:
    """From a coroutine down to what it waits in, as far as there are coroutines and generators."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _line(code: CodeType, number: int) -> str:
    return f"\t{code.co_filename}:{number} {code.co_name}"
