"""The store as a whole: what is committed stays, also after a restart; limits, modes, expiry, memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from edged.config.jetstream_options import ShedClass, ShedOptions
from edged.core import commands, headers
from edged.core.api_errors import STREAM_NOT_FOUND
from edged.core.space_rules import SpaceLimits
from edged.core.stream_machine import Duplicate, Refused, StreamMachine
from edged.store.box import Keyring
from edged.store.errors import StoreBroken, StoreError, StoreFull
from edged.store.options import SYNC_ALWAYS, SYNC_INTERVAL, SYNC_OS, StoreOptions
from edged.store.store import Append, Store
from tests.lab.fake_disk import FakeDisk

SECOND_NS = 1_000_000_000


class Clock:
    """A time of day that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_800_000_000 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns


def options_with(clock: Clock | None = None, **changes: Any) -> StoreOptions:
    nonces = count(12345)
    plain = StoreOptions(
        journal_file_bytes=16 * 1024,
        now_ns=clock or Clock(),
        draw_nonce=lambda: next(nonces) << 40 | next(nonces) | 1,
    )
    return replace(plain, **changes)


def put_stream(store: Store, group: int = 1, **config: Any) -> None:
    command = commands.PutStream(group, bytes([group]) * 16, "A", f"S{group}", config)
    assert store.commit([(0, command)]) == [0]


def publish(store: Store, subject: bytes, data: bytes, group: int = 1, **fields: str) -> Any:
    block = headers.encode(
        [(name.replace("_", "-").encode(), text.encode()) for name, text in fields.items()]
    )
    block = block if fields else b""
    (outcome,) = store.commit([(group, Append(subject, len(block), block + data))])
    return outcome


def machine_of(store: Store, group: int = 1) -> StreamMachine:
    machine = store.stream(group).group.machine
    assert isinstance(machine, StreamMachine)
    return machine


def reopened(store: Store, disk: FakeDisk, options: StoreOptions) -> Store:
    store.close()
    return Store.open(disk, options)


def test_what_was_committed_is_there_after_a_restart() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    assert [publish(store, b"a.b", b"%d" % number) for number in range(3)] == [1, 2, 3]
    assert store.commit([(1, commands.Delete(2, False))]) == [1]
    store = reopened(store, disk, options)
    log = store.stream(1).log
    assert [getattr(log.get(seq), "data", None) for seq in (1, 2, 3)] == [b"0", None, b"2"]
    assert store.report.is_clean
    assert publish(store, b"a.b", b"next") == 4


def test_messages_that_outlive_their_journal_file_move_to_segments_and_stay_readable() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    for number in range(100):
        publish(store, b"a.%d" % (number % 7), b"%d" % number * 100)
        store.maintain()
    assert any(name.endswith(".seg") for name in disk.contents())
    assert len([name for name in disk.contents() if name.startswith("journal/0")]) <= 4
    store = reopened(store, disk, options)
    log = store.stream(1).log
    for number in range(100):
        message = log.get(number + 1)
        assert message is not None and message.data == b"%d" % number * 100
    assert log.count_matching((b"a.3",)) == 14


def test_a_second_process_is_told_that_the_store_is_in_use() -> None:
    disk = FakeDisk()
    store = Store.open(disk, options_with())
    with pytest.raises(StoreBroken, match="another process"):
        Store.open(disk, options_with())
    store.close()
    Store.open(disk, options_with()).close()


def test_a_repeated_message_id_is_refused_within_the_window_also_after_a_restart() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store, duplicate_window=60 * SECOND_NS)
    assert publish(store, b"a", b"1", Nats_Msg_Id="x") == 1
    store = reopened(store, disk, options)
    assert publish(store, b"a", b"2", Nats_Msg_Id="x") == Duplicate(1)
    clock.now_ns += 61 * SECOND_NS
    assert publish(store, b"a", b"3", Nats_Msg_Id="x") == 2


