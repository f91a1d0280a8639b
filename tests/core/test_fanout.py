"""The fan-out: who gets which bytes, and what is reported to whom; over both twins."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edged.core.limits import STALL_BYTES
from edged.core.message import Message
from tests.core.fanout_bench import Bench
from tests.core.twin_cases import REFERENCE, both, native


@both
def test_each_subscriber_gets_the_message_with_its_own_sid(twin: Any) -> None:
    bench = Bench(twin)
    bench.routes[b"a"] = twin.Route(
        [(bench.subscription(1, b"x"), None), (bench.subscription(2, b"yy"), None)]
    )
    bench.publish(b"PUB a 5\r\nhello\r\nPUB a r 0\r\n\r\n")
    assert bench.written(1) == b"MSG a x 5\r\nhello\r\nMSG a x r 0\r\n\r\n"
    assert bench.written(2) == b"MSG a yy 5\r\nhello\r\nMSG a yy r 0\r\n\r\n"
    assert bench.fanout.dirty == [bench.outboxes[1], bench.outboxes[2]]
    assert bench.outboxes[1].out_messages == 2
    assert bench.outboxes[1].out_bytes == 5
    assert (bench.outboxes[0].in_messages, bench.outboxes[0].in_bytes) == (2, 5)


@both
def test_headers_go_to_those_who_can_read_them_and_are_stripped_for_others(twin: Any) -> None:
    bench = Bench(twin)
    bench.outboxes[1].headers = True
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), None), (bench.subscription(2), None)])
    bench.publish(b"HPUB a r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n")
    assert bench.written(1) == b"HMSG a 1 r 12 17\r\nNATS/1.0\r\n\r\nhello\r\n"
    assert bench.written(2) == b"MSG a 1 r 5\r\nhello\r\n"
    assert bench.outboxes[2].out_bytes == 5


@both
def test_a_recipient_may_see_another_subject(twin: Any) -> None:
    bench = Bench(twin)
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), b"local.name")])
    bench.publish(b"PUB a 1\r\nx\r\n")
    assert bench.written(1) == b"MSG local.name 1 1\r\nx\r\n"


@both
def test_a_connection_without_echo_does_not_hear_itself(twin: Any) -> None:
    bench = Bench(twin)
    bench.outboxes[0].echo = False
    bench.routes[b"a"] = twin.Route([(bench.subscription(0), None), (bench.subscription(1), None)])
    bench.publish(b"PUB a 1\r\nx\r\n")
    assert bench.written(0) == b""
    assert bench.written(1) == b"MSG a 1 1\r\nx\r\n"


@both
def test_one_member_of_a_queue_gets_each_message_and_all_get_some(twin: Any) -> None:
    bench = Bench(twin, connections=4)
    members = [(bench.subscription(i, queue=b"q"), None) for i in range(1, 4)]
    bench.routes[b"a"] = twin.Route((), [members])
    bench.publish(b"PUB a 1\r\nx\r\n" * 300)
    counts = [bench.outboxes[i].out_messages for i in range(1, 4)]
    assert sum(counts) == 300
    assert min(counts) > 50


@both
def test_a_queue_passes_over_a_member_that_cannot_take_it(twin: Any) -> None:
    bench = Bench(twin)
    closed = bench.subscription(1)
    closed.closed = True
    bench.routes[b"a"] = twin.Route((), [[(closed, None), (bench.subscription(2), None)]])
    bench.publish(b"PUB a 1\r\nx\r\n" * 20)
    assert bench.outboxes[2].out_messages == 20


@both
def test_the_last_message_of_a_limited_subscription_is_delivered_then_it_is_closed(twin: Any) -> None:
    bench = Bench(twin)
    subscription = bench.subscription(1)
    subscription.deliveries_max = 2
    bench.routes[b"a"] = twin.Route([(subscription, None)])
    bench.publish(b"PUB a 1\r\nx\r\n" * 5)
    assert bench.outboxes[1].out_messages == 2
    assert bench.owners[1].told == [("exhausted", b"1")]
    assert subscription.closed


@both
def test_a_request_that_reaches_nobody_is_reported_if_the_sender_wants_to_know(twin: Any) -> None:
    bench = Bench(twin)
    bench.publish(b"PUB a r 0\r\n\r\n")
    assert bench.owners[0].told == []
    bench.outboxes[0].wants_no_responders = True
    bench.publish(b"PUB a r 0\r\n\r\nPUB a 0\r\n\r\n")
    assert bench.owners[0].told == [("no responders", b"a", b"r")]


@both
def test_reply_subjects_of_servers_are_asked_about_and_dropped_when_refused(twin: Any) -> None:
    for reply in (b"_R_.x", b"$JS.ACK.s.c", b"_GR_.x.y", b"$GR.x"):
        bench = Bench(twin)
        bench.routes[b"a"] = twin.Route([(bench.subscription(1), None)])
        bench.publish(b"PUB a %s 1\r\nx\r\nPUB a _INBOX.1 1\r\ny\r\n" % reply)
        assert bench.owners[0].told == [("reserved", reply)]
        assert bench.written(1) == b"MSG a 1 _INBOX.1 1\r\ny\r\n"


@both
def test_delivered_replies_are_reported_to_connections_that_track_them(twin: Any) -> None:
    bench = Bench(twin)
    bench.outboxes[1].tracks_replies = True
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), None)])
    bench.publish(b"PUB a r 0\r\n\r\nPUB a 0\r\n\r\n")
    assert bench.owners[1].told == [("reply delivered", b"r")]


@both
def test_an_outbox_over_its_limit_takes_nothing_more_and_says_so(twin: Any) -> None:
    bench = Bench(twin, limit=400)
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), None)])
    bench.publish(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n")
    assert not bench.outboxes[1].overflowed
    bench.publish((b"PUB a 100\r\n" + b"x" * 100 + b"\r\n") * 10)
    assert bench.outboxes[1].overflowed
    assert bench.outboxes[1].pending_bytes <= 400


@both
def test_an_outbox_that_grows_beyond_what_publishers_wait_for_is_noticed(twin: Any) -> None:
    bench = Bench(twin, limit=2 * STALL_BYTES)
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), None)])
    publish = b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n"
    bench.publish(publish * (STALL_BYTES // 100_100))
    assert not bench.fanout.crowded
    bench.publish(publish * 2)
    assert bench.fanout.crowded
    bench.fanout.crowded = False
    bench.outboxes[1].consume(bench.outboxes[1].pending_bytes)
    bench.publish(publish)
    assert not bench.fanout.crowded


@both
def test_a_handler_gets_all_its_messages_of_a_batch_at_once(twin: Any) -> None:
    bench = Bench(twin)
    calls: list[Any] = []
    inside = twin.Subscription(b"a", None, b"", None, lambda *arguments: calls.append(arguments))
    bench.routes[b"a"] = twin.Route([(inside, None)])
    bench.publish(b"PUB a r 1\r\nx\r\nHPUB a 12 13\r\nNATS/1.0\r\n\r\ny\r\n")
    message = (b"a", None, 12, b"NATS/1.0\r\n\r\ny")
    assert calls == [(inside, [(b"a", b"r", -1, b"x"), message], bench.outboxes[0])]
    assert inside.delivered == 2


@both
def test_subscriptions_that_gather_together_keep_the_order_of_their_messages(twin: Any) -> None:
    bench = Bench(twin)
    calls: list[Any] = []

    def handler(subscription: Any, messages: list[Any], origin: Any) -> None:
        calls.append((subscription.subject, [message[3] for message in messages]))

    first = twin.Subscription(b"a", None, b"", None, handler)
    second = twin.Subscription(b"b", None, b"", None, handler, first)
    bench.routes[b"a"] = twin.Route([(first, None)])
    bench.routes[b"b"] = twin.Route([(second, None)])
    bench.publish(b"PUB b 1\r\n1\r\nPUB a 1\r\n2\r\nPUB b 1\r\n3\r\n")
    bench.publish(b"PUB a 1\r\n4\r\n")
    assert calls == [(b"a", [b"1", b"2", b"3"]), (b"a", [b"4"])]
    assert (first.delivered, second.delivered) == (2, 2)


class Replies:
    """The reply subjects of an account; those below `_I.` have one route, but for literal subscriptions."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.routes: dict[bytes, Any] = {}
        self.below: dict[bytes, Any] = {}
        self.literals: dict[bytes, object] = {}
        self.resolved: list[bytes] = []

    def resolve(self, subject: bytes) -> Any:
        self.resolved.append(subject)
        twin, prefix = self.bench.twin, subject[: subject.rfind(b".") + 1]
        if subject in self.literals:
            return twin.Route([(self.bench.subscription(2, b"literal"), None)])
        if prefix == b"_I.":
            route = twin.Route([(self.bench.subscription(1, b"all"), None)])
            return self.below.setdefault(prefix, route)
        return twin.Route()


