"""The journal and its reader: what was committed is read back, torn tails are cut, rot is a hole."""

from __future__ import annotations

import errno
from itertools import count

import pytest

from edged.core.batch_record import BatchRecord
from edged.core.frames import BATCH, COMMAND, FrameBuffer
from edged.store.errors import OutcomeUnknown, StoreFull
from edged.store.journal import START, Journal, Position
from edged.store.journal_file import HEADER_BYTES, JOURNAL, JournalHeader, file_path
from edged.store.journal_reader import Chain, Part, read_chain, read_parts
from tests.lab.fake_disk import FakeDisk

FILE_BYTES = 16 * 1024


def disk_with_directories(capacity_bytes: int | None = None) -> FakeDisk:
    disk = FakeDisk(capacity_bytes=capacity_bytes)
    disk.make_directory(JOURNAL)
    return disk


def journal_on(
    disk: FakeDisk, next_number: int = 1, previous: Position = START, previous_nonce: int = 0
) -> Journal:
    nonces = count(next_number * 1_000_003 + 1)
    return Journal(disk, FILE_BYTES, next_number, lambda: next(nonces), lambda: 77, previous, previous_nonce)


def commit(journal: Journal, *bodies: bytes, sync: bool = True) -> Position:
    """Commit a batch as the store does: records, then the batch record."""
    buffer = FrameBuffer()
    for body in bodies:
        buffer.add(COMMAND, 1, 1, body)
    record = BatchRecord(journal.number, journal.synced, 5, ())
    buffer.add(BATCH, 0, 1, record.encode())
    return journal.commit(buffer, sync)


def end(journal: Journal) -> None:
    journal.sync()
    journal.let_go()


def read(disk: FakeDisk, first: int = 1) -> tuple[Chain, list[Part]]:
    chain = read_chain(disk, first)
    return chain, list(read_parts(disk, chain))


def bodies(parts: list[Part]) -> list[bytes]:
    """The bodies of the records that count."""
    return [
        part.data[start : start + size]
        for part in parts
        for _, kind, _, _, start, size in part.frames
        if kind == COMMAND
    ]


def damage(disk: FakeDisk, path: str, offset: int, data: bytes) -> None:
    file = disk.open(path)
    file.write_at(offset, data)
    file.close()


def test_what_was_committed_is_read_back_in_order() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    commit(journal, b"one", b"two")
    commit(journal, b"three")
    end(journal)
    chain, parts = read(disk)
    assert bodies(parts) == [b"one", b"two", b"three"]
    assert chain.last == 1 and not parts[0].damage and not parts[0].torn_bytes


def test_a_batch_that_does_not_fit_goes_whole_to_the_next_file() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    places = [commit(journal, bytes([number]) * 5000) for number in range(5)]
    end(journal)
    assert [place.file for place in places] == [1, 1, 2, 2, 3]
    _, parts = read(disk)
    assert [body[0] for body in bodies(parts)] == [0, 1, 2, 3, 4]


def test_a_batch_larger_than_a_file_gets_a_file_of_its_own_size() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    journal.prepare()
    commit(journal, b"x" * (3 * FILE_BYTES))
    commit(journal, b"small")
    end(journal)
    _, parts = read(disk)
    assert [len(body) for body in bodies(parts)] == [3 * FILE_BYTES, 5]


def test_a_file_that_was_only_made_ready_is_not_part_of_the_journal() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    commit(journal, b"one")
    journal.prepare()
    end(journal)
    chain, parts = read(disk)
    assert bodies(parts) == [b"one"] and chain.unused == [2] and chain.highest == 2


def test_a_recycled_file_shows_nothing_of_its_earlier_use() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    for number in range(4):
        commit(journal, b"old" * 2000 + bytes([number]))
    journal.rotate()
    journal.reuse(1)
    journal.prepare()
    commit(journal, b"new")
    end(journal)
    assert disk.open(file_path(journal.number)).read_at(8000, 3) in (b"old", b"ldo", b"dol")
    _, parts = read(disk, first=2)
    assert bodies(parts)[-1] == b"new" and len(bodies(parts)) == 3


