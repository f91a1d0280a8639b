"""The store against the naive model: whatever is done in whatever order, both hold the same."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edged.core.message import counted_bytes
from edged.core.stream_machine import Duplicate
from edged.store.cycle import Cycle
from tests.examples import examples
from tests.lab.fake_disk import FakeDisk
from tests.lab.tested_store import TestedStore
from tests.lab.workload import (
    BATCH_NS,
    CONFIGS,
    START_NS,
    SUBJECTS,
    AckMessages,
    Batch,
    ConsumerModel,
    DeleteMessage,
    Deliver,
    DropConsumer,
    DropStream,
    Publish,
    PurgeStream,
    PutConsumer,
    PutStream,
    Step,
    StoreModel,
    StreamModel,
    difference,
)

STREAMS_MAX = 3
JOURNAL_FILE_BYTES = 5000
configs = st.sampled_from(CONFIGS)
subjects = st.sampled_from(SUBJECTS)
filters = st.sampled_from((b"", *SUBJECTS))
messages = st.tuples(
    subjects,
    st.sampled_from((0, 40, 300, 1500)),
    st.one_of(st.none(), st.integers(1, 6).map(lambda number: b"id-%d" % number)),
)


class StoreLikeModel(RuleBasedStateMachine):
    """What is drawn are numbers; they choose among what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = FakeDisk()
        self.model = StoreModel()
        self.chance = random.Random(1)
        self.now_ns = START_NS
        self.groups_used = 0
        self.cycle: Cycle | None = None
        self.is_cycle_run = False
        self.store = self.opened()

    def opened(self) -> TestedStore:
        self.cycle = None
        return TestedStore(self.disk, self.chance, JOURNAL_FILE_BYTES)

    def commit(self, *steps: Step) -> list[Any]:
        self.now_ns += BATCH_NS
        for step in steps:
            self.model.apply(step, self.now_ns)
        return self.store.commit(Batch(steps, self.now_ns))

    def stream(self, number: int) -> tuple[int, StreamModel]:
        groups = sorted(self.model.streams)
        group = groups[number % len(groups)]
        return group, self.model.streams[group]

    def consumer(self, number: int) -> tuple[int, int, ConsumerModel] | None:
        consumers = [
            (group, known, consumer)
            for group, stream in sorted(self.model.streams.items())
            for known, consumer in sorted(stream.consumers.items())
        ]
        return consumers[number % len(consumers)] if consumers else None

    # --- streams and messages ---

    @precondition(lambda self: len(self.model.streams) < STREAMS_MAX)
    @rule(config=configs)
    def create_stream(self, config: dict[str, Any]) -> None:
        self.groups_used += 1
        self.commit(PutStream(self.groups_used, f"S{self.groups_used}", config))

    @precondition(lambda self: self.model.streams)
    @rule(number=st.integers(0, 2), config=configs)
    def update_stream(self, number: int, config: dict[str, Any]) -> None:
        group, stream = self.stream(number)
        self.commit(PutStream(group, stream.name, config))

    @precondition(lambda self: self.model.streams)
    @rule(number=st.integers(0, 2))
    def remove_stream(self, number: int) -> None:
        self.commit(DropStream(self.stream(number)[0]))

    @precondition(lambda self: self.model.streams)
    @rule(number=st.integers(0, 2), drawn=st.lists(messages, min_size=1, max_size=6))
    def publish(self, number: int, drawn: list[tuple[bytes, int, bytes | None]]) -> None:
        group, stream = self.stream(number)
        self.now_ns += BATCH_NS
        steps = []
        wanted: list[int | Duplicate] = []
        for subject, size, message_id in drawn:
            step = Publish(group, subject, self.chance.randbytes(size), message_id)
            before = stream.last_seq
            seq = stream.publish(step, self.now_ns)
            wanted.append(seq if stream.last_seq > before else Duplicate(seq))
            steps.append(step)
        assert self.store.commit(Batch(tuple(steps), self.now_ns)) == wanted

    @precondition(lambda self: any(stream.messages for stream in self.model.streams.values()))
    @rule(number=st.integers(0, 2), place=st.integers(0, 50))
    def delete(self, number: int, place: int) -> None:
        group, stream = self.stream(number)
        seqs = sorted(stream.messages)
        if seqs:
            self.commit(DeleteMessage(group, seqs[place % len(seqs)]))

    @precondition(lambda self: self.model.streams)
    @rule(number=st.integers(0, 2), subject=filters, keep=st.integers(0, 3), to_seq=st.integers(0, 30))
    def purge(self, number: int, subject: bytes, keep: int, to_seq: int) -> None:
        group, _ = self.stream(number)
        self.commit(PurgeStream(group, 0 if keep else to_seq, subject, keep))

    # --- consumers ---

    @precondition(lambda self: self.model.streams)
    @rule(number=st.integers(0, 2), consumer=st.integers(1, 3))
    def put_consumer(self, number: int, consumer: int) -> None:
        group, _ = self.stream(number)
        self.commit(PutConsumer(group, consumer, f"C{consumer}", {"ack_policy": "explicit"}))

    @rule(number=st.integers(0, 8))
    def remove_consumer(self, number: int) -> None:
        if (found := self.consumer(number)) is not None:
            self.commit(DropConsumer(found[0], found[1]))

    @rule(number=st.integers(0, 8), count=st.integers(1, 4))
    def deliver(self, number: int, count: int) -> None:
        if (found := self.consumer(number)) is not None:
            group, known, consumer = found
            fresh = [seq for seq in sorted(self.model.streams[group].messages) if seq > consumer.delivered]
            if fresh:
                self.commit(Deliver(group, known, tuple(fresh[:count])))

    @rule(number=st.integers(0, 8), place=st.integers(0, 50))
    def deliver_again(self, number: int, place: int) -> None:
        if (found := self.consumer(number)) is not None:
            seqs = sorted(self.model.streams[found[0]].messages)
            if seqs:
                self.commit(Deliver(found[0], found[1], (seqs[place % len(seqs)],)))

    @rule(number=st.integers(0, 8), place=st.integers(0, 8))
    def acknowledge(self, number: int, place: int) -> None:
        if (found := self.consumer(number)) is not None and found[2].pending:
            pending = sorted(found[2].pending)
            self.commit(AckMessages(found[0], found[1], (pending[place % len(pending)],)))

    # --- what happens to files ---

    @rule()
    def rotate(self) -> None:
        self.store.store.journal.rotate()

    @rule()
    def seal_tail(self) -> None:
        self.store.idle()

    @precondition(lambda self: self.cycle is None)
    @rule()
    def maintain(self) -> None:
        self.store.maintain()

    @precondition(lambda self: self.cycle is None and self.store.store.is_cycle_due)
    @rule()
    def begin_cycle(self) -> None:
        self.cycle = self.store.store.begin_cycle()
        self.is_cycle_run = False

    @precondition(lambda self: self.cycle is not None and not self.is_cycle_run)
    @rule()
    def run_cycle(self) -> None:
        assert self.cycle is not None
        self.cycle.run()
        self.is_cycle_run = True

    @precondition(lambda self: self.cycle is not None and self.is_cycle_run)
    @rule()
    def end_cycle(self) -> None:
        assert self.cycle is not None
        self.store.store.end_cycle()
        assert self.cycle.error is None
        self.cycle = None

    @precondition(lambda self: self.cycle is None)
    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        assert self.disk.open_count == 0
        self.store = self.opened()

    @rule()
    def kill_and_open(self) -> None:
        self.disk.end_process()
        self.store = self.opened()

    # --- what is true all the time ---

    @invariant()
    def same_as_model(self) -> None:
        wrong = difference(self.store.observe(), self.model)
        assert not wrong, wrong
        assert self.store.complaints() == []

    @invariant()
    def figures_are_those_of_the_model(self) -> None:
        for group, stream in self.model.streams.items():
            log = self.store.store.stream(group).log
            assert log.first_seq == min(stream.messages, default=stream.last_seq + 1)
            sizes = (
                counted_bytes(len(subject), header_bytes, len(data))
                for _, subject, header_bytes, data in stream.messages.values()
            )
            assert log.bytes == sum(sizes)
            counts = {subject: len(stream.seqs_of(subject)) for subject in SUBJECTS}
            assert dict(log.subjects(())) == {subject: count for subject, count in counts.items() if count}


StoreLikeModel.TestCase.settings = settings(
    max_examples=examples(200), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStoreDoesWhatTheModelDoes = StoreLikeModel.TestCase
