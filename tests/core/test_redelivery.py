"""When messages are delivered again: against times that the tests make up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.redelivery import Redelivery

SECOND = 1_000_000_000
START = 1_000 * SECOND


class Pending(NamedTuple):
    consumer_seq: int
    ts_ns: int


@dataclass
class Handed:
    """What a consumer's machine knows of messages that it handed out."""

    pending: dict[int, Pending] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def delivery_count(self, seq: int) -> int:
        return self.counts.get(seq, 1)

    def hand_out(self, redelivery: Redelivery, seqs: list[int], ts_ns: int) -> None:
        again = [seq for seq in seqs if seq in self.counts]
        new = [seq for seq in seqs if seq not in self.counts]
        for seq in seqs:
            self.pending[seq] = Pending(seq, ts_ns)
            self.counts[seq] = self.counts.get(seq, 0) + 1
        if new:
            redelivery.handed_out(new, ts_ns)
        if again:
            redelivery.handed_out_again(again, ts_ns)


def made(*backoff_ns: int) -> tuple[Handed, Redelivery]:
    handed = Handed()
    return handed, Redelivery(handed, 30 * SECOND, backoff_ns)


def test_a_message_is_due_when_its_time_is_over_and_not_before() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [3, 1, 2], START)
    assert redelivery.due_at_ns == START + 30 * SECOND
    assert redelivery.expire(START + 30 * SECOND - 1) == []
    assert redelivery.expire(START + 30 * SECOND) == [1, 2, 3]
    assert redelivery.expire(START + 30 * SECOND) == []


def test_what_was_settled_is_never_due() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1, 2], START)
    del handed.pending[1]
    assert redelivery.expire(START + 60 * SECOND) == [2]


def test_backoff_grows_with_the_deliveries_and_its_last_value_repeats() -> None:
    handed, redelivery = made(SECOND, 5 * SECOND)
    now = START
    for wait in (SECOND, 5 * SECOND, 5 * SECOND):
        handed.hand_out(redelivery, [7], now)
        assert redelivery.expire(now + wait - 1) == []
        assert redelivery.expire(now + wait) == [7]
        now += wait


def test_a_message_that_is_sent_back_is_due_at_once_and_only_once() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1, 2], START)
    assert redelivery.send_back(2, None, START)
    assert redelivery.send_back(2, None, START)
    assert not redelivery.send_back(9, None, START)
    assert redelivery.take(10) == [2]
    assert redelivery.take(10) == []


def test_a_message_that_is_sent_back_with_a_delay_is_due_after_it() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1], START)
    redelivery.send_back(1, None, START)
    redelivery.send_back(1, 2 * SECOND, START)
    assert redelivery.take(10) == []
    assert redelivery.expire(START + 2 * SECOND - 1) == []
    assert redelivery.expire(START + 2 * SECOND) == [1]


def test_a_delay_may_be_longer_than_the_time_to_acknowledge() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1], START)
    redelivery.send_back(1, 90 * SECOND, START)
    assert redelivery.expire(START + 31 * SECOND) == []
    assert redelivery.expire(START + 90 * SECOND) == [1]


def test_work_in_progress_gives_the_time_anew() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1, 2], START)
    redelivery.progress(1, START + 20 * SECOND)
    assert redelivery.expire(START + 30 * SECOND) == [2]
    assert redelivery.expire(START + 50 * SECOND) == [1]


def test_what_could_not_be_delivered_comes_first_again() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1, 2, 3], START)
    redelivery.enqueue([1, 2, 3])
    assert redelivery.take(2) == [1, 2]
    redelivery.put_back([1, 2])
    assert redelivery.take(9) == [1, 2, 3]


def test_after_a_restart_times_follow_from_what_is_pending() -> None:
    handed = Handed({1: Pending(1, START), 2: Pending(2, START + SECOND)})
    redelivery = Redelivery(handed, 30 * SECOND)
    assert redelivery.expire(START + 30 * SECOND) == [1]
    assert redelivery.expire(START + 31 * SECOND) == [2]


def test_after_a_restart_with_a_clock_that_was_set_back_nobody_waits_for_the_future() -> None:
    handed = Handed({1: Pending(1, START + 3600 * SECOND)})
    redelivery = Redelivery(handed, 30 * SECOND, (), START)
    assert redelivery.expire(START + 30 * SECOND - 1) == []
    assert redelivery.expire(START + 30 * SECOND) == [1]


def test_a_new_time_to_acknowledge_counts_for_what_is_pending() -> None:
    handed, redelivery = made()
    handed.hand_out(redelivery, [1], START)
    redelivery.configure(SECOND, ())
    assert redelivery.expire(START + SECOND) == [1]


def test_a_consumer_without_a_time_to_acknowledge_delivers_nothing_again() -> None:
    handed = Handed()
    redelivery = Redelivery(handed, 0)
    handed.hand_out(redelivery, [1], START)
    assert redelivery.due_at_ns == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["out", "ack", "nak", "delay", "progress", "pass"]),
        st.integers(1, 6),
        st.integers(0, 40),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.sampled_from([(), (2 * SECOND, 9 * SECOND)]))
def test_messages_are_due_exactly_when_a_naive_model_says_so(
    steps: list[tuple[str, int, int]], backoff: tuple[int, ...]
) -> None:
    handed, redelivery = made(*backoff)
    due: dict[int, int] = {}
    now = START

    def wait_of(seq: int) -> int:
        return backoff[min(handed.counts[seq] - 1, len(backoff) - 1)] if backoff else 30 * SECOND

    for step, seq, number in steps:
        if step == "out" and seq not in handed.pending:
            handed.hand_out(redelivery, [seq], now)
            due[seq] = now + wait_of(seq)
        elif step == "ack":
            handed.pending.pop(seq, None)
            due.pop(seq, None)
        elif step == "nak" and redelivery.send_back(seq, None, now):
            due[seq] = now
        elif step == "delay" and redelivery.send_back(seq, number * SECOND, now):
            due[seq] = now + number * SECOND
        elif step == "progress" and seq in handed.pending and due[seq] > now:
            redelivery.progress(seq, now)
            due[seq] = now + wait_of(seq)
        elif step == "pass":
            now += number * SECOND
        redelivery.enqueue(redelivery.expire(now))
        taken = redelivery.take(100)
        assert sorted(taken) == sorted(seq for seq, at in due.items() if at <= now)
        handed.hand_out(redelivery, taken, now)
        for one in taken:
            due[one] = now + wait_of(one)
