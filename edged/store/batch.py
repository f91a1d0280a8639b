"""What is committed together: frames for the journal, and who waits for the outcome of each command.

A batch gathers, is closed, is written once, and is then applied or refused. When it could not be written,
those that were closed before that was known are not written either: their commands have indexes that follow
on the ones that are missing. `generation` tells them apart from those after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from edged.core.commands import (
    Ack,
    Command,
    Delete,
    Dispatch,
    Expire,
    LettersTaken,
    Purge,
    Refill,
    RemoveConsumer,
    RemoveStream,
    Shed,
    Terminate,
    encode,
)
from edged.core.frame_twins import FrameBuffer
from edged.core.frames import COMMAND
from edged.core.repair_records import Repaired
from edged.core.stream_machine import Outcome
from edged.core.wire import Publish
from edged.store.errors import StoreError
from edged.store.journal import START

# Commands that let messages go, or may: who empties a work queue hands out and acknowledges.
FREES_SPACE = (
    *(Delete, Purge, Expire, Shed, RemoveStream, RemoveConsumer),
    *(Ack, Dispatch, Terminate, LettersTaken),
)
# Commands written once. All others are written twice: losing one of those to a bad sector would bring back
# what is gone, or forget a stream. A lost one of these costs a delivery too many, or is asked for again.
SINGLE = (Ack, Dispatch, Refill)
# Told once: what each command came to, or why none of them was stored.
Done = Callable[[Sequence[Outcome] | StoreError], None]


class Appends(NamedTuple):
    """Messages for one stream, with consecutive indexes; `offsets` are those of their frames in the batch."""

    group: int
    first_index: int
    ts_ns: int
    messages: Sequence[Publish]
    offsets: Sequence[int]
    done: Done


class Change(NamedTuple):
    """One command that is no append."""

    group: int
    first_index: int
    command: Command
    done: Done


class Mend(NamedTuple):
    """What another node said of messages that are lost here. No command: it has no index."""

    group: int
    records: Sequence[Repaired]
    done: Done


class Batch:
    """Gathers until it is closed, is written once, and is then applied or refused."""

    __slots__ = (
        *("applied", "begins_file", "buffer", "entries", "error", "frees_space", "gathered_bytes"),
        *("generation", "is_sync_needed", "is_void", "nonce", "number", "position", "work"),
    )

    def __init__(self, tag_bytes: int = 0, capacity: int = 0) -> None:
        self.buffer = FrameBuffer(tag_bytes, capacity)
        self.entries: list[Appends | Change | Mend] = []
        # What a Replication has to do when it is durable.
        self.work: list[Any] = []
        # Known when it is closed: its size then, its record but for how far the journal is, and how often
        # batches could not be written before.
        self.gathered_bytes = 0
        self.number = 0
        self.applied: list[list[Any]] = []
        self.generation = 0
        # Whether it goes to a new file in any case, and begins it as a Replication wants; and whether there
        # is nothing in it.
        self.begins_file = False
        self.is_void = False
        # Whether everything in it helps a full disk.
        self.frees_space = True
        # Whether somebody in it is promised the disk, and not only the operating system.
        self.is_sync_needed = False
        # Where it was written, and the nonce of that file.
        self.position = START
        self.nonce = 0
        self.error: StoreError | None = None

    def add(self, change: Change) -> None:
        """Take in a command."""
        self.write(change)
        self.entries.append(change)

    def write(self, change: Change) -> None:
        """Add the frames of a command."""
        command = change.command
        body = encode(command)
        for _ in range(1 if isinstance(command, SINGLE) else 2):
            self.buffer.add(COMMAND, change.group, change.first_index, body)
        self.frees_space = self.frees_space and isinstance(command, FREES_SPACE)
