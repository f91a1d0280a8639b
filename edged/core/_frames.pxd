# What _runs.pyx needs of _frames.pyx: the frames of a scan as they are in memory, and reading of numbers.

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    HEADER_BYTES = 24
    APPEND_BYTES = 14
    # Above it are flags, see frames.py.
    HEADER_SIZE_MASK = 0x7FFFFFF


# --- little endian, whatever the machine; compilers make one instruction of each ---


cdef inline uint32_t load32(const unsigned char* place) noexcept nogil:
    return (
        <uint32_t>place[0] | <uint32_t>place[1] << 8 | <uint32_t>place[2] << 16 | <uint32_t>place[3] << 24
    )


cdef inline uint64_t load64(const unsigned char* place) noexcept nogil:
    return <uint64_t>load32(place) | <uint64_t>load32(place + 4) << 32


cdef struct Found:
    int64_t position
    uint64_t index
    uint32_t size
    uint32_t kind_and_group


cdef class Frames:
    cdef Found* found
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity

    cdef bint add(self, int64_t position, const unsigned char* frame) noexcept nogil
    cdef tuple at(self, Py_ssize_t number)
    cdef object part(self, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t step)
