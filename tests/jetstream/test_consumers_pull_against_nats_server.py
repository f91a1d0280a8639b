"""Messages for those who ask for them, on the wire: the same from edged and nats-server."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.consumer_pair import SECOND, ConsumerPair, connected, figures, running_both, statuses
from tests.jetstream.jetstream_servers import SERVERS, running
from tests.jetstream.raw_client import RawClient, block_of
from tests.servers import RunningServer

pytestmark = pytest.mark.real

Clients = list[RawClient]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    with running_both(tmp_path_factory.mktemp("pull")) as both:
        yield both


@pytest.fixture
def clients(servers: list[RunningServer]) -> Iterator[Clients]:
    with connected(servers) as both:
        yield both


# --- requests ---


@pytest.mark.parametrize("body", [b"", b"1", b'{"batch":1}', b"{}", b"nonsense", b" 1 "])
def test_one_message_is_asked_for_in_many_ways(clients: Clients, body: bytes) -> None:
    pair = ConsumerPair(clients, 2)
    pair.create()
    (message,) = pair.pull(body, 1)
    assert message.subject == pair.stream.encode() + b".a"
    assert message.reply == b"$JS.ACK.%s.c.1.1.1.time.1" % pair.stream.encode()
    assert message.payload == b"0"
    assert figures(pair.info()) == (1, 1, 0, 0, 1, 0, 1)


def test_a_batch_is_delivered_and_what_is_missing_comes_when_it_is_stored(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create()
    assert [one.payload for one in pair.pull({"batch": 5}, 3)] == [b"0", b"1", b"2"]
    for _ in range(2):
        pair.publish(1)
        (message,) = pair.take(b"", 1)
        assert message.reply.endswith(b".0")
    assert pair.info()["num_waiting"] == 0


def test_who_does_not_wait_is_told_when_there_is_nothing(clients: Clients) -> None:
    pair = ConsumerPair(clients, 2)
    pair.create()
    found = pair.pull({"batch": 5, "no_wait": True}, 3)
    assert statuses(found) == [b"404 No Messages"]
    assert statuses(pair.pull({"batch": 5, "no_wait": True}, 1)) == [b"404 No Messages"]


def test_who_does_not_wait_for_long_gets_the_first_that_comes(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create()
    reply = pair.ask({"batch": 5, "no_wait": True, "expires": 20 * SECOND})
    pair.publish(1)
    assert statuses(pair.take(reply, 2)) == [b"404 No Messages"]


def test_who_does_not_wait_and_lacks_acknowledgements_is_told_so_by_the_clock(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create(max_ack_pending=2)
    body = {"batch": 4, "no_wait": True, "expires": 20 * SECOND, "idle_heartbeat": SECOND // 4}
    assert statuses(pair.pull(body, 3)) == [b"404 No Messages"]
    assert pair.info()["num_waiting"] == 0


def test_who_does_not_wait_and_may_have_no_more_is_told_so_at_once(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create(priority_policy="overflow", priority_groups=["g"])
    body = {"batch": 4, "no_wait": True, "expires": 20 * SECOND, "group": "g", "min_pending": 3}
    assert statuses(pair.pull(body, 3)) == [b"404 No Messages"]
    assert figures(pair.info())[:2] == (2, 2)


def test_as_many_are_served_as_wait(clients: Clients) -> None:
    pair = ConsumerPair(clients, 200)
    pair.create(pause_until="2100-01-01T00:00:00Z")
    for _ in range(199):
        pair.ask({"batch": 1, "expires": 20 * SECOND})
    pair.wait_for(num_waiting=199)
    pair.api("PAUSE", {})
    # After a pause, nats-server delivers when somebody asks.
    pair.ask({"batch": 1, "expires": 20 * SECOND})
    assert [one.payload for one in pair.take(b"", 200)] == [b"%d" % number for number in range(200)]
    assert pair.info()["num_waiting"] == 0


def test_a_request_that_is_not_filled_in_time_is_told_what_is_left(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create()
    found = pair.pull({"batch": 3, "max_bytes": 1000, "expires": SECOND // 4}, 2)
    assert statuses(found) == [b"408 Request Timeout"]
    assert b"Nats-Pending-Messages: 2\r\n" in found[1].block


def test_bytes_are_counted_and_the_request_ends_when_a_message_does_not_fit(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.publish(3, payload=b"x" * 100)
    pair.create()
    found = pair.pull({"batch": 3, "max_bytes": 350, "expires": 20 * SECOND}, 3)
    assert statuses(found) == [b"409 Message Size Exceeds MaxBytes"]
    assert figures(pair.info())[:2] == (2, 2)


def test_a_batch_that_has_bytes_left_is_said_to_be_complete(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create()
    found = pair.pull({"batch": 2, "max_bytes": 5000, "expires": 20 * SECOND}, 3)
    assert statuses(found) == [b"409 Batch Completed"]


def test_requests_have_their_turns(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create()
    pair.ask({"batch": 3})
    pair.ask({"batch": 2, "max_bytes": 10_000})
    pair.wait_for(num_waiting=2)
    pair.publish(5)
    both = []
    for client in clients:
        # The second request is told when it is complete, with its second turn.
        arrived = [client.receive() for _ in range(6)]
        both.append([one.payload or one.block.partition(b"\r")[0] for one in arrived])
    assert both[0] == both[1]
    assert both[0].index(b"NATS/1.0 409 Batch Completed") == 4
    assert pair.info()["num_waiting"] == 0


def test_heartbeats_are_sent_while_nothing_comes(clients: Clients) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create()
    found = pair.pull({"batch": 2, "expires": SECOND, "idle_heartbeat": SECOND * 4 // 10}, 3)
    assert statuses(found)[0] == b"100 Idle Heartbeat"
    assert b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n" in found[1].block


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"batch":1,"expires":1000000000,"idle_heartbeat":900000000}', b"400 Bad Request - heartbeat"),
        (b'{"batch":"x"}', b"400 Bad Request - json: cannot unmarshal string into"),
        (b'{"batch":1', b"400 Bad Request - unexpected end of JSON input"),
        (b'{"batch":11}', b"409 Exceeded MaxRequestBatch of 10"),
        (b'{"batch":1,"expires":3000000000}', b"409 Exceeded MaxRequestExpires of 2s"),
        (b'{"batch":1,"max_bytes":2000}', b"409 Exceeded MaxRequestMaxBytes of 1000"),
        (b'{"batch":1,"min_pending":1}', b"400 Bad Request - Not a Overflow Priority consumer"),
        (b'{"batch":1,"id":"x"}', b"400 Bad Request - Not a Pinned Client Priority consumer"),
        (b'{"batch":1,"priority":-1}', b"400 Bad Request - Priority must be between 0 and 9"),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(clients: Clients, body: bytes, text: bytes) -> None:
    pair = ConsumerPair(clients, 1)
    pair.create(max_batch=10, max_expires=2 * SECOND, max_bytes=1000)
    (status,) = pair.pull(body, 1)
    assert text in status.block


def test_one_request_too_many_is_refused(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create(max_waiting=1)
    pair.ask({"batch": 1})
    assert statuses(pair.pull({"batch": 1}, 1)) == [b"409 Exceeded MaxWaiting"]
    assert pair.info()["num_waiting"] == 1


def test_who_does_not_wait_stands_back_for_those_who_came_before(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create(max_ack_pending=1)
    pair.publish(3)
    reply = pair.ask({"batch": 10})
    pair.take(reply, 1)
    assert statuses(pair.pull({"batch": 1, "no_wait": True}, 1)) == [b"408 Requests Pending"]


def test_a_consumer_that_goes_tells_whoever_waits(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.create()
    reply = pair.ask({"batch": 1})
    pair.wait_for(num_waiting=1)
    pair.api("DELETE")
    assert statuses(pair.take(reply, 1)) == [b"409 Consumer Deleted"]


# --- what is delivered ---


def test_a_server_that_goes_tells_whoever_waits(tmp_path: Path) -> None:
    blocks = []
    for kind in SERVERS:
        with running(kind, tmp_path / kind) as server:
            client = RawClient(server.host, server.port)
            client.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
            config = {"durable_name": "c", "ack_policy": "explicit"}
            client.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": config})
            client.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b'{"batch":3,"max_bytes":900}', b"R.pull")
            deadline = time.monotonic() + 10
            # nats-server takes requests for messages and for information in two queues.
            while not client.api("CONSUMER.INFO.S.c")["num_waiting"]:
                assert time.monotonic() < deadline
            server.signal(signal.SIGTERM)
            blocks.append(client.receive().block)
            client.close()
    assert blocks[0] == blocks[1]
    assert blocks[0].startswith(b"NATS/1.0 409 Server Shutdown\r\nNats-Pending-Messages: 3\r\n")


def test_headers_travel_with_a_message(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.publish(1, block=block_of(A="b"), payload=b"x")
    pair.create()
    (message,) = pair.pull(b"", 1)
    assert message.block == b"NATS/1.0\r\nA: b\r\n\r\n"


def test_headers_only_leaves_the_payload_out_and_says_its_size(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    pair.publish(1, block=block_of(A="b"), payload=b"four")
    pair.publish(1, payload=b"four!")
    pair.create(headers_only=True)
    one, other = pair.pull(b"2", 2)
    assert one.block == b"NATS/1.0\r\nA: b\r\nNats-Msg-Size: 4\r\n\r\n"
    assert (other.block, other.payload) == (b"NATS/1.0\r\nNats-Msg-Size: 5\r\n\r\n", b"")


def test_filters_choose_messages_and_count_them(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    for tail in ("a", "b", "c", "a", "c"):
        pair.publish(1, tail)
    pair.create(filter_subjects=[f"{pair.stream}.a", f"{pair.stream}.c"])
    found = pair.pull(b"3", 3)
    assert [one.reply.split(b".")[5] for one in found] == [b"1", b"3", b"4"]
    assert found[-1].reply.endswith(b".1")
    assert figures(pair.info()) == (3, 4, 0, 0, 3, 0, 1)


@pytest.mark.parametrize(
    ("policy", "more", "expected"),
    [
        ("all", {}, [b"1", b"2"]),
        ("last", {}, [b"5"]),
        ("new", {}, []),
        ("by_start_sequence", {"opt_start_seq": 3}, [b"3", b"4"]),
        ("last_per_subject", {}, [b"2", b"4", b"5"]),
    ],
)
def test_a_consumer_begins_where_it_is_told_to(
    clients: Clients, policy: str, more: dict[str, Any], expected: list[bytes]
) -> None:
    pair = ConsumerPair(clients)
    for tail in ("a", "b", "a", "a", "c"):
        pair.publish(1, tail)
    pair.create(deliver_policy=policy, filter_subject=f"{pair.stream}.>", **more)
    before = pair.info()["num_pending"]
    found = pair.pull({"batch": len(expected) or 1, "no_wait": True}, max(len(expected), 1))
    assert [one.reply.split(b".")[5] for one in found if one.reply] == expected
    assert pair.info()["num_pending"] == before - len(expected)
    pair.publish(1, "z")
    left = pair.info()["num_pending"]
    assert left == before - len(expected) + 1
    assert len(pair.pull({"batch": left}, left)) == left


def test_messages_that_are_deleted_are_passed_over(clients: Clients) -> None:
    pair = ConsumerPair(clients, 5)
    pair.create()
    for client in clients:
        client.api(f"STREAM.MSG.DELETE.{pair.stream}", {"seq": 2})
    assert pair.info()["num_pending"] == 4
    found = pair.pull(b"4", 4)
    assert [one.reply.split(b".")[5] for one in found] == [b"1", b"3", b"4", b"5"]


# --- who is not there ---


def test_a_request_of_a_client_that_left_takes_no_message(
    servers: list[RunningServer], clients: Clients
) -> None:
    pair = ConsumerPair(clients)
    pair.create()
    with connected(servers) as leaving:
        for client in leaving:
            client.send(b"SUB LEFT 9\r\n")
            client.publish(
                f"$JS.API.CONSUMER.MSG.NEXT.{pair.stream}.c".encode(), b"", b'{"batch":5}', b"LEFT"
            )
        pair.wait_for(num_waiting=1)
    pair.wait_for(num_waiting=0)
    pair.publish(1)
    (message,) = pair.pull(b"", 1)
    assert message.reply == b"$JS.ACK.%s.c.1.1.1.time.0" % pair.stream.encode()


def test_nobody_answers_for_a_consumer_that_is_not_there(servers: list[RunningServer]) -> None:
    both = []
    for server in servers:
        client = RawClient(server.host, server.port, no_responders=True)
        name = f"none{server.port}"
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        client.ask(name, b"", b"x")
        config = {"stream_name": name, "config": {"durable_name": "c", "ack_policy": "none"}}
        client.api(f"CONSUMER.DURABLE.CREATE.{name}.c", config)
        asked = client.ask(f"$JS.API.CONSUMER.MSG.NEXT.{name}.other")
        client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.c".encode(), b"", b"", b"R.one")
        message = client.receive()
        acked = client.ask(message.reply)
        lines = [one.block.partition(b"\r")[0] for one in (asked, acked)]
        both.append([lines[0], message.payload, lines[1]])
        client.close()
    assert both[0] == both[1]
    assert both[0][0] == both[0][2] == b"NATS/1.0 503"


# --- changes ---


def test_more_may_wait_for_acknowledgement_from_now_on(clients: Clients) -> None:
    pair = ConsumerPair(clients, 3)
    pair.create(max_ack_pending=1)
    reply = pair.ask({"batch": 3})
    pair.take(reply, 1)
    pair.update(max_ack_pending=3)
    assert [one.payload for one in pair.take(reply, 2)] == [b"1", b"2"]


def test_another_filter_counts_from_where_the_consumer_is(clients: Clients) -> None:
    pair = ConsumerPair(clients)
    for tail in ("a", "b", "a", "b", "b"):
        pair.publish(1, tail)
    pair.create(filter_subject=f"{pair.stream}.a")
    pair.pull(b"", 1)
    pair.update(filter_subject=f"{pair.stream}.b")
    assert pair.info()["num_pending"] == 3
    found = pair.pull(b"3", 3)
    assert [one.reply.split(b".")[5] for one in found] == [b"2", b"4", b"5"]


def test_a_consumer_that_is_reset_begins_again(clients: Clients) -> None:
    pair = ConsumerPair(clients, 4)
    pair.create()
    pair.pull(b"3", 3)
    pair.say(0)
    pair.api("RESET", {"seq": 2})
    assert figures(pair.info()) == (0, 1, 0, 1, 0, 0, 3)
    found = pair.pull(b"3", 3)
    assert [one.reply.split(b".")[4:7] for one in found] == [
        [b"1", b"%d" % (n + 2), b"%d" % (n + 1)] for n in range(3)
    ]
