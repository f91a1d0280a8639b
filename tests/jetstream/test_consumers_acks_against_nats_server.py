"""Acknowledgements and redelivery, on the wire: the same from edged and nats-server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edged.core.ack_subject import account_hash
from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, figures, running_both, statuses
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer

pytestmark = pytest.mark.real

Clients = list[RawClient]
SHORT = SECOND // 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("acks")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[Clients]:
    with connected(servers) as both:
        yield both


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("payload", [b"", b"+ACK", b"+OK", b"+TERM", b"+TERM because"])
def test_an_acknowledged_message_is_settled(clients: Clients, payload: bytes, storage: str) -> None:
    pair = ConsumerPair(clients, 3, storage=storage)
    pair.create()
    pair.pull(b"2", 2)
    pair.say(1, payload)
    assert figures(pair.info()) == (2, 2, 0, 0, 1, 0, 1)
    pair.say(0, payload)
    assert figures(pair.info()) == (2, 2, 2, 2, 0, 0, 1)
    pair.say(0, payload)
    assert figures(pair.info()) == (2, 2, 2, 2, 0, 0, 1)


def test_anything_else_is_confirmed_and_means_nothing(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create()
    pair.pull(b"", 1)
    pair.say(0, b"what")
    assert figures(pair.info()) == (1, 1, 0, 0, 1, 0, 0)


def test_an_acknowledgement_of_all_settles_everything_before(clients: Clients) -> None:
    pair = ConsumerPair(clients, 5)
    pair.create(ack_policy="all")
    pair.pull(b"4", 4)
    pair.say(2)
    assert figures(pair.info()) == (4, 4, 3, 3, 1, 0, 1)
    pair.say(0)
    assert figures(pair.info()) == (4, 4, 3, 3, 1, 0, 1)
    pair.say(3)
    assert figures(pair.info()) == (4, 4, 4, 4, 0, 0, 1)


def test_a_message_that_is_sent_back_comes_again_before_new_ones(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create()
    pair.pull(b"2", 2)
    pair.say(0, b"-NAK")
    found = pair.pull(b"2", 2)
    assert found[0].reply == b"$JS.ACK.%s.c.2.1.3.time.1" % pair.stream.encode()
    assert found[1].reply == b"$JS.ACK.%s.c.1.3.4.time.0" % pair.stream.encode()
    assert figures(pair.info()) == (4, 3, 0, 0, 3, 1, 0)
    pair.say(0)
    assert figures(pair.info()) == (4, 3, 1, 1, 2, 0, 0)


@pytest.mark.parametrize("payload", [b'-NAK {"delay": 300000000}', b"-NAK 300ms"])
def test_a_message_is_sent_back_with_a_delay(clients: Clients, payload: bytes) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create()
    pair.pull(b"", 1)
    pair.say(0, payload)
    found = pair.pull({"batch": 1, "no_wait": True}, 1)
    assert statuses(found) == [b"404 No Messages"]
    (again,) = pair.pull({"batch": 1, "expires": 5 * SECOND}, 1)
    assert again.reply == b"$JS.ACK.%s.c.2.1.2.time.0" % pair.stream.encode()


def test_what_is_not_acknowledged_in_time_comes_again(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create(ack_wait=SHORT)
    pair.pull(b"2", 2)
    found = pair.pull({"batch": 3, "expires": 5 * SECOND}, 3)
    assert sorted(one.payload for one in found) == [b"0", b"1", b"2"]
    again = pair.take(pair.ask({"batch": 3, "expires": 5 * SECOND}), 3)
    assert {one.reply.split(b".")[4] for one in again} == {b"2", b"3"}


def test_work_in_progress_is_confirmed(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(ack_wait=SECOND)
    pair.pull(b"", 1)
    pair.say(0, b"+WPI")
    assert figures(pair.info()) == (1, 1, 0, 0, 1, 0, 0)
    (again,) = pair.pull({"batch": 1, "expires": 5 * SECOND}, 1)
    assert again.reply.split(b".")[4] == b"2"


def test_backoff_says_when_a_message_comes_again(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(backoff=[SHORT, SHORT], max_deliver=5)
    pair.pull(b"", 1)
    for deliveries in (b"2", b"3"):
        (again,) = pair.pull({"batch": 1, "expires": 5 * SECOND}, 1)
        assert again.reply.split(b".")[4] == deliveries


def test_more_can_be_asked_for_with_an_acknowledgement(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create()
    pair.pull(b"", 1)
    pair.say_nothing_back(0, b"+NXT", b"R.next.1")
    assert [one.payload for one in pair.take(b"R.next.1", 1)] == [b"1"]
    pair.say_nothing_back(0, b'+NXT {"batch":2}', b"R.next.2")
    assert [one.payload for one in pair.take(b"R.next.2", 2)] == [b"2", b"3"]
    pair.wait_for(num_ack_pending=2)
    assert figures(pair.info()) == (4, 4, 2, 2, 2, 0, 0)


def test_the_second_form_of_the_subject_is_taken(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create()
    pair.pull(b"", 1)
    for client, (message,) in zip(clients, pair.last, strict=True):
        tokens = message.reply.split(b".")
        subject = b".".join([*tokens[:2], b"_", account_hash("$G").encode(), *tokens[2:], b"more"])
        assert client.ask(subject).payload == b""
    assert figures(pair.info()) == (1, 1, 1, 1, 0, 0, 0)


def test_so_much_may_wait_for_acknowledgement_and_not_more(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create(max_ack_pending=2)
    reply = pair.ask({"batch": 4})
    pair.take(reply, 2)
    assert figures(pair.info()) == (2, 2, 0, 0, 2, 0, 2)
    pair.say(0)
    assert [one.payload for one in pair.take(reply, 1)] == [b"2"]


def test_a_message_is_given_up_after_so_many_deliveries(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    for client in clients:
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    pair.create(ack_wait=SHORT, max_deliver=2)
    pair.pull(b"", 1)
    pair.pull({"batch": 1, "expires": 5 * SECOND}, 1)
    # We tell it when the time to acknowledge is over; nats-server, when somebody asks after that.
    reply = pair.ask({"batch": 1, "expires": 5 * SECOND})
    for client in clients:
        advisory = client.receive().document
        assert (advisory["stream_seq"], advisory["deliveries"]) == (1, 2)
        assert advisory["type"] == "io.nats.jetstream.advisory.v1.max_deliver"
    pair.wait_for(num_ack_pending=0)
    pair.publish(1, payload=b"new")
    assert [one.payload for one in pair.take(reply, 1)] == [b"new"]


def test_clients_hear_of_messages_that_are_sent_back_and_ended(clients: Clients) -> None:
    pair = ConsumerPair(clients, 2)
    pair.create()
    pair.pull(b"2", 2)
    for client in clients:
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>")
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>")
    pair.say(0, b"-NAK")
    pair.say(1, b"+TERM no good")
    both = []
    for client in clients:
        advisories = [client.receive().document for _ in range(2)]
        for one in advisories:
            del one["id"], one["timestamp"]
        both.append(advisories)
    assert both[0] == both[1]
    assert both[0][1]["reason"] == "no good"


def test_acknowledgements_are_measured_when_that_is_asked_for(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(sample_freq="100")
    pair.pull(b"", 1)
    for client in clients:
        client.subscribe("$JS.EVENT.METRIC.CONSUMER.ACK.>")
    pair.say(0)
    both = []
    for client in clients:
        metric = client.receive().document
        assert metric.pop("ack_time") > 0
        del metric["id"], metric["timestamp"]
        both.append(metric)
    assert both[0] == both[1]
    assert both[0]["deliveries"] == 1


@pytest.mark.parametrize("is_in_memory", [False, True])
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_acknowledged_messages_leave_a_queue(clients: Clients, retention: str, is_in_memory: bool) -> None:
    pair = ConsumerPair(clients, retention=retention)
    pair.create(mem_storage=is_in_memory)
    pair.publish(3)
    pair.pull(b"3", 3)
    pair.say(1)
    pair.say(2, b"+TERM")
    assert pair.kept() == 1
    pair.say(0)
    assert pair.kept() == 0


def test_a_removed_message_is_not_waited_for(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create()
    pair.pull(b"2", 2)
    for client in clients:
        client.api(f"STREAM.PURGE.{pair.stream}")
    pair.wait_for(num_ack_pending=0)
    assert figures(pair.info())[4:] == (0, 0, 0)


def test_an_acknowledgement_nobody_waits_for_makes_room_once_however_often_it_comes(clients: Clients) -> None:
    pair = ConsumerPair(clients, 8)
    pair.create(max_ack_pending=3)
    reply = pair.ask({"batch": 8})
    pair.take(reply, 3)
    for place in (1, 1, 2, 1):
        pair.say_nothing_back(place, b"")
    assert [one.payload for one in pair.take(reply, 2)] == [b"3", b"4"]
    assert figures(pair.info()) == (5, 5, 0, 0, 3, 0, 3)


def test_acknowledgements_nobody_waits_for_count_though_nothing_follows(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create()
    pair.pull(b"3", 3)
    for place in (2, 0, 1):
        pair.say_nothing_back(place, b"+ACK")
        for client in clients:
            client.api(f"CONSUMER.INFO.{pair.stream}.{pair.name}")
    pair.wait_for(num_ack_pending=0)
    assert figures(pair.info()) == (3, 3, 3, 3, 0, 0, 0)