@both
def test_messages_are_acknowledged_where_they_ask_for_it(twin: Any) -> None:
    bench = Bench(twin)
    replies = Replies(bench)
    replies.literals[b"_I.c"] = 0
    wanted = (b"_I.a", None, b"_I.b", b"_I.c", b"_I.d", b"_I.d.e", b"nobody")
    messages = [(b"s", reply, -1, b"") for reply in wanted]
    bench.fanout.acknowledge(messages, 9, b'{"seq":', replies)
    sent = b"".join(
        b"MSG _I.%s all %d\r\n%s\r\n" % line
        for line in (
            (b"a", 9, b'{"seq":9}'),
            (b"b", 10, b'{"seq":11}'),
            (b"d", 10, b'{"seq":13}'),
        )
    )
    assert bytes(bench.outboxes[1].peek()) == sent
    assert bytes(bench.outboxes[2].peek()) == b'MSG _I.c literal 10\r\n{"seq":12}\r\n'
    assert replies.resolved[0] == b"_I.a" and replies.resolved[-2:] == [b"_I.d.e", b"nobody"]


@both
def test_an_acknowledgement_takes_a_special_route_too(twin: Any) -> None:
    bench = Bench(twin)
    replies = Replies(bench)
    seen: list[Any] = []
    replies.routes[b"r"] = twin.Route(special=lambda *arguments: seen.append(arguments) or True)
    bench.fanout.acknowledge([(b"s", b"r", -1, b"")], 5, b"{", replies)
    assert seen == [(None, (b"r", None, -1, b"{5}"))]


