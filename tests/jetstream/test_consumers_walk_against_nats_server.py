"""Random steps with a consumer: after each one edged and nats-server have delivered, and say, the same.

Nothing here depends on the clock: acknowledgements are confirmed, and requests end with a status.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, running_both
from tests.jetstream.raw_client import Arrived, RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

STEPS = 60
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "filtered": ({}, {"filter_subjects": ["{}.a", "{}.c"]}),
    "few pending": ({}, {"max_ack_pending": 3}),
    "few deliveries": ({}, {"max_deliver": 2}),
    "acks of all": ({}, {"ack_policy": "all"}),
    "no acks": ({}, {"ack_policy": "none"}),
    "work queue": ({"retention": "workqueue"}, {}),
    "limited": ({"max_msgs": 12}, {}),
    "limited per subject": ({"max_msgs_per_subject": 3}, {}),
    "last of each": ({}, {"deliver_policy": "last_per_subject", "filter_subject": "{}.>"}),
    "in memory": ({"storage": "memory"}, {}),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("walk")) as both:
        yield both


class Walk:
    """One case, with the choices of a seed."""

    def __init__(self, clients: list[RawClient], case: str, seed: int) -> None:
        stream, consumer = CASES[case]
        self.random = random.Random(seed)
        self.pair = ConsumerPair(clients, **stream)
        self.has_acks = consumer.get("ack_policy") != "none"
        self.is_acking_all = consumer.get("ack_policy") == "all"
        # What was delivered and not answered for: the same message of both servers.
        self.open: list[tuple[Arrived, ...]] = []
        self.publish()
        self.pair.create(**{key: self._named(value) for key, value in consumer.items()})
        self.trace: list[str] = []

    def _named(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._named(one) for one in value]
        return value.format(self.pair.stream) if isinstance(value, str) else value

    def step(self) -> None:
        steps = [self.publish, self.pull, self.pull]
        if not self.is_acking_all:
            # With nats-server, removing a message acknowledges all before it there.
            steps.append(self.remove)
        if self.has_acks:
            steps += [self.answer, self.answer, self.answer]
        chosen = self.random.choice(steps)
        self.trace.append(chosen.__name__)
        chosen()

    def publish(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.pair.publish(1, self.random.choice("abc"), payload=b"%d" % self.random.randrange(100))

    def pull(self) -> None:
        """Ask for some, and take them all, or what there is and the status behind it."""
        batch = self.random.randrange(1, 6)
        reply = self.pair.ask({"batch": batch, "no_wait": True, "expires": SECOND // 5})
        both: list[list[Arrived]] = []
        for client in self.pair.clients:
            found: list[Arrived] = []
            while len(found) < batch and not (found and found[-1].subject == reply):
                found.append(client.receive())
            both.append(found)
        self.compare(both, reply)

    def compare(self, both: list[list[Arrived]], reply: bytes) -> None:
        shown = [
            [(one.subject, one.payload, one.block, one.reply.split(b".")[4:7]) for one in found]
            for found in both
        ]
        pending = [[one.reply.split(b".")[8] for one in found if one.reply] for found in both]
        assert shown[0] == shown[1], (self.trace, reply)
        assert pending[0] == pending[1], (self.trace, reply)
        self.open += [pair for pair in zip(*both, strict=True) if pair[0].reply]

    def answer(self) -> None:
        if not self.open:
            return
        payload = self.random.choice([b"", b"+ACK", b"-NAK", b"+TERM", b"+WPI"])
        messages = self.open.pop(self.random.randrange(len(self.open)))
        for client, message in zip(self.pair.clients, messages, strict=True):
            assert client.ask(message.reply, b"", payload).payload == b""

    def remove(self) -> None:
        seq = self.random.randrange(1, 40)
        for client in self.pair.clients:
            client.ask(f"$JS.API.STREAM.MSG.DELETE.{self.pair.stream}", b"", b'{"seq":%d}' % seq)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_walk_is_the_same_on_both(servers: list[RunningServer], case: str, seed: int) -> None:
    with connected(servers) as clients:
        walk = Walk(clients, case, seed)
        # The floor of nats-server does not pass over what was given up; and where one acknowledgement stands
        # for all before it, it is at the delivery that was acknowledged, be it an earlier one of the message.
        without = ("ack_floor",) if walk.is_acking_all or "max_deliver" in CASES[case][1] else ()
        for _ in range(STEPS):
            walk.step()
            walk.pair.info(without)
