"""Messages that become columns, by the reference and by its native twin."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.frames import APPEND, BATCH, BODY_BYTES_MAX, COMMAND, MORE, FrameBuffer, append_frame_bytes
from edged.core.message import counted_bytes
from edged.core.runs import SIZE_BITS, SIZE_MASK, Run, SubjectColumns, packed_size
from edged.core.wire import Publish
from edged.store.subject_table import SubjectTable
from tests.core.run_cases import NATIVE, REFERENCE, both

NONCE = 0x0123_4567_89AB_CDEF


def publish(subject: bytes, data: bytes = b"", header_bytes: int = -1) -> Publish:
    return (subject, None, header_bytes, data)


def journal(*frames: tuple[int, int, int, bytes]) -> bytes:
    """A file with these frames (kind, group, index, body) from its beginning."""
    buffer = FrameBuffer()
    for frame in frames:
        buffer.add(*frame)
    return bytes(buffer.finish(NONCE, 0))


def body(subject: bytes, data: bytes = b"", header_bytes: int = 0, ts_ns: int = 7) -> bytes:
    buffer = FrameBuffer()
    buffer.add_appends(1, 1, ts_ns, [publish(subject, data, header_bytes)])
    return buffer.bytes_at(24, len(buffer) - 24)


# --- runs of messages ---


@both
def test_messages_become_columns_with_places_behind_the_start(twin: SimpleNamespace) -> None:
    run = twin.run_of_messages([publish(b"a", b"xyz"), publish(b"b.c", b"", 0)], 9, 100, [0, 42])
    assert run == Run(
        [b"a", b"b.c"],
        [9, 9],
        array("I", [100, 142]),
        array(
            "I",
            [
                packed_size(append_frame_bytes(1, 3), counted_bytes(1, 0, 3)),
                packed_size(append_frame_bytes(3, 0), counted_bytes(3, 0, 0)),
            ],
        ),
        counted_bytes(1, 0, 3) + counted_bytes(3, 0, 0),
    )
    assert run.offsets.typecode == run.sizes.typecode == "I"


@both
def test_one_message_with_headers_makes_it_no_run(twin: SimpleNamespace) -> None:
    messages = [publish(b"a"), publish(b"b", b"NATS/1.0\r\n\r\n", 12), publish(b"c")]
    assert twin.run_of_messages(messages, 9, 0, [0, 1, 2]) is None


@both
def test_flagged_message_is_in_no_run_though_it_has_no_headers(twin: SimpleNamespace) -> None:
    flagged = publish(b"b", b"x", MORE)
    assert twin.run_of_messages([publish(b"a"), flagged], 9, 0, [0, 1]) is None
    buffer = FrameBuffer()
    buffer.add_appends(3, 5, 9, [publish(b"a"), flagged, publish(b"c")])
    data = bytes(buffer.finish(NONCE, 0))
    found = twin.scan(data, NONCE, 0).frames
    assert twin.run_of_frames(data, found, 0).subjects == [b"a"]
    assert twin.run_of_frames(data, found, 1) is None


@both
def test_no_messages_are_an_empty_run(twin: SimpleNamespace) -> None:
    assert twin.run_of_messages([], 9, 0, []) == Run([], [], array("I"), array("I"), 0)


@both
@pytest.mark.parametrize("offsets", [[], [0], [0, 1, 2]], ids=len)
def test_another_number_of_offsets_than_messages_is_refused(
    twin: SimpleNamespace, offsets: list[int]
) -> None:
    with pytest.raises(ValueError):
        twin.run_of_messages([publish(b"a"), publish(b"b")], 9, 0, offsets)


@both
def test_last_offset_of_four_bytes_is_taken_and_the_next_is_refused(twin: SimpleNamespace) -> None:
    assert twin.run_of_messages([publish(b"a")], 9, 2**32 - 2, [1]).offsets[0] == 2**32 - 1
    with pytest.raises(OverflowError):
        twin.run_of_messages([publish(b"a")], 9, 2**32 - 2, [2])
    with pytest.raises(OverflowError):
        twin.run_of_messages([publish(b"a")], 9, 0, [-1])


@both
def test_message_that_fits_into_no_frame_is_refused(twin: SimpleNamespace) -> None:
    with pytest.raises(AssertionError):
        twin.run_of_messages([publish(b"a", bytes(BODY_BYTES_MAX))], 9, 0, [0])


@given(
    st.lists(st.builds(publish, st.binary(max_size=9), st.binary(max_size=300), st.integers(-1, 1))),
    st.integers(0, 2**32 - 10_000),
)
def test_twins_make_the_same_run_of_any_messages(messages: list[Publish], start: int) -> None:
    offsets = list(range(0, 3 * len(messages), 3))
    run = REFERENCE.run_of_messages(messages, 5, start, offsets)
    assert run == NATIVE.run_of_messages(messages, 5, start, offsets)
    if run is not None:
        frames = [append_frame_bytes(len(subject), len(data)) for subject, _, _, data in messages]
        assert [size & SIZE_MASK for size in run.sizes] == frames
        assert sum((size & SIZE_MASK) - (size >> SIZE_BITS) for size in run.sizes) == run.message_bytes


def test_size_that_does_not_fit_into_its_bits_is_refused() -> None:
    assert packed_size(SIZE_MASK, SIZE_MASK - 31) == 2**32 - 1
    for frame_bytes, message_bytes in ((SIZE_MASK + 1, SIZE_MASK), (100, 101), (100, 68), (-1, -1)):
        with pytest.raises(AssertionError):
            packed_size(frame_bytes, message_bytes)


# --- runs of frames ---


@both
def test_run_of_frames_has_each_time_and_the_offsets_in_the_file(twin: SimpleNamespace) -> None:
    data = journal((APPEND, 3, 5, body(b"a", b"xx", ts_ns=2**64 - 1)), (APPEND, 3, 6, body(b"b", ts_ns=0)))
    run = twin.run_of_frames(data, twin.scan(data, NONCE, 0).frames, 0)
    first = append_frame_bytes(1, 2)
    assert run.subjects == [b"a", b"b"]
    assert list(run.times_ns) == [2**64 - 1, 0]
    assert list(run.offsets) == [0, first]
    assert [size & SIZE_MASK for size in run.sizes] == [first, append_frame_bytes(1, 0)]
    assert run.message_bytes == counted_bytes(1, 0, 2) + counted_bytes(1, 0, 0)


@both
@pytest.mark.parametrize(
    "ending",
    [
        (BATCH, 3, 7, b""),
        (COMMAND, 3, 7, body(b"c")),
        (APPEND, 4, 7, body(b"c")),
        (APPEND, 3, 8, body(b"c")),
        (APPEND, 3, 6, body(b"c")),
        (APPEND, 3, 7, body(b"c", b"NATS/1.0\r\n\r\n", 12)),
        (APPEND, 3, 7, body(b"c")[:13]),
        (APPEND, 3, 7, body(b"cc")[:15]),
    ],
)
def test_run_of_frames_ends_where_something_else_comes(
    twin: SimpleNamespace, ending: tuple[int, int, int, bytes]
) -> None:
    two = (APPEND, 3, 5, body(b"a")), (APPEND, 3, 6, body(b"b"))
    data = journal(*two, ending, (APPEND, 3, 8, body(b"d")))
    frames = twin.scan(data, NONCE, 0).frames
    assert twin.run_of_frames(data, frames, 0).subjects == [b"a", b"b"]
    assert twin.run_of_frames(data, frames, 1).subjects == [b"b"]


@both
def test_frame_that_is_no_message_without_headers_begins_no_run(twin: SimpleNamespace) -> None:
    data = journal((BATCH, 3, 5, b""), (APPEND, 3, 6, body(b"c", b"NATS/1.0\r\n\r\n", 12)))
    frames = twin.scan(data, NONCE, 0).frames
    assert twin.run_of_frames(data, frames, 0) is None
    assert twin.run_of_frames(data, frames, 1) is None
    with pytest.raises(IndexError):
        twin.run_of_frames(data, frames, 2)


@both
def test_frame_that_is_not_wholly_in_the_data_ends_a_run(twin: SimpleNamespace) -> None:
    data = journal((APPEND, 3, 5, body(b"a", b"xx")), (APPEND, 3, 6, body(b"b")))
    frames = twin.scan(data, NONCE, 0).frames
    assert twin.run_of_frames(data[:-1], frames, 0).subjects == [b"a"]
    assert twin.run_of_frames(data[:-1], frames, 1) is None


frame_of = st.tuples(
    st.sampled_from((APPEND, APPEND, APPEND, BATCH, COMMAND)),
    st.sampled_from((1, 1, 1, 2)),
    st.integers(0, 1),
    st.sampled_from(
        (body(b"a"), body(b"b.c", b"x" * 50), body(b"", b"hh", 2), body(b"d")[:14], b"", bytes(40))
    ),
)


@settings(deadline=None)
@given(st.lists(frame_of, max_size=30), st.integers(0, 2_000), st.integers(1, 255))
def test_twins_make_the_same_runs_of_any_journal_with_damage_in_the_middle(
    steps: list[tuple[int, int, int, bytes]], place: int, flip: int
) -> None:
    index = 0
    frames = []
    for kind, group, skip, content in steps:
        index += 1 + 3 * (skip if len(frames) % 4 == 0 else 0)
        frames.append((kind, group, index, content))
    data = bytearray(journal(*frames))
    if place < len(data):
        data[place] ^= flip
    expected, native = (twin.scan(bytes(data), NONCE, 0).frames for twin in (REFERENCE, NATIVE))
    for position in range(len(expected)):
        run = REFERENCE.run_of_frames(bytes(data), expected, position)
        assert NATIVE.run_of_frames(bytes(data), native, position) == run
        # A list of frames, which the native scan does not make, will do as well.
        assert NATIVE.run_of_frames(bytes(data), expected, position) == run
    for kind in (APPEND, BATCH, COMMAND):
        found = REFERENCE.frames_of_kind(expected, kind)
        assert NATIVE.frames_of_kind(native, kind) == NATIVE.frames_of_kind(expected, kind) == found
    assert native[1:] == expected[1:] and native[-3:-1] == expected[-3:-1] and native[::2] == expected[::2]
    assert native[1:][:2] == expected[1:][:2]


# --- subjects ---


class TwinTables:
    """The same changes made to a subject table of each twin."""

    def __init__(self) -> None:
        self.tables = (SubjectTable(), SubjectTable())
        self.seq = 0

    def enter(self, subjects: list[bytes]) -> None:
        numbers = [
            twin.enter_subjects(table, subjects, range(self.seq + 1, self.seq + 1 + len(subjects)))
            for twin, table in zip((REFERENCE, NATIVE), self.tables, strict=True)
        ]
        assert numbers[0] == numbers[1]
        assert numbers[0].typecode == numbers[1].typecode == "I"
        assert [self.tables[0].names[number] for number in numbers[0]] == subjects
        self.seq += len(subjects)
        self.check()

    def enter_counted(self, segment: list[tuple[bytes, int, int, int]], is_exact: bool) -> None:
        columns = columns_of(self.seq + 1, segment)
        numbers = [
            twin.enter_counted(table, columns, is_exact)
            for twin, table in zip((REFERENCE, NATIVE), self.tables, strict=True)
        ]
        assert numbers[0] == numbers[1]
        assert numbers[0].typecode == numbers[1].typecode == "I"
        assert [twin.numbers_of(self.tables[0].numbers, columns) for twin in (REFERENCE, NATIVE)] == numbers
        self.seq += 100
        self.check()

    def check(self) -> None:
        one, other = self.tables
        for name in ("numbers", "names", "counts", "firsts", "lasts", "unsure", "births", "epoch"):
            assert getattr(one, name) == getattr(other, name), name


def columns_of(first_seq: int, segment: list[tuple[bytes, int, int, int]]) -> SubjectColumns:
    """Subjects of a segment, each with its count, the distance of its first message, and of its last."""
    names = [name for name, *_ in segment]
    figures = [array("BHIQ"[place], [one[place] for one in segment]) for place in (1, 2, 3)]
    return SubjectColumns(first_seq, b"".join(names), array("B", map(len, names)), *figures)


subject_of = st.sampled_from([b"", b"a", b"b", b"c.d", b"c.e"])

segment_of = st.lists(
    st.tuples(subject_of, st.integers(0, 9), st.integers(0, 50), st.integers(0, 49)),
    max_size=5,
    unique_by=lambda one: one[0],
)


@given(st.data())
def test_twins_count_subjects_alike_whatever_came_and_went_before(data: st.DataObject) -> None:
    world = TwinTables()
    for _ in range(data.draw(st.integers(1, 8))):
        world.enter(data.draw(st.lists(subject_of, max_size=6)))
        world.enter_counted(data.draw(segment_of), data.draw(st.booleans()))
        for subject, number in list(world.tables[0].numbers.items()):
            what = data.draw(st.sampled_from(("keep", "remove", "compact", "count")), label=repr(subject))
            seq = data.draw(st.integers(1, max(world.seq, 1)))
            count = data.draw(st.integers(1, world.tables[0].counts[number]))
            for table in world.tables:
                if what == "remove":
                    table.remove(number, seq)
                elif what == "compact":
                    table.remove_below(number, count, seq)
                elif what == "count":
                    table.add_counted(number, count, world.seq + 1, world.seq + 1, is_exact=seq % 2 == 0)
        world.seq += 1
        world.check()


def test_twins_count_more_subjects_than_two_bytes_can_number_alike() -> None:
    world = TwinTables()
    world.enter([b"s.%d" % number for number in range(70_000)])
    world.enter([b"s.%d" % (number * 7) for number in range(12_000)])
    assert world.tables[1].counts[69_993] == 2


@both
def test_subject_table_that_contradicts_itself_is_not_written_beyond_its_end(twin: SimpleNamespace) -> None:
    table = SubjectTable()
    table.numbers[b"a"] = 3
    with pytest.raises(IndexError):
        twin.enter_subjects(table, [b"a"], range(1, 2))


@both
def test_seqs_with_gaps_are_counted_where_they_are(twin: SimpleNamespace) -> None:
    table = SubjectTable()
    assert list(twin.enter_subjects(table, [b"a", b"b", b"a"], array("Q", [3, 7, 2**63]))) == [0, 1, 0]
    assert (list(table.firsts), list(table.lasts), list(table.counts)) == ([3, 7], [2**63, 7], [2, 1])
    with pytest.raises(ValueError):
        twin.enter_subjects(table, [b"a"], range(1, 3))


@both
def test_subject_of_a_segment_without_messages_gets_no_number(twin: SimpleNamespace) -> None:
    table = SubjectTable()
    columns = columns_of(10, [(b"a", 2, 0, 5), (b"gone", 0, 1, 0), (b"b", 1, 3, 0)])
    assert list(twin.enter_counted(table, columns, True)) == [0, 0, 1]
    assert table.numbers == {b"a": 0, b"b": 1}
    assert (list(table.counts), list(table.firsts), list(table.lasts)) == ([2, 1], [10, 13], [15, 13])
    assert not any(table.unsure)
    columns = columns_of(20, [(b"b", 1, 0, 0), (b"c", 1, 1, 0)])
    assert list(twin.enter_counted(table, columns, False)) == [1, 2]
    assert list(table.counts) == [2, 2, 1]
    assert [table.is_first_known(number) for number in range(3)] == [True, True, False]
    assert [table.is_last_known(number) for number in range(3)] == [True, False, False]


@both
@pytest.mark.parametrize("field", ["joined", "counts", "firsts", "spans", "sizes"])
def test_columns_of_different_lengths_are_refused(twin: SimpleNamespace, field: str) -> None:
    columns = columns_of(1, [(b"a", 1, 0, 0), (b"bb", 1, 1, 0)])
    columns = columns._replace(**{field: getattr(columns, field)[:-1]})
    for enter in (twin.numbers_of, lambda table, some: twin.enter_counted(SubjectTable(), some, True)):
        with pytest.raises(ValueError):
            enter({}, columns)


@both
def test_name_that_is_longer_than_all_of_them_is_refused(twin: SimpleNamespace) -> None:
    columns = columns_of(1, [(b"a", 1, 0, 0), (b"b", 1, 1, 0)])
    with pytest.raises(ValueError):
        twin.numbers_of({}, columns._replace(sizes=array("Q", [2**64 - 1, 3])))


@given(st.lists(st.sampled_from([0, 1, 2, 3, 500, 2**32 - 1]), max_size=12))
def test_twins_order_numbers_alike_and_leave_equal_ones_as_they_come(numbers: list[int]) -> None:
    column = array("I", numbers)
    expected = sorted(range(len(numbers)), key=numbers.__getitem__)
    for twin in (REFERENCE, NATIVE):
        order = twin.order_of(column)
        assert list(order) == expected
        assert isinstance(order, range) == (numbers == sorted(numbers))