@both
def test_messages_with_headers_or_of_fast_batches_are_not_plain(twin: Any) -> None:
    plain = [(b"s", None, -1, b"x"), (b"s", b"r", 0, b""), (b"s", b"I", -1, b"")]
    assert twin.are_plain(plain) and twin.are_plain([])
    assert not twin.are_plain([*plain, (b"s", b"p.id.9.ok.1.0.$FI", -1, b"")])
    assert not twin.are_plain([*plain, (b"s", None, 12, b"NATS/1.0\r\n\r\n")])


@both
def test_stored_messages_are_handed_out_with_the_subjects_to_acknowledge_them(twin: Any) -> None:
    bench = Bench(twin)
    route = twin.Route([(bench.subscription(1, b"7"), None)])
    bench.outboxes[1].headers = True
    block = b"NATS/1.0\r\n\r\n"
    messages = [
        Message(5, 1_700_000_000_000_000_000, b"s.a", 0, b"one"),
        Message(2**64 - 1, 2, b"s.b", len(block), block + b"two"),
    ]
    assert bench.fanout.hand_out(route, messages, b"$JS.ACK.S.C.", 9, 1) == 2
    assert bytes(bench.outboxes[1].peek()) == (
        b"MSG s.a 7 $JS.ACK.S.C.1.5.9.1700000000000000000.1 3\r\none\r\n"
        b"HMSG s.b 7 $JS.ACK.S.C.1.18446744073709551615.10.2.0 12 15\r\n" + block + b"two\r\n"
    )
    assert bench.fanout.hand_out(twin.Route(), messages, b"p.", 1, 0) == 0


@both
def test_a_special_route_decides_for_itself_message_by_message(twin: Any) -> None:
    bench = Bench(twin)
    seen: list[Any] = []
    bench.routes[b"a"] = twin.Route(special=lambda *arguments: seen.append(arguments) or True)
    bench.publish(b"PUB a 1\r\nx\r\nPUB a r 1\r\ny\r\n")
    source = bench.outboxes[0]
    assert seen == [(source, (b"a", None, -1, b"x")), (source, (b"a", b"r", -1, b"y"))]


@both
def test_a_route_that_changes_in_the_middle_of_a_batch_is_used_from_then_on(twin: Any) -> None:
    bench = Bench(twin)
    subscription = bench.subscription(1)
    subscription.deliveries_max = 1
    bench.routes[b"a"] = twin.Route([(subscription, None)])
    bench.owners[1].subscription_exhausted = (  # type: ignore[method-assign]
        lambda exhausted: bench.routes.update({b"a": twin.Route([(bench.subscription(2), None)])})
    )
    bench.publish(b"PUB a 1\r\nx\r\nPUB a 1\r\ny\r\n")
    assert bench.written(2) == b"MSG a 1 1\r\ny\r\n"