def test_commands_behind_the_removal_of_their_stream_are_refused() -> None:
    store = Store.open(FakeDisk(), options_with())
    put_stream(store)
    outcomes = store.commit([(0, commands.RemoveStream(1)), (1, Append(b"a", 0, b"late"))])
    assert outcomes == [0, Refused(STREAM_NOT_FOUND)]


def test_the_store_refuses_messages_above_its_limit_and_takes_them_again_below_it() -> None:
    space = SpaceLimits(store_bytes_max=2000, reserve_bytes=0)
    store = Store.open(FakeDisk(), options_with(space=space))
    put_stream(store)
    assert publish(store, b"a", b"x" * 1500) == 1
    refused = publish(store, b"a", b"x" * 1500)
    assert isinstance(refused, StoreFull) and "max_file_store" in str(refused)
    assert store.commit([(1, commands.Purge(0, b"", 0))]) == [1]
    assert publish(store, b"a", b"x" * 1500) == 2


def test_figures_of_accounts_are_those_of_the_logs_also_after_a_restart() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store, 1)
    put_stream(store, 2, max_msgs=2)
    for number in range(5):
        publish(store, b"a", b"x" * number, 1)
        publish(store, b"a", b"x" * number, 2)
    for opened in (store, reopened(store, disk, options)):
        logs = [opened.stream(group).log for group in (1, 2)]
        used = opened.room.disk.account("A")
        assert (used.messages, used.bytes) == (7, sum(log.bytes for log in logs))
        assert opened.room.disk.total == used


def test_a_stream_in_memory_writes_nothing_and_is_empty_after_a_restart() -> None:
    disk, options = FakeDisk(), options_with(memory_bytes_max=1000)
    store = Store.open(disk, options)
    put_stream(store, storage="memory")
    written = store.room.wear.bytes_written
    assert publish(store, b"a", b"x" * 500) == 1
    assert isinstance(publish(store, b"a", b"x" * 500), StoreFull)
    assert store.commit([(1, commands.Delete(1, False))]) == [1]
    assert publish(store, b"a", b"y") == 2
    message = store.stream(1).log.get(2)
    assert message is not None and message.data == b"y"
    assert store.room.wear.bytes_written - written < 300, "only batch records"
    assert store.room.memory.account("A").messages == 1
    store = reopened(store, disk, options)
    assert store.stream(1).log.message_count == 0 and store.stream(1).is_in_memory


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_stream_in_memory_that_had_messages_is_no_loss_after_a_restart_and_begins_at_one(
    is_sealed: bool,
) -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store, 1, storage="memory", max_msgs=3, discard="new")
    put_stream(store, 2)
    for number in range(200 if is_sealed else 5):
        publish(store, b"a", b"x" * 100, 1)
        assert publish(store, b"a", b"x" * 100, 2) == number + 1
        store.maintain()
    assert not store.groups[1].refused, "nobody would ever ask for them"
    store = reopened(store, disk, options)
    assert store.report.is_clean and bool(store.report.checkpoint) == is_sealed
    entry = store.stream(1)
    assert (entry.name, entry.config["max_msgs"], entry.is_in_memory) == ("S1", 3, True)
    assert (entry.log.message_count, entry.log.last_seq, entry.log.lost) == (0, 0, [])
    assert publish(store, b"a", b"y", 1) == 1
    store = reopened(store, disk, options)
    assert store.report.is_clean and store.holes == []


@pytest.mark.parametrize(
    ("of_store", "config", "mode"),
    [
        (SYNC_ALWAYS, {}, SYNC_ALWAYS),
        (SYNC_OS, {}, SYNC_OS),
        (SYNC_ALWAYS, {"persist_mode": "async"}, SYNC_INTERVAL),
        (SYNC_OS, {"metadata": {"edged.sync": "always"}}, SYNC_ALWAYS),
        (SYNC_ALWAYS, {"metadata": {"edged.sync": "os"}}, SYNC_OS),
    ],
)
def test_a_stream_has_the_mode_of_the_store_or_its_own(
    of_store: str, config: dict[str, Any], mode: str
) -> None:
    store = Store.open(FakeDisk(), options_with(sync=of_store))
    put_stream(store, **config)
    assert store.sync_of(1) == mode
    syncs = store.room.wear.syncs
    publish(store, b"a", b"x")
    assert (store.room.wear.syncs > syncs) == (mode == SYNC_ALWAYS)


