"""The fan-out to leaf nodes: which lines are written, and that the parser reads them; over both twins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.leaf_wire import LeafQueueMessage, split_delivered
from edged.core.limits import STALL_BYTES
from edged.core.wire import Publish
from tests.core.fanout_bench import Bench
from tests.core.twin_cases import REFERENCE, both, events_of, native

ACK = b"$JS.ACK.ORDERS.C.1.7.7.1700000000000000000.0"
BLOCK = b"NATS/1.0\r\n\r\n"


def leaf_bench(twin: Any, limit: int = 1 << 20, headers: bool = True) -> Bench:
    """A fan-out whose connection 1 is a leaf node."""
    bench = Bench(twin, limit=limit)
    bench.outboxes[1].is_leaf = True
    bench.outboxes[1].headers = headers
    return bench


@both
def test_a_leaf_node_gets_messages_under_their_subject(twin: Any) -> None:
    bench = leaf_bench(twin)
    bench.routes[b"a"] = twin.Route([(bench.subscription(1, b""), None)])
    bench.publish(b"PUB a 5\r\nhello\r\nPUB a r 0\r\n\r\nHPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n")
    bench.publish(b"HPUB a r 12 12\r\nNATS/1.0\r\n\r\n\r\nHPUB a 0 1\r\nx\r\n")
    assert bench.written(1) == (
        b"LMSG a 5\r\nhello\r\nLMSG a r 0\r\n\r\nHMSG a 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
        b"HMSG a r 12 12\r\nNATS/1.0\r\n\r\n\r\nLMSG a 1\r\nx\r\n"
    )
    assert (bench.outboxes[1].out_messages, bench.outboxes[1].out_bytes) == (5, 31)
    assert bench.fanout.dirty == [bench.outboxes[1]]


@both
def test_what_jetstream_delivers_goes_by_the_sid_and_names_its_subject_behind_the_reply(twin: Any) -> None:
    bench = leaf_bench(twin)
    bench.routes[b"orders.new"] = twin.Route([(bench.subscription(1, b"deliver.here"), None)])
    bench.publish(
        b"PUB orders.new %s 5\r\nhello\r\nHPUB orders.new r 12 12\r\n%s\r\n" % (ACK, BLOCK), origin=None
    )
    assert bench.written(1) == (
        b"LMSG deliver.here %s@orders.new 5\r\nhello\r\nHMSG deliver.here r@orders.new 12 12\r\n%s\r\n"
        % (ACK, BLOCK)
    )


@both
def test_what_jetstream_delivers_without_a_reply_goes_by_the_sid(twin: Any) -> None:
    bench = leaf_bench(twin)
    bench.fanout.encode(bench.outboxes[1], b"deliver.here", (b"orders.new", None, -1, b"x"))
    assert bench.written(1) == b"LMSG deliver.here 1\r\nx\r\n"


@both
def test_a_leaf_node_may_see_another_subject(twin: Any) -> None:
    bench = leaf_bench(twin)
    bench.routes[b"a"] = twin.Route([(bench.subscription(1, b""), b"local.name")])
    bench.publish(b"PUB a 1\r\nx\r\n")
    assert bench.written(1) == b"LMSG local.name 1\r\nx\r\n"


@both
def test_headers_are_stripped_for_a_leaf_node_that_cannot_read_them(twin: Any) -> None:
    bench = leaf_bench(twin, headers=False)
    message = (b"a", b"r", 12, BLOCK + b"x")
    bench.fanout.encode(bench.outboxes[1], b"", message)
    bench.fanout.encode_queues(bench.outboxes[1], b"", (b"q",), message)
    assert bench.written(1) == b"LMSG a r 1\r\nx\r\nLMSG a + r q 1\r\nx\r\n"
    assert bench.outboxes[1].out_bytes == 2


@both
def test_queue_groups_are_named_behind_a_mark(twin: Any) -> None:
    bench = leaf_bench(twin)
    outbox = bench.outboxes[1]
    bench.fanout.encode_queues(outbox, b"", (b"q",), (b"a", None, -1, b"x"))
    bench.fanout.encode_queues(outbox, b"", (b"q", b"p"), (b"a", b"r", -1, b"x"))
    bench.fanout.encode_queues(outbox, b"", (b"q", b"p"), (b"a", None, 12, BLOCK))
    bench.fanout.encode_queues(outbox, b"d", (b"q",), (b"a", ACK, 12, BLOCK))
    bench.fanout.encode_queues(outbox, b"d", (b"q",), (b"a", None, -1, b""))
    assert bench.written(1) == (
        b"LMSG a | q 1\r\nx\r\n"
        b"LMSG a + r q p 1\r\nx\r\n"
        b"HMSG a | q p 12 12\r\n%s\r\n"
        b"HMSG d + %s@a q 12 12\r\n%s\r\n"
        b"LMSG d | q 0\r\n\r\n" % (BLOCK, ACK, BLOCK)
    )
    assert (outbox.out_messages, outbox.out_bytes) == (5, 26)
    assert bench.fanout.dirty == [outbox]


@both
@pytest.mark.parametrize(("connection", "queues"), [(0, (b"q",)), (1, ())])
def test_queue_groups_are_not_named_to_clients_and_not_without_any(
    twin: Any, connection: int, queues: tuple[bytes, ...]
) -> None:
    bench = leaf_bench(twin)
    with pytest.raises(AssertionError):
        bench.fanout.encode_queues(bench.outboxes[connection], b"", queues, (b"a", None, -1, b""))


@both
def test_a_leaf_node_over_its_limit_takes_nothing_more_and_says_so(twin: Any) -> None:
    bench = leaf_bench(twin, limit=200)
    for _ in range(2):
        bench.fanout.encode_queues(bench.outboxes[1], b"", (b"q",), (b"a", None, -1, bytes(100)))
    assert bench.written(1) == b"LMSG a | q 100\r\n%s\r\n" % bytes(100)
    assert bench.outboxes[1].overflowed
    assert bench.outboxes[1].out_messages == 1


@both
def test_a_leaf_node_that_publishers_must_wait_for_is_noticed(twin: Any) -> None:
    bench = leaf_bench(twin, limit=2 * STALL_BYTES)
    bench.fanout.encode_queues(bench.outboxes[1], b"", (b"q",), (b"a", None, -1, bytes(STALL_BYTES)))
    assert bench.fanout.crowded


NAMES = st.text(alphabet="aé.+|@$*>5", min_size=1, max_size=12).map(str.encode)
SENT = st.tuples(
    NAMES | st.just(b""),
    st.lists(NAMES, max_size=3).map(tuple),
    st.tuples(NAMES, NAMES | st.none() | st.just(ACK), st.sampled_from([b"", BLOCK]), st.binary(max_size=20)),
)


def message_of(parts: tuple[bytes, bytes | None, bytes, bytes]) -> Publish:
    subject, reply, block, payload = parts
    return (subject, reply, len(block) or -1, block + payload)


def send(bench: Bench, sent: list[Any]) -> None:
    for sid, queues, parts in sent:
        if queues:
            bench.fanout.encode_queues(bench.outboxes[1], sid, queues, message_of(parts))
        else:
            bench.fanout.encode(bench.outboxes[1], sid, message_of(parts))


@both
@given(sent=st.lists(SENT, max_size=6))
def test_what_is_written_is_read_back(twin: Any, sent: list[Any]) -> None:
    bench = leaf_bench(twin)
    send(bench, sent)
    expected: list[Any] = []
    for sid, queues, parts in sent:
        subject, reply, header_bytes, data = message_of(parts)
        if sid and reply is not None:
            if reply == ACK:
                assert split_delivered(b"%s@%s" % (reply, subject)) == (ACK, subject)
            reply = b"%s@%s" % (reply, subject)
        message = (sid or subject, reply, header_bytes, data)
        expected.append(LeafQueueMessage(message, queues) if queues else message)
    parser = twin.LeafParser(4096, 4096)
    parser.headers_allowed = True
    assert events_of(parser, [bench.written(1)]) == expected


@given(st.lists(SENT, max_size=6), st.integers(40, 300), st.booleans())
def test_twins_write_the_same_bytes_and_overflow_at_the_same_message(
    sent: list[Any], limit: int, headers: bool
) -> None:
    results = []
    for twin in (REFERENCE, native()):
        bench = leaf_bench(twin, limit, headers)
        send(bench, sent)
        outbox = bench.outboxes[1]
        assert outbox.pending_bytes <= limit
        results.append((bench.written(1), outbox.overflowed, outbox.out_messages, outbox.out_bytes))
    assert results[0] == results[1]
