# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.s2 and edged.core.highway_hash: same names, same results, C loops without the GIL.

Only the encoder differs: this one looks for repetitions. Its output depends on its input alone.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from edged.core.s2 import BLOCK_BYTES_MAX as _BLOCK_BYTES_MAX
from edged.core.s2 import S2Error

cdef Py_ssize_t BLOCK_BYTES_MAX = _BLOCK_BYTES_MAX


cdef inline uint32_t load32(const uint8_t* data) noexcept nogil:
    cdef uint32_t number
    memcpy(&number, data, 4)
    return number


cdef inline uint64_t load64(const uint8_t* data) noexcept nogil:
    # Written by bytes, so that it means the same on every machine; compilers make one load of it.
    return (
        <uint64_t>data[0] | <uint64_t>data[1] << 8 | <uint64_t>data[2] << 16 | <uint64_t>data[3] << 24
        | <uint64_t>data[4] << 32 | <uint64_t>data[5] << 40 | <uint64_t>data[6] << 48 | <uint64_t>data[7] << 56
    )


# --- the checksum, eight bytes per step ---

cdef uint32_t[8][256] CRC


cdef void build_crc() noexcept:
    cdef uint32_t state
    cdef int byte, bit, level
    for byte in range(256):
        state = byte
        for bit in range(8):
            state = state >> 1 ^ (0x82F63B78U if state & 1 else 0)
        CRC[0][byte] = state
    for byte in range(256):
        for level in range(1, 8):
            CRC[level][byte] = CRC[0][CRC[level - 1][byte] & 0xFF] ^ CRC[level - 1][byte] >> 8


build_crc()