def test_messages_expire_by_age_and_by_their_own_ttl_through_a_command() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store, max_age=100 * SECOND_NS, allow_msg_ttl=True)
    publish(store, b"a", b"old")
    clock.now_ns += 50 * SECOND_NS
    publish(store, b"a", b"short", Nats_TTL="10")
    publish(store, b"a", b"long", Nats_TTL="1h")
    store = reopened(store, disk, options)
    assert machine_of(store).expired(clock.now_ns) is None
    clock.now_ns += 20 * SECOND_NS
    command = machine_of(store).expired(clock.now_ns)
    assert command == commands.Expire(0, (2,))
    assert store.commit([(1, command)]) == [1]
    clock.now_ns += 31 * SECOND_NS
    command = machine_of(store).expired(clock.now_ns)
    assert command is not None and store.commit([(1, command)]) == [1]
    assert (store.stream(1).log.first_seq, store.stream(1).log.message_count) == (3, 1)


def test_expiry_of_sealed_messages_survives_a_restart() -> None:
    clock = Clock()
    disk, options = FakeDisk(), options_with(clock)
    store = Store.open(disk, options)
    put_stream(store, allow_msg_ttl=True)
    publish(store, b"a", b"short", Nats_TTL="10")
    for _ in range(20):
        publish(store, b"a", b"x" * 1000)
    store.maintain()
    assert store.stream(1).log.segments
    store = reopened(store, disk, options)
    clock.now_ns += 11 * SECOND_NS
    assert machine_of(store).expired(clock.now_ns) == commands.Expire(0, (1,))


def test_what_the_operator_allowed_to_go_is_shed_and_written_down() -> None:
    classes = (ShedClass("bulk", streams=("S1",)), ShedClass("alarms", streams=("S2",), may_shed=False))
    shed = ShedOptions(start_percent=50, stop_percent=25, classes=classes)
    space = SpaceLimits(store_bytes_max=20_000, reserve_bytes=0)
    disk, options = FakeDisk(), options_with(space=space, shed=shed)
    store = Store.open(disk, options)
    put_stream(store, 1)
    put_stream(store, 2)
    for _ in range(12):
        publish(store, b"a", b"x" * 1000, 1)
    publish(store, b"a", b"alarm", 2)
    planned = store.room.plan_shedding(store.catalog.streams.values(), 0, 7)
    assert [group for group, _ in planned] == [1]
    store.commit(planned)
    store = reopened(store, disk, options)
    assert store.room.disk.total.bytes <= 5000
    assert store.stream(2).log.message_count == 1
    (record,) = machine_of(store, 1).sheds.records()
    assert (record.first_seq, record.reason) == (1, "bulk") and record.bytes >= 7000


def test_a_full_disk_refuses_messages_at_once_takes_deletes_and_heals_by_itself() -> None:
    clock = Clock()
    space = SpaceLimits(free_bytes_min=0, reserve_bytes=300 * 1024)
    disk = FakeDisk(capacity_bytes=4096 * 1024)
    store = Store.open(disk, options_with(clock, space=space, journal_file_bytes=64 * 1024))
    put_stream(store)
    stored = 0
    while isinstance(publish(store, b"a", b"x" * 10_000), int):
        stored += 1
        assert stored < 1000
    assert store.room.governor.is_full
    for _ in range(20):
        assert isinstance(publish(store, b"a", b"x"), StoreFull)
    for seq in range(1, stored + 1):
        assert store.commit([(1, commands.Delete(seq, False))]) == [1]
        clock.now_ns += SECOND_NS
        store.tend(clock.now_ns)
        store.maintain()
    assert publish(store, b"a", b"back") == stored + 1


