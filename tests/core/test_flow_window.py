"""What holds a push consumer back: flow control, a rate, time, and the count of what is before it."""

from __future__ import annotations

from collections.abc import Sequence

from edged.core.flow_window import WINDOW_BYTES_FIRST, WINDOW_BYTES_MAX, FlowWindow
from edged.core.pending_count import PendingCount
from edged.core.rate_limit import RateLimit
from edged.core.steady_clock import SteadyClock

SECOND = 1_000_000_000
START = 1_000 * SECOND
HALF = WINDOW_BYTES_FIRST // 2


def test_an_answer_is_asked_for_when_half_of_the_window_is_used() -> None:
    window = FlowWindow()
    assert not window.sent(HALF)
    assert window.sent(1)
    window.ask(b"fc")
    assert not window.sent(HALF)
    assert window.is_closed


def test_an_answer_opens_the_window_and_doubles_it_to_its_bound() -> None:
    window = FlowWindow()
    window.sent(HALF + 1)
    window.ask(b"fc")
    window.sent(HALF)
    assert not window.answered(b"another")
    assert window.is_closed
    assert window.answered(b"fc")
    assert (window.bytes_max, window.used_bytes, window.asked) == (2 * WINDOW_BYTES_FIRST, HALF, None)
    for _ in range(10):
        window.ask(b"fc")
        window.answered(b"fc")
    assert window.bytes_max == WINDOW_BYTES_MAX


def test_a_rate_lets_a_burst_pass_and_then_so_many_bytes_per_second() -> None:
    limit = RateLimit(8_000, 100)
    assert limit.ready_at_ns(START) <= START
    limit.sent(600)
    ready = limit.ready_at_ns(START)
    assert START + SECOND // 2 <= ready <= START + SECOND // 2 + 1000
    assert limit.ready_at_ns(ready) <= ready


class Log:
    """A log whose messages all match."""

    def __init__(self, seqs: Sequence[int]) -> None:
        self.seqs = set(seqs)
        self.last_seq = max(seqs)
        self.counted = 0

    @property
    def first_seq(self) -> int:
        return min(self.seqs)

    @first_seq.setter
    def first_seq(self, seq: int) -> None:
        raise AssertionError(seq)

    @property
    def message_count(self) -> int:
        return len(self.seqs)

    @message_count.setter
    def message_count(self, count: int) -> None:
        raise AssertionError(count)

    def add(self) -> None:
        self.last_seq += 1
        self.seqs.add(self.last_seq)

    def count_matching(self, filters: Sequence[bytes], from_seq: int = 0) -> int:
        found = [seq for seq in self.seqs if seq >= from_seq]
        self.counted += len(found)
        return len(found)


def test_a_steady_clock_follows_a_clock_that_is_set_forward_and_does_not_stop_when_it_is_set_back() -> None:
    clock = SteadyClock(START, 0)
    assert clock.read(START + SECOND, SECOND) == START + SECOND
    assert clock.read(START + 100 * SECOND, 2 * SECOND) == START + 100 * SECOND
    assert clock.read(START, 3 * SECOND) == START + 101 * SECOND
    assert clock.read(START + SECOND, 4 * SECOND) == START + 102 * SECOND
    assert clock.read(START + 200 * SECOND, 5 * SECOND) == START + 200 * SECOND


def test_only_what_is_new_is_counted() -> None:
    log = Log(range(1, 11))
    pending = PendingCount(log, ())
    assert pending.count(1) == 10
    pending.passed(4, 5)
    log.add()
    assert pending.count(5) == 7
    assert log.counted == 11
    assert pending.count(5) == 7
    assert log.counted == 11


def test_when_messages_are_gone_all_are_counted_anew() -> None:
    log = Log(range(1, 11))
    pending = PendingCount(log, ())
    assert pending.count(3) == 8
    log.seqs -= {2, 7}
    assert pending.count(3) == 7
