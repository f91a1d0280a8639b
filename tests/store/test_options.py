"""Each setting of the jetstream block that concerns the store does there what edged.conf.example says."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

import pytest

from edged.config.jetstream_options import JetStreamOptions, SegmentOptions, ShedClass, ShedOptions
from edged.config.load import load_text
from edged.core import commands
from edged.core.space_rules import RESERVE_BYTES_MIN, SpaceLimits
from edged.store.box import Keyring, WrongKey
from edged.store.inspect_segment import segment_items
from edged.store.options import SYNC_INTERVAL, SYNC_OS, StoreOptions
from edged.store.segment import Segment
from edged.store.segment_writer import ROW_BYTES
from edged.store.store import Append, Store
from edged.store.stream_log import StreamLog
from tests.lab.fake_disk import FakeDisk

MIB = 1024 * 1024
START_NS = 1_800_000_000_000_000_000
KEY = "0123456789abcdef0123456789abcdef"
# These are the server's: what clients may ask for, where the store is, what waits in front of it.
OF_THE_SERVER = {
    "store_dir",
    "domain",
    "strict",
    "unique_tag",
    "extension_hint",
    "limits",
    "max_buffered_messages",
    "max_buffered_size",
    "request_queue_limit",
    "info_queue_limit",
    "max_outstanding_catchup",
}
SHED = ShedOptions(95, 70, (ShedClass("bulk", ("LOG*",)),))
# Each field of the block with another value than its default, and what a store then has.
CHANGED: dict[str, tuple[Any, dict[str, Any]]] = {
    "max_memory": (5 * MIB, {"memory_bytes_max": 5 * MIB}),
    "max_store": (
        900 * MIB,
        {"space": SpaceLimits(900 * MIB, 64 * MIB, 9 * MIB), "journal_file_bytes": 16 * MIB},
    ),
    "sync": ("os", {"sync": SYNC_OS}),
    "sync_interval_s": (0.5, {"sync_interval_ns": 500_000_000}),
    "group_commit_delay_s": (0.003, {"group_commit_delay_ns": 3_000_000}),
    "group_commit_bytes": (4096, {"group_commit_bytes": 4096}),
    "free_space_min": (MIB, {"space": SpaceLimits(-1, MIB, RESERVE_BYTES_MIN)}),
    "reserve_bytes": (3 * MIB, {"space": SpaceLimits(-1, 64 * MIB, 3 * MIB)}),
    "journal_file_bytes": (MIB, {"journal_file_bytes": MIB}),
    "block_cache_bytes": (7 * MIB, {"cache_bytes": 7 * MIB}),
    "segment": (SegmentOptions(4096, 9, MIB, 80), {"segment": SegmentOptions(4096, 9, MIB, 80)}),
    "shed": (SHED, {"shed": SHED}),
}


def options_of(text: str) -> StoreOptions:
    """The store's options from the text of a jetstream block, with small files and a clock of its own."""
    jetstream = load_text(f"jetstream {{ {text} }}", {}, "f").options.jetstream
    assert jetstream is not None
    given = StoreOptions.of(jetstream)
    nonces = count(777)
    return StoreOptions(
        journal_file_bytes=64 * 1024,
        segment=given.segment,
        now_ns=lambda: START_NS,
        draw_nonce=lambda: next(nonces) << 40 | 1,
    )


