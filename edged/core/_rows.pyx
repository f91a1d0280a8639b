# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.rows: same names, same behaviour, C loops.

Frames come from a scan of `_frames.pyx`; a list of them, as the reference makes it, is left to the reference.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from edged.core._frames cimport APPEND_BYTES, HEADER_BYTES, HEADER_SIZE_MASK, Found, Frames, load32, load64

from array import array as _array

from edged.core import frames as _frames
from edged.core import message as _message
from edged.core import rows as _rows
from edged.core import runs as _runs
from edged.core.rows import Rows, Step

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t count)

cdef array.array NUMBERS = _array("I")
cdef array.array LARGE_NUMBERS = _array("Q")
cdef array.array SIGNED_NUMBERS = _array("q")
cdef object MESSAGE = _message.Message
cdef uint32_t SIZE_MASK = _runs.SIZE_MASK
cdef uint32_t APPEND = _frames.APPEND
cdef uint32_t RECORD_BYTES = _message.counted_bytes(0, 0, 0)
cdef uint32_t HEADER_LENGTH_BYTES = _message.counted_bytes(0, 1, 0) - RECORD_BYTES


cdef struct Record:
    # A message of which everything was checked: where it is in the data, and in the places.
    const unsigned char* subject
    uint64_t ts_ns
    uint64_t position
    uint32_t subject_bytes
    uint32_t header_bytes
    uint32_t data_bytes


cdef int read_record(Record* record, const unsigned char* data, Py_ssize_t data_bytes, Found* found) except -1:
    cdef const unsigned char* body = data + found.position + HEADER_BYTES
    cdef int64_t rest = data_bytes - found.position - HEADER_BYTES
    if found.size < APPEND_BYTES or <int64_t>found.size > rest:
        raise ValueError(f"no append of {found.size} bytes at {found.position + HEADER_BYTES}")
    record.ts_ns = load64(body)
    record.header_bytes = load32(body + 8) & HEADER_SIZE_MASK
    record.subject_bytes = <uint32_t>body[12] | <uint32_t>body[13] << 8
    record.subject = body + APPEND_BYTES
    rest = <int64_t>found.size - APPEND_BYTES - <int64_t>record.subject_bytes
    if <int64_t>record.header_bytes > rest:
        raise ValueError(f"an append of {found.size} bytes is too short for what it says about itself")
    if record.ts_ns >> 63:
        raise OverflowError(record.ts_ns)
    record.data_bytes = <uint32_t>rest
    return 0


cdef class Walk:
    """The way along places and frames, both in the order of offsets."""

    cdef const unsigned char* data
    cdef Py_ssize_t data_bytes
    cdef Frames frames
    cdef array.array offsets
    cdef const unsigned char* live
    cdef int64_t offset
    cdef Py_ssize_t position
    cdef Py_ssize_t frame

    cdef Found* next(self) noexcept:
        """The frame of the message at the position, or of the next one that has one."""
        cdef int64_t place
        cdef Found* found
        while self.position < len(self.offsets):
            if self.live[self.position]:
                place = <int64_t>self.offsets.data.as_uints[self.position] - self.offset
                while self.frame < self.frames.count and self.frames.found[self.frame].position < place:
                    self.frame += 1
                if self.frame < self.frames.count:
                    found = &self.frames.found[self.frame]
                    if found.position == place and found.kind_and_group & 0xFF == APPEND:
                        return found
            self.position += 1
        return NULL

    cdef array.array gather(self, int64_t room, int64_t row_bytes):
        """The records of a block, as an array of their bytes."""
        cdef array.array records = array.array("B")
        cdef Record record
        cdef Found* found = self.next()
        while found != NULL:
            read_record(&record, self.data, self.data_bytes, found)
            record.position = self.position
            room -= <int64_t>record.data_bytes + row_bytes
            if room < 0 and len(records):
                break
            array.extend_buffer(records, <char*>&record, sizeof(Record))
            self.position += 1
            found = self.next()
        return records


