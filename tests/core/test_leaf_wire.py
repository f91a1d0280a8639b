"""The parser for leaf nodes: every operation, every refusal, every cut of the input; over both twins."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import leaf_wire
from edged.core.leaf_wire import (
    LeafError,
    LeafQueueMessage,
    LeafSubscribe,
    LeafUnsubscribe,
    split_delivered,
)
from edged.core.wire import PING, PONG, Broken, Connect, Info
from tests.core.twin_cases import REFERENCE, both, events_of, native

CONTROL_LINE_MAX = 64
PAYLOAD_MAX = 100

UNKNOWN = Broken("Unknown Protocol Operation", "protocol")
SILENT = Broken(None, "protocol")
TOO_LONG = Broken("maximum control line exceeded", "control_line")
TOO_LARGE = Broken("Maximum Payload Violation", "payload")


def parse(twin: SimpleNamespace, chunks: list[bytes], headers: bool = True) -> list[Any]:
    """All events of some input."""
    parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    parser.headers_allowed = headers
    return events_of(parser, chunks)


def queued(
    subject: bytes, reply: bytes | None, header_bytes: int, data: bytes, *queues: bytes
) -> LeafQueueMessage:
    return LeafQueueMessage((subject, reply, header_bytes, data), queues)


CASES: list[tuple[bytes, list[Any]]] = [
    (b"PING\r\n", [PING]),
    (b"pong and more\n", [PONG]),
    (b"+OK\r\nPING\r\n", [PING]),
    (b'CONNECT {"a":1}\r\nPING\r\n', [Connect(b'{"a":1}'), PING]),
    (b"INFO {}\r\nINFO {}\r\n", [Info(b"{}"), Info(b"{}")]),
    # interest
    (b"LS+ a\r\n", [LeafSubscribe(b"a", None, 1)]),
    (b"ls+ \ta.> \n", [LeafSubscribe(b"a.>", None, 1)]),
    (b"LS+ a q 3\r\n", [LeafSubscribe(b"a", b"q", 3)]),
    (b"LS+ a q 0\r\n", [LeafSubscribe(b"a", b"q", 0)]),
    (b"LS- a\r\n", [LeafUnsubscribe(b"a", None)]),
    (b"Ls-  a\tq\n", [LeafUnsubscribe(b"a", b"q")]),
    (
        b"LS+ a\r\nLMSG a 1\r\nx\r\nLS- a\r\n",
        [LeafSubscribe(b"a", None, 1), (b"a", None, -1, b"x"), LeafUnsubscribe(b"a", None)],
    ),
    # messages
    (b"LMSG a 0\r\n\r\n", [(b"a", None, -1, b"")]),
    (b"LMSG a 5\r\nhello\r\n", [(b"a", None, -1, b"hello")]),
    (b"lmSg  a\tr   5 \nhello\r\n", [(b"a", b"r", -1, b"hello")]),
    (b"LMSG a 4\r\n\r\n\r\n\r\n", [(b"a", None, -1, b"\r\n\r\n")]),
    (b"LMSG a 1\r\nx\r\nLMSG b 1\r\ny\r\n", [(b"a", None, -1, b"x"), (b"b", None, -1, b"y")]),
    (b"HMSG a 2 5\r\nhello\r\n", [(b"a", None, 2, b"hello")]),
    (b"hmsg a r 2 5\r\nhello\r\n", [(b"a", b"r", 2, b"hello")]),
    (b"HMSG a 0 1\r\nx\r\n", [(b"a", None, 0, b"x")]),
    (b"LMSG " + b"a" * 62 + b" 1\r\nx\r\n", [(b"a" * 62, None, -1, b"x")]),
    # With two names, a mark is a reply subject.
    (b"LMSG a + 1\r\nx\r\n", [(b"a", b"+", -1, b"x")]),
    (b"HMSG a | 0 1\r\nx\r\n", [(b"a", b"|", 0, b"x")]),
    # messages for queue groups
    (b"LMSG a | q 1\r\nx\r\n", [queued(b"a", None, -1, b"x", b"q")]),
    (b"lmsg a\t|  q p \t1 \nx\r\n", [queued(b"a", None, -1, b"x", b"q", b"p")]),
    (b"LMSG a + r q 1\r\nx\r\n", [queued(b"a", b"r", -1, b"x", b"q")]),
    (b"LMSG a + r q p o n m 1\r\nx\r\n", [queued(b"a", b"r", -1, b"x", b"q", b"p", b"o", b"n", b"m")]),
    (b"LMSG a + + + 1\r\nx\r\n", [queued(b"a", b"+", -1, b"x", b"+")]),
    (b"HMSG a | q 2 5\r\nhello\r\n", [queued(b"a", None, 2, b"hello", b"q")]),
    (b"HMSG a | 5 5 5 5\r\nhello\r\n", [queued(b"a", None, 5, b"hello", b"5", b"5")]),
    (b"hmsg a + r q p 2 5\r\nhello\r\n", [queued(b"a", b"r", 2, b"hello", b"q", b"p")]),
    (
        b"LMSG a | q 13\r\nLMSG a 1\r\nx\r\n\r\nPING\r\n",
        [queued(b"a", None, -1, b"LMSG a 1\r\nx\r\n", b"q"), PING],
    ),
    (
        b"LMSG a 1\r\n1\r\nLMSG a | q 1\r\n2\r\nLMSG a | q 1\r\n3\r\nLMSG a 1\r\n4\r\nPING\r\n",
        [
            (b"a", None, -1, b"1"),
            queued(b"a", None, -1, b"2", b"q"),
            queued(b"a", None, -1, b"3", b"q"),
            (b"a", None, -1, b"4"),
            PING,
        ],
    ),
    # errors of the peer
    (b"-ERR 'x y'\r\nPING\r\n", [LeafError(b"x y"), PING]),
    (b"-err \t'it said 'no' '\n", [LeafError(b"it said 'no' ")]),
    (b'-ERR "x" \r\n', [LeafError(b'"x"')]),
    (b"-ERR x\r\n", [LeafError(b"x")]),
    (b"-ERR\r\n", [LeafError(b"")]),
    # refusals
    (b"PUB a 1\r\nx\r\n", [UNKNOWN]),
    (b"HPUB a 1 1\r\nx\r\n", [UNKNOWN]),
    (b"SUB a 1\r\n", [UNKNOWN]),
    (b"UNSUB 1\r\n", [UNKNOWN]),
    (b"RMSG a 1\r\nx\r\n", [UNKNOWN]),
    (b"PMSG a 1\r\nx\r\n", [UNKNOWN]),
    (b"LUB a 1\r\nx\r\n", [UNKNOWN]),
    (b"LS a\r\n", [UNKNOWN]),
    (b"LS* a\r\n", [UNKNOWN]),
    (b"LS+\r\n", [UNKNOWN]),
    (b"LMSG\r\n", [UNKNOWN]),
    (b"\r\n", [UNKNOWN]),
    (b"PING\r\nX", [PING, UNKNOWN]),
    (b"LS+ \r\n", [SILENT]),
    (b"LS+ a q\r\n", [SILENT]),
    (b"LS+ a q x\r\n", [SILENT]),
    (b"LS+ a q -1\r\n", [SILENT]),
    (b"LS+ a q 9999999999\r\n", [SILENT]),
    (b"LS+ a q 1 1\r\n", [SILENT]),
    (b"LS+ a\rb\r\n", [SILENT]),
    (b"LS- \r\n", [SILENT]),
    (b"LS- a q 1\r\n", [SILENT]),
    (b"LMSG \r\n", [SILENT]),
    (b"LMSG a\r\n", [SILENT]),
    (b"LMSG a -1\r\n", [SILENT]),
    (b"LMSG a 1x\r\n", [SILENT]),
    (b"LMSG a 9999999999\r\n", [SILENT]),
    (b"LMSG a r q 1\r\n", [SILENT]),
    (b"LMSG a + r 1\r\n", [SILENT]),
    (b"LMSG a ++ r q 1\r\n", [SILENT]),
    (b"LMSG a | q x\r\n", [SILENT]),
    (b"LMSG a | q\rq 1\r\nx\r\n", [SILENT]),
    (b"LMSG a\rb 1\r\nx\r\n", [SILENT]),
    (b"HMSG a 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a x 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a 6 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a r q 2 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a + r 2 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a | q 6 5\r\nhello\r\n", [SILENT]),
    (b"HMSG a | q x 5\r\nhello\r\n", [SILENT]),
    (b"LMSG a 101\r\n", [TOO_LARGE]),
    (b"LMSG a | q 101\r\n", [TOO_LARGE]),
    (b"HMSG a + r q 2 999999999\r\n", [TOO_LARGE]),
    (b"LMSG a 1\r\nxy\r\n", [UNKNOWN]),
    (b"LMSG a 1\r\nx\n", [UNKNOWN]),
    (b"LMSG a | q 1\r\nxy\r\n", [UNKNOWN]),
    (b"LMSG a | q 1\r\nx\rz", [UNKNOWN]),
    (b"LS+ " + b"a" * 65 + b"\r\n", [TOO_LONG]),
    (b"LS+ " + b"a" * 70, [TOO_LONG]),
    (b"LS-" + b" " * 70, [TOO_LONG]),
    (b"LMSG " + b"a" * 63 + b" 1", [TOO_LONG]),
    (b"LMSG a |" + b" q" * 31 + b" 1", [TOO_LONG]),
    (b"-ERR '" + b"x" * 70, [TOO_LONG]),
]


@both
@pytest.mark.parametrize(("data", "expected"), CASES)
def test_every_cut_of_the_input_gives_the_same_events(twin: Any, data: bytes, expected: list[Any]) -> None:
    assert parse(twin, [data]) == expected
    assert parse(twin, [data[i : i + 1] for i in range(len(data))]) == expected
    for cut in range(len(data) + 1):
        assert parse(twin, [data[:cut], data[cut:]]) == expected, cut


@both
@pytest.mark.parametrize("data", [b"HMSG a 2 5\r\nhello\r\n", b"HMSG a | q 2 5\r\nhello\r\n"])
def test_headers_that_were_not_negotiated_are_refused_in_silence(twin: Any, data: bytes) -> None:
    assert parse(twin, [data], headers=False) == [SILENT]


@both
def test_nothing_is_parsed_after_a_refusal(twin: Any) -> None:
    assert parse(twin, [b"LS+ a q x\r\nPING\r\n", b"PING\r\n"]) == [SILENT]


@both
def test_feed_stops_behind_a_connect_until_it_is_answered(twin: Any) -> None:
    parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    assert parser.feed(b"CONNECT {}\r\nHMSG a 2 5\r\nhello\r\n") == [Connect(b"{}")]
    parser.headers_allowed = True
    assert [list(batch) for batch in parser.feed(b"")] == [[(b"a", None, 2, b"hello")]]


@both
@pytest.mark.parametrize("line", [b"LMSG a 60000000\r\n", b"LMSG a + r q 60000000\r\n"])
def test_a_claimed_size_sets_no_memory_aside(twin: Any, line: bytes) -> None:
    parser = twin.LeafParser(4096, 1 << 26)
    assert parser.feed(line + b"abc") == []
    assert parser.buffered_bytes < 100


@both
def test_what_is_held_back_is_bounded_by_the_limits(twin: Any) -> None:
    for start in (b"LS+ ", b"LS- a", b"LMSG a 100\r\n", b"LMSG a | q 100\r\n", b"LMSG a |", b"-ERR "):
        parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
        parser.feed(start)
        for _ in range(300):
            parser.feed(b"a")
        assert parser.buffered_bytes <= CONTROL_LINE_MAX + PAYLOAD_MAX, start


@both
def test_a_batch_of_messages_is_one_event(twin: Any) -> None:
    parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    (batch,) = parser.feed(b"LMSG a 1\r\nx\r\n" * 1000)
    assert len(batch) == 1000
    assert list(batch)[999] == (b"a", None, -1, b"x")


@both
def test_a_message_for_queues_ends_a_batch_and_what_is_no_event_does_not(twin: Any) -> None:
    parser = twin.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    plain = b"LMSG a 1\r\nx\r\n"
    first, between, second = parser.feed(plain + b"+OK\r\n" + plain + b"LMSG a | q 1\r\ny\r\n" + plain * 3)
    assert between == queued(b"a", None, -1, b"y", b"q")
    assert (len(list(first)), len(list(second))) == (2, 3)


@both
def test_a_large_message_for_queues_may_come_in_any_number_of_pieces(twin: Any) -> None:
    payload = bytes(range(256)) * 40
    parser = twin.LeafParser(CONTROL_LINE_MAX, len(payload))
    data = b"LMSG a | q %d\r\n%s\r\n" % (len(payload), payload) * 2
    pieces = [data[start : start + 100] for start in range(0, len(data), 100)]
    assert events_of(parser, pieces) == [queued(b"a", None, -1, payload, b"q")] * 2


def test_verbs_are_told_apart_as_early_as_possible() -> None:
    for start in (b"X", b"PU", b"LX", b"LSX", b"HP", b"HMSGX", b"S", b"+X"):
        parser = leaf_wire.LeafParser(CONTROL_LINE_MAX, PAYLOAD_MAX)
        assert parser.feed(start) == [UNKNOWN], start


OPERATIONS = st.sampled_from(
    [data for data, _ in CASES]
    + [b"LMSG a 5 ", b"LMSG a + r q 5\r\n", b"hello\r\n", b"\r", b"\n", b" ", b"\t"]
)


@given(
    st.lists(OPERATIONS | st.binary(max_size=8), max_size=8),
    st.lists(st.integers(0, 300), max_size=6),
    st.booleans(),
)
def test_twins_agree_on_any_input_and_any_cut(parts: list[bytes], cuts: list[int], headers: bool) -> None:
    data = b"".join(parts)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in pairwise(places)]
    expected = parse(REFERENCE, [data], headers)
    assert parse(REFERENCE, chunks, headers) == expected
    assert parse(native(), [data], headers) == expected
    assert parse(native(), chunks, headers) == expected


# --- what JetStream delivers ---

ACK = b"$JS.ACK.ORDERS.C.1.7.7.1700000000000000000.0"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (ACK + b"@orders.new", (ACK, b"orders.new")),
        (ACK + b"@a@b.c", (ACK, b"a@b.c")),
        (b"$JS.ACK.edge.HASH.S.C.1.7.7.17.0.x@a", (b"$JS.ACK.edge.HASH.S.C.1.7.7.17.0.x", b"a")),
        (b"$JS.ACK.S@1.C@2.1.7.7.17.0@a", (b"$JS.ACK.S@1.C@2.1.7.7.17.0", b"a")),
        (ACK, None),
        (ACK + b"@", None),
        (b"$JS.ACK.S@1.C.1.7.7.17.0", None),
        (b"$JS.ACK.S.C.1.7.7.17@a", None),
        (b"$JS.ACKS.S.C.1.7.7.17.0@a", None),
        (b"x" + ACK + b"@a", None),
        (b"_INBOX.a@b", None),
        (b"", None),
    ],
)
def test_the_stored_subject_is_behind_the_first_at_after_the_eighth_dot(
    reply: bytes, expected: tuple[bytes, bytes] | None
) -> None:
    assert split_delivered(reply) == expected


def split_naively(reply: bytes) -> tuple[bytes, bytes] | None:
    dots = 0
    for place, byte in enumerate(reply):
        dots += byte == ord(".")
        if byte == ord("@") and dots >= 8:
            is_delivered = reply.startswith(b"$JS.ACK.") and place + 1 < len(reply)
            return (reply[:place], reply[place + 1 :]) if is_delivered else None
    return None


@given(
    st.sampled_from([b"", b"$JS.ACK", b"$JS.ACK."]),
    st.lists(st.sampled_from([b".", b"@", b"a", b"\n", b"."])),
)
def test_replies_are_split_as_a_walk_over_them_does(start: bytes, parts: list[bytes]) -> None:
    reply = start + b"".join(parts)
    assert split_delivered(reply) == split_naively(reply)
