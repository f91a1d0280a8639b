"""The stream machine against a naive model: any messages, in any order, one by one and many at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core import commands, headers
from edged.core.frames import append_frame_bytes
from edged.core.message import Message
from edged.core.stream_machine import Duplicate, Outcome, Refused, Stored, StreamMachine
from edged.core.wire import Publish
from edged.store.memory_log import MemoryLog
from edged.store.stream_log import StreamLog
from tests.core.publish_model import HOUR_NS, NaiveStream
from tests.examples import examples

START_NS = 1_800_000_000 * 10**9
NAME = "S"

subjects = st.sampled_from(["a", "b", "b.c", "d.e"])
patterns = st.sampled_from(["a", "b.*", ">", "b.>", "none"])
seqs = st.integers(0, 12).map(str)
FIELDS = {
    "Nats-Msg-Id": st.sampled_from(["1", "2", "3", "4", "5"]),
    "Nats-Expected-Stream": st.sampled_from([NAME, NAME, "T"]),
    "Nats-TTL": st.sampled_from(["1h", "7200", "never", "00", "x", "0"]),
    "Nats-Expected-Last-Subject-Sequence": seqs,
    "Nats-Expected-Last-Subject-Sequence-Subject": patterns,
    "Nats-Expected-Last-Sequence": seqs,
    "Nats-Expected-Last-Msg-Id": st.sampled_from(["1", "2", "3"]),
    "Nats-Rollup": st.sampled_from(["sub", "all", "x"]),
    "Nats-Stream-Source": st.just("T 1 > > a"),
    "Other": st.just("x" * 30),
}
fields = st.lists(st.sampled_from(list(FIELDS)), max_size=2, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)
publishes = st.tuples(subjects, fields, st.sampled_from([0, 1, 40, 200]))
limits = st.sampled_from([-1, -1, 1, 2, 4])
configs = st.fixed_dictionaries(
    {
        "name": st.just(NAME),
        "duplicate_window": st.sampled_from([1, HOUR_NS]),
        "max_msgs": limits,
        "max_bytes": st.sampled_from([-1, -1, 150, 500]),
        "max_msgs_per_subject": limits,
        "max_msg_size": st.sampled_from([-1, -1, 100]),
        "discard": st.sampled_from(["old", "old", "new"]),
        "discard_new_per_subject": st.booleans(),
        "allow_rollup_hdrs": st.booleans(),
        "allow_msg_ttl": st.booleans(),
        "retention": st.sampled_from(["limits", "limits", "limits", "interest"]),
        "sealed": st.sampled_from([False] * 9 + [True]),
        "max_age": st.sampled_from([0, 0, 2 * HOUR_NS]),
        "republish": st.sampled_from([None, None, {"src": ">", "dest": "again.>"}]),
    }
)


def block_of(found: dict[str, str]) -> bytes:
    return headers.encode((key.encode(), value.encode()) for key, value in found.items()) if found else b""


class Journal:
    """The frames of messages for a StreamLog, as far as it asks for them."""

    def __init__(self) -> None:
        self.frames: dict[int, tuple[int, bytes, int, bytes]] = {}
        self.end = 0

    def add(self, ts_ns: int, messages: list[Publish]) -> list[int]:
        offsets = []
        for subject, _, header_bytes, data in messages:
            offsets.append(self.end)
            self.frames[self.end] = (ts_ns, subject, max(header_bytes, 0), data)
            self.end += append_frame_bytes(len(subject), len(data))
        return offsets

    def read(self, _file: int, offset: int, size: int) -> bytes:
        return offset.to_bytes(size, "little")

    def decode(self, frame: bytes) -> tuple[int, bytes, int, bytes]:
        return self.frames[int.from_bytes(frame, "little")]


class Machines:
    """The same stream in memory, message by message, and in a journal, many at a time."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.journal = Journal()
        log = StreamLog(b"i" * 16, self.journal.read, self.journal.decode)
        self.in_files = StreamMachine(log, config, log)
        self.in_memory = StreamMachine(MemoryLog(), config)
        self.models = [
            (NaiveStream(config, machine.log.counted_bytes), machine)
            for machine in (self.in_files, self.in_memory)
        ]

    def apply(self, command: commands.Command) -> None:
        self.in_files.apply(command)
        self.in_memory.apply(command)

    def publish(self, now_ns: int, batch: list[tuple[str, dict[str, str], int]]) -> None:
        messages: list[Publish] = []
        for subject, found, size in batch:
            block = block_of(found)
            messages.append((subject.encode(), None, len(block) or -1, block + bytes(size)))
        outcomes = self.in_files.append_run(now_ns, messages, 1, 0, self.journal.add(now_ns, messages))
        singly = [
            self.in_memory.append(now_ns, subject, max(header_bytes, 0), data, (0, 0, 0))
            for subject, _, header_bytes, data in messages
        ]
        for (model, _), results in zip(self.models, (outcomes, singly), strict=True):
            expected = [
                model.publish(now_ns, subject, found, (message[2] if found else 0, len(message[3])))
                for (subject, found, _), message in zip(batch, messages, strict=True)
            ]
            assert [named(outcome) for outcome in results] == expected

    def compare(self) -> None:
        for model, machine in self.models:
            log = machine.log
            assert (log.last_seq, log.message_count, log.bytes) == (
                model.last_seq,
                len(model.messages),
                model.bytes,
            )
            assert log.first_seq == min(model.messages, default=model.last_seq + 1)
            held = [message_of(log.get(seq)) for seq in sorted(model.messages)]
            assert held == [(one[0], one[1]) for _, one in sorted(model.messages.items())]
            assert machine.last_message_id.decode() == model.last_id


