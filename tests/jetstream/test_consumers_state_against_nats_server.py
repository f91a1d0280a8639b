"""Where consumers begin, what removals do to them, and what streams keep for them: as with nats-server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jetstream.consumer_pair import (
    SECOND,
    ConsumerPair,
    connected,
    figures,
    running_both,
)
from tests.jetstream.raw_client import DEADLINE_S, RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

Clients = list[RawClient]
SHORT = SECOND // 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("state")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[Clients]:
    with connected(servers) as both:
        yield both


def stream_of(clients: Clients, tails: str, **config: Any) -> ConsumerPair:
    """A stream with a message on each of these subjects, one letter each."""
    pair = ConsumerPair(clients, **config)
    for tail in tails:
        pair.publish(1, tail)
    return pair


def filters_of(pair: ConsumerPair, letters: str) -> dict[str, Any]:
    return {"filter_subjects": [f"{pair.stream}.{letter}" for letter in letters]} if letters else {}


def both(pair: ConsumerPair, endpoint: str, body: dict[str, Any]) -> None:
    for client in pair.clients:
        answer = client.api(f"{endpoint}.{pair.stream}", body)
        assert "error" not in answer, answer


def kept(pair: ConsumerPair, count: int) -> tuple[int, int]:
    """First and last seq, when both streams have come to hold so many messages."""
    until = time.monotonic() + DEADLINE_S
    while True:
        states = [client.api(f"STREAM.INFO.{pair.stream}")["state"] for client in pair.clients]
        found = [(state["messages"], state["first_seq"], state["last_seq"]) for state in states]
        if found[0] == found[1] and found[0][0] == count:
            return found[0][1:]
        assert time.monotonic() < until, found
        time.sleep(0.01)


# --- where a consumer begins ---


@pytest.mark.parametrize("purged", [0, 4, 9])
@pytest.mark.parametrize("letters", ["", "b", "ab", "n"])
@pytest.mark.parametrize(
    "start",
    [
        {},
        {"deliver_policy": "last"},
        {"deliver_policy": "new"},
        {"deliver_policy": "last_per_subject"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 2},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 6},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 60},
        {"deliver_policy": "by_start_time", "opt_start_time": "2001-02-03T04:05:06Z"},
        {"deliver_policy": "by_start_time", "opt_start_time": "2101-02-03T04:05:06Z"},
    ],
    ids=lambda start: "-".join(str(value) for value in start.values())[:30] or "all",
)
def test_consumer_begins_at_the_same_message(
    clients: Clients, start: dict[str, Any], letters: str, purged: int
) -> None:
    pair = stream_of(clients, "abcabcac")
    if purged:
        both(pair, "STREAM.PURGE", {"seq": purged})
    # The last of each subject needs a filter.
    is_filtered = letters or start.get("deliver_policy") != "last_per_subject"
    chosen = filters_of(pair, letters) if is_filtered else {"filter_subject": f"{pair.stream}.>"}
    pair.create(**start, **chosen)
    pending = figures(pair.info())[-1]
    pair.publish(2, "b")
    pair.publish(1, "a")
    pair.info()
    found = pair.pull({"batch": 20, "no_wait": True}, figures(pair.info())[-1] + 1)
    assert len(found) - 1 >= pending
    pair.info()


def test_chosen_message_that_is_gone_is_not_counted(clients: Clients) -> None:
    pair = stream_of(clients, "ababc")
    pair.create(deliver_policy="last_per_subject", **filters_of(pair, "ab"))
    assert figures(pair.info())[-1] == 2
    both(pair, "STREAM.MSG.DELETE", {"seq": 3})
    pair.publish(1, "a")
    assert figures(pair.info())[-1] == 2


# --- messages go ---


def test_floor_waits_for_an_acknowledgement_before_it_passes_over_others(clients: Clients) -> None:
    pair = stream_of(clients, "ccbcbcb")
    pair.create(**filters_of(pair, "b"))
    pair.pull(b"2", 2)
    assert figures(pair.info()) == (2, 5, 0, 0, 2, 0, 1)
    pair.say(0)
    assert figures(pair.info()) == (2, 5, 1, 4, 1, 0, 1)


@pytest.mark.parametrize("letters", ["", "a", "b"])
@pytest.mark.parametrize(
    "purge",
    [{}, {"seq": 3}, {"keep": 1}, {"filter": "a"}, {"filter": "a", "keep": 1}, {"filter": "a", "seq": 3}],
    ids=lambda purge: "-".join(map(str, purge.items())) or "all",
)
def test_purge_moves_a_consumer_as_far(clients: Clients, letters: str, purge: dict[str, Any]) -> None:
    pair = stream_of(clients, "abaabab")
    pair.create(**filters_of(pair, letters))
    pair.pull(b"2", 2)
    body = {**purge, **({"filter": f"{pair.stream}.a"} if "filter" in purge else {})}
    both(pair, "STREAM.PURGE", body)
    pair.info()
    pair.publish(2, "a")
    pair.publish(2, "b")
    pair.pull({"batch": 20, "no_wait": True}, figures(pair.info())[-1] + 1)
    pair.info()


def test_deleted_message_is_pending_with_nobody(clients: Clients) -> None:
    pair = stream_of(clients, "aaaa")
    pair.create()
    pair.pull(b"3", 3)
    both(pair, "STREAM.MSG.DELETE", {"seq": 2})
    assert figures(pair.info()) == (3, 3, 0, 0, 2, 0, 1)
    both(pair, "STREAM.MSG.DELETE", {"seq": 1})
    assert figures(pair.info()) == (3, 3, 2, 2, 1, 0, 1)
    both(pair, "STREAM.MSG.DELETE", {"seq": 4})
    assert figures(pair.info()) == (3, 3, 2, 2, 1, 0, 0)


@pytest.mark.parametrize(
    "limits", [{"max_msgs": 4}, {"max_msgs_per_subject": 2}], ids=lambda one: next(iter(one))
)
def test_message_dropped_by_a_limit_is_pending_with_nobody(clients: Clients, limits: dict[str, Any]) -> None:
    pair = stream_of(clients, "abab", **limits)
    pair.create()
    pair.pull(b"3", 3)
    pair.publish(1, "a")
    pair.info()
    pair.publish(2, "b")
    pair.info()


def test_message_given_up_stays_and_is_counted(clients: Clients) -> None:
    pair = stream_of(clients, "a", retention="workqueue")
    pair.create(max_deliver=2, ack_wait=SHORT)
    pair.pull(b"1", 1)
    pair.pull({"batch": 1, "expires": 3 * SECOND}, 1)
    pair.ask({"batch": 1, "expires": 2 * SECOND})
    pair.wait_for(num_ack_pending=0, num_redelivered=1)
    assert figures(pair.info(without=("num_waiting",))) == (2, 1, 0, 0, 0, 1, 0)
    assert kept(pair, 1) == (1, 1)
    pair.say(0)
    assert kept(pair, 0) == (2, 1)
    assert figures(pair.info(without=("num_waiting",))) == (2, 1, 0, 0, 0, 0, 0)


# --- what a stream keeps ---


def test_work_queue_lets_go_what_is_settled(clients: Clients) -> None:
    pair = stream_of(clients, "aaaaa", retention="workqueue")
    pair.create()
    pair.pull(b"4", 4)
    pair.say(1)
    assert kept(pair, 4) == (1, 5)
    pair.say(0, b"+TERM")
    assert kept(pair, 3) == (3, 5)
    pair.info()
    pair.api("DELETE")
    assert kept(pair, 3) == (3, 5)


def test_interest_lets_go_what_everybody_has_settled(clients: Clients) -> None:
    pair = ConsumerPair(clients, retention="interest")
    pair.publish(2, "a")
    assert kept(pair, 0) == (3, 2)
    pair.create("two", **filters_of(pair, "b"))
    pair.create("three", ack_policy="none", **filters_of(pair, "c"))
    pair.create("one")
    for letter in "abcabc":
        pair.publish(1, letter)
    pair.pull(b"4", 4)
    for place in range(3):
        pair.say(place)
    assert kept(pair, 5) == (4, 8)
    pair.name = "three"
    pair.pull(b"2", 2)
    assert kept(pair, 4) == (4, 8)
    pair.name = "two"
    pair.pull(b"1", 1)
    pair.say(0)
    assert kept(pair, 3) == (6, 8)
    pair.info()
    pair.name = "one"
    pair.info()


def test_interest_ends_with_the_consumer_or_its_filter(clients: Clients) -> None:
    pair = ConsumerPair(clients, retention="interest")
    for name in "abc":
        pair.create(name, **filters_of(pair, name))
    for letter in "abcabcabc":
        pair.publish(1, letter)
    pair.name = "a"
    pair.api("DELETE")
    assert kept(pair, 6) == (2, 9)
    pair.create("c", **filters_of(pair, "b"))
    assert kept(pair, 3) == (2, 9)
    pair.info()
    pair.api("DELETE")
    assert kept(pair, 3) == (2, 9)
    pair.name = "b"
    pair.api("DELETE")
    assert kept(pair, 0) == (10, 9)


def test_stream_that_turns_to_interest_lets_go_what_is_settled(clients: Clients) -> None:
    pair = stream_of(clients, "aaaa")
    pair.create()
    pair.pull(b"2", 2)
    pair.say(0)
    body = {"name": pair.stream, "subjects": [f"{pair.stream}.>"], "retention": "interest"}
    both(pair, "STREAM.UPDATE", body)
    assert kept(pair, 3) == (2, 4)


def test_reset_consumer_begins_again(clients: Clients) -> None:
    pair = stream_of(clients, "aaaa")
    pair.create()
    pair.pull(b"3", 3)
    pair.say(0)
    pair.api("RESET", {})
    assert figures(pair.info()) == (0, 1, 0, 1, 0, 0, 3)
    pair.pull(b"1", 1)
    pair.api("RESET", {"seq": 4})
    assert figures(pair.info()) == (0, 3, 0, 3, 0, 0, 1)
    pair.pull(b"1", 1)
