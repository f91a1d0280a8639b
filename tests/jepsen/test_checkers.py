"""The checkers find what is wrong in a history, and nothing in one that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jepsen.checkers import judge
from tests.jepsen.history import Consumption, Delivery, History, Publish, Reading, Stored

NODES = ("n1", "n2", "n3")


def published(number: int, seq: int | None, publisher: int = 0, invoked_s: float | None = None) -> Publish:
    """A message that was sent in second `number` and acknowledged half a second later."""
    sent_s = float(number) if invoked_s is None else invoked_s
    completed_s = None if seq is None else sent_s + 0.5
    return Publish(f"p{publisher}.{number}", publisher, number, sent_s, completed_s, seq)


def right(count: int = 10) -> History:
    """All acknowledged, in order, read through all nodes, and consumed."""
    history = History(publishes=[published(number, number + 1) for number in range(count)])
    stored = [Stored(number + 1, f"p0.{number}", True) for number in range(count)]
    history.readings = [
        Reading(node, way, list(stored)) for node in NODES for way in ("direct get", "consumer")
    ]
    history.consumption = Consumption(
        deliveries=[Delivery(seq, float(seq)) for seq in range(1, count + 1)],
        confirmed={seq: seq + 1.0 for seq in range(1, count + 1)},
        is_drained=True,
    )
    return history


def change(history: History, place: int, edit: Callable[[list[Stored]], object]) -> None:
    """Let one reading show something else."""
    messages = list(history.readings[place].messages)
    edit(messages)
    history.readings[place] = replace(history.readings[place], messages=messages)


def kinds(history: History) -> set[str]:
    return {finding.kind for finding in judge(history)}


def test_history_in_which_all_is_well_has_no_findings() -> None:
    assert judge(right()) == []


def test_unknown_publish_may_be_stored_or_not() -> None:
    history = right()
    history.publishes += [published(10, None), published(11, None)]
    for place in range(len(history.readings)):
        change(history, place, lambda messages: messages.append(Stored(11, "p0.11", True)))
    assert judge(history) == []


def test_acknowledged_message_that_no_node_has_is_lost() -> None:
    history = right()
    for place in range(len(history.readings)):
        change(history, place, lambda messages: messages.pop(4))
    found = judge(history)
    assert {finding.kind for finding in found} == {"lost"}
    assert "1 of 10 acknowledged (1 in the middle)" in found[0].text


def test_acknowledged_messages_of_a_stream_that_nobody_can_read_are_lost() -> None:
    history = right()
    history.readings = []
    assert kinds(history) == {"lost"}


def test_acknowledged_message_that_one_node_lacks_is_lost_there_and_a_divergence() -> None:
    history = right()
    change(history, 2, lambda messages: messages.pop())
    assert kinds(history) == {"lost", "divergence"}
    assert [finding.text[:2] for finding in judge(history) if finding.kind == "lost"] == ["n2"]


@pytest.mark.parametrize(
    ("kept", "words"),
    [(range(3, 10), "3 at the beginning"), (range(7), "3 at the end"), (range(0), "10 all of a publisher")],
)
def test_where_messages_were_lost_is_told(kept: range, words: str) -> None:
    history = right()
    for place in range(len(history.readings)):
        change(
            history, place, lambda messages: messages.__setitem__(slice(None), [messages[i] for i in kept])
        )
    assert words in judge(history)[0].text


def test_unknown_message_that_only_one_node_has_is_a_divergence() -> None:
    history = right()
    history.publishes.append(published(10, None))
    change(history, 0, lambda messages: messages.append(Stored(11, "p0.10", True)))
    assert kinds(history) == {"divergence"}


def test_message_that_nobody_sent_is_found() -> None:
    history = right()
    for place in range(len(history.readings)):
        change(history, place, lambda messages: messages.append(Stored(11, "p9.1", True)))
    assert kinds(history) == {"unexpected"}


def test_message_with_other_bytes_is_found() -> None:
    history = right()
    change(history, 3, lambda messages: messages.__setitem__(2, replace(messages[2], is_intact=False)))
    assert kinds(history) == {"content"}


def test_seq_that_two_clients_were_told_is_found() -> None:
    history = right()
    history.publishes.append(published(10, 10))
    assert "seq twice" in kinds(history)


def test_message_that_is_stored_twice_is_found() -> None:
    history = right()
    for place in range(len(history.readings)):
        change(history, place, lambda messages: messages.append(Stored(11, "p0.3", True)))
    assert "id twice" in kinds(history)


def test_message_that_comes_twice_in_a_reading_is_found() -> None:
    history = right()
    change(history, 1, lambda messages: messages.insert(4, messages[4]))
    assert kinds(history) == {"id twice", "seq twice", "order"}


def test_message_with_another_seq_than_its_client_was_told_is_found() -> None:
    history = right()
    history.publishes[3].seq, history.publishes[4].seq = 5, 4
    assert "misplaced" in kinds(history)


def test_messages_out_of_order_are_found() -> None:
    history = right()
    change(history, 1, lambda messages: messages.reverse())
    assert kinds(history) == {"order"}


def test_message_behind_one_that_was_sent_after_its_acknowledgement_is_found() -> None:
    history = History(publishes=[published(0, 2), published(5, 1)])
    assert kinds(history) == {"real-time order", "lost"}


def test_messages_on_their_way_at_the_same_time_may_have_any_order() -> None:
    history = History(publishes=[published(0, 2, invoked_s=1.0), published(1, 1, invoked_s=1.4)])
    assert "real-time order" not in kinds(history)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=2, max_size=8))
def test_real_time_order_agrees_with_comparing_all_pairs(spans: list[tuple[int, int]]) -> None:
    publishes = [
        Publish(f"p0.{seq}", 0, seq, float(start), float(start + length), seq)
        for seq, (start, length) in enumerate(spans, 1)
    ]
    is_wrong = any(
        earlier.completed_s is not None and earlier.completed_s < later.invoked_s
        for place, later in enumerate(publishes)
        for earlier in publishes[place + 1 :]
    )
    assert ("real-time order" in kinds(History(publishes=publishes))) == is_wrong


def test_confirmed_message_that_comes_to_a_later_pull_is_found() -> None:
    history = right()
    history.consumption.deliveries.append(Delivery(3, asked_s=4.5))
    assert kinds(history) == {"ack forgotten"}


def test_confirmed_message_that_was_on_its_way_to_an_earlier_pull_is_none() -> None:
    history = right()
    history.consumption.deliveries.append(Delivery(3, asked_s=3.5))
    assert judge(history) == []


def test_message_that_a_drained_consumer_never_gave_is_found() -> None:
    history = right()
    del history.consumption.confirmed[7]
    history.consumption.deliveries = [one for one in history.consumption.deliveries if one.seq != 7]
    assert kinds(history) == {"never delivered"}
    history.consumption.said.add(7)
    assert judge(history) == []


def test_what_does_not_work_after_the_faults_is_a_finding() -> None:
    history = right()
    history.unusable["n2"] = "does not answer"
    assert kinds(history) == {"unusable"}
