# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.runs: same names, same behaviour, C loops.

Frames come from a scan of `_frames.pyx`; a list of them, as the reference makes it, is left to the reference.
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from edged.core._frames cimport (
    APPEND_BYTES,
    HEADER_BYTES,
    HEADER_SIZE_MASK,
    Found,
    Frames,
    load32,
    load64,
)

from array import array as _array

from edged.core import frames as _frames
from edged.core import runs as _runs
from edged.core.runs import Run

cdef array.array NUMBERS = _array("I")
cdef array.array LARGE_NUMBERS = _array("Q")
cdef uint32_t PLAIN_BYTES = _runs.PLAIN_BYTES
cdef Py_ssize_t BODY_BYTES_MAX = _frames.BODY_BYTES_MAX
cdef uint32_t APPEND = _frames.APPEND
cdef uint32_t COMMAND = _frames.COMMAND
cdef uint32_t MORE = _frames.MORE

cdef enum:
    FIRST_UNSURE = 1
    LAST_UNSURE = 2


cdef uint32_t plain_size_of(tag_bytes) except 0:
    return _runs.packed_size(_runs.FRAME_BYTES + tag_bytes, _runs.PLAIN_BYTES)


def run_of_messages(messages, ts_ns, int64_t start, offsets, tag_bytes=0):
    """Messages whose frames are at these offsets behind `start`; None if one of them has headers.

    Frames of an encrypted journal are longer by a tag.
    """
    cdef uint32_t plain_size = plain_size_of(tag_bytes)
    cdef Py_ssize_t count = len(messages)
    cdef list subjects = []
    cdef array.array places = array.clone(NUMBERS, count, False)
    cdef array.array sizes = array.clone(NUMBERS, count, False)
    cdef uint64_t total = <uint64_t>PLAIN_BYTES * count
    cdef Py_ssize_t position = 0
    cdef Py_ssize_t size
    cdef int64_t place
    cdef bytes subject, data
    for subject, _reply, header_bytes, data in messages:
        if header_bytes > 0:
            return None
        if position == count:
            raise RuntimeError("messages grew while they were read")
        size = len(subject) + len(data)
        if size > BODY_BYTES_MAX:
            raise AssertionError(size)
        subjects.append(subject)
        sizes.data.as_uints[position] = plain_size + <uint32_t>size
        total += size
        position += 1
    if position != count or len(offsets) != count:
        raise ValueError(f"{len(offsets)} offsets for {position} messages")
    position = 0
    for offset in offsets:
        place = start + <int64_t>offset
        if not 0 <= place <= 0xFFFFFFFF:
            raise OverflowError(place)
        places.data.as_uints[position] = <uint32_t>place
        position += 1
    return Run(subjects, [ts_ns] * count, places, sizes, total)


def run_of_frames(data, frames, Py_ssize_t position, tag_bytes=0, int64_t start=0, Py_ssize_t stop=-1):
    """The messages of a group from a frame on, as long as their indexes count up and they have no headers.

    None if not even the frame at `position` is one of those. `data` is the file from `start` on; where it
    was encrypted, the bodies in it are plain and tags follow them. Frames from `stop` on, unless it is
    negative, are left out.
    """
    if not isinstance(frames, Frames):
        return _runs.run_of_frames(data, frames, position, tag_bytes, start, stop)
    cdef Frames scanned = frames
    if stop < 0 or stop > scanned.count:
        stop = scanned.count
    if not 0 <= position < scanned.count:
        raise IndexError(position)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return gathered(
            <const unsigned char*>view.buf, view.len, scanned, position, plain_size_of(tag_bytes), start, stop
        )
    finally:
        PyBuffer_Release(&view)


cdef bint is_plain(Found* found, const unsigned char* data, Py_ssize_t data_bytes) noexcept nogil:
    """Whether a frame has a message without headers in it, and lies in the data."""
    cdef const unsigned char* body = data + found.position + HEADER_BYTES
    if found.size < APPEND_BYTES or found.position + HEADER_BYTES + <int64_t>found.size > data_bytes:
        return False
    return load32(body + 8) == 0 and subject_bytes_at(body) <= found.size - APPEND_BYTES


cdef inline uint32_t subject_bytes_at(const unsigned char* body) noexcept nogil:
    return <uint32_t>body[12] | <uint32_t>body[13] << 8


