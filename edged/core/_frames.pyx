# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.frames: same names, same behaviour, C loops.

Marks and checksums of a large batch and the search for frames run without the GIL, so that the thread which
writes a batch and the one which reads an old file do not hold up the others.

Reading numbers and what a scan keeps of a frame are in `_frames.pxd`, for `_runs.pyx`.

Memory: a FrameBuffer owns a malloc'ed buffer. It neither grows nor shrinks while somebody looks at its bytes,
be it through what `finish()` returned or in `finish()` itself. The frames of a scan are an array of 24 bytes
each; tuples are made when somebody asks for them.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy, memset

from edged.core._checksum cimport (
    checksum_both,
    checksum_bytes,
    checksum_can_multiply,
    checksum_is_multiplication_there,
    checksum_number,
    checksum_prepare,
)

from edged.core import frames as _frames
from edged.core.frames import Scan

cdef object _mark_of = _frames.mark_of

cdef enum:
    # What a cleared buffer keeps, so that one huge batch does not hold its memory for ever.
    KEPT_BYTES_MAX = 4 * 1024 * 1024
    # Small, as the batches written last are kept, and most of a quiet day's have one message.
    CAPACITY_MIN = 512
    # What one read of a connection brings is done with in some microseconds. Who lets others in meanwhile may
    # wait much longer, until one that seals old files gives the lock back.
    SHORT_BYTES = 320 * 1024
    SIZE_BITS_MAX = 32

cdef Py_ssize_t BODY_BYTES_MAX = _frames.BODY_BYTES_MAX
cdef Py_ssize_t SUBJECT_BYTES_MAX = _frames.SUBJECT_BYTES_MAX
cdef int64_t GROUP_MAX = _frames.GROUP_MAX
cdef int64_t INDEX_MAX = _frames.INDEX_MAX
cdef int64_t WASTE_FACTOR = _frames.WASTE_FACTOR
cdef uint32_t APPEND = _frames.APPEND
cdef object NONCE_END = 1 << 64
# Where an empty buffer is said to be.
cdef char NOTHING = 0


# --- writing numbers as `_frames.pxd` reads them ---


cdef inline void store32(unsigned char* place, uint32_t value) noexcept nogil:
    place[0] = value & 0xFF
    place[1] = value >> 8 & 0xFF
    place[2] = value >> 16 & 0xFF
    place[3] = value >> 24


cdef inline void store64(unsigned char* place, uint64_t value) noexcept nogil:
    store32(place, <uint32_t>value)
    store32(place + 4, <uint32_t>(value >> 32))


# --- checksums ---

checksum_prepare()


def multiply(is_wished):
    """Whether checksums are multiplied from now on, which is faster; not where the processor cannot."""
    global checksum_can_multiply
    checksum_can_multiply = is_wished and checksum_is_multiplication_there()
    return bool(checksum_can_multiply)


cdef inline uint32_t checksum_of(
    uint32_t nonce_state, uint64_t file_offset, const unsigned char* frame, Py_ssize_t size
) noexcept nogil:
    """Of a frame with a body of `size` bytes; `nonce_state` is what the nonce made of the checksum."""
    return ~checksum_bytes(checksum_number(nonce_state, file_offset), frame + 8, HEADER_BYTES - 8 + size)


# --- writing ---


