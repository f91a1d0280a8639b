"""When messages expire: a hierarchical timing wheel of seqs.

Time is cut into ticks of TICK_NS. Level 0 has one slot per tick for the nearest SLOTS ticks, level 1 one slot
per SLOTS ticks, and so on; LEVELS of them reach as far as 63 bits of nanoseconds do. An entry stands at the
level of the highest base-SLOTS digit in which its tick differs from the wheel's tick, in the slot of that
digit. So adding is O(1), and an entry moves down at most LEVELS times before it expires.

Rules: time is an argument and may jump both ways, by any amount. expired() gives back exactly the entries
whose time has come by the clock it is told, each once. There is no remove(): an entry whose message is gone
meanwhile comes back like the others, and the caller looks whether it still means anything.
Invariants: every entry in a slot agrees with the wheel's tick in all digits above its level and is not
smaller in the digit of its level; so entries of a lower level, and of a lower slot, expire earlier.
Entries before the wheel's tick, which a clock that went back or a late add brings, are in a heap.
Memory: 16 bytes per entry, and up to 1/8 more for growth.
"""

from __future__ import annotations

import heapq
from array import array
from typing import Final

TICK_BITS: Final = 20  # about a millisecond
TICK_NS: Final = 1 << TICK_BITS
TIME_NS_MAX: Final = 2**63 - 1  # later than this, in the year 2262, is this

_SLOT_BITS: Final = 8
SLOTS: Final = 1 << _SLOT_BITS
LEVELS: Final = 6  # 20 + 6 * 8 bits are more than 63
_SLOT_MASK: Final = SLOTS - 1
# A clock that goes back by more than this makes the wheel start over from there, which takes a look at every
# entry. Within it, entries before the wheel's tick go to the heap, which takes more memory.
_BACK_TICKS: Final = 60 * 1_000_000_000 // TICK_NS


class TimerWheel:
    """Entries of (time of expiry, item); an item is an int of 64 bits, such as a seq."""

    __slots__ = ("_count", "_first_ns", "_past", "_slots", "_tick", "_used")

    def __init__(self, now_ns: int = 0) -> None:
        self._tick = _tick_of(now_ns)
        self._count = 0
        # Per slot, times and items in turn; None when empty. And the earliest time in it.
        self._slots: list[array[int] | None] = [None] * (LEVELS * SLOTS)
        self._first_ns = [0] * (LEVELS * SLOTS)
        self._used = [0] * LEVELS  # a bit for each slot that is not empty
        self._past: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, expires_ns: int, item: int) -> None:
        """Have `item` come back from expired() once its time has come."""
        self._count += 1
        self._place(min(max(expires_ns, 0), TIME_NS_MAX), item)

    def expired(self, now_ns: int) -> list[int]:
        """The items whose time is `now_ns` or earlier, in the order of their times; they are in no more."""
        now_ns = min(max(now_ns, 0), TIME_NS_MAX)
        tick = now_ns >> TICK_BITS
        if tick < self._tick - _BACK_TICKS:
            self._start_over(tick)
        due: list[tuple[int, int]] = []
        while self._past and self._past[0][0] <= now_ns:
            due.append(heapq.heappop(self._past))
        if tick >= self._tick:
            self._advance(tick, now_ns, due)
            due.sort()
        self._count -= len(due)
        return [item for _, item in due]

    def next_ns(self) -> int | None:
        """The earliest time of expiry; None when there is no entry."""
        first_ns = self._past[0][0] if self._past else None
        for level, used in enumerate(self._used):
            if used:
                # The lowest slot in use of the lowest level; all others are later.
                slot_ns = self._first_ns[level * SLOTS + _lowest(used)]
                return slot_ns if first_ns is None else min(first_ns, slot_ns)
        return first_ns

    def _place(self, expires_ns: int, item: int) -> None:
        tick = expires_ns >> TICK_BITS
        if tick < self._tick:
            heapq.heappush(self._past, (expires_ns, item))
            return
        differing = tick ^ self._tick
        level = (differing.bit_length() - 1) // _SLOT_BITS if differing else 0
        digit = tick >> level * _SLOT_BITS & _SLOT_MASK
        index = level * SLOTS + digit
        slot = self._slots[index]
        if slot is None:
            self._slots[index] = array("Q", (expires_ns, item))
            self._first_ns[index] = expires_ns
            self._used[level] |= 1 << digit
            return
        slot.append(expires_ns)
        slot.append(item)
        if expires_ns < self._first_ns[index]:
            self._first_ns[index] = expires_ns

    def _advance(self, tick: int, now_ns: int, due: list[tuple[int, int]]) -> None:
        """Turn the wheel to `tick`; what is due goes to `due`, what is left of passed slots moves down."""
        differing = tick ^ self._tick
        top = (differing.bit_length() - 1) // _SLOT_BITS if differing else 0
        self._tick = tick
        passed: list[array[int]] = []
        for level in range(top):
            passed += self._take(level, self._used[level])
        # At the top level the slots below the new digit are passed.
        digit = tick >> top * _SLOT_BITS & _SLOT_MASK
        passed += self._take(top, self._used[top] & ((1 << digit) - 1))
        for slot in passed:
            due.extend(zip(slot[::2], slot[1::2], strict=True))
        for slot in self._take(top, self._used[top] & (1 << digit)):
            for expires_ns, item in zip(slot[::2], slot[1::2], strict=True):
                if expires_ns <= now_ns:
                    due.append((expires_ns, item))
                else:
                    self._place(expires_ns, item)

    def _take(self, level: int, wanted: int) -> list[array[int]]:
        """Empty the slots of a level whose bits are set."""
        self._used[level] &= ~wanted
        taken: list[array[int]] = []
        while wanted:
            index = level * SLOTS + _lowest(wanted)
            slot = self._slots[index]
            assert slot is not None, index
            taken.append(slot)
            self._slots[index] = None
            wanted &= wanted - 1
        return taken

    def _start_over(self, tick: int) -> None:
        """Place every entry anew, as seen from `tick`."""
        slots = [slot for level in range(LEVELS) for slot in self._take(level, self._used[level])]
        past, self._past = self._past, []
        self._tick = tick
        for slot in slots:
            for expires_ns, item in zip(slot[::2], slot[1::2], strict=True):
                self._place(expires_ns, item)
        for expires_ns, item in past:
            self._place(expires_ns, item)


def _tick_of(time_ns: int) -> int:
    return min(max(time_ns, 0), TIME_NS_MAX) >> TICK_BITS


def _lowest(bits: int) -> int:
    """The position of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
