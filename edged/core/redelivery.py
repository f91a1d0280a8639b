"""Which messages are to be delivered again: those not acknowledged in time, and those sent back.

A message that was handed out is due again when its time is over: `ack_wait` after it was handed out last, or
what `backoff` says for its number of deliveries. Who sends it back makes it due at once, or after a delay;
who says that it is being worked on gives it its time anew. What is due waits in a queue, in which the caller
finds it when there is somebody to deliver it to.

Rules: time is an argument. What is pending is known by the consumer's machine alone; here is only when to
look at it again. So an entry here may be for a message that was settled meanwhile, and then means nothing.
Invariant: for every pending message that is not in the queue there is an entry in the heap that is not later
than its time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

# When the heap has so many more seqs than are pending, it is made anew from those.
_STALE_MAX: Final = 65_536
TIME_NS_MAX: Final = 2**63 - 1


class _Pending(Protocol):
    @property
    def ts_ns(self) -> int: ...


class Handed(Protocol):
    """What is known of the messages that were handed out: edged/core/consumer_machine.py."""

    @property
    def pending(self) -> Mapping[int, _Pending]: ...

    def delivery_count(self, seq: int) -> int: ...


class Redelivery:
    """Of one consumer. `queue` is what is due, in order."""

    __slots__ = (
        "_backoff_ns",
        "_deferred",
        "_handed",
        "_heap",
        "_heap_seqs",
        "_order",
        "_queued",
        "queue",
        "wait_ns",
    )

    def __init__(
        self, handed: Handed, wait_ns: int, backoff_ns: Sequence[int] = (), now_ns: int = TIME_NS_MAX
    ) -> None:
        self._handed = handed
        self.queue: deque[int] = deque()
        self._queued: set[int] = set()
        # (when to look, order of entry, the seqs to look at)
        self._heap: list[tuple[int, int, Sequence[int]]] = []
        self._heap_seqs = 0
        self._order = 0
        # Until when those must not be delivered for which somebody said so.
        self._deferred: dict[int, int] = {}
        self.configure(wait_ns, backoff_ns)
        self._bring_near(now_ns)

    def _bring_near(self, now_ns: int) -> None:
        """Messages from the future, by a clock that was set back since, were handed out now at the latest."""
        for seq, entry in self._handed.pending.items():
            if entry.ts_ns > now_ns and self.wait_ns:
                self._defer(seq, now_ns + self._wait_of(seq))

    def configure(self, wait_ns: int, backoff_ns: Sequence[int]) -> None:
        """Times for messages from now on, and for all that are pending."""
        self.wait_ns = wait_ns
        self._backoff_ns = tuple(backoff_ns)
        self._rebuild()

    # --- what happens to messages ---

    def handed_out(self, seqs: Sequence[int], ts_ns: int) -> None:
        """Messages were handed out for the first time, at once."""
        if self.wait_ns:
            self._look_at(seqs, ts_ns + (self._backoff_ns[0] if self._backoff_ns else self.wait_ns))

    def handed_out_again(self, seqs: Sequence[int], ts_ns: int) -> None:
        """Messages were handed out that had been before."""
        for seq in seqs:
            self._deferred.pop(seq, None)
        if not self.wait_ns:
            return
        if not self._backoff_ns:
            self._look_at(seqs, ts_ns + self.wait_ns)
            return
        by_wait: dict[int, list[int]] = {}
        for seq in seqs:
            by_wait.setdefault(self._wait_of(seq), []).append(seq)
        for wait_ns, some in by_wait.items():
            self._look_at(some, ts_ns + wait_ns)

    def progress(self, seq: int, now_ns: int) -> None:
        """Somebody works on a message."""
        if seq in self._handed.pending and self.wait_ns:
            self._defer(seq, now_ns + self._wait_of(seq))

    def send_back(self, seq: int, delay_ns: int | None, now_ns: int) -> bool:
        """A message is to be delivered again, at once or after a delay; False if it is not pending."""
        if seq not in self._handed.pending:
            return False
        if delay_ns is None:
            self._deferred.pop(seq, None)
            self.enqueue([seq])
        else:
            self._take_out(seq)
            self._defer(seq, now_ns + max(delay_ns, 0))
        return True

    def expire_all(self) -> None:
        """Whatever is pending is to be delivered again at once."""
        self._deferred.clear()
        self.enqueue(sorted(self._handed.pending))

    def enqueue(self, seqs: Sequence[int]) -> None:
        """Let messages wait for their redelivery, behind those that wait already."""
        for seq in seqs:
            if seq not in self._queued:
                self._queued.add(seq)
                self.queue.append(seq)

    def put_back(self, seqs: Sequence[int]) -> None:
        """Messages that were taken from the queue could not be delivered, and come first again."""
        for seq in reversed(seqs):
            if seq not in self._queued:
                self._queued.add(seq)
                self.queue.appendleft(seq)

    def take(self, count_max: int) -> list[int]:
        """Messages from the front of the queue; those that were settled meanwhile are left out."""
        taken: list[int] = []
        pending = self._handed.pending
        while self.queue and len(taken) < count_max:
            seq = self.queue.popleft()
            self._queued.discard(seq)
            if seq in pending:
                taken.append(seq)
        return taken

    def clear(self) -> None:
        """Begin anew with what is pending."""
        self.queue.clear()
        self._queued.clear()
        self._deferred.clear()
        self._rebuild()

    # --- by the clock ---

    @property
    def due_at_ns(self) -> int:
        """When to call expire() next; 0 for never."""
        return self._heap[0][0] if self._heap else 0

    def expire(self, now_ns: int) -> list[int]:
        """The messages whose time is over by now, in the order of seqs. They are not in the queue yet."""
        found: list[int] = []
        pending = self._handed.pending
        later: dict[int, list[int]] = {}
        while self._heap and self._heap[0][0] <= now_ns:
            seqs = heapq.heappop(self._heap)[2]
            self._heap_seqs -= len(seqs)
            for seq in seqs:
                entry = pending.get(seq)
                if entry is None:
                    self._deferred.pop(seq, None)
                elif seq not in self._queued:
                    due_ns = self._deferred.get(seq) or entry.ts_ns + self._wait_of(seq)
                    if due_ns <= now_ns:
                        found.append(seq)
                    else:
                        later.setdefault(due_ns, []).append(seq)
        for due_ns, some in later.items():
            self._look_at(some, due_ns)
        return sorted(set(found))

    # --- inside ---

    def _wait_of(self, seq: int) -> int:
        """How long a message has, by how often it was handed out."""
        if not self._backoff_ns:
            return self.wait_ns
        number = self._handed.delivery_count(seq) - 1
        return self._backoff_ns[min(max(number, 0), len(self._backoff_ns) - 1)]

    def _defer(self, seq: int, due_ns: int) -> None:
        self._deferred[seq] = due_ns
        self._look_at((seq,), due_ns)

    def _take_out(self, seq: int) -> None:
        if seq in self._queued:
            self._queued.discard(seq)
            self.queue.remove(seq)

    def _look_at(self, seqs: Sequence[int], due_ns: int) -> None:
        if self._heap_seqs > _STALE_MAX + 4 * len(self._handed.pending):
            self._rebuild()
        self._order += 1
        self._heap_seqs += len(seqs)
        heapq.heappush(self._heap, (due_ns, self._order, seqs))

    def _rebuild(self) -> None:
        """The heap, from what is pending."""
        by_time: dict[int, list[int]] = {}
        pending = self._handed.pending
        deferred = {seq: due_ns for seq, due_ns in self._deferred.items() if seq in pending}
        self._deferred = deferred
        for seq, entry in pending.items():
            due_ns = deferred.get(seq) or (entry.ts_ns + self._wait_of(seq) if self.wait_ns else 0)
            if due_ns:
                by_time.setdefault(due_ns, []).append(seq)
        self._heap = []
        self._heap_seqs = 0
        for due_ns, seqs in sorted(by_time.items()):
            self._order += 1
            self._heap_seqs += len(seqs)
            self._heap.append((due_ns, self._order, seqs))