def test_a_torn_last_batch_is_cut_and_earlier_records_kept() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    commit(journal, b"kept")
    place = commit(journal, b"a" * 600, b"b" * 600)
    end(journal)
    damage(disk, file_path(1), place.offset + 100, bytes(300))
    _, parts = read(disk)
    assert bodies(parts) == [b"kept"]
    assert parts[0].damage == [] and parts[0].torn_bytes > 600
    assert Position(parts[0].number, parts[0].end) == place


def test_a_bad_record_below_the_durable_line_is_rot_and_the_rest_is_kept() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    place = commit(journal, b"a" * 600, b"b" * 600)
    commit(journal, b"later")
    end(journal)
    damage(disk, file_path(1), place.offset + 100, bytes(300))
    _, parts = read(disk)
    assert bodies(parts) == [b"b" * 600, b"later"]
    assert parts[0].damage == [(place.offset, place.offset + 624)] and parts[0].torn_bytes == 0


def test_rot_in_a_file_with_a_successor_is_never_taken_for_a_torn_tail() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    place = commit(journal, b"a" * 600, b"b" * 600)
    journal.rotate()
    commit(journal, b"later")
    end(journal)
    damage(disk, file_path(1), place.offset + 700, bytes(600))
    _, parts = read(disk)
    assert bodies(parts) == [b"a" * 600, b"later"]
    assert len(parts[0].damage) == 1


def test_after_a_restart_a_cut_tail_does_not_count_again() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    commit(journal, b"kept")
    place = commit(journal, b"a" * 600, b"b" * 600)
    end(journal)
    damage(disk, file_path(1), place.offset + 100, bytes(300))
    _, parts = read(disk)
    journal = journal_on(disk, 2, Position(parts[-1].number, parts[-1].end), journal.nonce)
    commit(journal, b"after")
    end(journal)
    _, parts = read(disk)
    assert bodies(parts) == [b"kept", b"after"]
    assert all(not part.damage and not part.torn_bytes for part in parts)


@pytest.mark.parametrize("copy", [0, 1])
def test_one_copy_of_a_header_is_enough(copy: int) -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    commit(journal, b"one")
    end(journal)
    damage(disk, file_path(1), copy * 2048, bytes(512))
    _, parts = read(disk)
    assert bodies(parts) == [b"one"]


