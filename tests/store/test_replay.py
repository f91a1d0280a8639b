"""A journal that is replayed in runs comes to the same as record by record, also when it is damaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core import commands
from edged.core.batch_record import BatchRecord
from edged.core.frame_twins import scan
from edged.core.frames import APPEND, COMMAND
from edged.core.stream_machine import Outcome
from edged.core.wire import Publish
from edged.store import recovery
from edged.store.errors import Damaged, StoreBroken, StoreError
from edged.store.files import Files
from edged.store.group import Group
from edged.store.hot_places import HotPlaces
from edged.store.journal_file import HEADER_BYTES, file_path
from edged.store.journal_reader import Chain, Part, read_chain, read_header, read_parts
from edged.store.options import StoreOptions
from edged.store.replay import Install, Replay
from edged.store.store import Store
from edged.store.stream_log import StreamLog
from tests.examples import examples
from tests.lab.fake_disk import FakeDisk, FakeFile
from tests.store.test_store import Clock, options_with, put_stream

CONFIGS: tuple[dict[str, Any], ...] = (
    *({}, {"max_msgs": 7}, {"max_bytes": 300}, {"max_msgs_per_subject": 2}),
    *({"discard": "new", "max_msgs": 9}, {"storage": "memory"}),
)
HEADERS = b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n"


class SingleReplay(Replay):
    """A replay that reads everything itself, and takes one record after the other."""

    def __init__(
        self,
        files: Files,
        chain: Chain,
        groups: dict[int, Group],
        _known: Mapping[int, Part],
        last_batch: int,
        install: Install,
    ) -> None:
        super().__init__(files, chain, groups, last_batch=last_batch, install=install)

    def _is_decided_here(self, group: Group) -> bool:
        return False


class CountingFile(FakeFile):
    """A file that says how much is read of it."""

    def read_at(self, offset: int, size: int) -> bytes:
        data = super().read_at(offset, size)
        assert isinstance(self._disk, CountingDisk)
        self._disk.bytes_read[self.path] += len(data)
        return data


class CountingDisk(FakeDisk):
    """A disk that counts how much is read of each file."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read: Counter[str] = Counter()

    def open(self, path: str) -> FakeFile:
        return CountingFile(self, self._node(path), path)


def ignore(_: Any) -> None:
    """Nobody waits."""


def commit(store: Store, changes: list[tuple[int, list[Publish] | commands.Command]]) -> None:
    for place, (group, change) in enumerate(changes):
        if isinstance(change, list):
            store.add_appends(group, change, store.options.now_ns() + place, ignore)
        else:
            store.add(group, change, ignore)
    store.settle()


def part_state(part: Any) -> Any:
    names = ("file", "has_holes", "_offsets", "_sizes", "_seqs", "page_times_ns", "count", "first_seq")
    hot = tuple(getattr(part, name) for name in names) if isinstance(part, HotPlaces) else ()
    return (hot, part.last_seq, part.last_ts_ns, part.live_bytes, part.deleted.live_flags(0, part.count))


def got(log: Any, seq: int) -> Any:
    try:
        return log.get(seq)
    except Damaged as error:
        return str(error)


def stream_state(store: Store, group: int) -> Any:
    """Everything there is to know of a stream, but for the numbers of its subjects."""
    log = store.stream(group).log
    target = store.groups[group]
    known = (log.first_seq, log.last_seq, log.message_count, log.bytes, sorted(log.subjects(())))
    messages = [got(log, seq) for seq in range(log.first_seq, log.last_seq + 1)]
    ends = [
        (log.first_of(subject), log.previous_matching((subject,), log.last_seq)) for subject, _ in known[4]
    ]
    parts = [part_state(part) for part in log._parts] if isinstance(log, StreamLog) else []
    lost = log.lost if isinstance(log, StreamLog) else []
    return known, messages, ends, parts, lost, target.applied, target.next_index, target.refused


