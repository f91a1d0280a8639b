"""How much is stored, for whom, and whether more fits: the books of the store.

Rules: the books follow the logs, which are exact, and are never asked to be right by themselves: after every
change of a log `count()` takes over its figures. Limits are looked at before a message is accepted, not when
it is applied: what is in the journal is stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from edged.config.jetstream_options import ShedOptions
from edged.core import commands
from edged.core.space_rules import SpaceLimits, SpaceRules, StreamSpace
from edged.store.errors import StoreFull
from edged.store.space import DiskGovernor
from edged.store.usage import Accounts
from edged.store.wear import CountedFiles

if TYPE_CHECKING:
    from edged.store.group import StreamEntry


class Room:
    """The books of one store. `memory_bytes_max` -1 means no limit."""

    def __init__(
        self, files: CountedFiles, limits: SpaceLimits, shed: ShedOptions, memory_bytes_max: int = -1
    ) -> None:
        self.governor = DiskGovernor(files, SpaceRules(limits, shed))
        self.disk = Accounts()
        self.memory = Accounts()
        self.memory_bytes_max = memory_bytes_max
        self.wear = files.wear
        self._open: dict[int, StreamEntry] = {}

    def set_limits(self, memory_bytes_max: int, store_bytes_max: int) -> None:
        """How much may be stored from now on; what is stored already stays."""
        rules = self.governor.rules
        rules.limits = replace(rules.limits, store_bytes_max=store_bytes_max)
        self.memory_bytes_max = memory_bytes_max

    def follow(self, group: int, entry: StreamEntry | None) -> None:
        """A stream is new, was changed, or is gone."""
        known = self._open.get(group)
        if known is not None and known is not entry:
            self._books_of(known).close_stream(known.account, known.key)
            del self._open[group]
        if entry is not None and known is not entry:
            self._books_of(entry).open_stream(entry.account, entry.key)
            self._open[group] = entry
        if entry is not None:
            self.count(entry)

    def count(self, entry: StreamEntry) -> None:
        """Take over the figures of a log that has changed."""
        account, key, log = entry.account, entry.key, entry.log
        books = self._books_of(entry)
        known = books.stream(account, key)
        messages, size = log.message_count - known.messages, log.bytes - known.bytes
        if messages or size:
            books.change(account, key, messages, size)

    def admit(self, entry: StreamEntry, size: int, waiting_bytes: int, now_ns: int) -> None:
        """StoreFull when a stream cannot take so many bytes now; `waiting_bytes` are about to be written."""
        books = self._books_of(entry)
        # Most of what waits for a busy stream is its own; for one that is full it frees as much as it brings.
        freed = _freed_bytes(entry, size + waiting_bytes)
        if books.is_limited:
            books.check(entry.account, max(0, size - freed))
        if entry.is_in_memory:
            if 0 <= self.memory_bytes_max < books.total.bytes + size - freed:
                raise StoreFull(f"insufficient memory: max_memory_store is {self.memory_bytes_max} bytes")
        else:
            self.governor.admit(size, books.total.bytes + waiting_bytes - freed, now_ns)

    def plan_shedding(
        self, streams: Iterable[StreamEntry], reclaimable_bytes: int, now_ns: int
    ) -> list[tuple[int, commands.Shed]]:
        """The commands, with their groups, that make room by what the operator allowed to go."""
        entries = {(entry.account, entry.name): entry for entry in streams if not entry.is_in_memory}
        spaces = [
            StreamSpace(entry.account, entry.name, entry.log.bytes, entry.synced_bytes, entry.metadata)
            for entry in entries.values()
        ]
        planned = []
        for shed in self.governor.plan(self.disk.total.bytes, reclaimable_bytes, spaces, now_ns):
            entry = entries[shed.account, shed.stream]
            first_seq, last_seq = entry.log.first_seq, entry.log.seq_freeing(shed.bytes)
            if last_seq >= first_seq:
                command = commands.Shed(first_seq, last_seq, shed.reason, now_ns)
                planned.append((entry.group.number, command))
        return planned

    def _books_of(self, entry: StreamEntry) -> Accounts:
        return self.memory if entry.is_in_memory else self.disk


def _freed_bytes(entry: StreamEntry, size: int) -> int:
    """How much of a stream with a limit of its own goes when so much comes in: a full one stays as it is."""
    bytes_max = entry.config.get("max_bytes") or 0
    if bytes_max <= 0 or entry.config.get("discard") == "new":
        return 0
    return max(0, min(size, entry.log.bytes + size - bytes_max))