def rows_of_frames(
    data, frames, int64_t offset, places, Py_ssize_t position, Py_ssize_t frame, int64_t bytes_max, int64_t row_bytes
):
    """Rows for one block: messages from a position on, whose frames are from `frame` on.

    `data` begins at `offset` of its file. A block has `bytes_max` bytes, or one message; each message takes
    `row_bytes` besides its data. Without rows, nothing that is alive and was found is left.
    """
    if not isinstance(frames, Frames):
        return _rows.rows_of_frames(data, frames, offset, places, position, frame, bytes_max, row_bytes)
    cdef Py_buffer view
    cdef Walk walk = Walk()
    cdef bytes live = places.live
    seqs, walk.offsets, _live = places
    if len(live) < len(walk.offsets) or len(seqs) < len(walk.offsets):
        raise IndexError(len(live))
    if position < 0 or frame < 0 or walk.offsets.ob_descr.typecode != c"I":
        raise AssertionError((position, frame))
    walk.live = <const unsigned char*>PyBytes_AS_STRING(live)
    walk.frames = frames
    walk.offset = offset
    walk.position = position
    walk.frame = frame
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        walk.data = <const unsigned char*>view.buf
        walk.data_bytes = view.len
        records = walk.gather(bytes_max, row_bytes)
        rows = rows_of(records, seqs) if len(records) else None
    finally:
        PyBuffer_Release(&view)
    return Step(rows, walk.position, walk.frame)


cdef object rows_of(array.array records, seqs):
    cdef Py_ssize_t count = len(records) // sizeof(Record)
    cdef Record* record = <Record*>records.data.as_uchars
    cdef array.array times_ns = array.clone(SIGNED_NUMBERS, count, False)
    cdef array.array header_sizes = array.clone(NUMBERS, count, False)
    cdef array.array data_sizes = array.clone(NUMBERS, count, False)
    cdef array.array sizes = array.clone(NUMBERS, count, False)
    cdef list subjects = []
    cdef Py_ssize_t number
    cdef size_t total = 0
    for number in range(count):
        total += record[number].data_bytes
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, total)
    cdef char* place = PyBytes_AS_STRING(joined)
    for number in range(count):
        times_ns.data.as_longlongs[number] = <int64_t>record.ts_ns
        header_sizes.data.as_uints[number] = record.header_bytes
        data_sizes.data.as_uints[number] = record.data_bytes
        sizes.data.as_uints[number] = (
            RECORD_BYTES
            + (HEADER_LENGTH_BYTES if record.header_bytes else 0)
            + record.subject_bytes
            + record.data_bytes
        )
        subjects.append(PyBytes_FromStringAndSize(<const char*>record.subject, record.subject_bytes))
        memcpy(place, record.subject + record.subject_bytes, record.data_bytes)
        place += record.data_bytes
        record += 1
    return Rows(seqs_of(records, count, seqs), times_ns, subjects, header_sizes, data_sizes, sizes, joined)


cdef object seqs_of(array.array records, Py_ssize_t count, seqs):
    """A range where no seq is missing, else an array."""
    cdef Record* record = <Record*>records.data.as_uchars
    first_seq, last_seq = seqs[record[0].position], seqs[record[count - 1].position]
    if last_seq - first_seq == count - 1:
        return range(first_seq, last_seq + 1)
    cdef array.array found = array.clone(LARGE_NUMBERS, count, False)
    cdef Py_ssize_t number
    for number in range(count):
        found.data.as_ulonglongs[number] = seqs[record[number].position]
    return found


# --- back to messages ---


cdef inline void put_part(tuple message, Py_ssize_t place, object part) noexcept:
    # The tuple takes over a reference.
    Py_INCREF(part)
    PyTuple_SET_ITEM(message, place, part)


cdef object new_message(object seq, object ts_ns, object subject, object header_bytes, object data):
    """A Message. Its own constructor would copy a tuple that was made for it."""
    cdef tuple message = <tuple>PyType_GenericAlloc(<PyTypeObject*>MESSAGE, 5)
    put_part(message, 0, seq)
    put_part(message, 1, ts_ns)
    put_part(message, 2, subject)
    put_part(message, 3, header_bytes)
    put_part(message, 4, data)
    return message


cdef inline uint64_t unsigned_at(array.array column, Py_ssize_t place) noexcept:
    """A number of a column of 1, 2, 4 or 8 bytes each."""
    cdef int width = column.ob_descr.itemsize
    if width == 1:
        return column.data.as_uchars[place]
    if width == 2:
        return column.data.as_ushorts[place]
    if width == 4:
        return column.data.as_uints[place]
    return column.data.as_ulonglongs[place]