cdef uint32_t crc_bytes(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t state = 0xFFFFFFFFU
    cdef uint32_t high
    while size >= 8:
        state ^= <uint32_t>data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        high = <uint32_t>data[4] | <uint32_t>data[5] << 8 | <uint32_t>data[6] << 16 | <uint32_t>data[7] << 24
        state = (
            CRC[7][state & 0xFF] ^ CRC[6][state >> 8 & 0xFF] ^ CRC[5][state >> 16 & 0xFF] ^ CRC[4][state >> 24]
            ^ CRC[3][high & 0xFF] ^ CRC[2][high >> 8 & 0xFF] ^ CRC[1][high >> 16 & 0xFF] ^ CRC[0][high >> 24]
        )
        data += 8
        size -= 8
    while size > 0:
        state = CRC[0][(state ^ data[0]) & 0xFF] ^ state >> 8
        data += 1
        size -= 1
    return ~state


def crc32c(data):
    """The Castagnoli CRC."""
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            result = crc_bytes(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return result


# --- decoding ---

cdef enum:
    WHOLE = 0
    ENDS_WITHIN = 1
    LITERAL_LONG = 2
    COPY_OUT = 3


cdef int decode_elements(
    const uint8_t* data, Py_ssize_t position, Py_ssize_t end, uint8_t* output, Py_ssize_t size, Py_ssize_t* written
) noexcept nogil:
    cdef int64_t length, offset = 0, found
    cdef Py_ssize_t count, step, done = 0
    cdef uint8_t tag
    while position < end:
        tag = data[position]
        position += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                count = length - 59
                if count > end - position:
                    return ENDS_WITHIN
                length = 0
                for step in range(count):
                    length |= <int64_t>data[position + step] << 8 * step
                position += count
            length += 1
            if length > end - position or length > size - done:
                return LITERAL_LONG
            memcpy(output + done, data + position, length)
            done += length
            position += length
            continue
        count = 4 if tag & 3 == 3 else tag & 3
        if count > end - position:
            return ENDS_WITHIN
        found = 0
        for step in range(count):
            found |= <int64_t>data[position + step] << 8 * step
        position += count
        if tag & 3 != 1:
            offset = found
            length = (tag >> 2) + 1
        else:
            length = tag >> 2 & 7
            found |= (tag & 0xE0) << 3
            if found:
                offset = found
            elif length >= 5:
                count = length - 4
                if count > end - position:
                    return ENDS_WITHIN
                length = 4 if count == 1 else <int64_t>1 << 8 * (count - 1)
                for step in range(count):
                    length += <int64_t>data[position + step] << 8 * step
                position += count
            length += 4
        if offset <= 0 or offset > done or length > size - done:
            return COPY_OUT
        copy_within(output, done, offset, length)
        done += length
    written[0] = done
    return WHOLE


cdef inline void copy_within(uint8_t* output, Py_ssize_t done, int64_t offset, int64_t length) noexcept nogil:
    """Bytes from `offset` before the end to the end; where they overlap, what was written is read again."""
    cdef int64_t step
    if offset == 1:
        memset(output + done, output[done - 1], length)
        return
    while length > 0:
        # What is there doubles with each turn, so a long run of a short pattern takes few of them.
        step = offset if offset < length else length
        memcpy(output + done, output + done - offset, step)
        done += step
        length -= step
        offset += step


def decode_block(bytes data, Py_ssize_t size_max):
    """What a block stands for, which may be at most `size_max` bytes; S2Error otherwise."""
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data)
    cdef Py_ssize_t position = 0, written = 0
    cdef uint64_t size = 0
    cdef int trouble
    cdef bytes output
    cdef uint8_t* target
    while True:
        if position == 5 or position == end:
            raise S2Error("a block without its size")
        size |= <uint64_t>(source[position] & 0x7F) << 7 * position
        position += 1
        if source[position - 1] < 0x80:
            break
    if size_max < 0 or size > <uint64_t>size_max:
        raise S2Error(f"a block declares {size} bytes, more than {size_max}")
    output = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
    target = <uint8_t*>PyBytes_AS_STRING(output)
    with nogil:
        trouble = decode_elements(source, position, end, target, <Py_ssize_t>size, &written)
    if trouble == ENDS_WITHIN:
        raise S2Error("a block ends within an element")
    if trouble == LITERAL_LONG:
        raise S2Error("a literal is longer than its block")
    if trouble == COPY_OUT:
        raise S2Error("a copy reaches out of its block")
    if <uint64_t>written != size:
        raise S2Error(f"a block declares {size} bytes and has {written}")
    return output


# --- encoding ---

cdef enum:
    TABLE_BITS_MAX = 14
    # The last bytes of a block are not searched, so that eight bytes can be read at every place that is.
    MARGIN = 8
    # Besides half of the block: the worst is a literal of one byte, which takes two, and then a copy of four, which
    # takes five, again and again. This is for the size in front and what a literal writes ahead.
    GROWTH = 32


cdef inline uint8_t* emit_literal(uint8_t* target, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t last
    cdef int count
    if size == 0:
        return target
    last = <uint32_t>(size - 1)
    if last < 60:
        target[0] = <uint8_t>(last << 2)
        target += 1
    else:
        count = 1 if last < 1 << 8 else 2 if last < 1 << 16 else 3
        target[0] = <uint8_t>(59 + count << 2)
        target[1] = <uint8_t>last
        target[2] = <uint8_t>(last >> 8)
        target[3] = <uint8_t>(last >> 16)
        target += 1 + count
    memcpy(target, data, size)
    return target + size


cdef inline uint8_t* emit_repeat(uint8_t* target, uint32_t length) noexcept nogil:
    """A copy of at least four bytes with the offset of the one before."""
    target[1] = 0
    if length <= 8:
        target[0] = <uint8_t>(length - 4 << 2 | 1)
        return target + 2
    if length < 8 + 256:
        target[0] = 5 << 2 | 1
        target[2] = <uint8_t>(length - 8)
        return target + 3
    if length < 260 + 65536:
        target[0] = 6 << 2 | 1
        length -= 260
        target[2] = <uint8_t>length
        target[3] = <uint8_t>(length >> 8)
        return target + 4
    target[0] = 7 << 2 | 1
    length -= 65540
    target[2] = <uint8_t>length
    target[3] = <uint8_t>(length >> 8)
    target[4] = <uint8_t>(length >> 16)
    return target + 5


cdef inline uint8_t* emit_copy(uint8_t* target, uint32_t offset, uint32_t length) noexcept nogil:
    """A copy of at least four bytes with a new offset."""
    cdef uint32_t first = length
    if length <= 11 and offset < 2048:
        target[0] = <uint8_t>(offset >> 8 << 5 | length - 4 << 2 | 1)
        target[1] = <uint8_t>offset
        return target + 2
    if length > 64:
        # Leaves enough for a repetition, which has no more to say than the length.
        first = 60
    target[0] = <uint8_t>(first - 1 << 2 | (2 if offset < 65536 else 3))
    target[1] = <uint8_t>offset
    target[2] = <uint8_t>(offset >> 8)
    target += 3
    if offset >= 65536:
        target[0] = <uint8_t>(offset >> 16)
        target[1] = <uint8_t>(offset >> 24)
        target += 2
    if length > first:
        target = emit_repeat(target, length - first)
    return target


cdef inline uint32_t place_of(uint64_t number, int table_bits) noexcept nogil:
    """Where in a table of this size the first six bytes of a number belong."""
    return <uint32_t>((number << 16) * <uint64_t>0x9E3779B97F4A7C15U >> (64 - table_bits))


cdef uint8_t* encode_elements(
    const uint8_t* data, Py_ssize_t size, uint8_t* target, uint32_t* table, int table_bits
) noexcept nogil:
    cdef Py_ssize_t position = 1, literal = 0, candidate, limit = size - MARGIN, before
    cdef uint32_t offset = 0, place
    cdef uint64_t number
    while position < limit:
        number = load64(data + position)
        place = place_of(number, table_bits)
        candidate = table[place]
        table[place] = <uint32_t>position
        if load32(data + candidate) != load32(data + position):
            # The longer nothing was found, the larger the steps: what does not compress costs little.
            position += 1 + (position - literal >> 6)
            continue
        before = position
        while before > literal and candidate > 0 and data[before - 1] == data[candidate - 1]:
            before -= 1
            candidate -= 1
        target = emit_literal(target, data + literal, before - literal)
        position += 4
        candidate += position - before
        while position < size and data[position] == data[candidate]:
            position += 1
            candidate += 1
        if <uint32_t>(position - candidate) == offset:
            target = emit_repeat(target, <uint32_t>(position - before))
        else:
            offset = <uint32_t>(position - candidate)
            target = emit_copy(target, offset, <uint32_t>(position - before))
        literal = position
        if position < limit:
            # A place within the copy, so that the next repetition of the same bytes is found from its start.
            table[place_of(load64(data + position - 2), table_bits)] = <uint32_t>(position - 2)
    return emit_literal(target, data + literal, size - literal)


def encode_block(bytes data):
    """A block that decodes to `data`."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef const uint8_t* source = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef bytes output
    cdef uint8_t* start
    cdef uint8_t* target
    cdef uint32_t* table
    cdef Py_ssize_t rest = size
    cdef int table_bits = 8
    assert size <= BLOCK_BYTES_MAX, size
    while table_bits < TABLE_BITS_MAX and size >> table_bits:
        table_bits += 1
    table = <uint32_t*>calloc(1 << table_bits, sizeof(uint32_t))
    if table == NULL:
        raise MemoryError
    try:
        output = PyBytes_FromStringAndSize(NULL, size + size // 2 + GROWTH)
        start = target = <uint8_t*>PyBytes_AS_STRING(output)
        while rest >= 0x80:
            target[0] = <uint8_t>(rest & 0x7F | 0x80)
            target += 1
            rest >>= 7
        target[0] = <uint8_t>rest
        target += 1
        with nogil:
            target = encode_elements(source, size, target, table, table_bits)
    finally:
        free(table)
    return output[: target - start]


# --- HighwayHash ---

cdef struct Hash:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]


cdef uint64_t[4] MUL0 = [0xDBE6D5D5FE4CCE2FU, 0xA4093822299F31D0U, 0x13198A2E03707344U, 0x243F6A8885A308D3U]
cdef uint64_t[4] MUL1 = [0x3BD39E10CB0EF593U, 0xC0ACF169B5F18A8CU, 0xBE5466CF34E90C6CU, 0x452821E638D01377U]


cdef inline uint64_t swapped(uint64_t lane) noexcept nogil:
    return lane >> 32 | lane << 32


cdef inline void zip_add(uint64_t* target, uint64_t low, uint64_t high) noexcept nogil:
    """Mix the 16 bytes of two lanes and add them to two others."""
    target[0] += (
        low >> 24 & 0xFF | (high >> 32 & 0xFF) << 8 | low & 0xFF0000 | (low >> 40 & 0xFF) << 24
        | (high >> 48 & 0xFF) << 32 | (low >> 8 & 0xFF) << 40 | (high >> 56) << 48 | low << 56
    )
    target[1] += (
        high >> 24 & 0xFF | (low >> 32 & 0xFF) << 8 | high & 0xFF0000 | (high >> 40 & 0xFF) << 24
        | (high >> 8 & 0xFF) << 32 | (low >> 48 & 0xFF) << 40 | (high & 0xFF) << 48 | (low >> 56) << 56
    )


cdef void update(Hash* state, uint64_t* packet) noexcept nogil:
    cdef int lane
    for lane in range(4):
        state.v1[lane] += state.mul0[lane] + packet[lane]
        state.mul0[lane] ^= (state.v1[lane] & 0xFFFFFFFFU) * (state.v0[lane] >> 32)
        state.v0[lane] += state.mul1[lane]
        state.mul1[lane] ^= (state.v0[lane] & 0xFFFFFFFFU) * (state.v1[lane] >> 32)
    zip_add(&state.v0[0], state.v1[0], state.v1[1])
    zip_add(&state.v0[2], state.v1[2], state.v1[3])
    zip_add(&state.v1[0], state.v0[0], state.v0[1])
    zip_add(&state.v1[2], state.v0[2], state.v0[3])


cdef void update_bytes(Hash* state, const uint8_t* data) noexcept nogil:
    cdef uint64_t[4] packet
    cdef int lane
    for lane in range(4):
        packet[lane] = load64(data + 8 * lane)
    update(state, packet)


cdef void update_last(Hash* state, const uint8_t* rest, int size) noexcept nogil:
    cdef uint8_t[32] packet
    cdef uint32_t low, high
    cdef int lane, fours = size & ~3, odd = size & 3
    memset(packet, 0, 32)
    for lane in range(4):
        state.v0[lane] += (<uint64_t>size << 32) + size
        low = <uint32_t>state.v1[lane]
        high = <uint32_t>(state.v1[lane] >> 32)
        low = low << size | low >> (32 - size)
        high = high << size | high >> (32 - size)
        state.v1[lane] = <uint64_t>high << 32 | low
    memcpy(packet, rest, fours)
    if size & 16:
        memcpy(packet + 28, rest + size - 4, 4)
    elif odd:
        packet[16] = rest[fours]
        packet[17] = rest[fours + (odd >> 1)]
        packet[18] = rest[size - 1]
    update_bytes(state, packet)


cdef uint64_t hash_of(const uint8_t* key, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef Hash state
    cdef uint64_t[4] packet
    cdef int lane
    for lane in range(4):
        state.mul0[lane] = MUL0[lane]
        state.mul1[lane] = MUL1[lane]
        state.v0[lane] = MUL0[lane] ^ load64(key + 8 * lane)
        state.v1[lane] = MUL1[lane] ^ swapped(load64(key + 8 * lane))
    while size >= 32:
        update_bytes(&state, data)
        data += 32
        size -= 32
    if size > 0:
        update_last(&state, data, <int>size)
    for _ in range(4):
        for lane in range(4):
            packet[lane] = swapped(state.v0[lane ^ 2])
        update(&state, packet)
    return state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]


def highway_hash(bytes key, bytes data):
    """The hash of `data` with a key of 32 bytes, as the 8 bytes that are written to disk."""
    cdef const uint8_t* key_start = <const uint8_t*>PyBytes_AS_STRING(key)
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef uint64_t result
    assert PyBytes_GET_SIZE(key) == 32, key
    with nogil:
        result = hash_of(key_start, start, size)
    return int(result).to_bytes(8, "little")
