"""Mirrors and sources of an edged that is killed: every message is taken over once."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged.core.message import Message
from edged.store.files import RealFiles
from edged.store.message_reads import MessageReads
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.jetstream.origin_pair import OriginServer, create
from tests.jetstream.raw_client import message_bytes

pytestmark = pytest.mark.real

MANY = 6_000
ROUNDS = 2


def test_when_the_process_is_killed_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """Killed right after streams were made that have much to take over, and once more after each start."""
    server = OriginServer("edged", tmp_path)
    create(server, "O", subjects=["o.>"])
    fill(server)
    for number in range(ROUNDS):
        create(server, f"S{number}", sources=[{"name": "O"}])
        create(server, f"F{number}", sources=[{"name": "O", "filter_subject": "o.1"}, {"name": "O"}])
        create(server, f"M{number}", mirror={"name": "O"})
        server.wait_last(f"S{number}", 1)
        server.kill()
        server.start()
    for number in range(ROUNDS):
        server.wait_last(f"S{number}", MANY)
        server.wait_last(f"M{number}", MANY)
        server.wait_last(f"F{number}", MANY + MANY // 2)
    server.kill()
    store = Store.open(RealFiles(str(tmp_path / "js" / "jetstream")), StoreOptions())
    held = {entry.name: messages_of(entry.log) for entry in store.catalog.streams.values()}
    store.close()
    expected = [int(message.data) for message in held["O"]]
    for number in range(ROUNDS):
        assert [body(message) for message in held[f"S{number}"]] == expected
        mirrored = [(message.seq, message.ts_ns, int(message.data)) for message in held[f"M{number}"]]
        assert mirrored == [(message.seq, message.ts_ns, int(message.data)) for message in held["O"]]
        filtered = [message for message in held[f"F{number}"] if b" o.1 > " in message.data]
        others = [message for message in held[f"F{number}"] if b" > > " in message.data]
        assert [body(message) for message in filtered] == expected[1::2]
        assert [body(message) for message in others] == expected


def fill(server: OriginServer) -> None:
    """Many messages in the origin, on two subjects."""
    data = b"".join(message_bytes(b"o.%d" % (n % 2), b"", b"%d" % n, b"") for n in range(MANY))
    server.client.send(data)
    server.wait_last("O", MANY)


def messages_of(log: object) -> list[Message]:
    """All messages of a log."""
    assert isinstance(log, MessageReads)
    return log.messages((), 0, 4 * MANY, 1 << 30).messages


def body(message: Message) -> int:
    """The number in the payload."""
    return int(message.data[message.header_bytes :])
