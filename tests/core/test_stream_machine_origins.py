"""What a stream machine does with messages from origins: their order, and how far each source is."""

from __future__ import annotations

from typing import Any

import pytest

from edged.core.api_errors import STREAM_SEQUENCE_NOT_MATCH
from edged.core.frames import FOLLOWS, INTERNAL
from edged.core.source_positions import SourcePosition
from edged.core.stream_limits import TOO_MANY_MESSAGES
from edged.core.stream_machine import Duplicate, Outcome, Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.memory_log import MemoryLog

SECOND_NS = 1_000_000_000


def machine(**config: Any) -> StreamMachine:
    return StreamMachine(MemoryLog(), {"name": "S", "sources": [{"name": "O"}], **config})


def append(target: StreamMachine, *messages: Publish, ts_ns: int = SECOND_NS) -> list[Outcome]:
    return list(target.append_run(ts_ns, messages, 0, 0, range(len(messages))))


def sourced(seq: int, flags: int = INTERNAL, fields: bytes = b"") -> Publish:
    block = b"NATS/1.0\r\n%bNats-Stream-Source: O %d > > o.1 ID\r\n\r\n" % (fields, seq)
    return (b"o.1", None, len(block) | flags, block)


def test_nothing_that_follows_a_refused_message_is_taken() -> None:
    target = machine(max_msgs=2, discard="new")
    outcomes = append(target, sourced(1), *(sourced(seq, INTERNAL | FOLLOWS) for seq in (2, 3, 4)))
    assert outcomes == [1, 2, Refused(TOO_MANY_MESSAGES), Refused(STREAM_SEQUENCE_NOT_MATCH)]
    assert target.source_positions == {"O > >": SourcePosition(2, "ID")}


def test_what_follows_a_refused_message_is_refused_though_there_would_be_room() -> None:
    target = machine(max_msg_size=100)
    large = sourced(2, INTERNAL | FOLLOWS, b"A: " + b"a" * 100 + b"\r\n")
    outcomes = append(target, sourced(1), large, sourced(3, INTERNAL | FOLLOWS))
    assert outcomes[0] == 1
    assert outcomes[2] == Refused(STREAM_SEQUENCE_NOT_MATCH)
    assert target.log.last_seq == 1


def test_a_message_that_follows_nothing_is_decided_by_itself() -> None:
    target = machine(max_msg_size=100)
    large = sourced(2, INTERNAL, b"A: " + b"a" * 100 + b"\r\n")
    assert append(target, large, sourced(1), sourced(2, INTERNAL | FOLLOWS))[1:] == [1, 2]


def test_a_duplicate_is_dealt_with_and_does_not_stop_what_follows() -> None:
    target = machine(duplicate_window=60 * SECOND_NS)
    outcomes = append(
        target,
        sourced(1, INTERNAL, b"Nats-Msg-Id: a\r\n"),
        sourced(5, INTERNAL | FOLLOWS, b"Nats-Msg-Id: a\r\n"),
    )
    assert outcomes == [1, Duplicate(1)]
    assert target.source_positions == {"O > >": SourcePosition(5, "ID")}
    assert append(target, sourced(6)) == [2]


def test_a_message_without_interest_is_dealt_with_too() -> None:
    target = machine(retention="interest")
    assert append(target, sourced(9)) == [1]
    assert target.log.message_count == 0
    assert target.source_positions == {"O > >": SourcePosition(9, "ID")}


def test_a_client_cannot_say_how_far_a_source_is() -> None:
    target = machine(duplicate_window=60 * SECOND_NS)
    append(target, (b"o.1", None, 33, b"NATS/1.0\r\nNats-Msg-Id: known\r\n\r\n "[:33]))
    (outcome,) = append(target, sourced(9, 0, b"Nats-Msg-Id: known\r\n"))
    assert isinstance(outcome, Refused)
    assert target.source_positions == {}


@pytest.mark.parametrize("sources", [[{"name": "O"}], [{"name": "O"}, {"name": "P"}]])
def test_positions_are_in_a_snapshot(sources: list[dict[str, str]]) -> None:
    target = machine(sources=sources)
    append(target, sourced(3))
    again = machine(sources=sources)
    again.restore(target.snapshot())
    assert again.source_positions == target.source_positions == {"O > >": SourcePosition(3, "ID")}
