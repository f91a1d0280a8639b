"""Requests for messages: how they are read, whose turn it is, and when they end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import pull_statuses as statuses
from edged.core.consumer_config import ConsumerConfig
from edged.core.priority_groups import OVERFLOW, PINNED, PRIORITIZED, Pins, group_refusal
from edged.core.pull_queue import Backlog, PullQueue
from edged.core.pull_request import BadPull, PullRequest, PullTerms, pull_terms

SECOND = 1_000_000_000
START = 1_000 * SECOND
MUCH = Backlog(1000, 1000)


def request(reply: bytes, **terms: int | str | bool) -> PullRequest:
    return PullRequest(PullTerms(is_formal=True, **terms), reply, START)  # type: ignore[arg-type]


def everyone(reply: bytes) -> bool:
    return True


def queue_of(*requests: PullRequest, policy: str = "none", waiting_max: int = 512) -> PullQueue:
    queue = PullQueue(waiting_max, everyone, policy)
    for one in requests:
        assert queue.add(one, START)
    return queue


def served(queue: PullQueue, count: int, backlog: Backlog = MUCH, pins: Pins | None = None) -> list[bytes]:
    """Who gets the next messages, of ten bytes each."""
    chosen = [queue.choose(10, START, backlog, pins) for _ in range(count)]
    return [one.reply if one is not None else b"-" for one in chosen]


@pytest.mark.parametrize(
    ("body", "terms"),
    [
        (b"", PullTerms()),
        (b"  ", PullTerms()),
        (b"5", PullTerms(batch=5)),
        (b"what", PullTerms()),
        (b"{}", PullTerms(batch=0, is_formal=True)),
        (
            b'{"batch":3,"expires":2000000000,"max_bytes":100,"no_wait":true,"idle_heartbeat":1000000000}',
            PullTerms(3, 2 * SECOND, 100, True, SECOND, is_formal=True),
        ),
        (
            b'{"batch":1,"group":"A","min_pending":2,"min_ack_pending":3,"id":"x","priority":4}',
            PullTerms(1, is_formal=True, group="A", min_pending=2, min_ack_pending=3, pin_id="x", priority=4),
        ),
    ],
)
def test_a_body_is_empty_or_a_number_or_an_object(body: bytes, terms: PullTerms) -> None:
    assert pull_terms(body) == terms


def test_a_heartbeat_of_more_than_half_of_the_time_is_refused() -> None:
    with pytest.raises(BadPull, match="heartbeat value too large"):
        pull_terms(b'{"batch":1,"expires":1999999999,"idle_heartbeat":1000000000}')


def test_what_is_no_json_is_refused_with_the_reason() -> None:
    with pytest.raises(BadPull, match="unexpected end of JSON input"):
        pull_terms(b'{"batch":1')


def test_requests_have_their_turns_one_message_at_a_time() -> None:
    queue = queue_of(request(b"a", batch=3), request(b"b", batch=2), request(b"c", batch=1))
    assert served(queue, 7) == [b"a", b"b", b"c", b"a", b"b", b"a", b"-"]
    assert len(queue) == 0
    assert queue.ended == []


def test_a_lower_priority_number_comes_before_all_others() -> None:
    late, first, second = request(b"l", batch=2, priority=5), request(b"f", batch=2), request(b"s", batch=2)
    queue = queue_of(late, first, second, policy=PRIORITIZED)
    assert served(queue, 6) == [b"f", b"s", b"f", b"s", b"l", b"l"]


def test_who_is_one_too_many_is_refused() -> None:
    queue = queue_of(request(b"a"), waiting_max=1)
    assert not queue.add(request(b"b"), START)
    assert len(queue) == 1


def test_a_full_queue_looks_for_those_that_nobody_waits_for() -> None:
    queue = PullQueue(1, lambda reply: reply != b"gone")
    assert queue.add(request(b"gone"), START)
    assert queue.add(request(b"b"), START)
    assert served(queue, 1) == [b"b"]
    assert queue.ended == []


def test_who_does_not_listen_any_more_gets_nothing_and_no_word() -> None:
    queue = PullQueue(10, lambda reply: reply != b"gone")
    for reply in (b"gone", b"here"):
        assert queue.add(request(reply), START)
    assert served(queue, 2) == [b"here", b"-"]
    assert queue.ended == []


def test_a_message_that_is_too_large_ends_a_request_and_goes_to_the_next() -> None:
    small, large = request(b"s", batch=5, bytes_max=9), request(b"l", batch=5, bytes_max=25)
    queue = queue_of(small, large)
    assert served(queue, 3) == [b"l", b"l", b"-"]
    assert queue.ended == [(small, statuses.too_large(5, 9)), (large, statuses.too_large(3, 5))]


def test_a_request_whose_bytes_are_used_up_exactly_is_done() -> None:
    queue = queue_of(request(b"a", batch=5, bytes_max=20))
    assert served(queue, 3) == [b"a", b"a", b"-"]
    assert queue.ended == []


def test_a_request_ends_when_its_time_is_over_and_is_told_what_is_left() -> None:
    one = request(b"a", batch=5, bytes_max=100, expires_ns=SECOND)
    queue = queue_of(one)
    assert queue.due_at_ns == START + SECOND
    assert served(queue, 1) == [b"a"]
    assert queue.check(START + SECOND - 1, is_at_end=True) == []
    assert len(queue) == 1
    queue.check(START + SECOND, is_at_end=True)
    assert queue.ended == [(one, statuses.request_timeout(4, 90))]
    assert (len(queue), queue.due_at_ns) == (0, 0)


def test_a_request_that_has_expired_is_not_served() -> None:
    one = request(b"a", batch=5, expires_ns=SECOND)
    queue = queue_of(one)
    assert queue.choose(10, START + SECOND, MUCH, None) is None
    assert queue.ended == [(one, statuses.request_timeout(5, 0))]


def test_who_does_not_wait_ends_where_there_is_nothing_more() -> None:
    one, patient = request(b"a", batch=5, no_wait=True), request(b"p", batch=5)
    queue = queue_of(one, patient)
    assert not queue.needs_check(START, is_at_end=False)
    assert queue.needs_check(START, is_at_end=True)
    queue.check(START, is_at_end=True)
    assert queue.ended == [(one, statuses.NO_MESSAGES)]
    assert len(queue) == 1


def test_who_does_not_wait_but_has_time_waits_for_the_first_message() -> None:
    one = request(b"a", batch=5, no_wait=True, expires_ns=SECOND)
    queue = queue_of(one)
    queue.check(START, is_at_end=True)
    assert queue.ended == []
    assert served(queue, 1) == [b"a"]
    queue.check(START, is_at_end=True)
    assert queue.ended == [(one, statuses.NO_MESSAGES)]


def test_heartbeats_come_when_nothing_else_came() -> None:
    one = request(b"a", batch=5, expires_ns=10 * SECOND, heartbeat_ns=SECOND)
    queue = queue_of(one)
    assert queue.due_at_ns == START + SECOND
    assert queue.check(START + SECOND, is_at_end=True) == [one]
    assert queue.due_at_ns == START + 2 * SECOND
    queue.choose(10, START + SECOND + SECOND // 2, MUCH, None)
    assert queue.check(START + 2 * SECOND, is_at_end=True) == []
    assert queue.due_at_ns == START + 2 * SECOND + SECOND // 2


def test_requests_that_take_whatever_there_is_are_dealt_messages_at_once() -> None:
    one, two = request(b"a", batch=5), request(b"b", batch=3)
    queue = queue_of(one, two)
    assert queue.front(100, START) == [one, two]
    assert queue.front(1, START) == [one]
    assert queue.deal(5, START) == [(one, 3), (two, 2)]
    assert queue.front(1, START) == [two]
    assert queue.deal(100, START) == [(two, 1), (one, 2)]
    assert len(queue) == 0


def test_requests_that_do_not_take_everything_are_served_one_message_at_a_time() -> None:
    assert queue_of(request(b"a"), request(b"b", batch=5, bytes_max=10)).front(9, START) == []
    assert queue_of(request(b"a", expires_ns=1)).front(9, START + 1) == []
    assert queue_of(request(b"a", group="A"), policy=OVERFLOW).front(9, START) == []
    assert queue_of(request(b"a"), request(b"b"), policy=PRIORITIZED).front(9, START) == []


@given(st.lists(st.integers(0, 9), max_size=70), st.lists(st.integers(1, 40), max_size=8))
def test_dealing_gives_each_request_as_much_as_turns_of_one_message_do(
    batches: list[int], counts: list[int]
) -> None:
    dealt, turned = (
        queue_of(*[request(b"%d" % place, batch=batch) for place, batch in enumerate(batches)])
        for _ in range(2)
    )
    for count in counts:
        shares = {one.reply: share for one, share in dealt.deal(count, START)}
        expected = [reply for reply in served(turned, sum(shares.values())) if reply != b"-"]
        assert shares == {reply: expected.count(reply) for reply in expected}
        assert [one.reply for one in dealt.front(99, START)] == [one.reply for one in turned.front(99, START)]


def test_a_deleted_consumer_tells_everyone() -> None:
    one, two = request(b"a"), request(b"b")
    queue = queue_of(one, two)
    queue.end_all(statuses.CONSUMER_DELETED)
    assert queue.ended == [(one, statuses.CONSUMER_DELETED), (two, statuses.CONSUMER_DELETED)]
    assert len(queue) == 0


# --- priority groups ---


def new_pins() -> Pins:
    names = itertools.count(1)
    return Pins(60 * SECOND, lambda: f"pin{next(names)}")


def test_overflow_is_served_when_enough_is_pending_or_waits_for_acknowledgement() -> None:
    queue = queue_of(request(b"o", batch=9, min_pending=10, min_ack_pending=5), policy=OVERFLOW)
    assert served(queue, 1, Backlog(9, 4)) == [b"-"]
    assert served(queue, 1, Backlog(10, 0)) == [b"o"]
    assert served(queue, 1, Backlog(1, 5)) == [b"o"]
    queue.add(request(b"always", batch=1), START)
    assert served(queue, 1, Backlog(1, 0)) == [b"always"]


def test_the_first_who_is_served_is_pinned_and_others_wait() -> None:
    pins = new_pins()
    queue = queue_of(request(b"a", batch=2, group="G"), request(b"b", batch=2, group="G"), policy=PINNED)
    assert served(queue, 3, pins=pins) == [b"a", b"a", b"-"]
    assert pins.pin_id == "pin1"
    assert pins.is_changed
    assert len(queue) == 1
    pins.release()
    assert served(queue, 1, pins=pins) == [b"b"]
    assert pins.pin_id == "pin2"


def test_who_names_an_old_pin_is_told_so() -> None:
    pins = new_pins()
    stale = request(b"s", batch=2, group="G", pin_id="pin0")
    queue = queue_of(stale, request(b"b", batch=1, group="G"), policy=PINNED)
    assert served(queue, 1, pins=pins) == [b"b"]
    assert queue.ended == [(stale, statuses.wrong_pin(2, 0))]


def test_a_pin_holds_as_long_as_its_client_asks() -> None:
    pins = new_pins()
    pins.assign(START)
    assert not pins.expire(START + 60 * SECOND - 1)
    pins.renew(START + 30 * SECOND)
    assert not pins.expire(START + 60 * SECOND)
    assert pins.expire(START + 90 * SECOND)
    assert pins.is_free
    assert not pins.expire(START + 90 * SECOND)


@pytest.mark.parametrize(
    ("policy", "body", "text"),
    [
        ("none", b'{"min_pending":1}', b"400 Bad Request - Not a Overflow Priority consumer"),
        ("none", b'{"id":"x"}', b"400 Bad Request - Not a Pinned Client Priority consumer"),
        ("none", b'{"priority":10}', b"400 Bad Request - Priority must be between 0 and 9"),
        ("overflow", b"{}", b"400 Bad Request - Priority Group missing"),
        ("overflow", b'{"group":"B"}', b"400 Bad Request - Invalid Priority Group"),
        ("pinned_client", b'{"group":"A","id":"other"}', b"423 Nats-Pin-Id mismatch"),
    ],
)
def test_a_group_that_does_not_fit_is_refused(policy: str, body: bytes, text: bytes) -> None:
    config = ConsumerConfig(priority_policy=policy, priority_groups=("A",) if policy != "none" else ())
    pins = new_pins()
    pins.assign(START)
    assert group_refusal(config, pull_terms(body), pins) == b"NATS/1.0 %s\r\n\r\n" % text


def test_requests_without_an_object_name_no_group_and_are_not_asked_for_one() -> None:
    config = ConsumerConfig(priority_policy="overflow", priority_groups=("A",))
    assert group_refusal(config, pull_terms(b"5"), None) is None


def test_request_that_is_gone_makes_nobody_due() -> None:
    queue = queue_of(request(b"first", batch=1, expires_ns=SECOND), request(b"second", batch=5))
    assert served(queue, 1) == [b"first"]
    later = START + 2 * SECOND
    assert queue.needs_check(later, is_at_end=False)
    assert not queue.is_due(later)
    assert queue.add(request(b"third", batch=1, expires_ns=3 * SECOND, heartbeat_ns=SECOND), START)
    assert not queue.is_due(START + SECOND - 1)
    assert queue.is_due(START + SECOND)


def test_long_request_is_read_like_a_short_one() -> None:
    short = b'{"batch":7,"expires":1000000000}'
    long = short.replace(b",", b"," + b" " * 1000)
    assert pull_terms(short) == pull_terms(short) == pull_terms(long)
    for _ in range(2):
        with pytest.raises(BadPull):
            pull_terms(b'{"batch":"x"}')
