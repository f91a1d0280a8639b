"""Archives of nats-server up to 2.14: what counts in them, and what is refused."""

from __future__ import annotations

import json
import struct
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.archive_parts import ArchiveError, ArchiveLimits, SeqPair
from edged.core.block_records import BlockReader
from edged.core.s2_twins import highway_hash
from edged.core.store_index import parse_block_index, parse_consumer_position, parse_index
from edged.core.tar_files import parse_header, parse_records
from tests.core.archive_cases import LIMITS, OLD_TAR, TAR, compressed, plain, read, survey, tar_files, tar_of
from tests.examples import examples
from tests.jetstream import archive_recipe as recipe

FILES = tar_files(TAR)
OLD_FILES = tar_files(OLD_TAR)
INDEX = "msgs/index.db"
BLOCK = "msgs/1.blk"
ERASED, TOMBSTONE = 1 << 63, 1 << 62


def key(name: str) -> bytes:
    return sha256(name.encode()).digest()


def meta(name: str = "S", **more: object) -> list[tuple[str, bytes]]:
    """A configuration with its checksum."""
    data = json.dumps({"name": name, **more}).encode()
    return [("meta.inf", data), ("meta.sum", highway_hash(key(name), data).hex().encode())]


def record(
    seq: int,
    data: bytes = b"",
    *,
    subject: bytes = b"s",
    block: int = 1,
    header_bytes: int = 0,
    ts_ns: int = 5,
) -> bytes:
    hashed = struct.pack("<Qq", seq, ts_ns) + subject + data
    sizes = struct.pack("<I", header_bytes) if header_bytes else b""
    size = 22 + len(subject) + len(sizes) + len(data) + 8
    start = struct.pack("<I", size | (1 << 31 if header_bytes else 0)) + hashed[:16]
    start += struct.pack("<H", len(subject)) + subject + sizes
    return start + data + highway_hash(key(f"S-{block}"), hashed)


def tombstone(seq: int, block: int = 1) -> bytes:
    return record(seq | TOMBSTONE, subject=b"", block=block)


def seqs_of(files: list[tuple[str, bytes]]) -> list[int]:
    return [message.seq for message in read(tar_of(files))[1]]


def changed(files: dict[str, bytes], **changes: bytes | None) -> bytes:
    """An archive with files replaced, or left out for None; in a key `__` is a slash and `_` a dot."""
    named = {name.replace("__", "/").replace("_", "."): data for name, data in changes.items()}
    kept = [(name, named.get(name, data)) for name, data in files.items()]
    return tar_of([(name, data) for name, data in kept if data is not None])


# --- what counts ---


def test_configuration_and_creation_come_out() -> None:
    contents = survey(tar_of(list(FILES.items())))
    assert contents.config is not None
    assert contents.config.items() >= recipe.CONFIG.items()
    assert "Created" not in contents.config
    assert contents.created_ns is not None
    assert contents.consumers[0].created_ns is not None


def test_without_an_index_the_tombstones_count_and_what_a_limit_removed_is_back() -> None:
    contents, messages = read(changed(FILES, msgs__index_db=None))
    assert [message.seq for message in messages] == [1, 2, 3, 4, *recipe.LIVE_SEQS]
    assert (contents.state.messages, contents.state.first_seq, contents.state.last_seq) == (14, 1, 16)


def test_an_index_that_was_made_later_than_the_block_does_not_count() -> None:
    # Without its last record the block is an earlier one.
    size = len(recipe.message(16)[2]) + len(recipe.message(16)[1]) + 4 + 22 + 6 + 8
    tombstones = 60
    block = FILES[BLOCK]
    assert block[-tombstones:][4:12] == struct.pack("<Q", 7 | TOMBSTONE)
    earlier = block[: -tombstones - size]
    contents, messages = read(changed(FILES, msgs__1_blk=earlier))
    assert [message.seq for message in messages] == [1, 2, 3, 4, 5, 6, *range(8, 16)]
    assert contents.state.last_seq == 15


def test_an_index_beside_a_block_counts_only_for_that_state_of_it() -> None:
    block = OLD_FILES[BLOCK]
    size = len(recipe.message(16)[2]) + len(recipe.message(16)[1]) + 4 + 22 + 6 + 8
    messages = read(changed(OLD_FILES, msgs__1_blk=block[:-size]))[1]
    assert [message.seq for message in messages] == [1, 2, 3, 4, 5, 6, 8, 9, *range(10, 16)]


def test_a_tombstone_in_a_later_block_counts_for_an_earlier_one() -> None:
    first = record(1) + record(2) + record(3)
    second = tombstone(2, block=4) + record(4, block=4)
    assert seqs_of([*meta(), (BLOCK, first), ("msgs/4.blk", second)]) == [1, 3, 4]


def test_what_was_erased_keeps_its_seq() -> None:
    contents, messages = read(tar_of([*meta(), (BLOCK, record(1 | ERASED) + record(2) + record(3 | ERASED))]))
    assert [message.seq for message in messages] == [2]
    assert (contents.state.first_seq, contents.state.last_seq) == (2, 3)