def test_wear_is_counted_and_kept() -> None:
    disk, options = FakeDisk(), options_with()
    store = Store.open(disk, options)
    put_stream(store)
    for _ in range(40):
        publish(store, b"a", b"x" * 1000)
        store.maintain()
    before = store.room.wear.bytes_written
    assert before > 40_000
    store = reopened(store, disk, options)
    assert 0 < store.room.wear.bytes_written <= before


SECRET = b"nobody may read this"


def keyring(key: str | None, prev_key: str | None = None) -> Keyring:
    return Keyring.read(key, prev_key, "aes", {})


def texts(store: Store) -> list[bytes]:
    log = store.stream(1).log
    return [message.data[:30] for seq in range(1, log.last_seq + 1) if (message := log.get(seq)) is not None]


def fill(store: Store, count: int) -> None:
    for _ in range(count):
        publish(store, b"secret.subject", SECRET + b" " * 500)
        store.maintain()


def test_an_encrypted_store_keeps_nothing_readable_and_comes_back_with_its_key() -> None:
    disk, options = FakeDisk(), options_with(keys=keyring("a long enough first key"), tail_bytes=1)
    store = Store.open(disk, options)
    put_stream(store)
    fill(store, 60)
    assert texts(store) == [SECRET + b" " * 10] * 60
    store = reopened(store, disk, options)
    assert texts(store) == [SECRET + b" " * 10] * 60 and store.report.is_clean
    store.close()
    assert all(
        SECRET not in content and b"secret.subject" not in content for content in disk.contents().values()
    )
    with pytest.raises(StoreError, match="key"):
        Store.open(disk, options_with(keys=keyring("another key, long enough")))
    with pytest.raises(StoreError, match="key"):
        Store.open(disk, options_with())


@pytest.mark.parametrize("key", [None, "a long enough first key"], ids=["plain", "encrypted"])
@pytest.mark.parametrize("tail_bytes", [1, 2_000, 1 << 20])
def test_a_batch_is_read_alike_from_memory_from_the_journal_and_from_segments(
    tail_bytes: int, key: str | None
) -> None:
    changes = {"keys": keyring(key)} if key is not None else {}
    disk, options = FakeDisk(), options_with(tail_bytes=tail_bytes, **changes)
    store = Store.open(disk, options)
    put_stream(store)
    for number in range(120):
        publish(store, b"a.%d" % (number % 3), b"%d" % number * (number % 50), Name=str(number))
        store.maintain()
    log = store.stream(1).log
    expected = [log.get(seq) for seq in range(1, 121)]
    for count_max in (1, 3, 4, 50, 1_000):
        found, seq = [], 1
        while seq <= 120:
            messages, seq, unreadable = log.messages((), seq, count_max, 1 << 20)
            found += messages
            assert not unreadable and len(messages) <= count_max
        assert found == expected
    wanted = [message for message in expected if message is not None and message.subject != b"a.1"]
    assert log.messages((b"a.0", b"a.2"), 1, 1_000, 1 << 20).messages == wanted
    store.close()


def test_a_plain_store_becomes_an_encrypted_one_and_keys_are_changed_as_files_are_written_anew() -> None:
    disk = FakeDisk()
    store = Store.open(disk, options_with())
    put_stream(store)
    fill(store, 40)
    rings = (
        keyring("a long enough first key"),
        keyring("the second, long enough", "a long enough first key"),
    )
    for ring in rings:
        store = reopened(store, disk, options_with(keys=ring))
        fill(store, 120)
        assert store.report.is_clean
    store = reopened(store, disk, options_with(keys=keyring("the second, long enough")))
    assert texts(store) == [SECRET + b" " * 10] * 280
    store.close()
    used = [name for name in disk.contents() if not name.startswith("journal/spare")]
    assert all(SECRET not in disk.contents()[name] for name in used)
