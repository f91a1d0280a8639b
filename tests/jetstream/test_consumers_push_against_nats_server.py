"""Messages that are sent to a subject, on the wire: the same from edged and nats-server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, figures, running_both, statuses
from tests.jetstream.raw_client import RawClient, block_of
from tests.servers import RunningServer

pytestmark = pytest.mark.real

Clients = list[RawClient]
SHORT = SECOND // 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("push")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[Clients]:
    with connected(servers) as both:
        yield both


def listened(clients: Clients, subject: str) -> str:
    """A subject that somebody listens to."""
    for client in clients:
        client.subscribe(subject)
    return subject


def test_messages_come_as_soon_as_somebody_listens(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create(deliver_subject=f"P.{pair.stream}")
    info = pair.info()
    assert (figures(info), info.get("push_bound")) == ((0, 0, 0, 0, 0, 0, 3), None)
    for client in clients:
        client.subscribe(f"P.{pair.stream}")
    found = pair.take(b"", 3)
    assert [one.subject for one in found] == [pair.stream.encode() + b".a"] * 3
    assert found[2].reply == b"$JS.ACK.%s.c.1.3.3.time.0" % pair.stream.encode()
    assert pair.info()["push_bound"] is True
    pair.publish(1)
    pair.take(b"", 1)
    pair.say(0)
    assert figures(pair.info()) == (4, 4, 0, 0, 3, 0, 0)


def test_nothing_is_acknowledged_where_nobody_wants_that(clients: Clients) -> None:
    pair = ConsumerPair(clients, 2)
    pair.create(deliver_subject=listened(clients, "P.none"), ack_policy="none")
    pair.take(b"", 2)
    assert figures(pair.info()) == (2, 2, 2, 2, 0, 0, 0)


def test_who_asks_for_messages_is_told_that_they_are_pushed(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create(deliver_subject=listened(clients, "P.pushed"))
    assert statuses(pair.pull(b"", 1)) == [b"409 Consumer is push based"]


def test_a_group_gets_each_message_once(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create(deliver_subject=f"G.{pair.stream}", deliver_group="workers")
    for client in clients:
        for sid in (901, 902):
            client.send(f"SUB G.{pair.stream} workers {sid}\r\n".encode())
    pair.take(b"", 4)
    assert pair.info()["push_bound"] is True
    assert figures(pair.info())[:2] == (4, 4)


def test_interest_outside_of_the_group_does_not_count(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(deliver_subject=f"G.{pair.stream}", deliver_group="workers")
    for client in clients:
        client.subscribe(f"G.{pair.stream}")
    assert pair.info().get("push_bound") is None
    assert figures(pair.info())[:2] == (0, 0)
    for client in clients:
        client.send(f"SUB G.{pair.stream} workers 901\r\n".encode())
    # One for the member of the group, and one for who listens beside it.
    assert len(set(pair.take(b"", 2))) == 1


def test_heartbeats_come_while_nothing_is_sent(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(deliver_subject=listened(clients, "P.idle"), idle_heartbeat=SHORT)
    found = pair.take(b"", 2)
    assert found[1].block == (
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    assert (found[1].subject, found[1].reply) == (b"P.idle", b"")


def test_flow_control_asks_when_half_of_the_window_is_used(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.publish(5, payload=b"x" * 300_000)
    pair.create(
        deliver_subject=listened(clients, "P.flow"),
        flow_control=True,
        idle_heartbeat=20 * SECOND,
        ack_policy="none",
    )
    found = pair.take(b"", 6)
    (place,) = [number for number, one in enumerate(found) if one.block]
    assert found[place].block == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert found[place].reply == b"$JS.FC.%s.c.____" % pair.stream.encode()
    pair.say_nothing_back(place, b"")
    pair.publish(1)
    assert pair.take(b"", 1)[0].payload == b"0"


def test_an_answer_to_flow_control_can_acknowledge(clients: Clients) -> None:
    pair = ConsumerPair(clients, 5)
    subject = listened(clients, "P.acks")
    pair.create(
        deliver_subject=subject,
        ack_policy="flow_control",
        flow_control=True,
        idle_heartbeat=SECOND,
        max_ack_pending=3,
    )
    found = pair.take(b"", 5)
    assert statuses(found) == [b"100 FlowControl Request", b"100 Idle Heartbeat"]
    assert b"Nats-Consumer-Stalled: $JS.FC." in found[4].block
    for client, arrived in zip(clients, pair.last, strict=True):
        block = block_of(Nats_Last_Consumer="2", Nats_Last_Stream="2")
        client.publish(arrived[3].reply, block)
    pair.take(b"", 3)
    pair.wait_for(num_ack_pending=3)
    assert figures(pair.info())[:5] == (5, 5, 2, 2, 3)


def test_what_was_not_acknowledged_is_pushed_again(clients: Clients) -> None:
    pair = ConsumerPair(clients, 2)
    pair.create(deliver_subject=listened(clients, "P.again"), ack_wait=SHORT, max_deliver=2)
    found = pair.take(b"", 4)
    assert [one.reply.split(b".")[4:7] for one in found[2:]] == [[b"2", b"1", b"3"], [b"2", b"2", b"4"]]


def test_the_pace_of_the_original_is_kept(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    time.sleep(0.5)  # the gap that is to be kept
    pair.publish(1, payload=b"later")
    pair.create(deliver_subject=listened(clients, "P.replay"), replay_policy="original")
    started = time.monotonic()
    assert [one.payload for one in pair.take(b"", 2)] == [b"0", b"later"]
    assert time.monotonic() - started > 0.4


def test_a_rate_slows_down_but_delivers_everything(clients: Clients) -> None:
    pair = ConsumerPair(clients, max_msg_size=1000)
    pair.publish(4, payload=b"x" * 900)
    pair.create(deliver_subject=listened(clients, "P.rate"), rate_limit_bps=80_000)
    assert len(pair.take(b"", 4)) == 4


def test_a_paused_consumer_delivers_when_its_time_has_come(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    for client in clients:
        client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.>")
    until = datetime.now(UTC) + timedelta(seconds=1)
    pair.create(deliver_subject=listened(clients, "P.paused"), pause_until=until.isoformat())
    assert pair.info()["paused"] is True
    assert figures(pair.info())[:2] == (0, 0)
    both = []
    for client in clients:
        came = [client.receive() for _ in range(3)]
        both.append([one.document["paused"] for one in came if not one.reply])
        assert [one.payload for one in came if one.reply] == [b"0"]
    assert both == [[True, False], [True, False]]
    assert pair.info().get("paused") is None


def test_nothing_is_sent_while_nobody_listens(clients: Clients) -> None:
    pair = ConsumerPair(clients, 2)
    for client in clients:
        client.send(b"SUB P.away 901\r\n")
    pair.create(deliver_subject="P.away")
    pair.take(b"", 2)
    for client in clients:
        client.send(b"UNSUB 901\r\n")
    pair.wait_for(push_bound=None)
    pair.publish(2)
    assert figures(pair.info()) == (2, 2, 0, 0, 2, 0, 2)
    for client in clients:
        client.send(b"SUB P.away 902\r\n")
    assert [one.reply.split(b".")[5] for one in pair.take(b"", 2)] == [b"3", b"4"]


def test_messages_go_to_another_subject_from_now_on(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(deliver_subject="P.before")
    for client in clients:
        client.subscribe("P.after")
    pair.update(deliver_subject="P.after")
    assert [one.payload for one in pair.take(b"", 1)] == [b"0"]
