"""The wire parser: every operation, every refusal, every cut of the input; over both twins."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import wire
from edged.core.wire import PING, PONG, Broken, Connect, Info, Subscribe, Unsubscribe
from tests.core.twin_cases import REFERENCE, both, events_of, native

CONTROL_LINE_MAX = 64
PAYLOAD_MAX = 100

UNKNOWN = Broken("Unknown Protocol Operation", "protocol")
SILENT = Broken(None, "protocol")
TOO_LONG = Broken("maximum control line exceeded", "control_line")
TOO_LARGE = Broken("Maximum Payload Violation", "payload")


def parse(twin: SimpleNamespace, chunks: list[bytes], headers: bool = True) -> list[Any]:
    """All events of some input."""
    parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    parser.headers_allowed = headers
    return events_of(parser, chunks)


CASES: list[tuple[bytes, list[Any]]] = [
    (b"PING\r\n", [PING]),
    (b"ping\n", [PING]),
    (b"PING and more\r\nPONG\r\n", [PING, PONG]),
    (b"+OK\r\nPING\r\n", [PING]),
    (b'CONNECT {"a":1}\r\nPING\r\n', [Connect(b'{"a":1}'), PING]),
    (b"CONNECT{}\r\n", [Connect(b"{}")]),
    (b"CONNECT\r\n", [Connect(b"")]),
    (b"INFO {}\r\n", [Info(b"{}")]),
    (
        b"INFO 7 workers\r\nPUB a 1\r\nx\r\nINFO 8\r\n",
        [Info(b"7 workers"), (b"a", None, -1, b"x"), Info(b"8")],
    ),
    (b"info  7 \n", [Info(b"7 ")]),
    (b"INFO 7\r\r\n", [Info(b"7\r")]),
    (b"INFO \r\n", [Info(b"")]),
    (b"INFO " + b"a" * 64 + b"\r\n", [Info(b"a" * 64)]),
    (b"INFO " + b"a" * 65 + b"\r\n", [TOO_LONG]),
    (b"SUB a 1\r\n", [Subscribe(b"a", None, b"1")]),
    (b"sub a.*\tq  9\n", [Subscribe(b"a.*", b"q", b"9")]),
    (b"UNSUB 1\r\n", [Unsubscribe(b"1", 0)]),
    (b"UNSUB 1 5\r\n", [Unsubscribe(b"1", 5)]),
    (b"UNSUB 1 x\r\n", [Unsubscribe(b"1", 0)]),
    (b"UNSUB 1 9223372036854775807\r\n", [Unsubscribe(b"1", 0)]),
    (b"PUB a 0\r\n\r\n", [(b"a", None, -1, b"")]),
    (b"PUB a 5\r\nhello\r\n", [(b"a", None, -1, b"hello")]),
    (b"pUb  a\tr   5 \r\nhello\r\n", [(b"a", b"r", -1, b"hello")]),
    (b"PUB a 5 5\nhello\r\n", [(b"a", b"5", -1, b"hello")]),
    (b"PUB a 4\r\n\r\n\r\n\r\n", [(b"a", None, -1, b"\r\n\r\n")]),
    (b"PUB a 1\r\nx\r\nPUB b 1\r\ny\r\n", [(b"a", None, -1, b"x"), (b"b", None, -1, b"y")]),
    (b"HPUB a 2 5\r\nhello\r\n", [(b"a", None, 2, b"hello")]),
    (b"hpub a r 2 5\r\nhello\r\n", [(b"a", b"r", 2, b"hello")]),
    (b"HPUB a 0 1\r\nx\r\n", [(b"a", None, 0, b"x")]),
    (b"PUB \xff\xfe 1\r\nx\r\n", [(b"\xff\xfe", None, -1, b"x")]),
    (b"PUB a\x00b 1\r\nx\r\n", [(b"a\x00b", None, -1, b"x")]),
    # refusals
    (b"BAD\r\n", [UNKNOWN]),
    (b"GET / HTTP/1.1\r\n", [UNKNOWN]),
    (b"\r\n", [UNKNOWN]),
    (b"PING\r\nX", [PING, UNKNOWN]),
    (b"PUB\r\n", [UNKNOWN]),
    (b"PUBLISH a 1\r\n", [UNKNOWN]),
    (b"PUB \r\n", [SILENT]),
    (b"PUB a\r\n", [SILENT]),
    (b"PUB a b c d e f 1\r\n", [SILENT]),
    (b"PUB a -1\r\n", [SILENT]),
    (b"PUB a +1\r\n", [SILENT]),
    (b"PUB a 1x\r\n", [SILENT]),
    (b"PUB a 99999999999999999999\r\n", [SILENT]),
    (b"PUB o 680444720440\r\n", [SILENT]),
    (b"PUB a 101\r\n", [TOO_LARGE]),
    (b"PUB a 999999999\r\n", [TOO_LARGE]),
    (b"PUB a 1\r\nxy\r\n", [UNKNOWN]),
    (b"PUB a 1\r\nx\n", [UNKNOWN]),
    (b"PUB a 1\r\nx\rz", [UNKNOWN]),
    (b"PUB a\rb 1\r\nx\r\n", [SILENT]),
    (b"HPUB a 6 5\r\nhello\r\n", [SILENT]),
    (b"HPUB a 5\r\nhello\r\n", [SILENT]),
    (b"HPUB a x 5\r\nhello\r\n", [SILENT]),
    (b"HPUB a 2 101\r\n", [TOO_LARGE]),
    (b"SUB a\r\n", [SILENT]),
    (b"SUB a b c d\r\n", [SILENT]),
    (b"UNSUB\r\n", [UNKNOWN]),
    (b"UNSUB 1 2 3\r\n", [SILENT]),
    (b"-ERR 'x'\r\n", [Broken(None, "peer_error")]),
    (b"MSG a 1 1\r\nx\r\n", [UNKNOWN]),
    (b"SUB " + b"a" * 70 + b" 1\r\n", [TOO_LONG]),
    (b"SUB " + b"a" * 70, [TOO_LONG]),
    (b"CONNECT " + b"{" * 65 + b"\r\n", [TOO_LONG]),
    (b"CONNECT" + b" " * 70, [TOO_LONG]),
    (b"PUB " + b"a" * 63 + b" 1", [TOO_LONG]),
    (b"PUB " + b"a" * 62 + b" 1\r\nx\r\n", [(b"a" * 62, None, -1, b"x")]),
]


@both
@pytest.mark.parametrize(("data", "expected"), CASES)
def test_every_cut_of_the_input_gives_the_same_events(twin: Any, data: bytes, expected: list[Any]) -> None:
    assert parse(twin, [data]) == expected
    assert parse(twin, [data[i : i + 1] for i in range(len(data))]) == expected
    for cut in range(len(data) + 1):
        assert parse(twin, [data[:cut], data[cut:]]) == expected, cut


@both
def test_headers_that_were_not_negotiated_are_refused_in_silence(twin: Any) -> None:
    assert parse(twin, [b"HPUB a 2 5\r\nhello\r\n"], headers=False) == [SILENT]


@both
def test_nothing_is_parsed_after_a_refusal(twin: Any) -> None:
    assert parse(twin, [b"BAD\r\nPING\r\n", b"PING\r\n"]) == [UNKNOWN]


@both
def test_feed_stops_behind_a_connect_until_it_is_answered(twin: Any) -> None:
    parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    assert parser.feed(b"CONNECT {}\r\nHPUB a 2 5\r\nhello\r\n") == [Connect(b"{}")]
    parser.headers_allowed = True
    assert [list(batch) for batch in parser.feed(b"")] == [[(b"a", None, 2, b"hello")]]


@both
def test_a_claimed_size_sets_no_memory_aside(twin: Any) -> None:
    parser = twin.Parser(4096, 1 << 26)
    assert parser.feed(b"PUB a 60000000\r\nabc") == []
    assert parser.buffered_bytes < 100


@both
def test_filler_behind_a_ping_is_not_kept(twin: Any) -> None:
    parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    parser.feed(b"PING")
    for _ in range(100):
        assert parser.feed(b"x" * 1000) == []
        assert parser.buffered_bytes <= len(b"PING")
    assert parser.feed(b"\n") == [PING]


@both
def test_what_is_held_back_is_bounded_by_the_limits(twin: Any) -> None:
    for start in (b"CONNECT ", b"SUB a", b"PUB a 100\r\n", b"INFO ", b"UNSUB ", b"-ERR "):
        parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
        parser.feed(start)
        for _ in range(300):
            parser.feed(b"a")
        assert parser.buffered_bytes <= CONTROL_LINE_MAX + PAYLOAD_MAX, start


@both
def test_a_batch_of_publishes_is_one_event(twin: Any) -> None:
    parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    (batch,) = parser.feed(b"PUB a 1\r\nx\r\n" * 1000)
    assert len(batch) == 1000
    assert list(batch)[999] == (b"a", None, -1, b"x")


@both
def test_what_is_no_event_does_not_end_a_batch(twin: Any) -> None:
    parser = twin.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    (batch,) = parser.feed(b"PUB a 1\r\nx\r\n+OK\r\nPUB a 1\r\ny\r\n")
    assert [message[3] for message in batch] == [b"x", b"y"]


def test_a_native_batch_may_not_be_read_after_the_next_feed() -> None:
    parser = native().Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
    (batch,) = parser.feed(b"PUB a 1\r\nx\r\n")
    parser.feed(b"PUB a 1\r\ny\r\n")
    with pytest.raises(AssertionError):
        list(batch)


OPERATIONS = st.sampled_from(
    [data for data, _ in CASES] + [b"PUB a 5 ", b"hello\r\n", b"\r", b"\n", b" ", b"\t"]
)


@given(st.lists(OPERATIONS | st.binary(max_size=8), max_size=8), st.lists(st.integers(0, 300), max_size=6))
def test_twins_agree_on_any_input_and_any_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    chunks = [data[a:b] for a, b in pairwise(places)]
    expected = parse(REFERENCE, [data])
    assert parse(REFERENCE, chunks) == expected
    assert parse(native(), [data]) == expected
    assert parse(native(), chunks) == expected


def test_verbs_are_told_apart_as_early_as_possible() -> None:
    for start in (b"X", b"PX", b"SUX", b"HPUBX", b"CONX", b"+X"):
        parser = wire.Parser(CONTROL_LINE_MAX, PAYLOAD_MAX)
        assert parser.feed(start) == [UNKNOWN], start