cdef object gathered(
    const unsigned char* data,
    Py_ssize_t data_bytes,
    Frames frames,
    Py_ssize_t position,
    uint32_t plain_size,
    int64_t start,
    Py_ssize_t stop,
):
    cdef Found* first = &frames.found[position]
    cdef uint32_t kind_and_group = APPEND | (first.kind_and_group & 0xFFFFFF00U)
    cdef Py_ssize_t limit = stop - position
    cdef Py_ssize_t count = 0
    cdef Py_ssize_t number
    while count < limit and first[count].kind_and_group == kind_and_group:
        if first[count].index != first.index + <uint64_t>count:
            break
        if not is_plain(&first[count], data, data_bytes):
            break
        count += 1
    if count == 0:
        return None
    if start + first[count - 1].position > 0xFFFFFFFF:
        raise OverflowError(start + first[count - 1].position)
    cdef list subjects = []
    cdef array.array times_ns = array.clone(LARGE_NUMBERS, count, False)
    cdef array.array offsets = array.clone(NUMBERS, count, False)
    cdef array.array sizes = array.clone(NUMBERS, count, False)
    cdef uint64_t total = <uint64_t>PLAIN_BYTES * count
    cdef const unsigned char* body
    cdef uint32_t size
    for number in range(count):
        body = data + first[number].position + HEADER_BYTES
        size = first[number].size - APPEND_BYTES
        subjects.append(PyBytes_FromStringAndSize(<const char*>body + APPEND_BYTES, subject_bytes_at(body)))
        times_ns.data.as_ulonglongs[number] = load64(body)
        offsets.data.as_uints[number] = <uint32_t>(start + first[number].position)
        sizes.data.as_uints[number] = plain_size + size
        total += size
    return Run(subjects, times_ns, offsets, sizes, total)


def block_frames(data, uint32_t group, uint64_t first_index, uint64_t count):
    """The frames of consecutive entries of a group, as another node sent them; ValueError for other bytes.

    Marks and checksums are not looked at. An entry may be there twice. The last message is no member of an
    atomic batch of which more would follow.
    """
    cdef Frames found = Frames()
    cdef Py_buffer view
    cdef const unsigned char* frame
    cdef const unsigned char* body
    cdef Py_ssize_t position = 0
    cdef int64_t size
    cdef uint64_t index = first_index - 1
    cdef uint64_t frame_index
    cdef uint32_t kind
    cdef bint is_followed = False
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while position < view.len:
            if view.len - position < HEADER_BYTES:
                raise ValueError(f"a frame is cut off at {position}")
            frame = <const unsigned char*>view.buf + position
            size, kind, frame_index = load32(frame + 8), frame[12], load64(frame + 16)
            if load32(frame + 12) >> 8 != group or (kind != APPEND and kind != COMMAND) or not (
                frame_index == index + 1
                or (frame_index == index and kind == COMMAND and index >= first_index)
            ):
                raise ValueError(f"no entry of group {group} behind {index} at {position}")
            if size > BODY_BYTES_MAX or size > view.len - position - HEADER_BYTES:
                raise ValueError(f"a frame of {size} bytes is cut off at {position}")
            is_followed = False
            if kind == APPEND:
                body = frame + HEADER_BYTES
                if size < APPEND_BYTES or size - APPEND_BYTES < <int64_t>(
                    (load32(body + 8) & HEADER_SIZE_MASK) + (<uint32_t>body[12] | <uint32_t>body[13] << 8)
                ):
                    raise ValueError(f"an append of {size} bytes is too short for what it says about itself")
                is_followed = load32(body + 8) & MORE != 0
            if not found.add(position, frame):
                raise MemoryError()
            index = frame_index
            position += HEADER_BYTES + size
    finally:
        PyBuffer_Release(&view)
    if index != first_index + count - 1 or is_followed:
        raise ValueError(f"{index - first_index + 1} entries instead of {count}")
    return found


def stretch_of(frames, Py_ssize_t position):
    """Where the entries of a group that begin with this frame end, as a position, and the last one's index.

    They are appends and commands next to each other whose indexes count up; each may be there twice.
    """
    if not isinstance(frames, Frames):
        return _runs.stretch_of(frames, position)
    cdef Frames scanned = frames
    if not 0 <= position < scanned.count:
        raise IndexError(position)
    cdef uint32_t group = scanned.found[position].kind_and_group >> 8
    cdef uint64_t last = scanned.found[position].index
    cdef Py_ssize_t stop = position + 1
    cdef Found* found
    cdef uint32_t kind
    while stop < scanned.count:
        found = &scanned.found[stop]
        kind = found.kind_and_group & 0xFF
        if found.kind_and_group >> 8 != group or (kind != APPEND and kind != COMMAND):
            break
        if found.index != last and found.index != last + 1:
            break
        last = found.index
        stop += 1
    return stop, last