def test_every_bit_of_a_header_copy_is_checked() -> None:
    block = JournalHeader(7, 1 << 40 | 9, 3, 6, 4096).encode()
    for bit in range(64 * 8):
        flipped = bytearray(block)
        flipped[bit // 8] ^= 1 << bit % 8
        assert JournalHeader.decode(bytes(flipped), "x") == JournalHeader(7, 1 << 40 | 9, 3, 6, 4096)


class FailingDisk(FakeDisk):
    """Fails the syncs and writes of one file."""

    bad_path = ""

    def check(self, operation: str, path: str) -> None:
        if path == self.bad_path and operation in ("sync", "write"):
            raise OSError(errno.EIO, "bad disk")
        super().check(operation, path)


def test_after_a_failed_write_the_batch_is_in_a_new_file_and_void_in_the_old() -> None:
    disk = FailingDisk()
    disk.make_directory(JOURNAL)
    journal = journal_on(disk)
    commit(journal, b"one")
    disk.bad_path = file_path(1)
    place = commit(journal, b"two")
    assert place == Position(2, HEADER_BYTES)
    commit(journal, b"three")
    end(journal)
    _, parts = read(disk)
    assert bodies(parts) == [b"one", b"two", b"three"]


def test_when_no_file_works_the_outcome_is_unknown_and_later_batches_find_a_way() -> None:
    disk = FailingDisk()
    disk.make_directory(JOURNAL)
    journal = journal_on(disk)
    commit(journal, b"one")
    disk.bad_path = file_path(1)
    disk_check = disk.check

    def fail_everything(operation: str, path: str) -> None:
        if operation in ("sync", "write", "allocate", "create"):
            raise OSError(errno.EIO, "bad disk")

    disk.check = fail_everything  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        commit(journal, b"two")
    disk.check = disk_check  # type: ignore[method-assign]
    commit(journal, b"three")
    end(journal)
    _, parts = read(disk)
    assert bodies(parts) == [b"one", b"three"]


def test_a_full_disk_refuses_for_certain_and_takes_small_files_for_what_frees_space() -> None:
    disk = disk_with_directories(capacity_bytes=40 * 1024)
    journal = journal_on(disk)
    commit(journal, b"x" * 9000)
    commit(journal, b"y" * 9000)
    with pytest.raises(StoreFull):
        commit(journal, b"z" * 9000)
    _, parts = read(disk)
    assert [len(body) for body in bodies(parts)] == [9000, 9000]
    journal.reuse(1)
    commit(journal, b"z" * 9000)
    end(journal)


def test_a_sync_that_fails_with_nobody_waiting_is_reported_and_the_journal_goes_on() -> None:
    disk = FailingDisk()
    disk.make_directory(JOURNAL)
    journal = journal_on(disk)
    commit(journal, b"one")
    commit(journal, b"lazy", sync=False)
    disk.bad_path = file_path(1)
    journal.rotate()
    assert len(journal.failed_syncs) == 1
    commit(journal, b"two")
    end(journal)
    _, parts = read(disk)
    assert bodies(parts)[-1] == b"two"


def test_a_file_that_is_gone_is_reported_and_what_is_left_is_read() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    for number in range(5):
        commit(journal, bytes([number]) * 5000)
    end(journal)
    disk.remove(file_path(2))
    chain, parts = read(disk)
    assert chain.missing == [2]
    assert [body[0] for body in bodies(parts)] == [0, 1, 4]


def test_a_file_of_another_store_is_missing_rather_than_believed() -> None:
    disk, other = disk_with_directories(), disk_with_directories()
    for one, nonce_from in ((disk, 1), (other, 50)):
        journal = journal_on(one, nonce_from)
        for number in range(3):
            commit(journal, b"%d" % number * 4000)
            journal.rotate()
        end(journal)
    foreign = other.open(file_path(51)).read_at(0, FILE_BYTES)
    forged = JournalHeader.decode(foreign[:HEADER_BYTES], "x")
    assert forged is not None
    renumbered = JournalHeader(2, forged.nonce, 3, 1, HEADER_BYTES).encode()
    damage(disk, file_path(2), 0, renumbered + foreign[HEADER_BYTES:])
    chain, parts = read(disk)
    assert chain.missing == [2] and chain.strange == [2]
    assert [body[:1] for body in bodies(parts)] == [b"0", b"2"]


def test_a_file_under_the_name_of_another_is_not_taken_for_a_free_one() -> None:
    disk = disk_with_directories()
    journal = journal_on(disk)
    for number in range(3):
        commit(journal, b"%d" % number * 4000)
        journal.rotate()
    end(journal)
    disk.rename(file_path(3), file_path(4))
    chain, parts = read(disk)
    assert chain.strange == [4] and chain.unused == []
    assert [body[:1] for body in bodies(parts)] == [b"0", b"1"]


class UnlistableDisk(FakeDisk):
    """Does not say which files there are, once it is told so."""

    is_unlistable = False

    def list(self, directory: str) -> list[str]:
        if self.is_unlistable:
            raise OSError(errno.EIO, "bad disk")
        return super().list(directory)


def test_a_disk_that_does_not_list_its_files_has_none_that_could_go() -> None:
    disk = UnlistableDisk()
    disk.make_directory(JOURNAL)
    journal = journal_on(disk)
    for text in (b"one", b"two", b"three"):
        commit(journal, text)
        journal.rotate()
    commit(journal, b"four")
    assert journal.has_old_files()
    disk.is_unlistable = True
    assert not journal.has_old_files()