def test_an_emptied_stream_goes_on_after_its_last_seq() -> None:
    contents, messages = read(tar_of([*meta(), (BLOCK, tombstone(41))]))
    assert messages == []
    assert (contents.state.messages, contents.state.first_seq, contents.state.last_seq) == (0, 42, 41)


def test_a_leftover_within_a_block_is_ignored() -> None:
    assert seqs_of([*meta(), (BLOCK, record(1) + record(2, b"kept") + record(2, b"left") + record(3))]) == [
        1,
        2,
        3,
    ]


def test_a_compressed_block_is_read() -> None:
    block = b"".join(record(seq, b"again and again" * 9) for seq in range(1, 90))
    packed = b"cmp\x01" + b"\x80\x01" + compressed(block[:-8]) + block[-8:]
    archive = tar_of([*meta(), (BLOCK, packed)])
    assert [message.seq for message in read(archive, step=50)[1]] == list(range(1, 90))


def test_names_of_a_server_on_windows_are_understood() -> None:
    files = [(name.replace("/", "\\"), data) for name, data in FILES.items()]
    assert seqs_of(files) == recipe.LIVE_SEQS


def test_a_long_name_is_taken_from_the_extension() -> None:
    name = "c" * 200
    data = b'{"durable_name":"' + name.encode() + b'"}'
    checksum = highway_hash(key(f"S/{name}"), data).hex().encode()
    state = b"\x16\x02\x01\x02\x03\x04\x00\x00"
    parts = {"meta.inf": data, "meta.sum": checksum, "o.dat": state}
    files = [(f"obs/{name}/{part}", value) for part, value in parts.items()]
    (consumer,) = survey(tar_of([*meta(), *files], mtime=1.5)).consumers
    assert consumer.name == name
    assert (consumer.position.ack_floor, consumer.position.delivered) == (SeqPair(1, 2), SeqPair(3, 4))


# --- what is refused ---


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes((data[position] ^ 1,)) + data[position + 1 :]


@pytest.mark.parametrize("position", [5, 13, 23, 40, 700, -1, -40])
def test_one_bit_in_a_block_is_noticed(position: int) -> None:
    position %= len(FILES[BLOCK])
    with pytest.raises(ArchiveError, match="message block 1"):
        survey(changed(FILES, msgs__1_blk=flipped(FILES[BLOCK], position)))


@pytest.mark.parametrize("name", ["meta.inf", "meta.sum", INDEX, "obs/PULL/meta.inf", "obs/PULL/meta.sum"])
def test_one_bit_in_a_small_file_is_noticed(name: str) -> None:
    files = [(file, flipped(data, 30 % len(data)) if file == name else data) for file, data in FILES.items()]
    with pytest.raises(ArchiveError, match=r"checksum|JSON"):
        survey(tar_of(files))


