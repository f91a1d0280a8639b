"""The stream machine: atomic batches, time, delete markers, interest; what a command does and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from edged.core import commands, headers
from edged.core.frames import INTERNAL, MORE, ONLY_IF_EMPTY
from edged.core.stream_machine import Duplicate, Outcome, Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.memory_log import MemoryLog

SECOND_NS = 10**9
NOW_NS = 1_800_000_000 * SECOND_NS
Fields = dict[str, str]


def message(subject: str, fields: Fields | None = None, payload: bytes = b"", flags: int = 0) -> Publish:
    block = headers.encode((key.encode(), value.encode()) for key, value in fields.items()) if fields else b""
    return subject.encode(), None, len(block) | flags, block + payload


def machine_of(**config: Any) -> StreamMachine:
    return StreamMachine(MemoryLog(), {"name": "S", "subjects": ["s.>"], **config})


def append(machine: StreamMachine, *messages: Publish, now_ns: int = NOW_NS) -> list[Outcome]:
    return list(machine.append_run(now_ns, messages, 0, 0, range(len(messages))))


def batch(*messages: Publish) -> list[Publish]:
    return [
        *(
            (subject, reply, header_bytes | MORE, data)
            for subject, reply, header_bytes, data in messages[:-1]
        ),
        messages[-1],
    ]


def code(outcome: Outcome) -> int:
    assert isinstance(outcome, Refused), outcome
    return outcome.error.err_code


def state(machine: StreamMachine) -> tuple[dict[str, Any], list[object]]:
    log = machine.log
    return machine.snapshot(), [log.get(seq) for seq in range(1, log.last_seq + 1)]


# --- atomic batches ---


def test_batch_gets_seqs_one_behind_the_other() -> None:
    machine = machine_of()
    outcomes = append(
        machine, message("s.a"), *batch(message("s.a"), message("s.b"), message("s.a")), message("s.c")
    )
    assert outcomes == [1, 2, 3, 4, 5]
    assert machine.takes_runs is False and machine.give_up_members() == []


REFUSED_BATCHES: list[tuple[dict[str, Any], list[tuple[str, Fields]], int]] = [
    ({}, [("s.x", {}), ("s.x", {"Nats-Expected-Last-Msg-Id": "1"})], 10177),
    ({}, [("s.x", {"Nats-Msg-Id": "a"}), ("s.y", {"Nats-Msg-Id": "a"})], 10201),
    ({}, [("s.x", {}), ("s.y", {"Nats-Msg-Id": "known"})], 10201),
    ({}, [("s.x", {}), ("s.y", {"Nats-Expected-Last-Sequence": "3"})], 10164),
    ({}, [("s.x", {}), ("s.y", {"Nats-Expected-Last-Sequence": "2"})], 10071),
    ({}, [("s.x", {"Nats-Expected-Last-Sequence": "1"}), ("s.y", {})], 10071),
    ({}, [("s.a", {}), ("s.a", {"Nats-Expected-Last-Subject-Sequence": "3"})], 10164),
    ({}, [("s.x", {}), ("s.a", {"Nats-Expected-Last-Subject-Sequence": "1"})], 10071),
    ({}, [("s.x", {}), ("s.a", {"Nats-Expected-Last-Subject-Sequence-Subject": "s.a"})], 10193),
    ({}, [("s.x", {}), ("s.y", {"Nats-Expected-Stream": "T"})], 10060),
    ({}, [("s.x", {}), ("s.y", {"Nats-Stream-Source": "T 1 > > a"})], 10227),
    ({}, [("s.x", {}), ("s.y", {"Nats-TTL": "x"})], 10166),
    ({"allow_msg_ttl": True}, [("s.x", {}), ("s.y", {"Nats-TTL": "x"})], 10165),
    ({}, [("s.x", {}), ("s.y", {"Nats-Rollup": "sub"})], 10111),
    ({"allow_rollup_hdrs": True}, [("s.x", {}), ("s.x", {"Nats-Rollup": "sub"})], 10111),
    ({"allow_rollup_hdrs": True}, [("s.x", {}), ("s.y", {"Nats-Rollup": "all"})], 10111),
    ({"max_msgs": 3, "discard": "new"}, [("s.x", {}), ("s.y", {})], 10077),
    ({"max_bytes": 110, "discard": "new"}, [("s.x", {}), ("s.y", {})], 10077),
    (
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
        [("s.x", {}), ("s.x", {})],
        10077,
    ),
    ({"sealed": True}, [("s.x", {}), ("s.y", {})], 10109),
    ({"max_msg_size": 20}, [("s.x", {}), ("s.y", {"A": "x" * 30})], 10054),
    ({"allow_msg_counter": True}, [("s.x", {"Nats-Incr": "1"}), ("s.y", {})], 10169),
]


@pytest.mark.parametrize(("config", "members", "expected"), REFUSED_BATCHES)
def test_batch_is_refused_as_a_whole_and_leaves_no_trace(
    config: dict[str, Any], members: list[tuple[str, Fields]], expected: int
) -> None:
    machine = machine_of()
    append(machine, message("s.b", {"Nats-Msg-Id": "known"}), message("s.a"))
    machine.configure({"name": "S", **config})
    before = state(machine)
    outcomes = append(machine, *batch(*(message(subject, fields, b"x" * 8) for subject, fields in members)))
    assert [code(outcome) for outcome in outcomes] == [expected] * len(members)
    assert state(machine) == before


def test_batch_may_expect_what_it_does_not_touch_itself() -> None:
    machine = machine_of(allow_rollup_hdrs=True)
    append(machine, message("s.a"), message("s.b"))
    first = message("s.c", {"Nats-Expected-Last-Sequence": "2", "Nats-Rollup": "all"})
    expecting = {
        "Nats-Expected-Last-Subject-Sequence": "1",
        "Nats-Expected-Last-Subject-Sequence-Subject": "s.a",
    }
    assert append(machine, *batch(first, message("s.d", expecting), message("s.d", expecting))) == [3, 4, 5]
    assert machine.log.first_seq == 3


def test_batch_of_one_is_held_to_the_rules_of_batches() -> None:
    machine = machine_of()
    append(machine, message("s.a", {"Nats-Msg-Id": "1"}))
    (outcome,) = append(machine, message("s.a", {"Nats-Msg-Id": "1", "Nats-Batch-Id": "b"}))
    assert code(outcome) == 10201
    assert append(machine, message("s.a", {"Nats-Batch-Id": "b"})) == [2]
    # From another stream it comes as it is.
    assert append(machine, message("s.a", {"Nats-Batch-Id": "b"}, flags=INTERNAL)) == [3]


def test_ids_of_a_batch_are_remembered() -> None:
    machine = machine_of()
    append(machine, *batch(message("s.a", {"Nats-Msg-Id": "1"}), message("s.a", {"Nats-Msg-Id": "2"})))
    assert append(machine, message("s.a", {"Nats-Msg-Id": "1"})) == [Duplicate(1)]
    assert append(machine, message("s.a", {"Nats-Msg-Id": "2"})) == [Duplicate(2)]
    assert machine.last_message_id == b"2"


# --- time ---


def test_messages_that_never_expire_stay_where_others_are_too_old() -> None:
    machine = machine_of(allow_msg_ttl=True, max_age=100 * SECOND_NS)
    kept = {"Nats-TTL": "never"}
    append(machine, message("s.a"), message("s.a", kept), message("s.a"), message("s.a", kept))
    append(machine, message("s.a"), now_ns=NOW_NS + 50 * SECOND_NS)
    assert machine.expiry.next_ns(machine.log) == NOW_NS + 100 * SECOND_NS
    command = machine.expired(NOW_NS + 100 * SECOND_NS)
    assert command == commands.Expire(2, (3,))
    assert machine.apply(command) == 2
    assert machine.expired(NOW_NS + 100 * SECOND_NS) is None
    assert machine.expiry.next_ns(machine.log) == NOW_NS + 150 * SECOND_NS
    last = machine.expired(NOW_NS + 10**6 * SECOND_NS)
    assert last == commands.Expire(0, (5,)) and machine.apply(last) == 1
    assert machine.expiry.next_ns(machine.log) is None
    machine.apply(commands.Purge(0, b"", 0))
    append(machine, message("s.a"), now_ns=NOW_NS)
    assert machine.expired(NOW_NS + 100 * SECOND_NS) == commands.Expire(7, ())


def test_expiry_that_was_not_committed_is_due_again() -> None:
    machine = machine_of(allow_msg_ttl=True)
    append(machine, message("s.a", {"Nats-TTL": "5"}), message("s.b", {"Nats-TTL": "5"}))
    command = machine.expired(NOW_NS + 5 * SECOND_NS)
    assert command == commands.Expire(0, (1, 2))
    machine.apply(commands.Delete(1, False))
    assert machine.expired(NOW_NS + 6 * SECOND_NS) == commands.Expire(0, (2,))
    assert machine.expiry.next_ns(machine.log) == 0
    assert machine.apply(command) == 1
    assert machine.expired(NOW_NS + 7 * SECOND_NS) is None


def test_ttl_counts_only_while_the_stream_allows_it() -> None:
    machine = machine_of()
    append(machine, message("s.a", {"Nats-TTL": "5"}, flags=INTERNAL))
    assert machine.expired(NOW_NS + 9 * SECOND_NS) is None
    machine.configure({"name": "S", "allow_msg_ttl": True})
    assert machine.expired(NOW_NS + 9 * SECOND_NS) == commands.Expire(0, (1,))


def test_window_of_ids_ends_when_it_is_over() -> None:
    machine = machine_of(duplicate_window=10 * SECOND_NS)
    known = message("s.a", {"Nats-Msg-Id": "1"})
    append(machine, known)
    assert append(machine, known, now_ns=NOW_NS + 10 * SECOND_NS - 1) == [Duplicate(1)]
    assert append(machine, known, now_ns=NOW_NS + 10 * SECOND_NS) == [2]


def test_stream_with_sources_has_no_window_unless_it_says_so() -> None:
    machine = machine_of(sources=[{"name": "T"}])
    known = message("s.a", {"Nats-Msg-Id": "1"})
    assert append(machine, known, known) == [1, 2]


# --- delete markers ---


def marking_machine() -> StreamMachine:
    return machine_of(
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        subject_delete_marker_ttl=60 * SECOND_NS,
        max_age=SECOND_NS,
    )


def expire(machine: StreamMachine) -> None:
    command = machine.expired(NOW_NS + SECOND_NS)
    assert command is not None
    machine.apply(command)


def test_marker_is_stored_for_each_subject_that_time_has_emptied() -> None:
    machine = marking_machine()
    append(machine, message("s.a"), message("s.a"), message("s.b"), message("s.kept", {"Nats-TTL": "never"}))
    append(machine, message("s.purged", {"KV-Operation": "PURGE"}))
    expire(machine)
    assert list(machine.unmarked) == [b"s.a", b"s.b"]
    restored = StreamMachine(machine.log, {"subject_delete_marker_ttl": 60 * SECOND_NS, "name": "S"})
    restored.restore(machine.snapshot())
    assert restored.unmarked == machine.unmarked
    assert [one[0] for one in machine.delete_markers(1)] == [b"s.a"]
    assert append(machine, *machine.delete_markers(9)) == [6, 7]
    assert not machine.unmarked
    assert dict(machine.log.subjects(())) == {b"s.a": 1, b"s.b": 1, b"s.kept": 1}
    marker = machine.log.get(6)
    assert marker is not None and marker.header_bytes == len(marker.data)
    # The marker goes by its own TTL, and leaves no other.
    command = machine.expired(NOW_NS + 61 * SECOND_NS)
    assert command is not None
    machine.apply(command)
    assert not machine.unmarked


def test_marker_comes_too_late_when_there_is_a_message_again() -> None:
    machine = marking_machine()
    append(machine, message("s.a"), message("s.b"))
    expire(machine)
    markers = machine.delete_markers(9)
    assert append(machine, message("s.a")) == [3]
    assert list(machine.unmarked) == [b"s.b"]
    first, second = append(machine, *markers)
    assert code(first) == 10164 and second == 4
    assert append(machine, message("s.a", flags=ONLY_IF_EMPTY | INTERNAL)) == [first]


def test_without_marker_ttl_nothing_is_to_be_marked() -> None:
    machine = marking_machine()
    append(machine, message("s.a"))
    expire(machine)
    machine.configure({"name": "S"})
    assert not machine.unmarked


# --- interest ---


def test_message_without_interest_gets_a_seq_and_is_not_stored() -> None:
    machine = machine_of(retention="interest", allow_rollup_hdrs=True)
    assert append(machine, message("s.a", {"Nats-Msg-Id": "1"})) == [1]
    assert append(machine, message("s.a", {"Nats-Msg-Id": "1"})) == [Duplicate(1)]
    machine.apply(commands.PutConsumer(1, "c", {"filter_subjects": ["s.a", "s.b.>"]}))
    assert append(machine, message("s.a"), message("s.b"), message("s.b.c"), message("s.a")) == [2, 3, 4, 5]
    assert [seq for seq in range(1, 6) if machine.log.has(seq)] == [2, 4, 5]
    machine.apply(commands.PutConsumer(2, "d", {"filter_subject": "s.b.>"}))
    machine.apply(commands.PutConsumer(1, "c", {"filter_subject": "s.c"}))
    assert append(machine, message("s.a", {"Nats-Rollup": "sub"})) == [6]
    assert [seq for seq in range(1, 7) if machine.log.has(seq)] == [4]
    machine.apply(commands.RemoveConsumer(2))
    machine.apply(commands.RemoveConsumer(1))
    assert append(machine, message("s.c", {"Nats-Rollup": "all"})) == [7]
    assert (machine.log.message_count, machine.log.first_seq, machine.log.last_ts_ns) == (0, 8, NOW_NS)


def test_interest_is_known_after_a_restore() -> None:
    machine = machine_of(retention="interest")
    machine.apply(commands.PutConsumer(1, "c", {}))
    restored = machine_of(retention="interest")
    restored.restore(machine.snapshot())
    append(restored, message("s.any"))
    assert restored.log.message_count == 1


# --- other commands ---


def test_purge_beyond_the_end_decides_where_the_next_message_goes() -> None:
    machine = machine_of()
    append(machine, message("s.a"), message("s.b"))
    assert machine.apply(commands.Purge(10, b"", 0)) == 2
    assert append(machine, message("s.a")) == [10]
    assert machine.apply(commands.Purge(100, b"s.a", 0)) == 1
    assert append(machine, message("s.a")) == [11]


def test_missing_message_cannot_be_deleted() -> None:
    machine = machine_of()
    append(machine, message("s.a"))
    assert machine.apply(commands.Delete(1, True)) == 1
    assert code(machine.apply(commands.Delete(1, True))) == 10037
    assert code(machine.apply(commands.RemoveConsumer(3))) == 10014
