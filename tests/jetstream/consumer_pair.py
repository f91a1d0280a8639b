"""A consumer of a real nats-server and one of edged, who hear the same and must say the same.

Rules: whatever arrives is compared as it is, but for times and what servers make up. Each step waits for
messages that must come.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.jetstream.jetstream_servers import SERVERS, new_name, running
from tests.jetstream.raw_client import DEADLINE_S, Arrived, RawClient
from tests.servers import RunningServer

SECOND = 1_000_000_000
POLL_S = 0.01

_ACK_TIME = re.compile(rb"(\$JS\.ACK\.[^.]+\.[^.]+\.\d+\.\d+\.\d+\.)\d+(\.\d+)")
_FLOW_ID = re.compile(rb"(\$JS\.FC\.[^.]+\.[^.]+\.)\w{4}")
_PIN_ID = re.compile(rb"(Nats-Pin-Id: )\w+")
# What may differ in the answer about a consumer: times, and where it is.
_UNLIKE = ("ts", "created", "cluster", "config", "type", "pause_remaining")


class Seen(NamedTuple):
    """A message without what is never the same."""

    subject: bytes
    reply: bytes
    block: bytes
    payload: bytes


def seen(arrived: Arrived) -> Seen:
    """What two servers should have sent alike."""
    return Seen(
        _FLOW_ID.sub(rb"\1____", arrived.subject),
        _FLOW_ID.sub(rb"\1____", _ACK_TIME.sub(rb"\1time\2", arrived.reply)),
        _FLOW_ID.sub(rb"\1____", _PIN_ID.sub(rb"\1pin", arrived.block)),
        arrived.payload,
    )


@contextmanager
def running_both(directory: Path) -> Iterator[list[RunningServer]]:
    """A nats-server and an edged, until the end of the block."""
    with running(SERVERS[0], directory / "one") as one, running(SERVERS[1], directory / "other") as other:
        yield [one, other]


@contextmanager
def connected(servers: Sequence[RunningServer]) -> Iterator[list[RawClient]]:
    """A client of each."""
    clients = [RawClient(server.host, server.port) for server in servers]
    try:
        yield clients
    finally:
        for client in clients:
            client.close()


class ConsumerPair:
    """A stream and a consumer on two servers."""

    def __init__(self, clients: Sequence[RawClient], messages: int = 0, **stream: Any) -> None:
        self.clients = clients
        self.stream = new_name("cs")
        self.name = "c"
        self._replies = 0
        config = {"name": self.stream, "subjects": [f"{self.stream}.>"], **stream}
        for client in clients:
            client.api(f"STREAM.CREATE.{self.stream}", config)
        # What each server delivered last, in order.
        self.last: list[list[Arrived]] = [[], []]
        self.publish(messages)

    def publish(self, count: int, tail: str = "a", block: bytes = b"", payload: bytes = b"") -> None:
        """Store messages; those without a payload of their own say what their number is."""
        for client in self.clients:
            for number in range(count):
                client.ask(f"{self.stream}.{tail}", block, payload or b"%d" % number)

    def create(self, name: str = "c", **config: Any) -> None:
        """Make a consumer, which is the one that everything else is about."""
        self.name = name
        wanted = {"durable_name": name, "ack_policy": "explicit", **config}
        for client in self.clients:
            body = {"stream_name": self.stream, "config": wanted}
            client.api(f"CONSUMER.DURABLE.CREATE.{self.stream}.{name}", body)

    def update(self, **config: Any) -> None:
        """Give the consumer another configuration."""
        self.create(self.name, **config)

    def api(self, endpoint: str, body: dict[str, Any] | None = None) -> None:
        """Ask both about the consumer."""
        for client in self.clients:
            client.api(f"CONSUMER.{endpoint}.{self.stream}.{self.name}", body)

    # --- messages ---

    def pull(self, body: dict[str, Any] | bytes, count: int) -> list[Seen]:
        """Ask for messages, and take so many that come for it, statuses among them."""
        return self.take(self.ask(body), count)

    def ask(self, body: dict[str, Any] | bytes) -> bytes:
        """Ask for messages, without waiting; the reply subject."""
        self._replies += 1
        reply = b"R.pull.%s.%d" % (self.stream.encode(), self._replies)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self.name}".encode()
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        for client in self.clients:
            client.publish(subject, b"", encoded, reply)
        return reply

    def take(self, reply: bytes, count: int) -> list[Seen]:
        """The next messages, whatever they are; `reply` is for whoever reads a failure."""
        self.last = [[self._receive(client) for _ in range(count)] for client in self.clients]
        one, other = ([seen(arrived) for arrived in arrived_all] for arrived_all in self.last)
        assert one == other, (reply, one, other)
        return one

    def _receive(self, client: RawClient) -> Arrived:
        """The next message that is not the end of a request by an earlier test."""
        while True:
            arrived = client.receive()
            is_status = arrived.subject.startswith(b"R.pull.")
            if not is_status or arrived.subject.startswith(b"R.pull.%s." % self.stream.encode()):
                return arrived

    def say(self, place: int, payload: bytes = b"") -> None:
        """Acknowledge the message in that place of those that came last, and have it confirmed."""
        for client, arrived in zip(self.clients, self.last, strict=True):
            confirmed = client.ask(arrived[place].reply, b"", payload)
            assert (confirmed.block, confirmed.payload) == (b"", b"")

    def say_nothing_back(self, place: int, payload: bytes, reply: bytes = b"") -> None:
        """The same, without a confirmation."""
        for client, arrived in zip(self.clients, self.last, strict=True):
            client.publish(arrived[place].reply, b"", payload, reply)

    # --- figures ---

    def info(self, without: Sequence[str] = ()) -> dict[str, Any]:
        """What the servers say of the consumer, which must be the same, if not at once then soon."""
        until = time.monotonic() + DEADLINE_S
        while True:
            both = [self._info(client, (*_UNLIKE, *without)) for client in self.clients]
            if both[0] == both[1]:
                return both[0]
            assert time.monotonic() < until, both
            time.sleep(POLL_S)

    def _info(self, client: RawClient, without: Sequence[str]) -> dict[str, Any]:
        document = client.api(f"CONSUMER.INFO.{self.stream}.{self.name}")
        for position in ("delivered", "ack_floor"):
            document[position].pop("last_active", None)
        for group in document.get("priority_groups", ()):
            group.pop("pinned_ts", None)
            if "pinned_client_id" in group:
                group["pinned_client_id"] = "pin"
        return {key: value for key, value in document.items() if key not in without}

    def wait_for(self, **wanted: Any) -> None:
        """Wait until both servers say so of the consumer."""
        for client in self.clients:
            until = time.monotonic() + DEADLINE_S
            while True:
                document = client.api(f"CONSUMER.INFO.{self.stream}.{self.name}")
                if all(document.get(key) == value for key, value in wanted.items()):
                    break
                assert time.monotonic() < until, (wanted, document)
                time.sleep(POLL_S)

    def kept(self) -> int:
        """How many messages the streams have, which must be the same."""
        counts = [client.api(f"STREAM.INFO.{self.stream}")["state"]["messages"] for client in self.clients]
        assert counts[0] == counts[1]
        return int(counts[0])


def figures(info: dict[str, Any]) -> tuple[int, int, int, int, int, int, int]:
    """Delivered and floor (by consumer, by stream), what waits for acks, came again, and is pending."""
    delivered, floor = info["delivered"], info["ack_floor"]
    return (
        delivered["consumer_seq"],
        delivered["stream_seq"],
        floor["consumer_seq"],
        floor["stream_seq"],
        info["num_ack_pending"],
        info["num_redelivered"],
        info["num_pending"],
    )


def statuses(found: Sequence[Seen]) -> list[bytes]:
    """The first lines of the headers, of those that have any."""
    return [one.block.partition(b"\r")[0].removeprefix(b"NATS/1.0 ") for one in found if one.block]
