"""Whether there is room, and what goes when there is not: the decisions of the disk governor.

Two bounds hold at the same time: what the store may use (`store_bytes_max`), and what must stay free on the
file system whoever uses it (`free_bytes_min`, the floor). The smaller rest is the room. What the store uses
and the room together are its capacity, which shrinks when others fill the disk.

Rules: sizes and times are arguments; nothing here touches a file. The bound of the store is exact: what fits
is taken. The floor has hysteresis: once crossed, or once the disk said that it is full, nothing is taken
until there is room for the reserve file and a margin above it. Shedding starts above `start_percent` of the
capacity and ends at `stop_percent`. Bytes that are dead but not yet given back count as free for shedding, so
that nothing is shed twice for the same need. Only streams that a class names lose anything, classes in their
order; within a class every stream gives in proportion to what it has. A class that may not shed protects its
streams for good.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from edged.config.jetstream_options import ShedClass, ShedOptions

_MIB: Final = 1024 * 1024
RESERVE_BYTES_MIN: Final = _MIB
RESERVE_BYTES_MAX: Final = 64 * _MIB
JOURNAL_FILE_BYTES_MIN: Final = 1024 * 1024
JOURNAL_FILE_BYTES_MAX: Final = 32 * 1024 * 1024
# A file of the journal is such a part of the store, unless that is large.
_JOURNAL_FILES: Final = 32
# A disk that said it is full is not asked again before this, even if it shows free space: there may be none
# for us (quotas, no inodes). Short enough that writing resumes within a second of space coming back.
NO_SPACE_RETRY_NS: Final = 500_000_000
# Closed records of sheds that are kept; with one more the oldest is forgotten, and only totals know of it.
SHED_RECORDS_MAX: Final = 1024


@dataclass(frozen=True, slots=True)
class SpaceLimits:
    """store_bytes_max -1 means no limit."""

    store_bytes_max: int = -1
    free_bytes_min: int = 0
    reserve_bytes: int = RESERVE_BYTES_MIN

    @property
    def resume_bytes(self) -> int:
        """Free bytes from which on a disk that was full is used again."""
        return self.free_bytes_min + self.reserve_bytes + max(_MIB, self.free_bytes_min // 16)


def reserve_bytes_default(store_bytes_max: int) -> int:
    """The size of the reserve file when the configuration does not say: 1% of the store, within bounds."""
    return min(max(store_bytes_max // 100, RESERVE_BYTES_MIN), RESERVE_BYTES_MAX)


def journal_file_bytes_default(store_bytes_max: int) -> int:
    """The size of a journal file when the configuration does not say: less where the store is small.

    A power of two, so that a little more or less space at the next start makes no difference. Some files are
    there at a time, and after each unclean start there is one more for a while.
    """
    if store_bytes_max < 0:
        return JOURNAL_FILE_BYTES_MAX
    share = max(store_bytes_max // _JOURNAL_FILES, JOURNAL_FILE_BYTES_MIN)
    return min(1 << (share.bit_length() - 1), JOURNAL_FILE_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class Space:
    """What is there now. Reclaimable bytes are used ones that nobody needs and that go before long."""

    free_bytes: int
    used_bytes: int
    reclaimable_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StreamSpace:
    """What a stream has; its first synced_bytes are confirmed by the hub."""

    account: str
    stream: str
    bytes: int
    synced_bytes: int = 0
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shed:
    """Drop the oldest messages of a stream: at least so many bytes, but none beyond the synced ones if so."""

    account: str
    stream: str
    bytes: int
    reason: str  # the name of the class
    synced_only: bool


_NEVER_SHED: Final = ShedOptions()


class SpaceRules:
    """The decisions, and the little state that hysteresis needs."""

    def __init__(self, limits: SpaceLimits, shed: ShedOptions = _NEVER_SHED) -> None:
        self.limits = limits
        self.is_full = False  # the floor was crossed, or the disk said so, and space has not come back
        self.is_shedding = False
        self._shed = shed
        self._classes = [_Class(one) for one in sorted(shed.classes, key=lambda one: one.order)]
        self._no_space_ns: int | None = None

    def observe(self, free_bytes: int, now_ns: int) -> None:
        """Take notice of what the file system says."""
        if free_bytes < self.limits.free_bytes_min:
            self.is_full = True
        elif self.is_full and free_bytes >= self.limits.resume_bytes:
            since_ns = None if self._no_space_ns is None else now_ns - self._no_space_ns
            # A clock that went back says nothing about how long ago that was.
            self.is_full = since_ns is not None and 0 <= since_ns < NO_SPACE_RETRY_NS

    def no_space(self, now_ns: int) -> None:
        """Take notice that a write failed because the disk is full."""
        self.is_full = True
        self._no_space_ns = now_ns

    def has_room(self, append_bytes: int, free_bytes: int, used_bytes: int) -> bool:
        """Whether so many bytes can be stored now. Asked for every run of messages."""
        limits = self.limits
        if self.is_full or free_bytes - append_bytes < limits.free_bytes_min:
            return False
        return not 0 <= limits.store_bytes_max < used_bytes + append_bytes

    def refusal(self, append_bytes: int, space: Space) -> str | None:
        """Why so many bytes cannot be stored now; None when they can."""
        if self.has_room(append_bytes, space.free_bytes, space.used_bytes):
            return None
        limits = self.limits
        if self.is_full or space.free_bytes - append_bytes < limits.free_bytes_min:
            kept = (
                f", of which {limits.free_bytes_min} are kept (free_space_min)"
                if limits.free_bytes_min
                else ""
            )
            return f"insufficient storage: the disk has {space.free_bytes} bytes free{kept}"
        return (
            f"insufficient storage: {space.used_bytes} of {limits.store_bytes_max} bytes "
            f"are in use (max_file_store)"
        )

    def plan(self, space: Space, streams: Iterable[StreamSpace]) -> list[Shed]:
        """What to shed now; empty when there is no need or nothing that may go."""
        used_bytes = max(space.used_bytes - space.reclaimable_bytes, 0)
        capacity_bytes = max(space.used_bytes + self._room_bytes(space), 0)
        percent = self._shed.stop_percent if self.is_shedding else self._shed.start_percent
        self.is_shedding = used_bytes * 100 > capacity_bytes * percent
        if not self.is_shedding or not self._classes:
            return []
        return self._choose(used_bytes - capacity_bytes * self._shed.stop_percent // 100, streams)

    def _room_bytes(self, space: Space) -> int:
        room_bytes = space.free_bytes - self.limits.free_bytes_min
        if self.limits.store_bytes_max >= 0:
            room_bytes = min(room_bytes, self.limits.store_bytes_max - space.used_bytes)
        return room_bytes

    def _choose(self, needed_bytes: int, streams: Iterable[StreamSpace]) -> list[Shed]:
        protected = [one for one in self._classes if not one.options.may_shed]
        candidates = [stream for stream in streams if not any(one.has(stream) for one in protected)]
        # What earlier classes take comes from the head, where the synced messages are.
        taken_bytes = [0] * len(candidates)
        chosen: list[Shed] = []
        for one in self._classes:
            if needed_bytes <= 0:
                break
            if not one.options.may_shed:
                continue
            offers = [
                (stream.synced_bytes if one.options.synced_only else stream.bytes) - taken
                if one.has(stream)
                else 0
                for stream, taken in zip(candidates, taken_bytes, strict=True)
            ]
            for position, share_bytes in _shares(needed_bytes, offers):
                stream = candidates[position]
                taken_bytes[position] += share_bytes
                needed_bytes -= share_bytes
                chosen.append(
                    Shed(
                        stream.account,
                        stream.stream,
                        share_bytes,
                        one.options.name,
                        one.options.synced_only,
                    )
                )
        return chosen


def _shares(needed_bytes: int, offers: Sequence[int]) -> list[tuple[int, int]]:
    """(position, bytes) for every offer above zero: in proportion, together what is needed or all of it."""
    total_bytes = sum(offer for offer in offers if offer > 0)
    needed_bytes = min(needed_bytes, total_bytes)
    shares = [(position, offer) for position, offer in enumerate(offers) if offer > 0]
    return [(position, -(-needed_bytes * offer // total_bytes)) for position, offer in shares]


class _Class:
    """A class of the configuration, its patterns compiled."""

    __slots__ = ("_accounts", "_metadata", "_pattern", "options")

    def __init__(self, options: ShedClass) -> None:
        self.options = options
        self._accounts = frozenset(options.accounts)
        self._metadata = frozenset(options.metadata)
        self._pattern = re.compile("|".join(_expression(pattern) for pattern in options.streams) or "(?!)")

    def has(self, stream: StreamSpace) -> bool:
        if self._accounts and stream.account not in self._accounts:
            return False
        if self._pattern.fullmatch(stream.stream):
            return True
        return bool(self._metadata) and self._metadata.issubset(stream.metadata)


def _expression(pattern: str) -> str:
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(character) or re.escape(character) for character in pattern)


@dataclass(frozen=True, slots=True)
class ShedRecord:
    """Messages first_seq to last_seq of a stream were dropped to make room; time_ns is that of the last."""

    account: str
    stream: str
    first_seq: int
    last_seq: int
    reason: str
    bytes: int
    time_ns: int


class ShedLedger:
    """What was shed: totals for ever, and the latest records.

    A shed that goes on where the last one of its stream ended, for the same reason, extends its record.
    """

    def __init__(self) -> None:
        self.sheds_total = 0
        self.bytes_total = 0
        self._closed: deque[ShedRecord] = deque(maxlen=SHED_RECORDS_MAX)
        self._open: dict[tuple[str, str], ShedRecord] = {}

    def add(self, record: ShedRecord) -> None:
        """Keep account of one shed."""
        assert record.first_seq <= record.last_seq, record
        self.sheds_total += 1
        self.bytes_total += record.bytes
        key = (record.account, record.stream)
        last = self._open.pop(key, None)
        if last is not None and (last.last_seq + 1, last.reason) == (record.first_seq, record.reason):
            record = replace(record, first_seq=last.first_seq, bytes=last.bytes + record.bytes)
        elif last is not None:
            self._closed.append(last)
        # The newest is last; a stream that is gone does not keep its record open for ever.
        self._open[key] = record
        if len(self._open) > SHED_RECORDS_MAX:
            self._closed.append(self._open.pop(next(iter(self._open))))

    def records(self) -> list[ShedRecord]:
        """The records kept, oldest first."""
        return sorted([*self._closed, *self._open.values()], key=lambda record: record.time_ns)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values for a checkpoint."""
        return {
            "sheds": self.sheds_total,
            "bytes": self.bytes_total,
            "closed": [list(astuple(record)) for record in self._closed],
            "open": [list(astuple(record)) for record in self._open.values()],
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "ShedLedger":
        """The ledger that a snapshot was taken of."""
        ledger = cls()
        ledger.sheds_total = snapshot["sheds"]
        ledger.bytes_total = snapshot["bytes"]
        ledger._closed.extend(ShedRecord(*values) for values in snapshot["closed"])
        for record in (ShedRecord(*values) for values in snapshot["open"]):
            ledger._open[record.account, record.stream] = record
        return ledger
