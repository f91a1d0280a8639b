# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.codes: same names, same behaviour, C loops."""

from cpython cimport array
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr

from array import array as _array

from edged.core import codes as _codes

cdef array.array NUMBERS = _array("I")


cdef struct Column:
    # The pieces of a column, and how wide the numbers of the high one are: 0 if there is none.
    const unsigned char* low
    const unsigned char* high
    int width


cdef inline uint64_t high_at(Column* column, Py_ssize_t position) noexcept:
    if column.width == 1:
        return column.high[position]
    if column.width == 2:
        return (<const unsigned short*>column.high)[position]
    if column.width == 4:
        return (<const unsigned int*>column.high)[position]
    return 0


cdef inline uint64_t number_at(Column* column, Py_ssize_t position) noexcept:
    return <uint64_t>column.low[position] | high_at(column, position) << 8


cdef int open_column(Column* column, bytearray low, array.array high, Py_ssize_t start, Py_ssize_t stop) except -1:
    if start < 0 or stop > len(low) or (high is not None and len(high) < len(low)):
        raise IndexError((start, stop))
    column.low = <const unsigned char*>(<char*>low)
    column.width = 0
    if high is not None:
        if high.typecode not in ("B", "H", "I"):
            raise TypeError(high.typecode)
        column.high = high.data.as_uchars
        column.width = high.ob_descr.itemsize
    return 0


def find_number(bytearray low not None, array.array high, uint64_t number, Py_ssize_t start, Py_ssize_t stop):
    """The first position from `start` and before `stop` with this number."""
    cdef Column column
    cdef const unsigned char* found
    cdef uint64_t more = number >> 8
    open_column(&column, low, high, start, stop)
    while start < stop:
        found = <const unsigned char*>memchr(column.low + start, number & 255, stop - start)
        if found == NULL:
            start = stop
        elif high_at(&column, found - column.low) == more:
            break
        else:
            start = found - column.low + 1
    return found - column.low if start < stop else -1


def find_last_number(bytearray low not None, array.array high, uint64_t number, Py_ssize_t start, Py_ssize_t stop):
    """The last position before `stop` and not before `start` with this number."""
    cdef Column column
    cdef unsigned char byte = number & 255
    cdef uint64_t more = number >> 8
    open_column(&column, low, high, start, stop)
    stop -= 1
    while stop >= start:
        if column.low[stop] == byte and high_at(&column, stop) == more:
            break
        stop -= 1
    return stop if stop >= start else -1


cdef inline bint is_wanted(Column* column, const unsigned char* flags, uint64_t size, Py_ssize_t position) noexcept:
    cdef uint64_t number = number_at(column, position)
    return number < size and flags[number] != 0


def find_wanted(bytearray low not None, array.array high, bytearray flags not None, Py_ssize_t start, Py_ssize_t stop):
    """The first position from `start` and before `stop` with a wanted number."""
    cdef Column column
    cdef const unsigned char* flag_at = <const unsigned char*>(<char*>flags)
    cdef uint64_t size = len(flags)
    open_column(&column, low, high, start, stop)
    while start < stop and not is_wanted(&column, flag_at, size, start):
        start += 1
    return start if start < stop else -1


def find_last_wanted(
    bytearray low not None, array.array high, bytearray flags not None, Py_ssize_t start, Py_ssize_t stop
):
    """The last position before `stop` and not before `start` with a wanted number."""
    cdef Column column
    cdef const unsigned char* flag_at = <const unsigned char*>(<char*>flags)
    cdef uint64_t size = len(flags)
    open_column(&column, low, high, start, stop)
    stop -= 1
    while stop >= start and not is_wanted(&column, flag_at, size, stop):
        stop -= 1
    return stop if stop >= start else -1


def count_wanted(
    bytearray low not None,
    array.array high,
    bytearray flags not None,
    Py_ssize_t start,
    Py_ssize_t stop,
    bytes live not None,
):
    """How many positions have a wanted number and a 1 in `live`, which begins at `start`."""
    cdef Column column
    cdef const unsigned char* flag_at = <const unsigned char*>(<char*>flags)
    cdef const unsigned char* live_at = live
    cdef uint64_t size = len(flags)
    cdef Py_ssize_t position
    cdef Py_ssize_t count = 0
    open_column(&column, low, high, start, stop)
    if len(live) < stop - start:
        raise IndexError(len(live))
    for position in range(start, stop):
        if live_at[position - start] and is_wanted(&column, flag_at, size, position):
            count += 1
    return count


def positions_of(
    bytearray low not None,
    array.array high,
    bytearray flags,
    Py_ssize_t start,
    bytes live not None,
    Py_ssize_t limit,
):
    """The first `limit` positions from `start` on with a 1 in `live` and a wanted number; None wants all."""
    cdef Column column
    cdef const unsigned char* flag_at = NULL
    cdef const unsigned char* live_at = live
    cdef uint64_t size = 0
    cdef Py_ssize_t stop = start + len(live)
    cdef Py_ssize_t position
    cdef Py_ssize_t count = 0
    open_column(&column, low, high, start, stop)
    if flags is not None:
        flag_at = <const unsigned char*>(<char*>flags)
        size = len(flags)
    cdef array.array found = array.clone(NUMBERS, max(min(limit, stop - start), 0), False)
    for position in range(start, stop):
        if count >= limit:
            break
        if live_at[position - start] and (flag_at == NULL or is_wanted(&column, flag_at, size, position)):
            found.data.as_uints[count] = position
            count += 1
    array.resize(found, count)
    return found


def running_sums(array.array steps not None):
    """0, and the sum of the steps up to and with each of them; OverflowError if it does not fit 64 bits."""
    cdef Py_ssize_t count = len(steps)
    cdef Py_ssize_t position
    cdef Column column
    cdef uint64_t total = 0
    cdef uint64_t step
    cdef array.array sums
    if steps.typecode not in ("B", "H", "I"):
        return _codes.running_sums(steps)
    column.high = steps.data.as_uchars
    column.width = steps.ob_descr.itemsize
    # The steps have four bytes at most, and there are not so many of them that this could run over.
    for position in range(count):
        total += high_at(&column, position)
    if total > 0xFFFFFFFF:
        return _codes.running_sums(steps)
    sums = array.clone(NUMBERS, count + 1, False)
    total = 0
    sums.data.as_uints[0] = 0
    for position in range(count):
        total += high_at(&column, position)
        sums.data.as_uints[position + 1] = <uint32_t>total
    return sums


def flags_by_code(bytearray flags not None, array.array numbers not None, array.array counts not None):
    """For each code, 1 if the number it stands for is wanted and it has messages at all, else 0."""
    cdef const unsigned char* flag_at = <const unsigned char*>(<char*>flags)
    cdef uint32_t size = len(flags)
    cdef Py_ssize_t count = len(numbers)
    cdef Py_ssize_t code
    cdef int width = counts.ob_descr.itemsize
    cdef bytearray codes = bytearray(count)
    cdef unsigned char* code_at = <unsigned char*>(<char*>codes)
    cdef const unsigned char* counts_at = counts.data.as_uchars
    cdef unsigned char some
    cdef int byte
    if numbers.typecode != "I" or len(counts) != count:
        raise ValueError(numbers.typecode)
    for code in range(count):
        if numbers.data.as_uints[code] < size and flag_at[numbers.data.as_uints[code]]:
            some = 0
            for byte in range(width):
                some |= counts_at[code * width + byte]
            code_at[code] = some != 0
    return codes