cdef bint are_sound(array.array codes, array.array header_sizes, array.array bounds, Py_ssize_t start,
                    Py_ssize_t end, Py_ssize_t subject_count, Py_ssize_t raw_bytes) noexcept:
    """Whether a block is what it should be between two positions."""
    cdef Py_ssize_t place
    if codes.ob_descr.typecode == c"q" or header_sizes.ob_descr.typecode == c"q":
        return False
    for place in range(start, end):
        if unsigned_at(codes, place) >= <uint64_t>subject_count:
            return False
        if bounds.data.as_uints[place] > bounds.data.as_uints[place + 1]:
            return False
    return <Py_ssize_t>bounds.data.as_uints[end] <= raw_bytes


def messages_between(block, Py_ssize_t start, Py_ssize_t end):
    """The messages of a block from one position to another. Oddities are left to the reference."""
    cdef array.array times_ns, codes, header_sizes, bounds
    cdef list subjects
    cdef bytes raw
    seqs, times_ns, codes, header_sizes, bounds, subjects, raw = block
    cdef Py_ssize_t count = min(len(seqs), len(times_ns), len(codes), len(header_sizes), len(bounds) - 1)
    if not 0 <= start <= end <= count or times_ns.ob_descr.typecode != c"q" or bounds.ob_descr.typecode != c"I":
        return _rows.messages_between(block, start, end)
    if not are_sound(codes, header_sizes, bounds, start, end, len(subjects), PyBytes_GET_SIZE(raw)):
        return _rows.messages_between(block, start, end)
    cdef bint is_dense = isinstance(seqs, range)
    cdef uint64_t first_seq = seqs[start] if is_dense and start < end else 0
    cdef const char* data = PyBytes_AS_STRING(raw)
    cdef const unsigned int* bound = bounds.data.as_uints
    cdef Py_ssize_t place
    cdef list found = []
    for place in range(start, end):
        found.append(
            new_message(
                first_seq + (place - start) if is_dense else seqs[place],
                times_ns.data.as_longlongs[place],
                subjects[unsigned_at(codes, place)],
                unsigned_at(header_sizes, place),
                PyBytes_FromStringAndSize(data + bound[place], bound[place + 1] - bound[place]),
            )
        )
    return found


def messages_at(bytes data not None, int64_t offset, seqs, array.array offsets not None, array.array sizes not None):
    """The messages whose frames are at these offsets of a file; `data` begins at `offset` of it."""
    cdef Py_ssize_t count = len(offsets)
    cdef int64_t data_bytes = PyBytes_GET_SIZE(data)
    cdef const unsigned char* begin = <const unsigned char*>PyBytes_AS_STRING(data)
    cdef Record record
    cdef Found frame
    cdef Py_ssize_t place
    cdef list found = []
    if len(sizes) != count or len(seqs) != count:
        raise ValueError(count)
    if offsets.ob_descr.typecode != c"I" or sizes.ob_descr.typecode != c"I":
        raise TypeError(offsets.typecode)
    for place in range(count):
        frame.position = <int64_t>offsets.data.as_uints[place] - offset
        frame.size = sizes.data.as_uints[place] & SIZE_MASK
        if frame.position < 0 or frame.position > data_bytes - HEADER_BYTES or frame.size < HEADER_BYTES:
            raise ValueError(f"no frame of {frame.size} bytes at {frame.position}")
        frame.size -= HEADER_BYTES
        read_record(&record, begin, data_bytes, &frame)
        found.append(
            new_message(
                seqs[place],
                record.ts_ns,
                PyBytes_FromStringAndSize(<const char*>record.subject, record.subject_bytes),
                record.header_bytes,
                PyBytes_FromStringAndSize(
                    <const char*>record.subject + record.subject_bytes, record.data_bytes
                ),
            )
        )
    return found


def running_times(array.array steps not None):
    """Times from the first one and from how far each is from the one before. Raises OverflowError."""
    if steps.ob_descr.typecode != c"q":
        return _rows.running_times(steps)
    cdef array.array times_ns = array.copy(steps)
    cdef int64_t before = 0, step
    cdef Py_ssize_t place
    for place in range(len(steps)):
        step = steps.data.as_longlongs[place]
        if (step > 0 and before > INT64_MAX - step) or (step < 0 and before < INT64_MIN - step):
            raise OverflowError(place)
        before += step
        times_ns.data.as_longlongs[place] = before
    return times_ns


