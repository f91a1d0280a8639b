# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.acks: same names, same behaviour, C loops."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcmp

from array import array as _array

cdef array.array LARGE_NUMBERS = _array("Q")


cdef inline bint is_plain_ack(bytes data) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    if size == 0:
        return True
    if size == 4:
        return memcmp(PyBytes_AS_STRING(data), b"+ACK", 4) == 0
    return size == 3 and memcmp(PyBytes_AS_STRING(data), b"+OK", 3) == 0


cdef uint64_t acked_seq(const char* at, const char* end) noexcept:
    """The second of five numbers with dots between them; 0 if it is something else."""
    cdef uint64_t value = 0, seq = 0
    cdef int digits = 0, numbers = 0
    while True:
        if at == end or at[0] == b'.':
            if digits == 0 or digits > 19:
                return 0
            numbers += 1
            if numbers == 2:
                seq = value
            if at == end:
                return seq if numbers == 5 else 0
            value = 0
            digits = 0
        elif b'0' <= at[0] <= b'9':
            value = value * 10 + (at[0] - 48)
            digits += 1
        else:
            return 0
        at += 1


def plain_acks(list messages not None, Py_ssize_t start, bytes prefix not None):
    cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
    cdef Py_ssize_t count = len(messages)
    cdef array.array seqs = array.clone(LARGE_NUMBERS, max(count - start, 0), False)
    cdef Py_ssize_t found = 0
    cdef tuple publish
    cdef bytes subject
    cdef const char* name
    cdef uint64_t seq
    while start < count:
        publish = messages[start]
        subject = publish[0]
        if publish[1] is not None or <long long>publish[2] > 0 or not is_plain_ack(publish[3]):
            break
        name = PyBytes_AS_STRING(subject)
        if PyBytes_GET_SIZE(subject) <= prefix_size or memcmp(name, PyBytes_AS_STRING(prefix), prefix_size) != 0:
            break
        seq = acked_seq(name + prefix_size, name + PyBytes_GET_SIZE(subject))
        if seq == 0:
            break
        seqs.data.as_ulonglongs[found] = seq
        found += 1
        start += 1
    array.resize(seqs, found)
    return seqs
