"""Logs against a model that is a dictionary: any sequence of changes, every question."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edged.core.message import Message
from edged.store.message_index import LostRange
from edged.store.stream_log import moved_snapshot
from tests.examples import examples
from tests.store.log_cases import FakeSegments, FileWorld, MemoryWorld, Model, RealSegments

SUBJECTS = (b"a", b"a.b", b"a.c", b"a.b.c", b"b.b", b"b.c.d", b"a-x.b", b"c")
FILTERS = (
    *((), (b">",), (b"a",), (b"a.b",), (b"nothing",), (b"a.*",), (b"a.>",), (b"*.b",), (b"*",)),
    *((b"a.b", b"c"), (b"a.*", b"b.>"), (b"*.*.*", b"a"), (b"x.>",), (b"*.c.>", b">")),
)
subject_of = st.sampled_from(SUBJECTS)
filters_of = st.sampled_from(FILTERS)


class LogMachine(RuleBasedStateMachine):
    """The changes and questions that every log knows."""

    make: ClassVar = MemoryWorld

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make()
        self.model = Model(self.world.is_memory)
        self.now_ns = 1_000

    def message(self, seq: int, subject: bytes, header: bytes, payload: bytes) -> Message:
        return Message(seq, self.now_ns, subject, len(header), header + payload)

    @rule(
        subject=subject_of,
        gap=st.sampled_from((0, 0, 0, 1, 5, 100_000, 1 << 40)),
        header=st.sampled_from((b"", b"NATS/1.0\r\n\r\n")),
        payload=st.binary(max_size=5),
        later_ns=st.sampled_from((0, 1, 7)),
    )
    def append(self, subject: bytes, gap: int, header: bytes, payload: bytes, later_ns: int) -> None:
        self.now_ns += later_ns
        message = self.message(self.model.last_seq + 1 + gap, subject, header, payload)
        self.world.append(message)
        self.model.add(message)

    @rule(subjects=st.lists(subject_of, min_size=1, max_size=12), gap=st.sampled_from((0, 0, 3)))
    def append_run(self, subjects: list[bytes], gap: int) -> None:
        self.now_ns += 1
        first = self.model.last_seq + 1 + gap
        run = [self.message(first + place, subject, b"", b"x") for place, subject in enumerate(subjects)]
        self.world.append_run(run)
        for message in run:
            self.model.add(message)

    @rule(distance=st.integers(-2, 20))
    def skip(self, distance: int) -> None:
        seq = max(0, self.model.last_seq + distance)
        self.world.log.skip_to(seq)
        self.model.last_seq = max(self.model.last_seq, seq)

    @precondition(lambda self: self.model.messages)
    @rule(choice=st.randoms(use_true_random=False), count=st.integers(1, 6))
    def remove_some(self, choice: random.Random, count: int) -> None:
        for seq in choice.sample(sorted(self.model.messages), min(count, len(self.model.messages))):
            message = self.model.messages.pop(seq)
            assert self.world.log.remove(seq) == self.model.size(message)
            assert self.world.log.remove(seq) is None

    @rule(seq=st.integers(0, 200))
    def remove_any(self, seq: int) -> None:
        message = self.model.messages.pop(seq, None)
        size = None if message is None else self.model.size(message)
        assert self.world.log.remove(seq) == size

    @precondition(lambda self: self.model.messages)
    @rule(part=st.sampled_from((0.0, 0.2, 0.5, 1.0)), beyond=st.integers(0, 2))
    def compact(self, part: float, beyond: int) -> None:
        seqs = sorted(self.model.messages)
        seq = seqs[int(part * (len(seqs) - 1))] + beyond
        gone = [self.model.messages.pop(one) for one in seqs if one < seq]
        removed = self.world.log.compact_to(seq)
        assert (removed.count, removed.bytes) == (len(gone), sum(map(self.model.size, gone)))

    @precondition(lambda self: self.model.messages)
    @rule(subjects=st.lists(subject_of, max_size=6), count_max=st.integers(0, 3))
    def trim(self, subjects: list[bytes], count_max: int) -> None:
        there = [subject for subject in subjects if self.world.log.count_of(subject)]
        self.world.log.trim_subjects(there, count_max)
        for subject in set(there):
            seqs = [seq for seq, one in sorted(self.model.messages.items()) if one.subject == subject]
            for seq in seqs[: max(len(seqs) - count_max, 0)]:
                del self.model.messages[seq]

    def seqs(self) -> list[int]:
        """The seqs where something may begin or end."""
        edges = {0, 1, self.model.last_seq, self.model.last_seq + 1}
        return sorted(edges | {seq + more for seq in self.model.messages for more in (-1, 0, 1)})

    @rule(filters=filters_of)
    def ask_filter(self, filters: tuple[bytes, ...]) -> None:
        self.model.check_filter(self.world.log, filters, self.seqs())

    @rule(filters=filters_of, seq=st.integers(0, 300))
    def ask_once(self, filters: tuple[bytes, ...], seq: int) -> None:
        self.model.check_filter(self.world.log, filters, [seq])

    @rule(
        filters=filters_of,
        seq=st.integers(0, 300),
        limits=st.tuples(st.sampled_from((1, 2, 5, 300)), st.sampled_from((0, 1, 9, 60, 10_000))),
    )
    def ask_batch(self, filters: tuple[bytes, ...], seq: int, limits: tuple[int, int]) -> None:
        self.model.check_batch(self.world.log, filters, seq, limits)

    @rule(filters=filters_of, to_seq=st.one_of(st.none(), st.integers(0, 300)))
    def ask_lasts(self, filters: tuple[bytes, ...], to_seq: int | None) -> None:
        self.model.check_lasts(self.world.log, filters, to_seq)

    @rule(subject=subject_of)
    def ask_subject(self, subject: bytes) -> None:
        self.model.check_subject(self.world.log, subject)

    @rule(before_ns=st.integers(-1, 30))
    def ask_time(self, before_ns: int) -> None:
        self.model.check_time(self.world.log, self.now_ns - before_ns)

    @rule(limit=st.integers(0, 30))
    def ask_deleted(self, limit: int) -> None:
        self.model.check_deleted(self.world.log, limit)

    @rule()
    def ask_messages(self) -> None:
        self.model.check_messages(self.world.log, self.seqs())

    @invariant()
    def figures_agree(self) -> None:
        self.model.check_figures(self.world.log)

    def check_everything(self) -> None:
        for filters in FILTERS:
            self.ask_filter(filters)
            self.ask_batch(filters, 0, (10_000, 1 << 30))
            self.ask_lasts(filters, None)
        for subject in SUBJECTS:
            self.ask_subject(subject)
        for before_ns in (-1, 0, 1, 5, 1_000):
            self.ask_time(before_ns)
        self.ask_deleted(1_000)
        self.ask_messages()

    def teardown(self) -> None:
        self.check_everything()


class FileLogMachine(LogMachine):
    """And what only logs in files know: segments, and checkpoints at the border of journal files."""

    make: ClassVar = staticmethod(lambda: FileWorld(FakeSegments()))

    def __init__(self) -> None:
        super().__init__()
        self.border: tuple[dict[str, object], list[object], Model] | None = None

    @rule(merged=st.integers(0, 2))
    def begin_move(self, merged: int) -> None:
        if self.border is None:
            old = self.world.log.segments[-merged:] if merged else []
            self.world.begin_move(merged)
            self.border = self.world.log.snapshot(), old, self.model.copy()

    @rule()
    def end_move(self) -> None:
        """The state at the border can be had again, whatever happened since."""
        if self.border is None:
            return
        snapshot, old, model = self.border
        self.border = None
        segment = self.world.end_move()
        log = self.world.restored(moved_snapshot(snapshot, old, segment))
        now, self.model, self.world.log, before = self.world.log, model, log, self.model
        self.figures_agree()
        self.check_everything()
        self.world.log, self.model = now, before

    @rule(index=st.integers(0, 3), count=st.integers(1, 3))
    def rewrite(self, index: int, count: int) -> None:
        if self.border is None:
            self.world.rewrite(index, count)

    @rule()
    def restart(self) -> None:
        self.end_move()
        self.world.restart()


class RefilledLogMachine(LogMachine):
    """And messages that come back where there was none, in a log with sealed and hot parts."""

    make: ClassVar = staticmethod(lambda: FileWorld(FakeSegments()))

    @rule()
    def seal(self) -> None:
        if self.world.log._refilled is None:
            self.world.begin_move(0)
            self.world.end_move()

    @rule(place=st.integers(0, 400), subject=subject_of, payload=st.binary(max_size=5))
    def refill(self, place: int, subject: bytes, payload: bytes) -> None:
        seq = place % (self.model.last_seq + 1)
        earlier = [one.ts_ns for known, one in self.model.messages.items() if known < seq]
        message = Message(seq, max(earlier, default=1), subject, 0, payload)
        if seq and seq not in self.model.messages:
            assert self.world.log.refill(message, self.model.size(message)) is not None
            self.world.log.lost.append(LostRange(seq, seq, "a test"))
            assert self.world.log.refill(message, self.model.size(message)) is None
            self.model.messages[seq] = message
            if seq == self.model.last_seq:
                self.model.last_ts_ns = message.ts_ns
        assert self.world.log.refill(message, self.model.size(message)) is not None


class SegmentLogMachine(FileLogMachine):
    """The same with real segments."""

    make: ClassVar = staticmethod(lambda: FileWorld(RealSegments()))


TestMemoryLog = LogMachine.TestCase
TestMemoryLog.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestStreamLog = FileLogMachine.TestCase
TestStreamLog.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
TestRefilledLog = RefilledLogMachine.TestCase
TestRefilledLog.settings = settings(max_examples=examples(120), stateful_step_count=50, deadline=None)
TestStreamLogWithSegments = SegmentLogMachine.TestCase
TestStreamLogWithSegments.settings = settings(
    max_examples=examples(25), stateful_step_count=40, deadline=None
)


@pytest.mark.parametrize("segments", [FakeSegments, RealSegments])
def test_log_with_more_subjects_than_a_byte_can_number_agrees_with_the_model(segments: type) -> None:
    chance = random.Random(7)
    world = FileWorld(segments())
    model = Model()
    subjects = [b"s.%d.%d" % (number % 7, number) for number in range(700)]
    filters = [
        *((b"s.3.*",), (b"s.*.10",), (b"s.5.5", b"s.6.6", b"s.0.693"), (b"s.4.690",), (b"s.>",), (b"*.1.>",)),
    ]
    for step in range(12):
        first = model.last_seq + 1
        run = [
            Message(first + place, 1_000 + step, chance.choice(subjects), 0, b"%d" % place)
            for place in range(400)
        ]
        world.append_run(run)
        for message in run:
            model.add(message)
        for seq in chance.sample(sorted(model.messages), 150):
            assert world.log.remove(seq) == model.size(model.messages.pop(seq))
        if step % 3 == 2:
            world.begin_move(step % 2)
            for seq in chance.sample(sorted(model.messages), 50):
                assert world.log.remove(seq) == model.size(model.messages.pop(seq))
            world.end_move()
        if step == 8:
            world.restart()
        if step == 10:
            world.log.compact_to(1_500)
            model.messages = {seq: message for seq, message in model.messages.items() if seq >= 1_500}
        model.check_figures(world.log)
        for one in filters:
            model.check_filter(world.log, one, range(0, model.last_seq + 2, 97))
            for seq in range(0, model.last_seq + 2, 397):
                model.check_lasts(world.log, one, seq)
                model.check_batch(world.log, one, seq, (100, 10_000))
        model.check_batch(world.log, (), 0, (10_000, 1 << 30))
        for subject in chance.sample(subjects, 40):
            model.check_subject(world.log, subject)
        for ts_ns in range(999, 1_002 + step):
            model.check_time(world.log, ts_ns)
    model.check_messages(world.log, range(model.last_seq + 2))
    model.check_deleted(world.log, 10_000)