# --- packing ---


cdef bytes packed(array.array values):
    """A column from an array of eight-byte numbers: unsigned ones in as few bytes as the largest needs."""
    cdef Py_ssize_t count = len(values)
    cdef uint64_t largest = 0
    cdef uint64_t value
    cdef Py_ssize_t number
    cdef int width, byte
    cdef char code = values.ob_descr.typecode
    if code == c"q":
        width = 8
    else:
        for number in range(count):
            largest |= values.data.as_ulonglongs[number]
        if largest <= 0xFF:
            width, code = 1, c"B"
        elif largest <= 0xFFFF:
            width, code = 2, c"H"
        elif largest <= 0xFFFFFFFF:
            width, code = 4, c"I"
        else:
            width, code = 8, c"Q"
    cdef bytes column = PyBytes_FromStringAndSize(NULL, 5 + count * width)
    cdef unsigned char* place = <unsigned char*>PyBytes_AS_STRING(column)
    place[0] = code
    for byte in range(4):
        place[1 + byte] = count >> 8 * byte & 0xFF
    place += 5
    for number in range(count):
        value = values.data.as_ulonglongs[number]
        for byte in range(width):
            place[byte] = value >> 8 * byte & 0xFF
        place += width
    return column


cdef array.array widened(array.array values):
    """Four-byte numbers as eight-byte ones."""
    if values.ob_descr.typecode != c"I":
        raise TypeError(values.typecode)
    cdef array.array wide = array.clone(LARGE_NUMBERS, len(values), False)
    cdef Py_ssize_t number
    for number in range(len(values)):
        wide.data.as_ulonglongs[number] = values.data.as_uints[number]
    return wide


cdef array.array steps_of(array.array times_ns):
    """The first time, then how far each is from the one before."""
    if times_ns.ob_descr.typecode != c"q":
        raise TypeError(times_ns.typecode)
    cdef array.array steps = array.copy(times_ns)
    cdef Py_ssize_t number
    cdef int64_t one, other
    for number in range(1, len(times_ns)):
        one, other = times_ns.data.as_longlongs[number - 1], times_ns.data.as_longlongs[number]
        if (one < 0) != (other < 0) and (<int64_t>(<uint64_t>other - <uint64_t>one) < 0) != (other < 0):
            raise OverflowError(number)
        steps.data.as_longlongs[number] = <int64_t>(<uint64_t>other - <uint64_t>one)
    return steps


def pack_column(values):
    """Unsigned numbers, each in as many bytes as the largest needs; a signed array as it is."""
    cdef char code
    if isinstance(values, _array):
        code = (<array.array>values).ob_descr.typecode
        if code == c"Q" or code == c"q":
            return packed(values)
        if code == c"I":
            return packed(widened(values))
    return _rows.pack_column(values)


def pack_rows(rows):
    """The raw bytes of a block, which numbers its different subjects in the order of their first message."""
    seqs, times_ns, subjects, header_sizes, data_sizes, _sizes, data = rows
    cdef dict codes = {}
    cdef list known = subjects
    cdef Py_ssize_t count = len(known)
    cdef array.array numbers = array.clone(LARGE_NUMBERS, count, False)
    cdef list names = []
    cdef PyObject* found
    cdef Py_ssize_t number
    for number in range(count):
        subject = known[number]
        found = PyDict_GetItem(codes, subject)
        if found == NULL:
            numbers.data.as_ulonglongs[number] = len(names)
            PyDict_SetItem(codes, subject, len(names))
            names.append(subject)
        else:
            numbers.data.as_ulonglongs[number] = <object>found
    cdef array.array name_sizes = array.clone(LARGE_NUMBERS, len(names), False)
    for number in range(len(names)):
        name_sizes.data.as_ulonglongs[number] = len(names[number])
    return b"".join(
        [
            _rows.pack_seqs(seqs),
            packed(steps_of(times_ns)),
            packed(numbers),
            packed(widened(header_sizes)),
            packed(widened(data_sizes)),
            packed(name_sizes),
            *names,
            data,
        ]
    )