def opened(
    disk: FakeDisk, options: StoreOptions, replay: type[Replay], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """The state of a store after it was opened, or why it could not be."""
    monkeypatch.setattr(recovery, "Replay", replay)
    try:
        store = Store.open(disk, options)
    except StoreBroken as error:
        return str(error)
    states = {group: stream_state(store, group) for group in sorted(store.catalog.streams)}
    report = store.report.replay
    return states, report.holes, report.damage, report.records, report.ignored_records, report.end


message_of = st.builds(
    lambda subject, header, data: (subject, None, len(header) or -1, header + data),
    st.sampled_from((b"a", b"b", b"c.d", b"c.e")),
    st.sampled_from((b"", b"", b"", b"", HEADERS % 1, HEADERS % 2)),
    st.binary(max_size=20),
)
change_of = st.one_of(
    st.tuples(st.integers(1, 2), st.lists(message_of, min_size=1, max_size=12)),
    st.tuples(st.integers(1, 2), st.lists(message_of, min_size=1, max_size=12)),
    st.tuples(st.integers(1, 2), st.builds(commands.Delete, st.integers(1, 30), st.just(False))),
    st.tuples(st.integers(1, 2), st.builds(commands.Skip, st.integers(1, 60))),
)


@settings(deadline=None, max_examples=examples(120))
@given(
    configs=st.tuples(st.sampled_from(CONFIGS), st.sampled_from(CONFIGS)),
    batches=st.lists(st.lists(change_of, min_size=1, max_size=4), min_size=1, max_size=8),
    is_closed=st.booleans(),
    flips=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 255)), max_size=2),
)
def test_runs_and_single_records_come_to_the_same_state(
    configs: tuple[dict[str, Any], dict[str, Any]],
    batches: list[list[tuple[int, list[Publish] | commands.Command]]],
    is_closed: bool,
    flips: list[tuple[int, int]],
) -> None:
    disk, clock = FakeDisk(), Clock()
    options = options_with(clock)
    store = Store.open(disk, options)
    for group, config in enumerate(configs, 1):
        put_stream(store, group, **config)
    for batch in batches:
        clock.now_ns += 1_000
        commit(store, batch)
    if is_closed:
        store.close()
    disk.end_process()
    path = file_path(1)
    for place, flip in flips:
        file = disk.open(path)
        (byte,) = file.read_at(HEADER_BYTES + place, 1)
        file.write_at(HEADER_BYTES + place, bytes([byte ^ flip]))
        file.close()
    with pytest.MonkeyPatch.context() as monkeypatch:
        runs = opened(disk.copy(), options, Replay, monkeypatch)
        single = opened(disk.copy(), options, SingleReplay, monkeypatch)
    assert runs == single


def test_messages_behind_a_hole_that_were_refused_are_not_stored_although_nothing_says_why() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    commit(store, [(1, [(b"a", None, -1, b"1"), (b"a", None, -1, b"2")])])
    put_stream(store, max_msgs=2, discard="new")
    commit(store, [(1, [(b"a", None, -1, b"3"), (b"a", None, -1, b"4")])])
    commit(store, [(1, commands.Delete(9, False))])
    store.close()
    file = disk.open(file_path(1))
    data = file.read_at(0, file.size())
    frames = scan(data, store.journal.nonce, HEADER_BYTES).frames
    # The second message is lost, and with the new limits also why the third and fourth were refused.
    lost = [frame for frame in frames if frame[1:4] in ((APPEND, 1, 2), (COMMAND, 0, 2))]
    assert len(lost) == 3
    for _, _, _, _, start, _ in lost:
        file.write_at(start, bytes([data[start] ^ 1]))
    file.close()
    store = Store.open(disk, options)
    log = store.stream(1).log
    assert (log.message_count, log.last_seq, store.groups[1].applied) == (1, 2, 5)
    assert len(store.report.replay.holes) == 2


def test_more_subjects_than_a_byte_can_number_are_replayed_as_they_were() -> None:
    disk, options = FakeDisk(), options_with(journal_file_bytes=1 << 20)
    store = Store.open(disk, options)
    put_stream(store)
    outcomes: list[Outcome] = []

    def done(result: Any) -> None:
        assert not isinstance(result, StoreError)
        outcomes.extend(result)

    for start in range(0, 3_000, 500):
        messages: list[Publish] = [
            (b"s.%d" % (one % 700), None, -1, b"x") for one in range(start, start + 500)
        ]
        store.add_appends(1, messages, options.now_ns(), done)
        store.settle()
    assert outcomes == list(range(1, 3_001))
    before = stream_state(store, 1)
    store.close()
    assert stream_state(Store.open(disk, options), 1)[:4] == before[:4]


