"""What two real nats-servers say to each other over a leaf connection is understood, and written like them.

Traffic of every kind goes through a relay in both directions. What the relay wrote down is parsed by both
twins, and all of it is put together again from the events: the same bytes must come out.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from edged.core.leaf_wire import (
    LeafError,
    LeafQueueMessage,
    LeafSubscribe,
    LeafUnsubscribe,
    split_delivered,
)
from edged.core.wire import Broken, Connect, Info, Ping, Pong, Publish
from tests.core.fanout_bench import Owner
from tests.core.twin_cases import both, events_of
from tests.jetstream.raw_client import Arrived, RawClient, block_of
from tests.leaf.relay import Recording, relay_to
from tests.servers import POLL_INTERVAL_S, START_DEADLINE_S, RunningServer, start_server

pytestmark = pytest.mark.real

HUB = """
server_name: hub
jetstream { store_dir: "${directory}/jetstream", domain: hub }
leafnodes { listen: "127.0.0.1:${port.leafnodes}", compression: off }
"""
LEAF = """
server_name: leaf
jetstream { store_dir: "${directory}/jetstream", domain: leaf }
leafnodes { remotes: [ { url: "nats-leaf://127.0.0.1:%d", compression: off } ] }
"""
BLOCK = block_of(Kind="captured", Number="7")
CONTROL_LINE_MAX = 65536
PAYLOAD_MAX = 1 << 20

Forms = set[tuple[bool, str, bool]]


# --- traffic ---


def until_leafz(server: RunningServer, condition: Callable[[Counter[str]], bool]) -> None:
    """Wait for the interest of the other side of the leaf connection, counted by subject."""
    deadline = time.monotonic() + START_DEADLINE_S
    while True:
        with urlopen(f"http://127.0.0.1:{server.http_port}/leafz?subs=1") as answer:
            leafs = json.load(answer)["leafs"]
        found = Counter[str](leafs[0].get("subscriptions_list", ()) if leafs else ())
        if condition(found):
            return
        assert time.monotonic() < deadline, found
        time.sleep(POLL_INTERVAL_S)


def expect(client: RawClient, subject: bytes) -> Arrived:
    """The next message with this subject; what comes before it belongs to somebody else."""
    while (arrived := client.receive()).subject != subject:
        pass
    return arrived


class Traffic:
    """One direction: a client of `server` sends, and a client of the other server receives."""

    def __init__(self, name: str, server: RunningServer, sender: RawClient, receiver: RawClient) -> None:
        self.name = name
        self.server = server
        self.sender = sender
        self.receiver = receiver

    def subject(self, kind: str) -> bytes:
        return f"{kind}.{self.name}".encode()

    def listen(self, *subscriptions: bytes) -> None:
        """Subscribe: each is a subject, or a subject and a queue group."""
        for number, subscription in enumerate(subscriptions):
            self.receiver.send(b"SUB %s %s.%d\r\n" % (subscription, subscription.split()[0], number))
        wanted = Counter(subscription.split()[0].decode() for subscription in set(subscriptions))
        until_leafz(self.server, lambda found: found >= wanted)

    def publish(self, subject: bytes, copies: int) -> None:
        """Messages with and without headers and reply, of which each arrives so many times."""
        sent = [
            (block, payload, reply)
            for block in (b"", BLOCK)
            for payload in (b"", b"x\r\ny", bytes(100_000))
            for reply in (b"", b"nobody.here")
        ]
        for block, payload, reply in sent:
            self.sender.publish(subject, block, payload, reply)
        for block, payload, reply in sent:
            for _ in range(copies):
                assert expect(self.receiver, subject) == Arrived(subject, block, payload, reply)

    def plain_and_queues(self) -> None:
        plain, jobs, mixed = map(self.subject, ("plain", "jobs", "mixed"))
        self.listen(
            plain, jobs + b" workers", jobs + b" workers", jobs + b" others", mixed, mixed + b" workers"
        )
        for subject, copies in ((plain, 1), (jobs, 2), (mixed, 2)):
            self.publish(subject, copies)

    def requests(self) -> None:
        service = self.subject("service")
        self.listen(service)
        for block in (b"", BLOCK):
            answer = self.subject("R.answer")
            self.sender.publish(service, block, b"question", answer)
            asked = expect(self.receiver, service)
            assert (asked.block, asked.reply) == (block, answer)
            self.receiver.publish(asked.reply, block, b"answer")
            assert expect(self.sender, answer).payload == b"answer"

    def push_consumers(self) -> None:
        deliver, grouped, orders = map(self.subject, ("deliver", "grouped", "orders"))
        stream = f"ORDERS_{self.name}"
        self.sender.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [orders.decode()]})
        self.listen(deliver, grouped + b" workers")
        for name, subject, more in (
            ("plain", deliver, {"idle_heartbeat": 100_000_000}),
            ("grouped", grouped, {"deliver_group": "workers"}),
        ):
            config = {"durable_name": name, "deliver_subject": subject.decode(), "ack_policy": "explicit"}
            request = {"stream_name": stream, "config": config | more}
            self.sender.api(f"CONSUMER.DURABLE.CREATE.{stream}.{name}", request)
        for block in (b"", BLOCK):
            self.sender.publish(orders, block, b"order")
            # One for each of the two consumers.
            for _ in range(2):
                arrived = expect(self.receiver, orders)
                assert (arrived.block, arrived.payload) == (block, b"order")
                assert arrived.reply.startswith(b"$JS.ACK.")
                self.receiver.ask(arrived.reply, b"", b"+ACK")
        assert b"Idle Heartbeat" in expect(self.receiver, deliver).block

    def leave(self) -> None:
        """End a plain subscription, one of two members of a queue group, and the only one of another."""
        plain, jobs = map(self.subject, ("plain", "jobs"))
        # The other server hears of it in this order.
        self.receiver.send(b"UNSUB %s.1\r\nUNSUB %s.3\r\nUNSUB %s.0\r\n" % (jobs, jobs, plain))
        until_leafz(self.server, lambda found: plain.decode() not in found)


def exchange(hub: RunningServer, leaf: RunningServer) -> None:
    """All kinds of traffic between clients of the two."""
    of_hub, of_leaf = RawClient(hub.host, hub.port), RawClient(leaf.host, leaf.port)
    for server in (hub, leaf):
        until_leafz(server, lambda found: "R.>" in found)
    for traffic in (Traffic("down", hub, of_hub, of_leaf), Traffic("up", leaf, of_leaf, of_hub)):
        traffic.plain_and_queues()
        traffic.requests()
        traffic.push_consumers()
        traffic.leave()
    of_hub.close()
    of_leaf.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """What hub and leaf said; the leaf opened the connection."""
    directory: Path = tmp_path_factory.mktemp("captured")
    hub = start_server("nats-server", HUB, directory / "hub")
    try:
        with relay_to(hub.listeners["leafnodes"]) as relay:
            leaf = start_server("nats-server", LEAF % relay.port, directory / "leaf")
            try:
                exchange(hub, leaf)
            finally:
                leaf.stop()
    finally:
        hub.stop()
    (found,) = relay.recordings
    yield found


# --- what it comes to ---


def parsed(twin: Any, data: bytes, piece_bytes: int) -> list[Any]:
    parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    parser.headers_allowed = True
    pieces = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    events = events_of(parser, pieces)
    assert parser.buffered_bytes == 0
    return events


def form_of(event: Any) -> tuple[bool, str, bool]:
    """Whether queue groups are named, what is in the place of the reply, and whether there are headers."""
    is_queued = isinstance(event, LeafQueueMessage)
    message: Publish = event.message if is_queued else event
    _, reply, header_bytes, _ = message
    kind = "none" if reply is None else "delivered" if split_delivered(reply) else "reply"
    return is_queued, kind, header_bytes > 0


def is_message(event: Any) -> bool:
    return isinstance(event, tuple | LeafQueueMessage)


def control_line(event: Any) -> bytes:
    """An operation other than a message, as nats-server writes it."""
    match event:
        case Connect(body):
            return b"CONNECT %s\r\n" % body
        case Info(body):
            return b"INFO %s\r\n" % body
        case Ping():
            return b"PING\r\n"
        case Pong():
            return b"PONG\r\n"
        case LeafError(text):
            return b"-ERR '%s'\r\n" % text
        case LeafSubscribe(subject, None, 1):
            return b"LS+ %s\r\n" % subject
        case LeafSubscribe(subject, queue, weight):
            return b"LS+ %s %s %d\r\n" % (subject, queue, weight)
        case LeafUnsubscribe(subject, queue):
            return b"LS- %s%s\r\n" % (subject, b" " + queue if queue else b"")
    raise AssertionError(event)


def rewritten(twin: Any, events: list[Any]) -> bytes:
    """All events as the bytes that they came from."""
    fanout, outbox = twin.Fanout(7), twin.Outbox(Owner(), 1 << 30)
    outbox.is_leaf = outbox.headers = True
    for event in events:
        if not is_message(event):
            outbox.append(control_line(event))
            continue
        is_queued = isinstance(event, LeafQueueMessage)
        subject, reply, header_bytes, data = event.message if is_queued else event
        sid = b""
        if reply is not None and (delivered := split_delivered(reply)):
            sid, (reply, subject) = subject, delivered
        message = (subject, reply, header_bytes, data)
        if is_queued:
            fanout.encode_queues(outbox, sid, event.queues, message)
        else:
            fanout.encode(outbox, sid, message)
    return bytes(outbox.peek())


@pytest.fixture(params=["of_opener", "of_server"])
def said(request: pytest.FixtureRequest, recording: Recording) -> bytes:
    """Each direction in turn."""
    return bytes(getattr(recording, request.param))


@both
@pytest.mark.parametrize("piece_bytes", [1 << 30, 65536, 97])
def test_every_line_is_understood(twin: Any, said: bytes, piece_bytes: int) -> None:
    events = parsed(twin, said, piece_bytes)
    assert not [event for event in events if isinstance(event, Broken | LeafError)]
    forms = {form_of(event) for event in events if is_message(event)}
    assert forms == set(product((False, True), ("none", "reply", "delivered"), (False, True)))
    interest = [event for event in events if isinstance(event, LeafSubscribe | LeafUnsubscribe)]
    kinds = {(type(event), event.queue is not None) for event in interest}
    assert kinds == set(product((LeafSubscribe, LeafUnsubscribe), (False, True)))
    assert {event.weight for event in interest if isinstance(event, LeafSubscribe)} >= {1, 2}


@both
def test_what_was_parsed_is_written_as_nats_server_wrote_it(twin: Any, said: bytes) -> None:
    assert rewritten(twin, parsed(twin, said, 65536)) == said


def test_the_opener_connects_and_the_server_presents_itself(recording: Recording) -> None:
    assert recording.of_opener.startswith(b"CONNECT {")
    assert recording.of_server.startswith(b"INFO {")