def enter_subjects(table, list subjects not None, seqs):
    """Count messages with these seqs in a subject table; the numbers of their subjects."""
    cdef dict known = table.numbers
    cdef Py_ssize_t count = len(subjects)
    cdef array.array numbers = array.clone(NUMBERS, count, False)
    cdef unsigned int* number_at = numbers.data.as_uints
    cdef Py_ssize_t position
    cdef PyObject* found
    if len(seqs) != count:
        raise ValueError(f"{len(seqs)} seqs for {count} messages")
    for position in range(count):
        subject = subjects[position]
        found = PyDict_GetItem(known, subject)
        number_at[position] = table.add(subject) if found == NULL else <object>found
    # Only now, because the columns move when subjects are added.
    if isinstance(seqs, range) and seqs.step == 1:
        count_messages(table, numbers, seqs.start, None)
    else:
        listed = _array("Q", seqs)
        count_messages(table, numbers, 0, listed)
    return numbers


cdef int count_messages(table, array.array numbers, uint64_t first_seq, array.array seqs) except -1:
    """Count a message for each number; without `seqs` they are consecutive."""
    cdef array.array counts = table.counts
    cdef array.array firsts = table.firsts
    cdef array.array lasts = table.lasts
    cdef bytearray unsure = table.unsure
    cdef unsigned char* unsure_at = unsure
    cdef size_t known_count = min(len(counts), len(firsts), len(lasts), len(unsure))
    cdef Py_ssize_t position
    cdef size_t number
    cdef uint64_t seq
    for position in range(len(numbers)):
        number = numbers.data.as_uints[position]
        if number >= known_count:
            raise IndexError(number)
        seq = first_seq + <uint64_t>position if seqs is None else seqs.data.as_ulonglongs[position]
        if counts.data.as_ulonglongs[number] == 0:
            firsts.data.as_ulonglongs[number] = seq
            unsure_at[number] = 0
        else:
            unsure_at[number] &= ~LAST_UNSURE
        counts.data.as_ulonglongs[number] += 1
        lasts.data.as_ulonglongs[number] = seq
    return 0


cdef class Subjects:
    """The columns of a segment's subjects, checked, and the way from one name to the next."""

    cdef array.array sizes
    cdef array.array counts
    cdef array.array firsts
    cdef array.array spans
    cdef bytes joined
    cdef uint64_t first_seq
    cdef Py_ssize_t count
    cdef const char* name

    def __init__(self, columns):
        self.first_seq, self.joined, self.sizes, self.counts, self.firsts, self.spans = columns
        cdef array.array column
        cdef Py_ssize_t position
        cdef uint64_t total = 0
        self.count = len(self.sizes)
        for column in (self.sizes, self.counts, self.firsts, self.spans):
            if column.typecode not in ("B", "H", "I", "Q"):
                raise TypeError(column.typecode)
            if len(column) != self.count:
                raise ValueError(f"{self.count} subjects with {len(self.counts)} counts")
        for position in range(self.count):
            total += number_at(self.sizes, position)
            if number_at(self.sizes, position) > <uint64_t>len(self.joined):
                raise ValueError(f"{self.count} subjects with {len(self.counts)} counts")
        if total != <uint64_t>len(self.joined):
            raise ValueError(f"{self.count} subjects with {len(self.counts)} counts")
        self.name = PyBytes_AS_STRING(self.joined)

    cdef bytes next_name(self, Py_ssize_t position):
        """The name at a position; asked for each of them in order."""
        cdef Py_ssize_t size = number_at(self.sizes, position)
        cdef bytes name = PyBytes_FromStringAndSize(self.name, size)
        self.name += size
        return name


