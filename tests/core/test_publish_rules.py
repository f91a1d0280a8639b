"""Publish rules: each check, which comes first, and how headers and TTLs are read."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from edged.core import headers
from edged.core.frames import INTERNAL
from edged.core.message_ttl import NEVER_S, UNSET_S, delete_marker_headers, is_delete_marker, parse_ttl_s
from edged.core.publish_headers import NO_FIELDS, fields_of, number_of
from edged.core.source_positions import SourcePosition, read_position
from edged.core.stream_machine import Duplicate, Outcome, Refused, Stored, StreamMachine
from edged.store.memory_log import MemoryLog

NOW_NS = 1_800_000_000 * 10**9
Fields = list[tuple[str, str]]


def publish(
    machine: StreamMachine, subject: str, fields: Fields, payload: bytes = b"", flags: int = 0
) -> Outcome:
    block = headers.encode((key.encode(), value.encode()) for key, value in fields) if fields else b""
    outcome = machine.append(NOW_NS, subject.encode(), len(block) | flags, block + payload, (0, 0, 0))
    assert outcome is not None
    return outcome


def machine_of(**config: Any) -> StreamMachine:
    return StreamMachine(MemoryLog(), {"name": "S", "subjects": ["s.>"], **config})


def code(outcome: Outcome) -> int | str:
    if isinstance(outcome, Refused):
        return outcome.error.err_code
    return "duplicate" if isinstance(outcome, Duplicate) else "taken"


# In the order in which they are looked at; a payload stands for a message that is too large.
FAULTS: list[tuple[Fields, bytes, int | str]] = [
    ([], bytes(200_000), 10054),
    ([("Other", "x" * 65_600)], b"", 10097),
    ([("Nats-Incr", "x")], b"", 10171),
    ([("Nats-Expected-Stream", "T")], b"", 10060),
    ([("Nats-TTL", "1h")], b"", 10166),
    ([("Nats-Expected-Last-Subject-Sequence", "77")], b"", 10071),
    ([("Nats-Expected-Last-Sequence", "88")], b"", 10071),
    ([("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "s.z")], b"", 10188),
    ([("Nats-Scheduler", "s.z")], b"", 10212),
    ([("Nats-Stream-Source", "T 1 > > a")], b"", 10227),
    ([("Nats-Msg-Id", "known")], b"", "duplicate"),
    ([("Nats-Expected-Last-Msg-Id", "unknown")], b"", 10070),
    ([("Nats-Rollup", "sub")], b"", 10111),
    ([("Nats-TTL", "x")], b"", 10165),
    ([], b"", 10077),
]


def full_machine(**config: Any) -> StreamMachine:
    machine = machine_of(max_msg_size=100_000, **config)
    publish(machine, "s.a", [("Nats-Msg-Id", "known")])
    publish(machine, "s.a", [])
    machine.configure({"name": "S", "max_msg_size": 100_000, "max_msgs": 2, "discard": "new", **config})
    return machine


@pytest.mark.parametrize(("first", "second"), list(combinations(range(len(FAULTS)), 2)))
def test_of_two_faults_the_first_in_order_is_named(first: int, second: int) -> None:
    fields = FAULTS[first][0] + FAULTS[second][0]
    if [key for key, _ in fields].count("Nats-TTL") > 1:
        fields.pop()
    machine = full_machine()
    before = machine.snapshot(), machine.log.last_seq
    outcome = publish(machine, "s.b", fields, FAULTS[first][1] + FAULTS[second][1])
    assert code(outcome) == FAULTS[first][2]
    assert (machine.snapshot(), machine.log.last_seq) == before


def test_sealed_stream_takes_nothing_and_says_so_before_anything_else() -> None:
    machine = full_machine(sealed=True)
    for fields, payload, _ in FAULTS:
        assert code(publish(machine, "s.b", fields, payload)) == 10109


@pytest.mark.parametrize(
    ("config", "fields", "expected"),
    [
        ({}, [("Nats-Expected-Last-Subject-Sequence-Subject", "s.a")], 10193),
        ({}, [("Nats-Expected-Last-Subject-Sequence", "2")], "taken"),
        ({}, [("Nats-Expected-Last-Subject-Sequence", "x")], 10071),
        (
            {},
            [
                ("Nats-Expected-Last-Subject-Sequence", "3"),
                ("Nats-Expected-Last-Subject-Sequence-Subject", "s.>"),
            ],
            "taken",
        ),
        ({}, [("Nats-Expected-Last-Sequence", "3")], "taken"),
        ({}, [("Nats-Expected-Last-Sequence", "")], "taken"),
        ({}, [("Nats-Expected-Last-Msg-Id", "last")], "taken"),
        ({}, [("Nats-Incr", "1")], 10168),
        ({"allow_msg_counter": True}, [], 10169),
        ({"allow_msg_counter": True}, [("Nats-Incr", "+1")], "taken"),
        ({"allow_msg_counter": True}, [("Nats-Incr", "1"), ("Nats-Rollup", "sub")], 10171),
        ({"allow_msg_counter": True}, [("Nats-Incr", "1"), ("Nats-Expected-Last-Sequence", "3")], 10171),
        ({"allow_msg_ttl": True}, [("Nats-TTL", "1s")], "taken"),
        ({"allow_msg_ttl": True}, [("Nats-TTL", "0")], 10165),
        ({"allow_rollup_hdrs": True}, [("Nats-Rollup", "ALL")], "taken"),
        ({"allow_rollup_hdrs": True, "deny_purge": True}, [("Nats-Rollup", "sub")], 10111),
        ({"allow_rollup_hdrs": True}, [("Nats-Rollup", "x")], 10111),
        ({"retention": "interest", "max_msgs": 1, "discard": "new"}, [("Nats-TTL", "x")], "taken"),
    ],
)
def test_message_is_taken_or_refused(config: dict[str, Any], fields: Fields, expected: int | str) -> None:
    machine = machine_of()
    publish(machine, "s.b", [])
    publish(machine, "s.a", [])
    publish(machine, "s.c", [("Nats-Msg-Id", "last")])
    machine.configure({"name": "S", **config})
    assert code(publish(machine, "s.a", fields)) == expected


def test_refused_rollup_quotes_what_was_asked_for() -> None:
    outcome = publish(machine_of(allow_rollup_hdrs=True), "s.a", [("Nats-Rollup", 'Q"')])
    assert isinstance(outcome, Refused) and outcome.error.description == 'rollup value invalid: "q\\""'


def test_message_of_a_server_may_do_what_clients_may_not() -> None:
    machine = machine_of(sources=[{"name": "T"}])
    fields = [
        *(("Nats-Stream-Source", "T 17 > > a id"), ("Nats-TTL", "1h"), ("Nats-Incr", "1")),
        *(("Nats-Scheduler", "s.z"), ("Nats-Schedule-Next", "later"), ("Nats-Rollup", "sub")),
    ]
    assert code(publish(machine, "s.a", fields)) != "taken"
    assert publish(machine, "s.a", fields, flags=INTERNAL) == 1
    assert machine.source_positions == {"T > >": SourcePosition(17, "id")}
    # Should the source come back, it does not bring the same again.
    machine.configure({"name": "S"})
    assert machine.source_positions == {"T > >": SourcePosition(17, "id")}


def test_mirror_takes_what_its_origin_has_taken() -> None:
    machine = machine_of(mirror={"name": "T"})
    fields = [("Nats-Expected-Stream", "T"), ("Nats-Msg-Id", "1"), ("Nats-Expected-Last-Sequence", "9")]
    assert publish(machine, "s.a", fields, flags=INTERNAL) == 1
    assert publish(machine, "s.a", fields, flags=INTERNAL) == 2


def test_stream_that_republishes_tells_the_seq_before() -> None:
    machine = machine_of(republish={"src": ">", "dest": "again.>"})
    assert publish(machine, "s.a", []) == Stored(1, 0)
    assert publish(machine, "s.b", []) == Stored(2, 0)
    assert publish(machine, "s.a", []) == Stored(3, 1)


def test_message_that_purges_a_schedule_takes_it_along() -> None:
    machine = machine_of(allow_msg_schedules=True, allow_rollup_hdrs=True)
    schedule = [("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "s.z"), ("Nats-Rollup", "sub")]
    assert publish(machine, "s.plan", schedule) == 1
    assert publish(machine, "s.plan", schedule) == 2
    purging = [("Nats-Scheduler", "s.plan"), ("Nats-Schedule-Next", "purge")]
    assert publish(machine, "s.z", purging) == 3
    assert (machine.log.first_seq, machine.log.message_count) == (3, 1)
    assert publish(machine, "s.plan", []) == 4
    assert code(publish(machine, "s.z", purging)) == 10212


# --- reading ---


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"NATS/1.0\r\n\r\n", {}),
        (b"NATS/1.0\r\nnats-msg-id: 1\r\nX: Nats-A: 1\r\n\r\n", {}),
        (b"NATS/1.0\r\nNats-A:  1 \r\nNats-B:2\r\n\r\n", {b"Nats-A": b"1 ", b"Nats-B": b"2"}),
        (b"NATS/1.0\r\nNats-A: 1\r\nNats-A: 2\r\nNats-B:\r\n\r\n", {b"Nats-A": b"1", b"Nats-B": b""}),
        (b"NATS/1.0\r\nNats-A: a\rb\r\nNats-B : x\r\n\r\n", {b"Nats-A": b"a\rb", b"Nats-B ": b"x"}),
        (b"NATS/1.0\r\nNats-A: no end", {b"Nats-A": b"no end"}),
    ],
)
def test_fields_are_read_as_nats_server_reads_them(block: bytes, expected: dict[bytes, bytes]) -> None:
    assert dict(fields_of(block)) == expected


def test_block_without_such_fields_costs_no_dict() -> None:
    assert fields_of(b"NATS/1.0\r\nA: b\r\n\r\n") is NO_FIELDS


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551617", 1),
        (b"9" * 5000, (10**5000 - 1) % 2**64),
        *[(text, 2**64 - 1) for text in (b"", b"-1", b"x", b"1 ", b"+1", "\u0661".encode())],
    ],
)
def test_seqs_are_read_as_nats_server_reads_them(text: bytes, number: int) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (b"", UNSET_S),
        (b"00", UNSET_S),
        (b"never", NEVER_S),
        (b"Never", NEVER_S),
        (b"1", 1),
        (b"1s", 1),
        (b"1.9s", 1),
        (b"+2h", 7200),
        (b"1h30m", 5400),
    ],
)
def test_ttl_is_read_in_whole_seconds(text: bytes, seconds: int) -> None:
    assert parse_ttl_s(text) == seconds


@pytest.mark.parametrize(
    "text", [b"0", b"-1", b"-1s", b"999ms", b"x", b"1h ", b"1d", b"\xff", b"9223372036854775808"]
)
def test_ttl_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="TTL"):
        parse_ttl_s(text)


def test_delete_marker_has_the_headers_of_nats_server() -> None:
    block = delete_marker_headers(90_500_000_000)
    assert block == b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1m30s\r\nNats-Rollup: sub\r\n\r\n"
    assert is_delete_marker(block)
    assert is_delete_marker(b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n")
    assert not is_delete_marker(b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n")


@pytest.mark.parametrize("header", [b"", b"T", b"T 1", b"T 1 >", b"T x > >", b"$JS.ACK.T.c.1.2.3.4.5"])
def test_source_header_of_another_form_says_nothing(header: bytes) -> None:
    assert read_position(header) == {}