CONSUMER_FILES = [(name, data) for name, data in FILES.items() if name.startswith("obs/")]
GOLD = [(name, data) for name, data in FILES.items() if not name.startswith("obs/")]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([(BLOCK, record(1))], "does not begin with the configuration"),
        ([*meta(), *meta()], "comes twice"),
        (meta()[:1], "not followed by its checksum"),
        ([meta()[0], (BLOCK, b"")], "not followed by its checksum"),
        (meta("a.b"), "no valid name"),
        ([("meta.inf", b"{}"), ("meta.sum", b"")], "names no stream"),
        ([("meta.inf", b"\xf3\x91" * 40), ("meta.sum", b"")], "damaged or encrypted"),
        ([*meta(), ("meta.key", b"")], "encrypted"),
        ([*meta(), ("msgs/1.key", b"")], "encrypted"),
        ([*meta(), ("errors.txt", b"disk on fire")], "disk on fire"),
        ([*meta(), ("../../etc/passwd", b"")], "does not belong"),
        ([*meta(), ("msgs/../1.blk", b"")], "does not belong"),
        ([*meta(), ("msgs/01.blk", b"")], "does not belong"),
        ([*meta(), ("msgs/1.blk", record(1)), ("msgs/1.blk", record(2))], "comes after block 1"),
        ([*meta(), ("msgs/2.blk", b""), ("msgs/1.blk", b"")], "comes after block 2"),
        ([*meta(), ("msgs/1.blk", record(5)), ("msgs/2.blk", record(5, block=2))], "earlier block"),
        ([*meta(), (BLOCK, record(1)[:-1])], "ends within a record"),
        ([*meta(), (BLOCK, bytes(30))], "a record of 0 bytes"),
        ([*meta(), (BLOCK, record(1, b"x" * (LIMITS.message_bytes_max + 1)))], "too large"),
        ([*meta(), (BLOCK, record(1, b"x", header_bytes=2))], "header block is longer"),
        ([*meta(), (BLOCK, record(1, subject=b"a b"))], "no valid seq"),
        ([*meta(), (BLOCK, record(1, ts_ns=-1))], "no valid seq"),
        ([*meta(), (BLOCK, b"cmp\x01\x05" + bytes(12))], "message block 1"),
        ([*meta(), (BLOCK, b"cmp\x01\x85")], "too short"),
        ([*GOLD, (INDEX, FILES[INDEX])], "index.db comes twice"),
        ([*GOLD, CONSUMER_FILES[2]], "out of order"),
        ([*GOLD, *CONSUMER_FILES[:2]], "state of a consumer"),
        ([*GOLD, *CONSUMER_FILES, *CONSUMER_FILES], "comes twice"),
        ([*GOLD, ("obs/a.b/meta.inf", b"{}")], "valid name"),
        ([*meta(padding="x" * LIMITS.documents_bytes_max)], "more than"),
        ([*meta(), (BLOCK, bytes(LIMITS.output_bytes_max))], "more than|record of 0 bytes"),
    ],
)
def test_an_archive_against_the_rules_is_refused(files: list[tuple[str, bytes]], reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        survey(tar_of(files))


def test_what_is_no_plain_file_is_refused() -> None:
    with pytest.raises(ArchiveError, match="no plain file"):
        survey(tar_of([("meta.inf", b"")], type=b"2", linkname="/etc/passwd"))


def test_bytes_after_the_end_are_refused_unless_they_are_padding() -> None:
    whole = plain(tar_of(list(FILES.items())))
    assert survey(compressed(whole + bytes(5000))).state.messages == 10
    with pytest.raises(ArchiveError, match="after the end"):
        survey(compressed(whole + bytes(5000) + b"\x01"))


def test_seqs_too_far_apart_for_the_bounds_are_refused() -> None:
    limits = ArchiveLimits(1 << 20, 1 << 16, pages_max=3)
    for block in (
        b"".join(record(seq << 20) for seq in range(1, 5)),
        b"".join(map(tombstone, range(1, 9999, 600))),
    ):
        with pytest.raises(ArchiveError, match="pages"):
            survey(tar_of([*meta(), (BLOCK, block)]), limits)


def test_a_compressed_block_counts_for_the_budget_of_the_archive() -> None:
    packed = b"cmp\x01\x00" + compressed(bytes(40_000)) + bytes(8)
    with pytest.raises(ArchiveError, match="more than"):
        survey(tar_of([*meta(), (BLOCK, packed)]), ArchiveLimits(45_000, 1 << 16))


# --- files made to do harm, with their checksums right ---


@settings(max_examples=examples(150), deadline=None)
@given(
    position=st.integers(0, 400),
    junk=st.binary(max_size=12),
    taken=st.integers(0, 12),
    name=st.sampled_from("isc"),
)
def test_damaged_small_files_are_refused_or_read(position: int, junk: bytes, taken: int, name: str) -> None:
    data = {"i": FILES[INDEX][:-8], "s": OLD_FILES["msgs/1.idx"], "c": FILES["obs/PULL/o.dat"]}[name]
    position %= len(data) + 1
    damaged = data[:position] + junk + data[position + taken :]
    try:
        match name:
            case "i":
                assert len(parse_index(damaged, 8).ranges) <= len(damaged)
            case "s":
                assert len(parse_block_index(damaged, 1, 8).removed) <= len(damaged)
            case _:
                assert len(parse_consumer_position(damaged, "C").pending) <= len(damaged)
    except ArchiveError:
        pass


@settings(max_examples=examples(150), deadline=None)
@given(data=st.binary(max_size=700), records=st.binary(max_size=60))
def test_damaged_headers_are_refused_or_read(data: bytes, records: bytes) -> None:
    header = bytearray(plain(tar_of(meta(), mtime=1))[:512])
    header[: len(data)] = data[:512]
    # So that it is not only the sum that is wrong.
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    header[257:263] = b"ustar\0"
    for call in (lambda: parse_header(bytes(header)), lambda: parse_records(records)):
        try:
            call()
        except ArchiveError:
            continue


def test_records_of_an_extension_are_keys_and_values() -> None:
    assert parse_records(b"12 path=a=b\n11 size=12\n") == {"path": "a=b", "size": "12"}


@settings(max_examples=examples(100), deadline=None)
@given(size=st.integers(0, (1 << 32) - 1), subject_bytes=st.integers(0, 65535), rest=st.binary(max_size=80))
def test_a_record_with_any_sizes_is_refused_or_waits_for_no_more_than_the_bound(
    size: int, subject_bytes: int, rest: bytes
) -> None:
    reader = BlockReader("S", 1, message_bytes_max=100)
    reader.feed(struct.pack("<IQqH", size, 1, 5, subject_bytes) + rest)
    try:
        reader.next_record()
    except ArchiveError:
        return
    assert size & 0x7FFF_FFFF <= 22 + 65535 + 4 + 100 + 8