@cache
def words(step: int, size: int) -> bytes:
    """Something to compress, of so many bytes."""
    return b" ".join(b"%d" % (step * word % 1009) for word in range(size // 2))[:size]


def filled(text: str, messages: int, size: int) -> Store:
    """A store with one stream, whose messages went to segments as they would under these settings."""
    store = Store.open(FakeDisk(), options_of(text))
    store.commit([(0, commands.PutStream(1, bytes(16), "A", "S", {}))])
    for number in range(messages):
        store.commit([(1, Append(b"s.%d" % (number % 3), 0, words(number % 1009, size)))])
        store.maintain()
    return store


def fill_up(store: Store) -> None:
    """Let the journal turn to a new file and everything be done that is due then."""
    for _ in range(100):
        store.commit([(1, Append(b"s.0", 0, b"x" * 1000))])
        store.maintain()


def segments(store: Store) -> list[Segment]:
    log = store.stream(1).log
    assert isinstance(log, StreamLog)
    found = [one.segment for one in log.segment_figures()]
    return [one for one in found if isinstance(one, Segment)]


def bytes_in_segments(store: Store) -> int:
    return sum(store.files.open(segment.path).size() for segment in segments(store))


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_setting_reaches_the_store_and_touches_nothing_else(name: str) -> None:
    value, expected = CHANGED[name]
    usual = StoreOptions.of(JetStreamOptions())
    changed = StoreOptions.of(JetStreamOptions(**{name: value}))
    names = [one for one in StoreOptions.__slots__ if one not in ("now_ns", "draw_nonce")]
    differing = {one for one in names if getattr(usual, one) != getattr(changed, one)}
    assert {one: getattr(changed, one) for one in differing} == expected


def test_every_setting_is_the_store_s_or_the_server_s() -> None:
    known = {*CHANGED, *OF_THE_SERVER, "key", "prev_key", "cipher"}
    assert known == set(JetStreamOptions.__slots__)


def test_keys_and_cipher_become_a_keyring() -> None:
    assert StoreOptions.of(JetStreamOptions()).tag_bytes == 0
    keys, usual, old = (
        StoreOptions.of(options).keys
        for options in (
            JetStreamOptions(key=KEY, prev_key=KEY[::-1], cipher="aes"),
            JetStreamOptions(key=KEY),
            JetStreamOptions(key=KEY[::-1]),
        )
    )
    assert keys is not None and usual is not None and old is not None
    assert keys.label != usual.label and not keys.is_current(old.label)
    assert keys.box_of(usual.label, b"test", bytes(16)) is not None
    assert keys.box_of(old.label, b"test", bytes(16)) is not None
    with pytest.raises(WrongKey):
        usual.box_of(old.label, b"test", bytes(16))


def test_interval_is_read_with_its_mode() -> None:
    jetstream = load_text("jetstream { sync: '250ms' }", {}, "f").options.jetstream
    assert jetstream is not None
    options = StoreOptions.of(jetstream)
    assert (options.sync, options.sync_interval_ns) == (SYNC_INTERVAL, 250_000_000)


def blocks(store: Store) -> list[dict[str, Any]]:
    """The blocks of the first segment, as `edged inspect` shows them."""
    files: Any = store.files
    found = segment_items(files, segments(store)[0].path, Keyring(), 0)
    return [fields for kind, fields in found if kind == "block"]


@pytest.mark.parametrize("block_bytes", [4096, 16 * 1024])
def test_block_size_says_how_much_is_compressed_as_one(block_bytes: int) -> None:
    store = filled(f"segment {{ block_size: {block_bytes} }}", 300, 400)
    counts = [block["messages"] for block in blocks(store)]
    assert max(counts) == block_bytes // (400 + ROW_BYTES)


def test_block_size_holds_for_segments_that_are_written_anew_too() -> None:
    store = filled("segment { block_size: 4KB, size_max: 1MB }", 2500, 1000)
    first = segments(store)[0]
    for seq in range(first.first_seq, first.first_seq + first.count * 3 // 5):
        store.commit([(1, commands.Delete(seq, False))])
    before = first.path
    fill_up(store)
    assert segments(store)[0].path != before
    assert max(block["messages"] for block in blocks(store)) == 4096 // (1000 + ROW_BYTES)


def test_higher_compression_level_makes_smaller_segments() -> None:
    low, high = (filled(f"segment {{ compression_level: {level} }}", 300, 600) for level in (1, 19))
    assert [one.count for one in segments(low)] == [one.count for one in segments(high)]
    assert bytes_in_segments(high) < 0.95 * bytes_in_segments(low)


def test_segments_are_merged_up_to_their_largest_size() -> None:
    small, large = (filled(f"segment {{ size_max: {size} }}", 6000, 1000) for size in ("1MB", "64MB"))
    assert max(one.message_bytes for one in segments(small)) <= MIB
    assert max(one.message_bytes for one in segments(large)) > MIB
    assert len(segments(small)) > len(segments(large))


@pytest.mark.parametrize(("live_min", "is_rewritten"), [("20%", False), ("50%", True), ("0%", False)])
def test_segment_is_rewritten_when_less_than_the_minimum_is_alive(live_min: str, is_rewritten: bool) -> None:
    # With another one behind it that has no room left, the first one is not merged with anything.
    store = filled(f"segment {{ live_min: {live_min}, size_max: 1MB }}", 2500, 1000)
    first = segments(store)[0]
    path, count_before = first.path, first.count
    alive = first.count * 2 // 5
    for seq in range(first.first_seq, first.first_seq + first.count - alive):
        store.commit([(1, commands.Delete(seq, False))])
    fill_up(store)
    now = segments(store)[0]
    assert (now.path != path) == is_rewritten
    assert now.count == (alive if is_rewritten else count_before)
