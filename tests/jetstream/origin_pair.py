"""A nats-server and an edged that are told the same about origins, and must hold the same.

Rules: a message is taken over some time after it was stored, so whoever compares waits, with a deadline,
until both servers show as much as is expected. What is different by nature is taken out before: times, how
long an origin was silent, and how far a server thinks it is behind.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from edged.core.gotime import parse_rfc3339
from edged.core.short_names import stream_identity
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

DEADLINE_S = 15.0
POLL_S = 0.01
CONFIG = 'jetstream { store_dir: "${directory}/js" }\n'

Document = dict[str, Any]


class OriginServer:
    """One of the two, or one alone."""

    def __init__(self, binary: str, directory: Path, config: str = CONFIG, **login: str) -> None:
        self.directory = directory
        self._binary = binary
        self._config = config
        self._login = login
        self._others: list[RawClient] = []
        self.start()

    def start(self) -> None:
        """Start, or start again with what is there."""
        self.server: RunningServer = start_server(self._binary, self._config, self.directory)
        self.client = RawClient(self.server.host, self.server.port, **self._login)

    def seen_by(self, **login: str) -> OriginServer:
        """The same server by the eyes of somebody else."""
        other = copy(self)
        other.client = RawClient(self.server.host, self.server.port, **login)
        self._others.append(other.client)
        return other

    def stop(self) -> None:
        """End in order."""
        for client in (self.client, *self._others):
            client.close()
        self.server.stop()

    def kill(self) -> None:
        """End at once."""
        self.client.close()
        self.server.process.kill()
        self.server.process.wait()

    def forget(self) -> None:
        """Remove all streams."""
        for name in self.client.api("STREAM.NAMES")["streams"] or ():
            self.client.api(f"STREAM.DELETE.{name}")

    def info(self, name: str) -> Document:
        """What STREAM.INFO says."""
        return self.client.api(f"STREAM.INFO.{name}")

    def wait(self, name: str, is_enough: Callable[[Document], bool]) -> Document:
        """Wait until what STREAM.INFO says is enough."""
        until = time.monotonic() + DEADLINE_S
        while True:
            info = self.info(name)
            if is_enough(info):
                return info
            assert time.monotonic() < until, info
            time.sleep(POLL_S)

    def wait_last(self, name: str, last_seq: int) -> Document:
        """Wait until the stream has this last seq."""
        return self.wait(name, lambda info: info["state"]["last_seq"] >= last_seq)

    def message(self, name: str, seq: int) -> Document | None:
        """A stored message."""
        body = json.dumps({"seq": seq}).encode()
        answer = self.client.ask(f"$JS.API.STREAM.MSG.GET.{name}", b"", body).document
        return answer.get("message")

    def messages(self, name: str) -> list[tuple[int, str, bytes, bytes]]:
        """Seq, subject, headers and payload of all messages."""
        state = self.info(name)["state"]
        found = []
        for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
            message = self.message(name, seq)
            if message is not None:
                block = base64.b64decode(message.get("hdrs", ""))
                found.append((seq, message["subject"], block, base64.b64decode(message.get("data", ""))))
        return found

    def identity(self, name: str) -> str:
        """The identity that headers have for a stream."""
        return stream_identity(parse_rfc3339(self.info(name)["created"]))


def create(server: OriginServer, name: str, **config: object) -> None:
    """Make a stream."""
    server.client.api(f"STREAM.CREATE.{name}", {"name": name, **config})


def publish(server: OriginServer, subject: str, count: int, start: int = 0) -> None:
    """Store messages whose payloads count up."""
    for number in range(start, start + count):
        answer = server.client.ask(subject, b"", b"%d" % number).document
        assert "error" not in answer, answer


def payloads(server: OriginServer, name: str) -> list[tuple[int, int]]:
    """The messages by seq, where payloads are numbers."""
    return [(seq, int(payload)) for seq, _, _, payload in server.messages(name)]


class OriginPair:
    """Both servers."""

    def __init__(self, directory: Path, config: str = CONFIG) -> None:
        self.theirs = OriginServer("nats-server", directory / "theirs", config)
        self.ours = OriginServer("edged", directory / "ours", config)

    @property
    def both(self) -> tuple[OriginServer, OriginServer]:
        return self.theirs, self.ours

    def stop(self) -> None:
        """End both."""
        for one in self.both:
            one.stop()

    def api(self, name: str, request: Document | None = None) -> None:
        """The same request to both."""
        for one in self.both:
            one.client.api(name, request)

    def publish(self, subject: str, block: bytes = b"", payload: bytes = b"") -> None:
        """The same message to both, stored by both."""
        answers = [one.client.ask(subject, block, payload).document for one in self.both]
        assert answers[0] == answers[1], answers
        assert "error" not in answers[0], answers

    def fill_origin(self, messages: int, block: Callable[[int], bytes]) -> None:
        """Messages with these headers on three kinds of subjects of O, and some of them deleted again."""
        for number in range(messages):
            self.publish(f"o.{number % 3}.{number}", block(number), b"%d" % number)
        for seq in (1, 4, 7):
            self.api("STREAM.MSG.DELETE.O", {"seq": seq})

    def create(self, streams: Mapping[str, tuple[Document, int]]) -> None:
        """Make streams of these configurations; the last seqs that they come to are for `assert_same`."""
        for name, (config, _) in streams.items():
            self.api(f"STREAM.CREATE.{name}", {"name": name, **config})

    def assert_same(self, name: str, last_seq: int, origins: tuple[str, ...] = ("O",)) -> None:
        """Both have the same messages and say the same about the stream, once they have this last seq."""
        theirs, ours = (one.wait_last(name, last_seq) for one in self.both)
        assert _state(ours) == _state(theirs)
        held = [_without_identities(one, name, origins) for one in self.both]
        assert held[1] == held[0]
        theirs, ours = (one.info(name) for one in self.both)
        assert _described(ours) == _described(theirs)
        assert all(one["lag"] == 0 and one["active"] > 0 for one in _origins(ours)), ours


def _state(info: Document) -> Document:
    return {key: value for key, value in info["state"].items() if key not in ("first_ts", "last_ts")}


def _origins(info: Document) -> list[Document]:
    return info.get("sources") or [info["mirror"]]


def _described(info: Document) -> list[list[tuple[str, Any]]]:
    """What is said of the origins, field by field and in the order of the fields; origins in any order."""
    return sorted(
        (
            [(key, value) for key, value in one.items() if key not in ("lag", "active")]
            for one in _origins(info)
        ),
        key=repr,
    )


def _without_identities(
    server: OriginServer, name: str, origins: tuple[str, ...]
) -> list[tuple[int, str, bytes, bytes]]:
    """The messages, with the name of the stream in the place of its identity, which times are part of."""
    identities = {server.identity(origin).encode(): origin.encode() for origin in origins}
    found = []
    for seq, subject, block, payload in server.messages(name):
        for identity, origin in identities.items():
            block = block.replace(b" " + identity + b"\r\n", b" <" + origin + b">\r\n")
        found.append((seq, subject, block, payload))
    return found
