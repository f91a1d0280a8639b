"""Archives of a stream as nats-server 2.15 writes and reads them: the entries, before they are compressed.

    "NATSARC1", then entries, each of which is
    uvarint  bytes of the name
    varint   time in ns (zigzag)
    uvarint  seq; 0 for what is no message
    uvarint  bytes of the header block
    uvarint  bytes of the payload
    ...      name, header block, payload

The first entry is `state.json`, then come as many `consumers/<name>` as it counts, then the messages in the
order of their seqs, named by subject. An entry of nothing but zeros ends the archive: without it, it was
cut.

Rules: what is read comes from outside. No size is believed beyond the bounds of ArchiveLimits, nothing may
follow the end, and ArchiveError is the only way to fail. Writing goes through the compression; reading
starts after it (see `archive_reader`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from edged.core.archive_parts import (
    SEQ_MAX,
    ArchivedConsumer,
    ArchiveEnd,
    ArchiveError,
    ArchiveLimits,
    ArchiveState,
    parse_document,
)
from edged.core.message import Message
from edged.core.s2_stream import WRITE_BLOCK_BYTES, S2Writer
from edged.core.subjects import valid_asset_name, valid_subscription

MAGIC: Final = b"NATSARC1"

_STATE: Final = "state.json"
_CONSUMERS: Final = "consumers/"
_END: Final = bytes(5)
_VARINT_BYTES_MAX: Final = 10
_UINT64_MAX: Final = (1 << 64) - 1
# A subject has to fit into a line of the protocol.
_NAME_BYTES_MAX: Final = 64 * 1024
# What was read is cut off the buffer when it is this much, not after each entry.
_READ_BYTES_KEPT_MAX: Final = 256 * 1024

Entry: TypeAlias = ArchiveState | ArchivedConsumer | Message | ArchiveEnd


class ArchiveWriter:
    """Makes an archive, compressed. Every method returns bytes to send, often none: they gather to blocks.

    The order is begin(), consumer() as often as the state's `consumer_count` says, messages(), finish().
    """

    __slots__ = ("_consumers_missing", "_output", "_seq")

    def __init__(self, block_bytes: int = WRITE_BLOCK_BYTES) -> None:
        self._output = S2Writer(block_bytes)
        self._consumers_missing = -1
        self._seq = 0

    def begin(self, state: dict[str, Any], ts_ns: int) -> bytes:
        """The state as the stream's info has it; its `consumer_count` is how many consumers follow."""
        assert self._consumers_missing == -1, "begin() comes once, first"
        self._consumers_missing = state["consumer_count"]
        return self._output.write(MAGIC + _document_entry(_STATE, state, ts_ns))

    def consumer(self, consumer: ArchivedConsumer, ts_ns: int) -> bytes:
        """One of the consumers."""
        assert self._consumers_missing > 0, self._consumers_missing
        self._consumers_missing -= 1
        return self._output.write(_document_entry(_CONSUMERS + consumer.name, consumer.document(), ts_ns))

    def messages(self, messages: Iterable[Message]) -> bytes:
        """Some messages, in the order of their seqs."""
        assert self._consumers_missing == 0, self._consumers_missing
        parts = []
        for seq, ts_ns, subject, header_bytes, data in messages:
            assert seq > self._seq, (seq, self._seq)
            self._seq = seq
            parts.append(_entry_start(subject, ts_ns, seq, header_bytes, len(data) - header_bytes))
            parts.append(data)
        return self._output.write(b"".join(parts))

    def finish(self) -> bytes:
        """The mark of the end, and all that was still held."""
        assert self._consumers_missing == 0, self._consumers_missing
        return self._output.write(_END) + self._output.flush()


def _document_entry(name: str, document: dict[str, Any], ts_ns: int) -> bytes:
    data = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    return _entry_start(name.encode(), ts_ns, 0, 0, len(data)) + data


def _entry_start(name: bytes, ts_ns: int, seq: int, header_bytes: int, payload_bytes: int) -> bytes:
    output = bytearray()
    # Zigzag, with the sign in the lowest bit.
    zigzag = ts_ns << 1 if ts_ns >= 0 else ~(ts_ns << 1)
    for number in (len(name), zigzag, seq, header_bytes, payload_bytes):
        rest = number
        while rest >= 0x80:
            output.append(rest & 0x7F | 0x80)
            rest >>= 7
        output.append(rest)
    output += name
    return bytes(output)


class _Start(NamedTuple):
    """What is known of an entry before its content; `end` is where the content starts in the buffer."""

    name: bytes
    ts_ns: int
    seq: int
    header_bytes: int
    data_bytes: int
    end: int


