"""Blocks of the S2 compression and their checksum: the reference of what `_s2.pyx` does in C.

S2 is Snappy with two additions: blocks of up to 4 MiB, and copies that repeat the offset of the copy
before. A block is the number of bytes it decodes to, as a varint, and then elements. The low two bits of an
element's first byte say what it is, the rest are its length or the start of it:

    0  literal   length - 1 below 60 in the first byte, else in the 1 to 4 bytes after it; then the bytes
    1  copy      length - 4 in 3 bits, offset in 11 bits; with offset 0: the last offset again, and 5, 6 or 7
                 as length says that 1, 2 or 3 bytes with more length follow
    2  copy      length - 1 in 6 bits, offset in 2 bytes
    3  copy      length - 1 in 6 bits, offset in 4 bytes

Rules: a block comes from outside. Nothing is allocated by what it declares before the caller's bound is
checked, no element writes past the declared size, and S2Error is the only way it fails.
"""

from typing import Final

# What the format allows a chunk to decode to.
BLOCK_BYTES_MAX: Final = 4 << 20
# With the identifier of Snappy in front of it.
SNAPPY_BLOCK_BYTES_MAX: Final = 1 << 16

_SIZE_DIGITS_MAX: Final = 5
_REPEAT_LENGTHS: Final = {5: (1, 4), 6: (2, 1 << 8), 7: (3, 1 << 16)}


class S2Error(ValueError):
    """These bytes are not S2, are damaged, or decode to more than was allowed."""


def _crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        state = byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        table.append(state)
    return tuple(table)


_CRC32C: Final = _crc32c_table()


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The Castagnoli CRC."""
    state = 0xFFFF_FFFF
    table = _CRC32C
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFF_FFFF


def decode_block(data: bytes, size_max: int) -> bytes:
    """What a block stands for, which may be at most `size_max` bytes; S2Error otherwise."""
    size, position = _declared_size(data)
    if size > size_max:
        raise S2Error(f"a block declares {size} bytes, more than {size_max}")
    output = bytearray()
    offset = 0
    end = len(data)
    while position < end:
        tag = data[position]
        kind = tag & 3
        if kind == 0:
            length, position = _literal_length(data, position)
            if length > end - position or length > size - len(output):
                raise S2Error("a literal is longer than its block")
            output += data[position : position + length]
            position += length
            continue
        length, offset, position = _copy(data, position, offset)
        if not 0 < offset <= len(output) or length > size - len(output):
            raise S2Error("a copy reaches out of its block")
        start = len(output) - offset
        if offset >= length:
            output += output[start : start + length]
        else:
            output += (output[start:] * (length // offset + 1))[:length]
    if len(output) != size:
        raise S2Error(f"a block declares {size} bytes and has {len(output)}")
    return bytes(output)


def encode_block(data: bytes) -> bytes:
    """A block that decodes to `data`. Looking for repetitions is left to the native twin."""
    assert len(data) <= BLOCK_BYTES_MAX, len(data)
    if not data:
        return b"\x00"
    last = len(data) - 1
    size = (last.bit_length() + 7) // 8
    if last < 60:
        return _varint(len(data)) + bytes((last << 2,)) + data
    return _varint(len(data)) + bytes((59 + size << 2,)) + last.to_bytes(size, "little") + data


def _varint(number: int) -> bytes:
    output = bytearray()
    while number >= 0x80:
        output.append(number & 0x7F | 0x80)
        number >>= 7
    output.append(number)
    return bytes(output)


def _declared_size(data: bytes) -> tuple[int, int]:
    size = 0
    for position, byte in enumerate(data[:_SIZE_DIGITS_MAX]):
        size |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            return size, position + 1
    raise S2Error("a block without its size")


def _literal_length(data: bytes, position: int) -> tuple[int, int]:
    length = data[position] >> 2
    position += 1
    if length >= 60:
        size = length - 59
        if size > len(data) - position:
            raise S2Error("a block ends within an element")
        length = int.from_bytes(data[position : position + size], "little")
        position += size
    return length + 1, position


def _copy(data: bytes, position: int, last_offset: int) -> tuple[int, int, int]:
    """Length, offset and where the next element is."""
    tag = data[position]
    kind = tag & 3
    size = (0, 1, 2, 4)[kind]
    position += 1
    if size > len(data) - position:
        raise S2Error("a block ends within an element")
    offset = int.from_bytes(data[position : position + size], "little")
    position += size
    if kind != 1:
        return (tag >> 2) + 1, offset, position
    offset |= (tag & 0xE0) << 3
    length = tag >> 2 & 7
    if offset:
        return length + 4, offset, position
    if length in _REPEAT_LENGTHS:
        size, least = _REPEAT_LENGTHS[length]
        if size > len(data) - position:
            raise S2Error("a block ends within an element")
        length = int.from_bytes(data[position : position + size], "little") + least
        position += size
    return length + 4, last_offset, position