cdef class FrameBuffer:
    """Twin of frames.FrameBuffer."""

    cdef unsigned char* data
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef Py_ssize_t exports
    cdef Py_ssize_t tag_bytes

    def __cinit__(self, Py_ssize_t tag_bytes=0, Py_ssize_t capacity=0):
        self.data = NULL
        self.tag_bytes = tag_bytes
        self.used = self.capacity = self.exports = 0
        if capacity > 0:
            self.grow(min(capacity, KEPT_BYTES_MAX))

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.used

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef void* place = self.data if self.data != NULL else <void*>&NOTHING
        PyBuffer_FillInfo(buffer, self, place, self.used, 1, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer* buffer):
        self.exports -= 1

    cdef int require_unseen(self) except -1:
        if self.exports:
            raise BufferError("Existing exports of data: object cannot be re-sized")
        return 0

    cdef int grow(self, Py_ssize_t capacity) except -1:
        cdef unsigned char* grown = <unsigned char*>realloc(self.data, capacity)
        if grown == NULL:
            raise MemoryError()
        self.data = grown
        self.capacity = capacity
        return 0

    cdef unsigned char* extend(self, int64_t kind, int64_t group, int64_t index, Py_ssize_t size) except NULL:
        """Append a frame without its body; return where the body goes."""
        if not (0 < kind <= 0xFF and 0 <= group <= GROUP_MAX and 0 <= index <= INDEX_MAX):
            raise AssertionError((kind, group, index))
        if size > BODY_BYTES_MAX:
            raise ValueError(f"a body of {size} bytes does not fit into a frame")
        self.require_unseen()
        size += self.tag_bytes
        cdef Py_ssize_t needed = self.used + HEADER_BYTES + size
        if needed > self.capacity:
            self.grow(max(needed, 2 * self.capacity, CAPACITY_MIN))
        cdef unsigned char* frame = self.data + self.used
        store64(frame, 0)
        store32(frame + 8, <uint32_t>size)
        store32(frame + 12, <uint32_t>(kind | group << 8))
        store64(frame + 16, <uint64_t>index)
        memset(frame + HEADER_BYTES + size - self.tag_bytes, 0, self.tag_bytes)
        self.used = needed
        return frame + HEADER_BYTES

    def add(self, int64_t kind, int64_t group, int64_t index, bytes body not None):
        """Append a frame; return where in the buffer it starts."""
        cdef Py_ssize_t offset = self.used
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body)
        memcpy(self.extend(kind, group, index, size), PyBytes_AS_STRING(body), size)
        return offset

    def add_raw(self, bytes frames not None):
        """Append frames as they lie in another buffer, of the same tag; return where they start."""
        cdef Py_ssize_t offset = self.used
        cdef Py_ssize_t size = PyBytes_GET_SIZE(frames)
        self.require_unseen()
        if offset + size > self.capacity:
            self.grow(max(offset + size, 2 * self.capacity, CAPACITY_MIN))
        memcpy(self.data + offset, PyBytes_AS_STRING(frames), size)
        self.used = offset + size
        return offset

    def add_appends(self, int64_t group, int64_t first_index, uint64_t ts_ns, messages):
        """Append a frame for each message, with indexes that count up; none at all if one is too large."""
        cdef Py_ssize_t start = self.used
        cdef Py_ssize_t offset
        cdef int64_t index = first_index
        cdef list offsets = []
        try:
            for subject, _reply, header_bytes, data in messages:
                offset = self.used
                self.append(group, index, ts_ns, subject, header_bytes, data)
                offsets.append(offset)
                index += 1
        except BaseException:
            self.used = start
            raise
        return offsets

    cdef int append(
        self, int64_t group, int64_t index, uint64_t ts_ns, bytes subject, int64_t header_bytes, bytes data
    ) except -1:
        cdef Py_ssize_t subject_bytes = len(subject)
        cdef Py_ssize_t data_bytes = len(data)
        if subject_bytes > SUBJECT_BYTES_MAX:
            raise ValueError(f"a subject of {subject_bytes} bytes does not fit into a frame")
        cdef unsigned char* body = self.extend(APPEND, group, index, APPEND_BYTES + subject_bytes + data_bytes)
        store64(body, ts_ns)
        store32(body + 8, <uint32_t>max(header_bytes, 0))
        body[12] = subject_bytes & 0xFF
        body[13] = subject_bytes >> 8
        memcpy(body + APPEND_BYTES, PyBytes_AS_STRING(subject), subject_bytes)
        memcpy(body + APPEND_BYTES + subject_bytes, PyBytes_AS_STRING(data), data_bytes)
        return 0

    def finish(self, nonce, uint64_t offset):
        """Fill in marks and checksums for a write at `offset` of the file with this nonce; the bytes."""
        cdef uint64_t number = nonce if 0 < nonce < NONCE_END else 0
        # Which also says what is wrong with one that is none.
        cdef uint32_t mark = <uint32_t>number or <uint32_t>_mark_of(nonce)
        cdef uint32_t nonce_state = checksum_number(0xFFFFFFFFU, number)
        if self.used <= SHORT_BYTES:
            self.fill_in(mark, nonce_state, offset)
            return memoryview(self)
        self.exports += 1
        with nogil:
            self.fill_in(mark, nonce_state, offset)
        self.exports -= 1
        return memoryview(self)

    cdef void fill_in(self, uint32_t mark, uint32_t nonce_state, uint64_t offset) noexcept nogil:
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t size, next_position
        cdef unsigned char* frame
        while position < self.used:
            frame = self.data + position
            size = load32(frame + 8)
            next_position = position + HEADER_BYTES + size
            store32(frame, mark)
            if checksum_can_multiply or next_position == self.used:
                store32(frame + 4, checksum_of(nonce_state, offset + <uint64_t>position, frame, size))
                position = next_position
                continue
            store32(self.data + next_position, mark)
            self.fill_in_both(nonce_state, offset, position, next_position)
            position = next_position + HEADER_BYTES + load32(self.data + next_position + 8)

    cdef void fill_in_both(
        self, uint32_t nonce_state, uint64_t offset, Py_ssize_t position, Py_ssize_t next_position
    ) noexcept nogil:
        """The checksums of two frames."""
        cdef unsigned char* one = self.data + position + 8
        cdef unsigned char* other = self.data + next_position + 8
        # What there is of the frames behind their mark and checksum.
        cdef Py_ssize_t one_bytes = HEADER_BYTES - 8 + load32(one)
        cdef Py_ssize_t other_bytes = HEADER_BYTES - 8 + load32(other)
        cdef Py_ssize_t common = min(one_bytes, other_bytes) & ~<Py_ssize_t>7
        cdef uint32_t[2] states
        states[0] = checksum_number(nonce_state, offset + <uint64_t>position)
        states[1] = checksum_number(nonce_state, offset + <uint64_t>next_position)
        checksum_both(states, one, other, common)
        store32(one - 4, ~checksum_bytes(states[0], one + common, one_bytes - common))
        store32(other - 4, ~checksum_bytes(states[1], other + common, other_bytes - common))

    def bytes_at(self, Py_ssize_t offset, Py_ssize_t size):
        """A copy of some bytes of the buffer, which must be there."""
        if not (0 <= offset <= self.used and 0 <= size <= self.used - offset):
            raise AssertionError((offset, size, self.used))
        return PyBytes_FromStringAndSize(<char*>self.data + offset if size else NULL, size)

    def cut(self, Py_ssize_t size):
        """Forget the frames behind the first `size` bytes."""
        if not 0 <= size <= self.used:
            raise AssertionError((size, self.used))
        self.require_unseen()
        self.used = size

    def clear(self):
        """Forget all frames."""
        self.require_unseen()
        self.used = 0
        if self.capacity > KEPT_BYTES_MAX:
            free(self.data)
            self.data = NULL
            self.capacity = 0