class EntryReader:
    """The bytes of an archive in by feed(), its entries out by next_entry(), checked."""

    __slots__ = (
        "_buffer",
        "_consumers_missing",
        "_consumers_seen",
        "_documents_bytes",
        "_ended",
        "_limits",
        "_position",
        "_seq",
        "_state",
    )

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        # Up to where the buffer was read; -1: before the magic.
        self._position = -1
        self._state: ArchiveState | None = None
        self._consumers_missing = 0
        self._consumers_seen: set[str] = set()
        self._documents_bytes = 0
        self._seq = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Bytes as they come, cut anywhere."""
        if self._position > _READ_BYTES_KEPT_MAX or self._position == len(self._buffer):
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_entry(self) -> Entry | None:
        """The next entry; None: more bytes are needed, or the archive ended."""
        if self._ended:
            if self._position < len(self._buffer):
                raise ArchiveError("there is more after the end of the archive")
            return None
        if self._position < 0:
            if len(self._buffer) < len(MAGIC):
                return None
            if not self._buffer.startswith(MAGIC):
                raise ArchiveError("this is no archive of a stream")
            self._position = len(MAGIC)
        start = self._start()
        if start is None:
            return None
        self._check(start)
        end = start.end + start.data_bytes
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[start.end : end])
        self._position = end
        return self._entry(start, data)

    def finish(self) -> None:
        """Nothing comes any more; ArchiveError when that is before the end."""
        if not self._ended or self._position < len(self._buffer):
            raise ArchiveError("the archive was cut")

    def _start(self) -> _Start | None:
        """The start of the entry at the position, when all of it is there."""
        numbers = _five_numbers(self._buffer, self._position)
        if numbers is None:
            return None
        name_bytes, zigzag, seq, header_bytes, payload_bytes, position = numbers
        if name_bytes > _NAME_BYTES_MAX:
            raise ArchiveError(f"a name of {name_bytes} bytes")
        end = position + name_bytes
        if end > len(self._buffer):
            return None
        ts_ns = zigzag >> 1 if not zigzag & 1 else ~(zigzag >> 1)
        return _Start(
            bytes(self._buffer[position:end]), ts_ns, seq, header_bytes, header_bytes + payload_bytes, end
        )

    def _check(self, start: _Start) -> None:
        """Whether the content may be waited for."""
        if start.seq:
            if self._state is None or self._consumers_missing:
                raise ArchiveError(f"message {start.seq} before the state or a consumer")
            if not max(self._seq + 1, self._state.first_seq) <= start.seq <= SEQ_MAX:
                raise ArchiveError(f"message {start.seq} out of order, after {self._seq}")
            if start.data_bytes > self._limits.message_bytes_max:
                raise ArchiveError(f"message {start.seq} has {start.data_bytes} bytes, more than allowed")
            if not valid_subscription(start.name):
                raise ArchiveError(f"message {start.seq} has no valid subject")
            if start.ts_ns < 0:
                raise ArchiveError(f"message {start.seq} was stored before 1970")
        elif start.header_bytes:
            raise ArchiveError("an entry with headers is no message")
        elif start.data_bytes > self._limits.documents_bytes_max - self._documents_bytes:
            raise ArchiveError(f"state and consumers exceed {self._limits.documents_bytes_max} bytes")

    def _entry(self, start: _Start, data: bytes) -> Entry:
        if start.seq:
            self._seq = start.seq
            return Message(start.seq, start.ts_ns, start.name, start.header_bytes, data)
        self._documents_bytes += len(data)
        if self._state is None:
            return self._first(start.name, data)
        if self._consumers_missing:
            return self._consumer(start.name, data)
        if start.name or start.ts_ns or data:
            raise ArchiveError(f"{start.name!r} where a message was expected")
        self._ended = True
        return ArchiveEnd(max(self._seq, self._state.last_seq))

    def _first(self, name: bytes, data: bytes) -> ArchiveState:
        if name != _STATE.encode():
            raise ArchiveError(f"the archive begins with {name[:64]!r}, not with {_STATE}")
        self._state = ArchiveState.parse(parse_document(data, _STATE))
        self._consumers_missing = self._state.consumers
        if self._consumers_missing > self._limits.consumers_max:
            raise ArchiveError(f"{self._consumers_missing} consumers, more than {self._limits.consumers_max}")
        self._seq = self._state.first_seq - 1
        return self._state

    def _consumer(self, name: bytes, data: bytes) -> ArchivedConsumer:
        text = name.decode("utf-8", "replace").removeprefix(_CONSUMERS)
        if not name.startswith(_CONSUMERS.encode()) or not valid_asset_name(text):
            raise ArchiveError(f"{name[:64]!r} where a consumer was expected")
        if text in self._consumers_seen:
            raise ArchiveError(f"the consumer {text!r} comes twice")
        self._consumers_seen.add(text)
        self._consumers_missing -= 1
        return ArchivedConsumer.parse(text, parse_document(data, f"the consumer {text!r}"))


def _five_numbers(buffer: bytearray, position: int) -> list[int] | None:
    """Five uvarints, and as a sixth number where they end; None: they are not all there yet."""
    numbers = []
    try:
        for _ in range(5):
            number = buffer[position]
            position += 1
            if number >= 0x80:
                number &= 0x7F
                shift = 7
                while (byte := buffer[position]) >= 0x80:
                    number |= (byte & 0x7F) << shift
                    shift += 7
                    position += 1
                    if shift == 7 * _VARINT_BYTES_MAX:
                        raise ArchiveError("a number of an entry does not end")
                number |= byte << shift
                position += 1
                if number > _UINT64_MAX:
                    raise ArchiveError("a number of an entry is too large")
            numbers.append(number)
    except IndexError:
        return None
    numbers.append(position)
    return numbers
