"""Small files of nats-server's store that archives up to 2.14 hold beside the blocks.

`msgs/index.db` (2.10 and later) and `msgs/N.idx` (before) say which part of a block still counts: messages
that a limit removed stay in the block and have no tombstone. `obs/<name>/o.dat` is how far a consumer got.
All are varints after two bytes, magic and version.

Rules: files come from outside. Every number is read within the file; ArchiveError is the only way to fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edged.core.archive_parts import SEQ_MAX, ArchiveError, ConsumerPosition, PendingMessage, SeqPair
from edged.core.block_records import CHECKSUM_BYTES
from edged.core.gotime import SECOND
from edged.core.seq_set import PAGE_BITS, PAGE_SEQS, SeqSet, SeqSetFullError

# More than a terabyte of the blocks that nats-server makes.
BLOCKS_MAX: Final = 1 << 17

_INDEX_MAGIC: Final = 11
_FILE_MAGIC: Final = 22
_INDEX_VERSIONS: Final = range(1, 5)
_CONSUMER_VERSIONS: Final = range(1, 3)
_SET_BUCKETS: Final = {1: 64, 2: 32}
_BUCKET_BYTES: Final = 8
_SET_HEIGHT_BYTES: Final = 2
_VARINT_BYTES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class StoreIndex:
    """Which messages of some blocks count: those in one of `ranges`, first and last seq, not in `removed`.

    It holds for blocks the last of which is `last_block` and ends with `last_checksum`.
    """

    last_seq: int
    size_bytes: int
    ranges: tuple[tuple[int, int], ...]
    removed: SeqSet
    last_block: int
    last_checksum: bytes


class _Numbers:
    """Reads numbers from a file, one after the other."""

    __slots__ = ("_data", "_name", "_position")

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._position = 0

    def bytes_of(self, size: int) -> bytes:
        """Bytes as they are."""
        start = self._position
        if size > len(self._data) - start:
            raise ArchiveError(f"{self._name} is too short")
        self._position = start + size
        return self._data[start : start + size]

    def unsigned(self) -> int:
        """A uvarint."""
        data, position = self._data, self._position
        number = shift = 0
        while position < len(data) and shift < 7 * _VARINT_BYTES_MAX:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = position
                return number
            shift += 7
        raise ArchiveError(f"{self._name} is too short")

    def signed(self) -> int:
        """A zigzag varint."""
        number = self.unsigned()
        return number >> 1 if not number & 1 else ~(number >> 1)

    def seq(self) -> int:
        """A uvarint that is a seq, or how many of something there are."""
        number = self.unsigned()
        if number > SEQ_MAX:
            raise ArchiveError(f"{self._name} holds a seq that is none")
        return number

    def start(self, magic: int, versions: range) -> int:
        """Magic and version; the version."""
        found, version = self.bytes_of(2)
        if found != magic or version not in versions:
            raise ArchiveError(f"{self._name} is of an unknown kind or version, or encrypted")
        return version

    def add_set(self, seqs: SeqSet) -> None:
        """A set of seqs as nats-server encodes it: nodes with a base and a bit for each seq after it."""
        buckets = _SET_BUCKETS.get(self.start(_FILE_MAGIC, range(1, 3)), 0)
        nodes = int.from_bytes(self.bytes_of(4), "little")
        self.bytes_of(4)
        for _ in range(nodes):
            base = int.from_bytes(self.bytes_of(8), "little")
            bits = int.from_bytes(self.bytes_of(buckets * _BUCKET_BYTES), "little")
            self.bytes_of(_SET_HEIGHT_BYTES)
            if base % PAGE_SEQS or base > SEQ_MAX:
                raise ArchiveError(f"{self._name} holds a set that is none")
            page = base >> PAGE_BITS
            while bits:
                seqs.add_page(page, bits)
                bits >>= PAGE_SEQS
                page += 1


def parse_index(data: bytes, pages_max: int) -> StoreIndex:
    """From `msgs/index.db`, without the checksum at its end."""
    numbers = _Numbers(data, "index.db")
    version = numbers.start(_INDEX_MAGIC, _INDEX_VERSIONS)
    numbers.seq()  # How many messages there are follows from the rest.
    size_bytes = numbers.seq()
    numbers.seq()
    numbers.signed()
    last_seq = numbers.seq()
    numbers.signed()
    for _ in range(numbers.unsigned()):
        numbers.bytes_of(numbers.unsigned())
        total = numbers.unsigned()
        numbers.unsigned()
        if total > 1 or version >= 4:
            numbers.unsigned()
    removed = SeqSet(pages_max)
    ranges = []
    blocks = numbers.unsigned()
    if blocks > BLOCKS_MAX:
        raise ArchiveError(f"index.db has {blocks} blocks")
    for _ in range(blocks):
        numbers.unsigned()
        numbers.unsigned()
        first_seq = numbers.seq()
        numbers.signed()
        ranges.append((first_seq, numbers.seq()))
        numbers.signed()
        removed_count = numbers.unsigned()
        # Counts of messages with a time to live (2) and with a schedule (3).
        for _ in range(min(version, 3) - 1):
            numbers.unsigned()
        if removed_count:
            _add_set(numbers, removed)
    last_block = numbers.seq()
    checksum = numbers.bytes_of(CHECKSUM_BYTES)
    return StoreIndex(last_seq, size_bytes, tuple(ranges), removed, last_block, checksum)


def parse_block_index(data: bytes, block: int, pages_max: int) -> StoreIndex:
    """From `msgs/N.idx`, which is about one block only and names no other."""
    numbers = _Numbers(data, f"{block}.idx")
    numbers.start(_FILE_MAGIC, range(1, 2))
    numbers.seq()
    size_bytes = numbers.seq()
    # Seqs had their highest bit for erased messages here.
    first_seq = numbers.unsigned() & SEQ_MAX
    numbers.signed()
    last_seq = numbers.unsigned() & SEQ_MAX
    numbers.signed()
    removed_count = numbers.unsigned()
    checksum = numbers.bytes_of(CHECKSUM_BYTES)
    removed = SeqSet(pages_max)
    for _ in range(removed_count):
        try:
            removed.add(first_seq + numbers.seq())
        except SeqSetFullError as error:
            raise ArchiveError(f"{block}.idx: {error}") from None
    return StoreIndex(last_seq, size_bytes, ((first_seq, last_seq),), removed, block, checksum)


def parse_consumer_position(data: bytes, name: str) -> ConsumerPosition:
    """From `obs/<name>/o.dat`, where seqs are relative to the floor and times are seconds."""
    numbers = _Numbers(data, f"the state of consumer {name!r}")
    version = numbers.start(_FILE_MAGIC, _CONSUMER_VERSIONS)
    floor = SeqPair(numbers.seq(), numbers.seq())
    delivered = SeqPair(numbers.seq(), numbers.seq())
    if version == 1:
        # This version wrote what comes next instead of what was last.
        delivered = SeqPair(
            delivered.consumer_seq + max(floor.consumer_seq - 1, 0),
            delivered.stream_seq + max(floor.stream_seq - 1, 0),
        )
    pending: dict[int, PendingMessage] = {}
    if pending_count := numbers.unsigned():
        time_s = numbers.signed()
        for _ in range(pending_count):
            seq = floor.stream_seq + numbers.seq()
            consumer_seq = floor.consumer_seq + numbers.seq() if version > 1 else 0
            ts_s = time_s + numbers.signed() if version == 1 else time_s - numbers.signed()
            pending[seq] = PendingMessage(consumer_seq, max(ts_s, 0) * SECOND)
    redelivered: dict[int, int] = {}
    for _ in range(numbers.unsigned()):
        seq = floor.stream_seq + numbers.seq()
        redelivered[seq] = numbers.seq()
    return ConsumerPosition.checked(delivered, floor, pending, redelivered)


def _add_set(numbers: _Numbers, seqs: SeqSet) -> None:
    try:
        numbers.add_set(seqs)
    except SeqSetFullError as error:
        raise ArchiveError(f"index.db: {error}") from None