def test_rot_in_a_last_file_without_room_for_another_record_is_a_hole_and_not_a_torn_end() -> None:
    disk, options = FakeDisk(), options_with(journal_file_bytes=5_000)
    store = Store.open(disk, options)
    put_stream(store)
    # Larger than a file, so that the file is as large as the batch.
    commit(store, [(1, [(b"a", None, -1, b"x" * 900)] * 3)])
    path = file_path(store.journal.number)
    assert store.journal.end == len(disk.contents()[path])
    store.close()
    file = disk.open(path)
    file.write_at(HEADER_BYTES + 500, b"\x00")
    file.close()
    store = Store.open(disk, options)
    assert [(one.first_seq, one.last_seq) for one in store.holes] == [(1, 1)]
    assert store.stream(1).log.message_count == 2 and store.report.replay.torn_bytes == 0


@pytest.mark.parametrize("streams", [2, 40])
def test_journal_is_looked_through_once_however_many_streams_are_damaged(streams: int) -> None:
    disk, options = CountingDisk(), options_with(journal_file_bytes=64 * 1024)
    store = Store.open(disk, options)
    for group in range(1, streams + 1):
        put_stream(store, group)
    for _ in range(600 // streams):
        commit(store, [(group, [(b"a", None, -1, b"x" * 150)] * 3) for group in range(1, streams + 1)])
    nonces = {number: read_header(disk, number).nonce for number in (1, 2, 3)}  # type: ignore[union-attr]
    store.close()
    # A message of every stream is lost in the first file.
    file = disk.open(file_path(1))
    data = file.read_at(0, file.size())
    for _, kind, _, index, start, _ in scan(data, nonces[1], HEADER_BYTES).frames:
        if kind == APPEND and index == 4:
            file.write_at(start, bytes([data[start] ^ 1]))
    file.close()
    sizes = {path: len(content) for path, content in disk.contents().items() if path.startswith("journal/0")}
    disk.bytes_read.clear()
    store = Store.open(disk, options)
    assert len(store.report.replay.holes) == streams
    assert [(one.first_seq, one.last_seq) for one in store.holes] == [(4, 4)] * streams
    assert all(entry.log.last_seq == 600 // streams * 3 for entry in store.catalog.streams.values())
    # Once to replay it, once to look ahead, and some headers.
    assert all(disk.bytes_read[path] <= 2 * size + 6 * HEADER_BYTES for path, size in sizes.items())


@pytest.mark.parametrize("is_closed", [True, False])
def test_last_file_is_read_once_and_what_was_brought_over_not_at_all(is_closed: bool) -> None:
    disk = CountingDisk()
    options = options_with(journal_file_bytes=64 * 1024)
    store = Store.open(disk, options)
    put_stream(store)
    for _ in range(5):
        commit(store, [(1, [(b"a", None, -1, b"x" * 100)] * 50)])
    if is_closed:
        store.close()
    disk.end_process()
    disk.bytes_read.clear()
    store = Store.open(disk, options)
    # The headers of all files are read to find the chain, before and after the end was brought over.
    assert 64 * 1024 <= disk.bytes_read.pop(file_path(1)) <= 64 * 1024 + 3 * HEADER_BYTES
    assert sum(disk.bytes_read.values()) <= 2 * HEADER_BYTES
    assert store.stream(1).log.message_count == 250


def test_what_was_refused_is_reported_once_in_the_next_file_if_there_was_no_room_in_the_last() -> None:
    disk, options = FakeDisk(), options_with(journal_file_bytes=5_000)
    store = Store.open(disk, options)
    put_stream(store, discard="new", max_msgs=2)
    commit(store, [(1, [(b"a", None, -1, b"x" * 900)] * 3)])
    assert store.journal.number == 3
    store.close()
    (frame,) = [
        frame
        for part in read_parts(disk, read_chain(disk, 1))
        for frame in [BatchRecord.decode(part.data[part.frames[-1][4] :][: part.frames[-1][5]])]
        if any(one.refused for one in frame.applied)
    ]
    assert [one.refused for one in frame.applied if one.group == 1] == [(3,)]
