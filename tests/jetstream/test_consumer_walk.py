"""Consumers of the whole server do what a naive model says, step by step, through restarts and crashes."""

from __future__ import annotations

import time

import pytest

from tests.jetstream.consumer_model import NaiveConsumer, NaiveStream, Request, Terms
from tests.jetstream.consumer_walk import ACTIONS, SECOND_NS, Walk, walks

STEPS = 100_000
STEPS_FAST = 1_500


def test_a_walk_of_some_steps_is_as_the_model_says() -> None:
    counts = walks(seed=1, steps=STEPS_FAST)
    assert counts.total() >= STEPS_FAST


@pytest.mark.slow
def test_a_hundred_thousand_steps_are_as_the_model_says() -> None:
    seed = time.time_ns() % 2**31
    counts = walks(seed, STEPS)
    assert counts.total() >= STEPS
    assert counts.keys() == ACTIONS.keys()
    print(f"seed {seed}: {counts.total()} steps, {dict(counts)}")


def test_an_acknowledgement_of_all_settles_what_was_given_up_below_the_floor() -> None:
    """It was confirmed, and had no effect: in this walk with nothing pending, and some given up behind."""
    Walk(777754).run(1000)


# --- the model can tell ---


def begun() -> Walk:
    """A walk with some messages, of which three wait for their acknowledgements."""
    consumer = NaiveConsumer(Terms("c0"))
    walk = Walk(3, NaiveStream("limits", -1, [consumer]))
    for _ in range(3):
        walk.step("publish")
    walk.server.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer.terms.name}",
        b'{"batch":3,"expires":1000000000}',
        reply="to.0.0",
    )
    consumer.requests.append(Request(0, 3, walk.server.now_ns + SECOND_NS))
    walk.stream.serve(walk.server.now_ns)
    walk.compare()
    assert len(consumer.pending) == 3, consumer
    return walk


def test_a_server_that_forgets_what_is_pending_is_noticed() -> None:
    walk = begun()
    walk.server.consumer("S", "c0").machine.pending.popitem()
    with pytest.raises(AssertionError):
        walk.compare()


def test_a_delivery_too_many_is_noticed() -> None:
    walk = begun()
    walk.stream.consumers[0].deliveries -= 1
    with pytest.raises(AssertionError):
        walk.compare()


def test_a_message_that_does_not_come_again_is_noticed() -> None:
    walk = begun()
    redelivery = walk.server.consumer("S", "c0").supply.redelivery
    redelivery.wait_ns *= 1000
    redelivery.clear()
    with pytest.raises(AssertionError):
        for _ in range(10):
            walk.step("pull")
            walk.step("wait long")


def test_a_count_of_deliveries_that_is_wrong_after_a_crash_is_noticed() -> None:
    walk = begun()
    walk.step("wait long")
    entry = next(iter(walk.stream.consumers[0].pending.values()))
    entry.count += 1
    with pytest.raises(AssertionError):
        walk.step("restart")
        for _ in range(5):
            walk.step("pull")
