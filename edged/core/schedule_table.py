"""When which schedule of a stream fires next: a table fed by what the stream stores and removes.

Rules: stored() and removed() run where messages are applied, so the table is the same after a replay; due()
is asked by whoever publishes what is due. A schedule that due() returned is in flight: it is not returned
again before the message it produced has been stored, or released() says that there will be none. What is in
flight is forgotten by a restart, as it should be. Time is an argument; all is O(log n) on average.

A subject has one schedule: the message stored last. A message without a schedule ends that of its subject,
unless it was produced by one. Whoever cannot name each message that went may leave it out: a firing whose
message is gone is reported with removed().
Invariants: _seqs and _entries name the same schedules; every entry has its (time, seq) in the heap, which is
never much larger than the entries, whatever became of earlier ones.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from edged.core import schedules
from edged.core.api_errors import ApiFailure
from edged.core.schedules import ZoneOf

# Later than this, in the year 2262, is this: times are kept in 63 bits.
TIME_NS_MAX: Final = 2**63 - 1
_STALE_MAX: Final = 64


class Due(NamedTuple):
    """A schedule whose time has come: publish what schedules.produced() makes of the message `seq`."""

    subject: bytes
    seq: int
    at_ns: int


class ScheduleTable:
    """The schedules of one stream."""

    __slots__ = ("_entries", "_flying", "_heap", "_seqs")

    def __init__(self, entries: Iterable[tuple[bytes, int, int]] = ()) -> None:
        """`entries` is what entries() of an earlier table gave."""
        self._entries: dict[bytes, tuple[int, int]] = {}  # subject → seq, time
        self._seqs: dict[int, bytes] = {}
        self._heap: list[tuple[int, int]] = []
        self._flying: set[bytes] = set()
        for subject, seq, at_ns in entries:
            self._set(subject, seq, at_ns)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, subject: bytes) -> bool:
        return subject in self._entries

    def entries(self) -> list[tuple[bytes, int, int]]:
        """Everything worth keeping: subject, seq and time of each schedule, by seq."""
        return sorted(
            ((subject, seq, at_ns) for subject, (seq, at_ns) in self._entries.items()),
            key=lambda entry: entry[1],
        )

    def stored(self, seq: int, ts_ns: int, subject: bytes, block: bytes, zone_of: ZoneOf) -> None:
        """A message was stored; `block` is empty when it has no headers."""
        firing = None
        if block:
            try:
                firing = schedules.next_firing(block, ts_ns, ts_ns, zone_of)
            except ApiFailure:  # It was valid once, or it came from elsewhere: a message like any other.
                firing = None
        if firing is not None:
            self._set(subject, seq, firing.at_ns)
        elif not schedules.is_produced(block):
            self.removed_subject(subject)
        again = schedules.announced(block)
        if again is not None and again[0] in self._entries:
            self._set(again[0], self._entries[again[0]][0], again[1])

    def removed(self, seq: int) -> None:
        """The message is gone, for whatever reason."""
        subject = self._seqs.get(seq)
        if subject is not None:
            self.removed_subject(subject)

    def removed_subject(self, subject: bytes) -> None:
        """All messages of the subject are gone."""
        entry = self._entries.pop(subject, None)
        if entry is not None:
            del self._seqs[entry[0]]
            self._flying.discard(subject)

    def due(self, now_ns: int) -> list[Due]:
        """The schedules whose time has come, by seq; they are in flight now."""
        found: list[Due] = []
        while self._heap and self._heap[0][0] <= now_ns:
            at_ns, seq = heapq.heappop(self._heap)
            subject = self._seqs.get(seq)
            if subject is not None and self._entries[subject] == (seq, at_ns) and subject not in self._flying:
                self._flying.add(subject)
                found.append(Due(subject, seq, at_ns))
        found.sort(key=lambda one: one.seq)
        return found

    def released(self, subject: bytes, retry_ns: int) -> None:
        """The message of a firing could not be stored: it is due again at `retry_ns`."""
        if subject in self._flying:
            self._set(subject, self._entries[subject][0], retry_ns)

    def next_ns(self) -> int | None:
        """When to ask due() again; None when nothing is scheduled."""
        while self._heap:
            at_ns, seq = self._heap[0]
            subject = self._seqs.get(seq)
            if subject is not None and self._entries[subject] == (seq, at_ns) and subject not in self._flying:
                return at_ns
            heapq.heappop(self._heap)
        return None

    def _set(self, subject: bytes, seq: int, at_ns: int) -> None:
        at_ns = min(max(at_ns, 0), TIME_NS_MAX)
        self.removed_subject(subject)
        self._entries[subject] = (seq, at_ns)
        self._seqs[seq] = subject
        heapq.heappush(self._heap, (at_ns, seq))
        if len(self._heap) > 2 * len(self._entries) + _STALE_MAX:
            waiting = (entry for subject, entry in self._entries.items() if subject not in self._flying)
            self._heap = [(at_ns, seq) for seq, at_ns in waiting]
            heapq.heapify(self._heap)