def message_of(message: Message | None) -> tuple[int, str]:
    assert message is not None
    return message.ts_ns, message.subject.decode()


def named(outcome: Outcome | None) -> tuple[str, int]:
    assert outcome is not None
    if isinstance(outcome, Refused):
        return "refused", outcome.error.err_code
    if isinstance(outcome, Duplicate):
        return "duplicate", outcome.seq
    return "taken", outcome.seq if isinstance(outcome, Stored) else outcome


@settings(max_examples=examples(300))
@given(
    configs,
    st.lists(st.lists(publishes, min_size=1, max_size=4), max_size=10),
    st.lists(patterns, max_size=2),
)
def test_any_messages_come_to_what_the_model_says(
    config: dict[str, Any], batches: list[list[tuple[str, dict[str, str], int]]], filters: list[str]
) -> None:
    machines = Machines(config)
    for number, pattern in enumerate(filters, 1):
        machines.apply(commands.PutConsumer(number, f"c{number}", {"filter_subject": pattern}))
    for model, _ in machines.models:
        model.filters = filters
    now_ns = START_NS
    for batch in batches:
        machines.publish(now_ns, batch)
        machines.compare()
        now_ns += HOUR_NS // 4
    for _ in range(4):
        now_ns += HOUR_NS
        for model, machine in machines.models:
            model.expire(now_ns)
            command = machine.expired(now_ns)
            if command is not None:
                machine.apply(command)
            assert machine.expired(now_ns) is None, "what was expired once is not again"
        machines.compare()


@given(configs, st.lists(st.lists(publishes, min_size=1, max_size=6), max_size=6))
def test_snapshot_brings_back_all_that_decides(
    config: dict[str, Any], batches: list[list[tuple[str, dict[str, str], int]]]
) -> None:
    machines = Machines(config)
    for number, batch in enumerate(batches):
        machines.publish(START_NS + number, batch)
    old = machines.in_memory
    new = StreamMachine(old.log, config)
    new.restore(old.snapshot())
    assert new.snapshot() == old.snapshot()


@pytest.mark.parametrize(
    ("config", "takes"),
    [
        ({}, True),
        ({"max_msgs": 5, "max_bytes": 100, "max_age": 9}, True),
        ({"retention": "workqueue", "allow_rollup_hdrs": True, "allow_msg_ttl": True}, True),
        ({"max_msgs_per_subject": 3}, True),
        ({"max_msgs_per_subject": 3, "discard": "new", "allow_rollup_hdrs": True}, True),
        ({"max_msgs_per_subject": 3, "max_msgs": 5}, False),
        ({"max_msgs_per_subject": 3, "discard": "new", "discard_new_per_subject": True}, False),
        ({"discard": "new", "max_bytes": 100}, False),
        ({"sealed": True}, False),
        ({"max_msg_size": 10}, False),
        ({"retention": "interest"}, False),
        ({"allow_msg_counter": True}, False),
        ({"republish": {"src": ">", "dest": "x.>"}}, False),
        ({"subject_delete_marker_ttl": 10**9, "allow_msg_ttl": True}, False),
    ],
)
def test_runs_are_taken_only_where_single_messages_need_no_decision(
    config: dict[str, Any], takes: bool
) -> None:
    log = StreamLog(b"i" * 16, Journal().read, Journal().decode)
    assert StreamMachine(log, config, log).takes_runs == takes
    assert not StreamMachine(MemoryLog(), config).takes_runs
