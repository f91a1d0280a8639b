"""A server that is killed while clients fetch and acknowledge keeps what it confirmed and loses nothing.

The rest of the file shows that what is looked for would be found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.consumption_ledger import (
    ConsumerLedger,
    ConsumerPlan,
    Ledger,
    StreamLedger,
    Violation,
)
from tests.jetstream.kill_consumers import KillGround, play

ROUNDS = 4
# It writes the state of consumers now and then: a crash may find it written, but not so many in a row.
NATS_SERVER_ROUNDS = 20


@pytest.mark.real
@pytest.mark.slow
def test_what_was_confirmed_is_kept_and_the_rest_comes_again(tmp_path: Path) -> None:
    figures = play(KillGround(tmp_path), seed=21, rounds=ROUNDS)
    assert figures.rounds == ROUNDS
    assert min(figures.stored, figures.confirmed, figures.redeliveries) > 0
    print(figures)


@pytest.mark.real
@pytest.mark.slow
def test_a_server_that_forgets_acknowledgements_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(Violation):
        play(KillGround(tmp_path, "nats-server"), seed=21, rounds=NATS_SERVER_ROUNDS)


# --- the judge ---


def consumer(policy: str = "explicit") -> ConsumerLedger:
    """Of six messages 1 to 4 were delivered and are durable; 1 and 2 are confirmed, of 3 it was said."""
    ledger = ConsumerLedger(ConsumerPlan("S", "c", policy))
    for seq in range(1, 5):
        ledger.delivered(seq, 1, 1, False)
        ledger.persist(seq, 1, seq, 1)
    for seq in (1, 2, 3):
        ledger.say(seq, 1)
    for seq in (1, 2):
        ledger.confirm(seq, 1)
    ledger.begin_life()
    return ledger


def info(**changed: Any) -> dict[str, Any]:
    """What the server shows when 3 was not settled."""
    shown: dict[str, Any] = {
        "delivered": {"consumer_seq": 4, "stream_seq": 4},
        "ack_floor": {"consumer_seq": 2, "stream_seq": 2},
        "num_ack_pending": 2,
        "num_redelivered": 0,
        "num_pending": 2,
    }
    for name, value in changed.items():
        shown[name] = {**shown[name], **value} if isinstance(value, dict) else value
    return shown


SEQS = [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_both_ends_of_what_was_not_confirmed_are_right(policy: str) -> None:
    consumer(policy).check(SEQS, info(), life=2)
    settled = {"ack_floor": {"consumer_seq": 3, "stream_seq": 3}, "num_ack_pending": 1}
    consumer(policy).check(SEQS, info(**settled), life=2)


@pytest.mark.parametrize(
    "changed",
    [
        {"num_pending": 3},
        {"num_pending": 0},
        {"ack_floor": {"stream_seq": 1}},
        {"ack_floor": {"stream_seq": 4}},
        {"delivered": {"stream_seq": 3}},
        {"delivered": {"consumer_seq": 3}},
        {"num_ack_pending": 0, "num_pending": 4},
    ],
)
@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_figures_that_contradict_what_was_confirmed_are_found(policy: str, changed: dict[str, Any]) -> None:
    with pytest.raises(Violation):
        consumer(policy).check(SEQS, info(**changed), life=2)


@pytest.mark.parametrize("policy", ["explicit", "all"])
def test_a_confirmed_message_that_comes_again_is_found(policy: str) -> None:
    with pytest.raises(Violation):
        consumer(policy).delivered(2, 2, 2, False)
    consumer(policy).delivered(3, 2, 2, False)


def test_a_number_of_deliveries_that_goes_back_is_found() -> None:
    with pytest.raises(Violation):
        consumer().delivered(4, 1, 2, False)
    consumer().delivered(5, 1, 2, False)


def test_a_message_that_is_delivered_again_is_open_whatever_was_said_of_it_before() -> None:
    ledger = consumer()
    assert ledger.open(SEQS) == ([4, 5, 6], [3, 4, 5, 6])
    ledger.delivered(3, 2, 2, False)
    assert ledger.open(SEQS) == ([3, 4, 5, 6], [3, 4, 5, 6])
    with pytest.raises(Violation):
        ledger.check_end(SEQS, info(num_pending=0, num_ack_pending=0, ack_floor={"stream_seq": 6}))


@pytest.mark.parametrize(
    ("retention", "present", "is_right"),
    [
        ("workqueue", {3, 4, 5, 6}, True),
        ("workqueue", {4, 5, 6}, True),
        ("workqueue", {2, 3, 4, 5, 6}, False),
        ("workqueue", {3, 5, 6}, False),
        ("interest", {3, 4, 5}, False),
        ("limits", {1, 2, 3, 4, 5, 6}, True),
        ("limits", {2, 3, 4, 5, 6}, False),
    ],
)
def test_a_stream_has_what_its_retention_says(retention: str, present: set[int], is_right: bool) -> None:
    stream = StreamLedger("S", retention, [consumer()], dict(zip(SEQS, SEQS, strict=True)), 6)
    if is_right:
        stream.check(present, 6, life=2)
        return
    with pytest.raises(Violation):
        stream.check(present, 6, life=2)


def test_a_seq_that_is_given_twice_and_an_end_that_moved_back_are_found() -> None:
    stream = StreamLedger("S", "limits", [], {1: 1}, acknowledged_to=1)
    with pytest.raises(Violation):
        stream.stored(1, 2)
    with pytest.raises(Violation):
        stream.check({1}, 0, life=2)


def test_what_a_client_saw_ends_the_round() -> None:
    ledger = Ledger([])
    ledger.fail(Violation("seen"))
    with pytest.raises(Violation, match="seen"):
        ledger.wait(1, limit_s=60)