def enter_counted(table, columns, is_exact):
    """Count the messages of a segment behind all others; the numbers of its subjects, as numbers_of() does.

    A subject without messages is left out. If not exact, the seqs are bounds: some messages are gone.
    """
    cdef Subjects subjects = Subjects(columns)
    cdef dict known = table.numbers
    cdef Py_ssize_t next_number = len(table.names)
    cdef array.array numbers = array.clone(NUMBERS, subjects.count, False)
    cdef list new = []
    cdef PyObject* found
    cdef Py_ssize_t position
    cdef bytes name
    for position in range(subjects.count):
        name = subjects.next_name(position)
        found = PyDict_GetItem(known, name)
        if found != NULL:
            numbers.data.as_uints[position] = <object>found
        elif number_at(subjects.counts, position):
            numbers.data.as_uints[position] = next_number + len(new)
            known[name] = next_number + len(new)
            new.append(name)
        else:
            numbers.data.as_uints[position] = 0
    table.add_numbered(new)
    # Only now, because the columns move when subjects are added.
    count_summaries(table, numbers, subjects, is_exact)
    return numbers


def numbers_of(dict known not None, columns):
    """The numbers of a segment's subjects, and 0 for one that has none."""
    cdef Subjects subjects = Subjects(columns)
    cdef array.array numbers = array.clone(NUMBERS, subjects.count, False)
    cdef PyObject* found
    cdef Py_ssize_t position
    cdef bytes name
    for position in range(subjects.count):
        name = subjects.next_name(position)
        found = PyDict_GetItem(known, name)
        numbers.data.as_uints[position] = 0 if found == NULL else <object>found
    return numbers


cdef inline uint64_t number_at(array.array column, Py_ssize_t position) noexcept:
    cdef int size = column.ob_descr.itemsize
    if size == 1:
        return column.data.as_uchars[position]
    if size == 2:
        return column.data.as_ushorts[position]
    if size == 4:
        return column.data.as_uints[position]
    return column.data.as_ulonglongs[position]


cdef int count_summaries(table, array.array numbers, Subjects subjects, bint is_exact) except -1:
    cdef array.array counts = table.counts
    cdef array.array firsts = table.firsts
    cdef array.array lasts = table.lasts
    cdef bytearray unsure = table.unsure
    cdef unsigned char* unsure_at = unsure
    cdef size_t known_count = min(len(counts), len(firsts), len(lasts), len(unsure))
    cdef Py_ssize_t position
    cdef size_t number
    cdef uint64_t first, more
    for position in range(len(numbers)):
        more = number_at(subjects.counts, position)
        if more == 0:
            continue
        number = numbers.data.as_uints[position]
        if number >= known_count:
            raise IndexError(number)
        first = subjects.first_seq + number_at(subjects.firsts, position)
        if counts.data.as_ulonglongs[number] == 0:
            firsts.data.as_ulonglongs[number] = first
            unsure_at[number] = 0 if is_exact else FIRST_UNSURE
        counts.data.as_ulonglongs[number] += more
        lasts.data.as_ulonglongs[number] = first + number_at(subjects.spans, position)
        if is_exact:
            unsure_at[number] &= ~LAST_UNSURE
        else:
            unsure_at[number] |= LAST_UNSURE
    return 0


def order_of(array.array numbers not None):
    """The positions of numbers in the order of their size, equal ones as they come; a range if they grow."""
    if numbers.ob_descr.typecode != c"I":
        raise TypeError(numbers.typecode)
    cdef Py_ssize_t count = len(numbers)
    cdef unsigned int* number_at = numbers.data.as_uints
    cdef Py_ssize_t position
    cdef size_t largest = 0
    cdef bint is_growing = True
    for position in range(count):
        if number_at[position] > largest:
            largest = number_at[position]
        if position and number_at[position] < number_at[position - 1]:
            is_growing = False
    if is_growing:
        return range(count)
    if largest > 8 * <size_t>count + 65536:
        # There would be more to count than to sort.
        return _runs.order_of(numbers)
    cdef array.array starts = array.clone(NUMBERS, largest + 2, True)
    cdef unsigned int* start_at = starts.data.as_uints
    for position in range(count):
        start_at[number_at[position] + 1] += 1
    for position in range(1, <Py_ssize_t>largest + 1):
        start_at[position] += start_at[position - 1]
    cdef array.array order = array.clone(NUMBERS, count, False)
    for position in range(count):
        order.data.as_uints[start_at[number_at[position]]] = position
        start_at[number_at[position]] += 1
    return order


def frames_of_kind(frames, uint32_t kind):
    """Those frames of a scan that are of one kind."""
    if not isinstance(frames, Frames):
        return _runs.frames_of_kind(frames, kind)
    cdef Frames scanned = frames
    cdef Py_ssize_t number
    cdef list found = []
    for number in range(scanned.count):
        if scanned.found[number].kind_and_group & 0xFF == kind:
            found.append(scanned.at(number))
    return found