@both
def test_bytes_that_were_written_leave_the_outbox(twin: Any) -> None:
    bench = Bench(twin)
    outbox = bench.outboxes[1]
    outbox.append(b"PONG\r\n")
    outbox.append(b"+OK\r\n")
    outbox.consume(3)
    assert bytes(outbox.peek()) == b"G\r\n+OK\r\n"
    outbox.consume(outbox.pending_bytes)
    assert bytes(outbox.peek()) == b""
    outbox.append(b"x")
    outbox.discard()
    assert outbox.pending_bytes == 0


MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c.d"]),
        st.sampled_from([None, b"r", b"_INBOX.x", b"_R_.1"]),
        st.binary(max_size=20),
        st.booleans(),
    ),
    max_size=12,
)


@given(MESSAGES, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 3), st.integers(60, 300))
def test_twins_write_the_same_bytes(messages: Any, plain: list[int], limit_at: int, limit: int) -> None:
    results = []
    for twin in (REFERENCE, native()):
        bench = Bench(twin, connections=4, limit=limit)
        bench.outboxes[2].headers = True
        bench.outboxes[0].wants_no_responders = True
        bench.outboxes[0].echo = False
        limited = bench.subscription(limit_at, b"m")
        limited.deliveries_max = 3
        recipients = [(bench.subscription(i, b"%d" % place), None) for place, i in enumerate(plain)]
        queue = [(bench.subscription(i, b"q%d" % i, b"q"), b"seen") for i in range(3)]
        bench.routes[b"a"] = twin.Route(recipients, [queue])
        bench.routes[b"b"] = twin.Route([(limited, None)])
        data = b""
        for subject, reply, payload, has_header in messages:
            block = b"NATS/1.0\r\n\r\n" if has_header else b""
            sizes = b"%d %d" % (len(block), len(block + payload)) if has_header else b"%d" % len(payload)
            verb = b"HPUB" if has_header else b"PUB"
            reply_part = b" " + reply if reply is not None else b""
            data += b"%s %s%s %s\r\n%s%s\r\n" % (verb, subject, reply_part, sizes, block, payload)
        bench.publish(data)
        told = [owner.told for owner in bench.owners]
        counts = [
            (o.out_messages, o.out_bytes, o.in_messages, o.in_bytes, o.overflowed) for o in bench.outboxes
        ]
        results.append((told, counts, [bench.written(i) for i in range(4)], bench.missed))
    assert results[0] == results[1]


@both
def test_to_another_node_publishes_are_written_and_an_address_when_it_changes(twin: Any) -> None:
    bench = Bench(twin)
    bench.outboxes[1].is_route = bench.outboxes[1].headers = True
    listeners, members = bench.subscription(1, b"7"), bench.subscription(1, b"7 workers")
    bench.routes[b"a"] = twin.Route([(listeners, None)])
    bench.routes[b"b"] = twin.Route([(listeners, None)], [[(members, b"local")]])
    bench.publish(b"PUB a 1\r\nx\r\nPUB a r 1\r\ny\r\nHPUB b r 12 13\r\nNATS/1.0\r\n\r\nz\r\nPUB a 0\r\n\r\n")
    assert bench.written(1) == (
        b"INFO 7\r\nPUB a 1\r\nx\r\nPUB a r 1\r\ny\r\n"
        b"HPUB b r 12 13\r\nNATS/1.0\r\n\r\nz\r\n"
        b"INFO 7 workers\r\nHPUB local r 12 13\r\nNATS/1.0\r\n\r\nz\r\n"
        b"INFO 7\r\nPUB a 0\r\n\r\n"
    )
    assert bench.outboxes[1].out_messages == 5


@both
def test_what_does_not_fit_on_its_way_to_another_node_is_not_written(twin: Any) -> None:
    bench = Bench(twin, limit=200)
    bench.outboxes[1].is_route = True
    bench.routes[b"a"] = twin.Route([(bench.subscription(1, b"7"), None)])
    bench.publish(b"PUB a 100\r\n%s\r\n" % bytes(100) * 2)
    assert bench.written(1) == b"INFO 7\r\nPUB a 100\r\n%s\r\n" % bytes(100)
    assert bench.outboxes[1].overflowed


@both
def test_another_node_may_name_reply_subjects_of_servers(twin: Any) -> None:
    bench = Bench(twin)
    bench.outboxes[0].is_route = True
    bench.routes[b"a"] = twin.Route([(bench.subscription(1), None)])
    bench.publish(b"PUB a _R_.x.y 1\r\nx\r\nPUB a $JS.ACK.s 1\r\ny\r\n")
    assert bench.written(1) == b"MSG a 1 _R_.x.y 1\r\nx\r\nMSG a 1 $JS.ACK.s 1\r\ny\r\n"
    assert bench.owners[0].told == []
