"""Lost messages come back under their old seqs, and stay: in the journal, in segments, after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edged.core import commands
from edged.core.api_errors import NO_MESSAGE_FOUND, stream_store_failed
from edged.core.message import Message
from edged.core.stream_machine import Refused
from edged.store.box import Keyring
from edged.store.errors import Damaged
from edged.store.fsck import verify
from edged.store.fsck_files import StoreFiles
from edged.store.group import MissingMessages
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk
from tests.store.test_store import Clock, options_with, publish, put_stream, reopened

NOT_LOST = Refused(stream_store_failed("the message is not lost"))
SUBJECTS = (b"a.x", b"a.y", b"b")


def subject_of(seq: int) -> bytes:
    return SUBJECTS[seq % 3]


def data_of(seq: int) -> bytes:
    return b"%d " % seq * 40


def messages_of(store: Store, group: int = 1) -> dict[int, Message]:
    """What a stream holds, read one by one."""
    log = store.stream(group).log
    found: dict[int, Message] = {}
    seq = log.next_matching((), 0)
    while seq is not None:
        message = log.get(seq)
        assert message is not None and message.seq == seq
        found[seq] = message
        seq = log.next_matching((), seq + 1)
    return found


def check(store: Store, expected: dict[int, Message]) -> None:
    """All answers of a log agree with these messages."""
    log: Any = store.stream(1).log
    assert messages_of(store) == expected
    assert log.message_count == len(expected)
    assert log.bytes == sum(
        log.counted_bytes(len(one.subject), one.header_bytes, len(one.data)) for one in expected.values()
    )
    assert log.first_seq == min(expected, default=log.last_seq + 1)
    for filters in ((b"a.x",), (b"a.*",), (b"b", b"a.y"), (b"b",)):
        wanted = [seq for seq, one in sorted(expected.items()) if _is_match(one.subject, filters)]
        assert log.count_matching(filters) == len(wanted)
        middle = log.last_seq // 2
        assert log.count_matching(filters, middle) == sum(seq >= middle for seq in wanted)
        assert log.next_matching(filters, middle) == next((seq for seq in wanted if seq >= middle), None)
        assert log.previous_matching(filters, middle) == max(
            (seq for seq in wanted if seq <= middle), default=None
        )
    for subject in SUBJECTS:
        seqs = [seq for seq, one in expected.items() if one.subject == subject]
        assert (log.first_of(subject), log.last_of(subject)) == (
            min(seqs, default=None),
            max(seqs, default=None),
        )
    assert sorted({*log.deleted_seqs(), *expected}) == list(range(log.first_seq, log.last_seq + 1))


def _is_match(subject: bytes, filters: tuple[bytes, ...]) -> bool:
    return any(subject == one or (one.endswith(b"*") and subject.startswith(one[:-1])) for one in filters)


def filled(disk: FakeDisk, options: StoreOptions, count: int = 150) -> tuple[Store, dict[int, Message]]:
    """A store with a stream that is in segments and in the journal, and its messages."""
    store = Store.open(disk, options)
    put_stream(store)
    for seq in range(1, count + 1):
        publish(store, subject_of(seq), data_of(seq))
        store.maintain()
    return store, messages_of(store)


def turn_journal(store: Store, expected: dict[int, Message]) -> None:
    """Publish until a cycle has run."""
    for _ in range(400):
        seq = publish(store, b"b", b"more" * 20)
        message = store.stream(1).log.get(seq)
        assert message is not None
        expected[seq] = message
        if store.is_cycle_due:
            store.maintain()
            assert store.unsealed_files == 0
            return
    raise AssertionError("no file of the journal was completed")


def damage_segments(disk: FakeDisk) -> None:
    """No segment can be read any more."""
    for path in [path for path in disk.contents() if path.endswith(".seg")]:
        file = disk.open(path)
        file.write_at(0, b"\xaa" * file.size())
        file.close()


def refill(store: Store, *messages: Message) -> list[Any]:
    outcomes: list[Any] = []
    for message in messages:
        store.add_refill(1, message, lambda result: outcomes.append(result))
    store.settle()
    return [outcome[0] if isinstance(outcome, list) else outcome for outcome in outcomes]


def damaged_store(disk: FakeDisk, options: StoreOptions) -> tuple[Store, dict[int, Message], list[int]]:
    """A store that lost its segments, what it held, and which of that is lost."""
    store, before = filled(disk, options)
    store.close()
    damage_segments(disk)
    store = Store.open(disk, options)
    lost = sorted(before.keys() - messages_of(store).keys())
    assert lost and lost[0] == 1
    return store, before, lost


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_lost_messages_that_are_refilled_are_there_again_and_survive_restart_and_sealing(
    is_encrypted: bool,
) -> None:
    disk = FakeDisk()
    options = options_with(keys=Keyring("a long enough key of the store") if is_encrypted else None)
    store, before, lost = damaged_store(disk, options)
    holes, reason = store.holes, store.stream(1).log.lost[0].reason
    assert holes == [MissingMessages(1, "A", "S1", one.first_seq, one.last_seq, reason) for one in holes]
    assert [seq for one in holes for seq in range(one.first_seq, one.last_seq + 1)] == lost
    # Every third one is missing elsewhere, too; the others come in an order of their own.
    known = [seq for seq in reversed(lost) if seq % 3]
    assert refill(store, *(before[seq] for seq in known)) == known
    expected = {seq: one for seq, one in before.items() if seq not in lost or seq % 3}
    check(store, expected)
    still = [seq for seq in lost if not seq % 3]
    assert [(one.first_seq, one.last_seq) for one in store.holes] == [(seq, seq) for seq in still]
    with pytest.raises(Damaged):
        store.stream(1).log.get(still[0])
    store = reopened(store, disk, options)
    check(store, expected)
    turn_journal(store, expected)
    check(store, expected)
    store = reopened(store, disk, options)
    check(store, expected)
    assert refill(store, *(before[seq] for seq in still)) == still
    expected.update((seq, before[seq]) for seq in still)
    for _ in range(3):
        turn_journal(store, expected)
        check(store, expected)
        assert store.holes == []
        store = reopened(store, disk, options)
        check(store, expected)
    assert store.report.is_clean


def test_what_is_not_lost_is_refused_and_so_is_a_refill_without_sense() -> None:
    disk, options = FakeDisk(), options_with()
    store, before, lost = damaged_store(disk, options)
    last_seq = store.stream(1).log.last_seq
    unknown = Message(last_seq + 1, 5, b"a.x", 0, b"x")
    assert refill(store, before[last_seq], unknown) == [NOT_LOST] * 2
    broken = before[lost[0]]._replace(header_bytes=10_000)
    assert isinstance(refill(store, broken)[0], Refused)
    assert refill(store, before[lost[0]], before[lost[0]]) == [lost[0], NOT_LOST]


def test_messages_deleted_before_or_after_they_were_lost_are_not_wanted_back() -> None:
    disk, options = FakeDisk(), options_with()
    store, before = filled(disk, options)
    for seq in (1, 2, 9):
        assert store.commit([(1, commands.Delete(seq, False))]) == [1]
    store.close()
    damage_segments(disk)
    store = Store.open(disk, options)
    assert [(one.first_seq, one.last_seq) for one in store.holes][:1] == [(3, 8)]
    assert store.commit([(1, commands.Delete(5, False))]) == [Refused(NO_MESSAGE_FOUND)]
    outcomes = refill(store, *(before[seq] for seq in (2, 3, 5, 8, 9)))
    assert [outcome for outcome in outcomes if isinstance(outcome, int)] == [3, 8]
    assert store.commit([(1, commands.Purge(7, b"", 0))]) == [1]
    assert refill(store, before[4]) == [NOT_LOST]
    store = reopened(store, disk, options)
    assert min(messages_of(store)) == 8 and store.holes[0].first_seq == 7


def test_refilled_messages_that_are_deleted_while_they_are_sealed_stay_deleted() -> None:
    disk, options = FakeDisk(), options_with()
    store, before, lost = damaged_store(disk, options)
    refill(store, *(before[seq] for seq in lost[:20]))
    expected = messages_of(store)
    while not store.is_cycle_due:
        seq = publish(store, b"b", b"more" * 20)
        message = store.stream(1).log.get(seq)
        assert message is not None
        expected[seq] = message
    cycle = store.begin_cycle()
    cycle.run()
    assert store.commit([(1, commands.Delete(seq, False)) for seq in lost[5:8]]) == [1] * 3
    assert refill(store, before[lost[20]]) == [lost[20]]
    store.end_cycle()
    expected = {seq: one for seq, one in expected.items() if seq not in lost[5:8]}
    expected[lost[20]] = before[lost[20]]
    check(store, expected)
    store = reopened(store, disk, options)
    check(store, expected)
    turn_journal(store, expected)
    check(reopened(store, disk, options), expected)


def test_limits_hold_for_refilled_messages() -> None:
    disk, options = FakeDisk(), options_with()
    store, before, lost = damaged_store(disk, options)
    count = store.stream(1).log.message_count
    put_stream(store, max_msgs=count + 2)
    refill(store, *(before[seq] for seq in lost[-4:]))
    assert store.stream(1).log.message_count == count + 2
    assert store.stream(1).log.first_seq == lost[-2]


def test_time_of_refilled_messages_is_found_and_their_ttl_counts() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store, allow_msg_ttl=True)
    for _ in range(120):
        clock.now_ns += 1_000_000_000
        publish(store, b"a.x", b"x" * 150, Nats_TTL="1h")
        store.maintain()
    before = messages_of(store)
    store.close()
    damage_segments(disk)
    store = Store.open(disk, options)
    refill(store, before[3], before[5])
    log = store.stream(1).log
    assert log.seq_at_time(before[2].ts_ns) == 3 and log.seq_at_time(before[4].ts_ns) == 5
    assert log.first_ts_ns == before[3].ts_ns
    machine: Any = store.stream(1).group.machine
    expired = machine.expired(before[4].ts_ns + 3600 * 1_000_000_000)
    assert expired is not None and expired.seqs == (3,)


def test_a_message_too_large_for_other_commands_can_be_refilled() -> None:
    command = commands.Refill(1, 2, b"a", 0, b"x" * (commands.COMMAND_BYTES_MAX + 1))
    assert commands.decode(commands.encode(command)) == command


def test_fsck_counts_refilled_messages_as_there(tmp_path: Path) -> None:
    disk, options = FakeDisk(), options_with()
    store, before, lost = damaged_store(disk, options)
    refill(store, *(before[seq] for seq in lost[1:]))
    store.close()
    for path, content in disk.contents().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    for name in ("journal", "checkpoints", "streams", "lost+found"):
        (tmp_path / name).mkdir(exist_ok=True)
    report = verify(StoreFiles(str(tmp_path)), Keyring())
    (figures,) = report.streams
    assert figures.messages == len(before) - 1
    assert figures.messages_lost == 1