# --- reading ---


cdef class Frames:
    """The frames of a scan: reads like a list of tuples, but has no tuple before somebody asks for it."""

    def __cinit__(self):
        self.found = NULL
        self.count = self.capacity = 0

    def __dealloc__(self):
        free(self.found)

    def __len__(self):
        return self.count

    cdef bint add(self, int64_t position, const unsigned char* frame) noexcept nogil:
        """Whether there was memory for it."""
        cdef Found* grown
        cdef Py_ssize_t capacity
        if self.count == self.capacity:
            capacity = max(64, 2 * self.capacity)
            grown = <Found*>realloc(self.found, capacity * sizeof(Found))
            if grown == NULL:
                return False
            self.found = grown
            self.capacity = capacity
        grown = &self.found[self.count]
        grown.position = position
        grown.size = load32(frame + 8)
        grown.kind_and_group = load32(frame + 12)
        grown.index = load64(frame + 16) & <uint64_t>INDEX_MAX
        self.count += 1
        return True

    cdef tuple at(self, Py_ssize_t number):
        cdef Found* found = &self.found[number]
        return (
            found.position,
            found.kind_and_group & 0xFF,
            found.kind_and_group >> 8,
            found.index,
            found.position + HEADER_BYTES,
            found.size,
        )

    def __getitem__(self, key):
        if isinstance(key, slice):
            start, stop, step = key.indices(self.count)
            return self.part(start, stop, step)
        cdef Py_ssize_t number = key
        if number < 0:
            number += self.count
        if not 0 <= number < self.count:
            raise IndexError(key)
        return self.at(number)

    cdef object part(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step):
        cdef Frames some
        cdef size_t size
        if step != 1 or start >= stop:
            return [self.at(number) for number in range(start, stop, step)]
        some = Frames()
        size = (stop - start) * sizeof(Found)
        some.found = <Found*>realloc(NULL, size)
        if some.found == NULL:
            raise MemoryError()
        memcpy(some.found, self.found + start, size)
        some.count = some.capacity = stop - start
        return some

    def __iter__(self):
        cdef Py_ssize_t number
        for number in range(self.count):
            yield self.at(number)

    def __eq__(self, other):
        return isinstance(other, (list, Frames)) and list(self) == list(other)

    __hash__ = None


cdef inline int bit_length(Py_ssize_t number) noexcept nogil:
    cdef int bits = 0
    while number:
        number >>= 1
        bits += 1
    return bits


