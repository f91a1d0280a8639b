"""Priority groups, and pauses of consumers that are pulled from: the same from edged and nats-server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, figures, running_both, statuses
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

Clients = list[RawClient]
PIN = re.compile(rb"Nats-Pin-Id: (\w+)")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("groups")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[Clients]:
    with connected(servers) as both:
        yield both


def grouped(clients: Clients, policy: str, messages: int = 0, **more: Any) -> ConsumerPair:
    pair = ConsumerPair(clients, messages)
    pair.create(priority_groups=["A"], priority_policy=policy, **more)
    return pair


@pytest.mark.parametrize(
    ("policy", "body", "text"),
    [
        ("overflow", {"batch": 1}, b"400 Bad Request - Priority Group missing"),
        ("overflow", {"batch": 1, "group": "B"}, b"400 Bad Request - Invalid Priority Group"),
        ("prioritized", {"batch": 1, "group": "A", "priority": 10}, b"400 Bad Request - Priority must be"),
        ("pinned_client", {"batch": 1, "group": "A", "min_pending": 5}, b"400 Bad Request - Not a Overflow"),
    ],
)
def test_groups_that_do_not_fit_are_refused(
    clients: Clients, policy: str, body: dict[str, Any], text: bytes
) -> None:
    (status,) = grouped(clients, policy, 1).pull(body, 1)
    assert text in status.block


def test_overflow_waits_until_enough_is_pending(clients: Clients) -> None:
    pair = grouped(clients, "overflow", 2)
    reply = pair.ask({"batch": 2, "group": "A", "min_pending": 4})
    pair.wait_for(num_waiting=1)
    pair.publish(2)
    assert len(pair.take(reply, 1)) == 1
    pair.wait_for(num_pending=3)
    pair.publish(1)
    assert len(pair.take(reply, 1)) == 1


def test_the_first_client_is_pinned_and_named(clients: Clients) -> None:
    pair = grouped(clients, "pinned_client", 1, priority_timeout=60 * SECOND)
    (message,) = pair.pull({"batch": 1, "group": "A"}, 1)
    assert message.block == b"NATS/1.0\r\nNats-Pin-Id: pin\r\n\r\n"
    assert pair.info()["priority_groups"] == [{"group": "A", "pinned_client_id": "pin"}]
    other = pair.ask({"batch": 1, "group": "A"})
    pair.wait_for(num_waiting=1)
    pair.publish(1)
    pins = [found.group(1) for (one,) in pair.last if (found := PIN.search(one.block))]
    for client, pin in zip(clients, pins, strict=True):
        body = b'{"batch":1,"group":"A","id":"%s"}' % pin
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{pair.stream}.c".encode()
        client.publish(subject, b"", body, b"R.pinned")
    assert pair.take(b"R.pinned", 1)[0].payload == b"0"
    pair.api("UNPIN", {"group": "A"})
    pair.publish(1, payload=b"other")
    assert [one.payload for one in pair.take(other, 1)] == [b"other"]


def test_a_stale_pin_is_refused(clients: Clients) -> None:
    pair = grouped(clients, "pinned_client", 1, priority_timeout=60 * SECOND)
    assert statuses(pair.pull({"batch": 1, "group": "A", "id": "old"}, 1)) == [b"423 Nats-Wrong-Pin-Id"]
    pair.pull({"batch": 1, "group": "A"}, 1)
    assert statuses(pair.pull({"batch": 1, "group": "A", "id": "old"}, 1)) == [b"423 Nats-Pin-Id mismatch"]


def test_a_pin_that_is_not_used_is_given_to_another(clients: Clients) -> None:
    pair = grouped(clients, "pinned_client", 1, priority_timeout=SECOND)
    for client in clients:
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.>")
    pair.pull({"batch": 1, "group": "A"}, 1)
    for client in clients:
        advisory = client.receive().document
        assert (advisory["group"], advisory["reason"]) == ("A", "timeout")
    pair.publish(1)
    assert len(pair.pull({"batch": 1, "group": "A"}, 1)) == 1


def test_lower_numbers_come_first(clients: Clients) -> None:
    pair = grouped(clients, "prioritized")
    late = pair.ask({"batch": 1, "group": "A", "priority": 5})
    first = pair.ask({"batch": 1, "group": "A", "priority": 1, "max_bytes": 5000})
    pair.wait_for(num_waiting=2)
    pair.publish(1)
    found = pair.take(first, 2)
    assert (found[1].subject, statuses(found)) == (first, [b"409 Batch Completed"])
    pair.publish(1)
    assert len(pair.take(late, 1)) == 1


def test_a_paused_consumer_lets_requests_wait(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(pause_until="2100-01-01T00:00:00Z")
    reply = pair.ask({"batch": 1})
    pair.wait_for(num_waiting=1, paused=True)
    assert figures(pair.info())[:2] == (0, 0)
    pair.api("PAUSE", {"pause_until": "2001-01-01T00:00:00Z"})
    # We deliver at once; nats-server, when something else wakes the consumer.
    pair.ask({"batch": 1})
    assert len(pair.take(reply, 1)) == 1