cdef class Search:
    """One scan on its way: what is still needed when the next frame has been found."""

    cdef const unsigned char* data
    cdef Py_ssize_t size
    cdef uint64_t offset
    cdef uint32_t mark
    cdef uint32_t nonce_state
    cdef Py_ssize_t expected
    cdef int64_t waste_bytes_left[SIZE_BITS_MAX + 1]
    cdef Frames frames

    cdef bint is_frame(self, Py_ssize_t position) noexcept nogil:
        """Whether a frame starts where its mark is. Its size is not believed before the checksum agrees."""
        cdef const unsigned char* frame = self.data + position
        cdef Py_ssize_t size = load32(frame + 8)
        cdef int bits = bit_length(size)
        if frame[12] == 0 or size > BODY_BYTES_MAX or size > self.size - position - HEADER_BYTES:
            return False
        if size > self.waste_bytes_left[bits]:
            return False
        if checksum_of(self.nonce_state, self.offset + <uint64_t>position, frame, size) == load32(frame + 4):
            return True
        self.waste_bytes_left[bits] -= size
        return False

    cdef Py_ssize_t find(self, Py_ssize_t position) noexcept nogil:
        """Where the next frame starts, -1 if there is none."""
        cdef Py_ssize_t last = self.size - HEADER_BYTES
        cdef const unsigned char* found
        # Free space is zeros, so the search is for a byte of the mark that is none.
        cdef int place = 0
        while self.mark >> 8 * place & 0xFF == 0:
            place += 1
        while position <= last:
            if load32(self.data + position) == self.mark and self.is_frame(position):
                return position
            position += 1
            found = <const unsigned char*>memchr(
                self.data + position + place, self.mark >> 8 * place & 0xFF, last - position + 1
            )
            if found == NULL:
                return -1
            position = found - self.data - place
        return -1

    cdef Py_ssize_t run(self) noexcept nogil:
        """Gather frames up to damage: where the frame behind it starts, -1 for none, -2 without memory."""
        cdef Py_ssize_t position = self.find(self.expected)
        while position >= 0 and position == self.expected:
            if not self.frames.add(position, self.data + position):
                return -2
            self.expected = position + HEADER_BYTES + load32(self.data + position + 8)
            position = self.find(self.expected)
        return position


def scan(data, nonce, Py_ssize_t start, uint64_t offset=0):
    """Find the frames in `data` from `start` on; `data` begins at `offset` of the file with this nonce."""
    cdef Py_buffer view
    cdef Py_ssize_t position
    cdef int bits
    cdef Search search = Search()
    cdef list damage = []
    if start < 0:
        raise AssertionError(start)
    search.mark = _mark_of(nonce)
    search.nonce_state = checksum_number(0xFFFFFFFFU, nonce)
    search.offset = offset
    search.expected = start
    search.frames = Frames()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        search.data = <const unsigned char*>view.buf
        search.size = view.len
        for bits in range(SIZE_BITS_MAX + 1):
            search.waste_bytes_left[bits] = WASTE_FACTOR * max(0, view.len - start)
        while True:
            with nogil:
                position = search.run()
            if position < 0:
                break
            damage.append((search.expected, position))
            search.expected = position
    finally:
        PyBuffer_Release(&view)
    if position == -2:
        raise MemoryError()
    return Scan(search.frames, damage, search.expected)


def decode_append(data, Py_ssize_t body_start, Py_ssize_t body_size):
    """(ts_ns, subject, header_bytes, data) of an APPEND frame's body; ValueError if it is not one."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not (0 <= body_start <= view.len and APPEND_BYTES <= body_size <= view.len - body_start):
            raise ValueError(f"no append of {body_size} bytes at {body_start}")
        return append_at(<const unsigned char*>view.buf + body_start, body_size)
    finally:
        PyBuffer_Release(&view)


cdef tuple append_at(const unsigned char* body, Py_ssize_t body_size):
    cdef Py_ssize_t header_bytes = load32(body + 8) & HEADER_SIZE_MASK
    cdef Py_ssize_t subject_bytes = body[12] | body[13] << 8
    cdef Py_ssize_t rest = body_size - APPEND_BYTES - subject_bytes
    cdef const char* subject = <const char*>body + APPEND_BYTES
    if header_bytes > rest:
        raise ValueError(f"an append of {body_size} bytes is too short for what it says about itself")
    return (
        load64(body),
        PyBytes_FromStringAndSize(subject, subject_bytes),
        header_bytes,
        PyBytes_FromStringAndSize(subject + subject_bytes, rest),
    )
