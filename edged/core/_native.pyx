# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The native twin of edged.core.wire, leaf_wire and fanout: same names, same behaviour, C loops.

Only the classes that run per message are here (Parser, LeafParser, Fanout) with the data they share. Everything
rare (odd lines, errors, CONNECT, SUB) is handed to the same Python code that the reference uses.

Memory: a Publishes points into the chunk that was fed, or into the parser's own buffer; both stay untouched
until the next feed(). An Outbox owns a malloc'ed buffer that is given back when it has been written out.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from edged.core import leaf_wire as _leaf_wire
from edged.core import limits as _limits
from edged.core import wire as _wire

cdef extern from "Python.h":
    int PyBUF_READ

cdef object _Connect = _wire.Connect
cdef object _WireParser = _wire.Parser
cdef object _LeafParser = _leaf_wire.LeafParser
cdef object _Info = _wire.Info
cdef object _PING = _wire.PING
cdef object _PONG = _wire.PONG

cdef Py_ssize_t _STALL_BYTES = _limits.STALL_BYTES

DEF KEPT_BYTES_MAX = 4096


cdef struct Span:
    # One publish: offsets into the batch's memory. reply_size is -1 without reply, header_bytes -1 for PUB.
    Py_ssize_t subject
    Py_ssize_t reply
    Py_ssize_t message
    int subject_size
    int reply_size
    int header_bytes
    int message_size


cdef class Publishes:
    """A run of publishes; valid until the parser that made it is fed again."""

    cdef Span* spans
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef const char* base
    cdef object keeper
    cdef bint stale

    def __cinit__(self):
        self.spans = NULL
        self.count = 0
        self.capacity = 0
        self.stale = False

    def __dealloc__(self):
        free(self.spans)

    def __len__(self):
        return self.count

    cdef Span* add(self) except NULL:
        cdef Span* grown
        if self.count == self.capacity:
            self.capacity = 8 if self.capacity == 0 else self.capacity * 2
            grown = <Span*>realloc(self.spans, self.capacity * sizeof(Span))
            if grown == NULL:
                raise MemoryError()
            self.spans = grown
        self.count += 1
        return &self.spans[self.count - 1]

    cdef tuple publish_at(self, Py_ssize_t i):
        cdef Span* span = &self.spans[i]
        reply = None
        if span.reply_size >= 0:
            reply = PyBytes_FromStringAndSize(self.base + span.reply, span.reply_size)
        return (
            PyBytes_FromStringAndSize(self.base + span.subject, span.subject_size),
            reply,
            span.header_bytes,
            PyBytes_FromStringAndSize(self.base + span.message, span.message_size),
        )

    def __iter__(self):
        assert not self.stale, "a batch is read before its parser is fed again"
        cdef Py_ssize_t i
        return iter([self.publish_at(i) for i in range(self.count)])


cdef inline bint is_blank(char c) noexcept nogil:
    return c == b' ' or c == b'\t'


cdef inline int size_of(const char* text, Py_ssize_t size) noexcept nogil:
    """A decimal size of at most nine digits, or -1."""
    cdef int value = 0
    cdef Py_ssize_t i
    if size == 0 or size > 9:
        return -1
    for i in range(size):
        if text[i] < b'0' or text[i] > b'9':
            return -1
        value = value * 10 + (text[i] - 48)
    return value


cdef inline int last_size(const char* line, Py_ssize_t size) noexcept nogil:
    """The size at the end of a line without its LF, or -1."""
    cdef Py_ssize_t start
    if size > 0 and line[size - 1] == 13:
        size -= 1
    while size > 0 and is_blank(line[size - 1]):
        size -= 1
    start = size
    while start > 0 and not is_blank(line[start - 1]):
        start -= 1
    return size_of(line + start, size - start)


cdef class Parser:
    """Twin of wire.Parser: publishes are parsed here, every other operation by the reference."""

    cdef public Py_ssize_t control_line_max
    cdef public Py_ssize_t payload_max
    cdef public bint headers_allowed
    cdef char* buffer
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity
    cdef Py_ssize_t consumed
    cdef Py_ssize_t wanted
    cdef Py_ssize_t kept
    cdef bint broken
    cdef Publishes last
    cdef object reference
    # The verb of a publish without headers: its first letter, and what it takes with a blank behind it. The one
    # with headers starts with an H, and both end with the same three letters.
    cdef char plain
    cdef Py_ssize_t plain_bytes
    cdef const char* letters

    def __cinit__(self, Py_ssize_t control_line_max, Py_ssize_t payload_max):
        self.reference = _WireParser
        self.plain = b'p'
        self.plain_bytes = 4
        self.letters = b"pub"
        self.control_line_max = control_line_max
        self.payload_max = payload_max
        self.headers_allowed = False
        self.buffer = NULL
        self.used = self.capacity = self.consumed = self.wanted = 0
        # How much of an incomplete operation is worth keeping; -1 for all of it.
        self.kept = -1
        self.broken = False
        self.last = None

    def __dealloc__(self):
        free(self.buffer)

    @property
    def buffered_bytes(self):
        return self.used - self.consumed

    def feed(self, data):
        cdef Py_buffer view
        cdef Py_ssize_t rest
        cdef list events = []
        if self.last is not None:
            self.last.stale = True
            self.last = None
        if self.broken:
            return events
        self.compact()
        self.kept = -1
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self.used > 0:
                self.keep(<const char*>view.buf, view.len)
                if self.used < self.wanted:
                    return events
                self.wanted = 0
                self.consumed = self.parse(self.buffer, self.used, self, events)
                if self.broken:
                    self.used = self.consumed
                elif self.kept >= 0:
                    self.used = self.consumed + self.kept
                if self.last is None:
                    self.compact()
            else:
                self.wanted = 0
                rest = self.parse(<const char*>view.buf, view.len, data, events)
                if not self.broken and rest < view.len:
                    self.keep(<const char*>view.buf + rest, view.len - rest if self.kept < 0 else self.kept)
        finally:
            PyBuffer_Release(&view)
        return events

    cdef void compact(self) noexcept:
        """Drop what was parsed. Not done while a batch may still point into the buffer."""
        if self.consumed > 0:
            self.used -= self.consumed
            memmove(self.buffer, self.buffer + self.consumed, self.used)
            self.consumed = 0
        if self.used == 0 and self.capacity > KEPT_BYTES_MAX:
            free(self.buffer)
            self.buffer = NULL
            self.capacity = 0

    cdef int keep(self, const char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t needed = self.used + size
        cdef char* grown
        if size == 0:
            return 0
        if needed > self.capacity:
            self.capacity = needed if needed > 2 * self.capacity else 2 * self.capacity
            grown = <char*>realloc(self.buffer, self.capacity)
            if grown == NULL:
                raise MemoryError()
            self.buffer = grown
        memcpy(self.buffer + self.used, data, size)
        self.used = needed
        return 0

    cdef Py_ssize_t parse(self, const char* work, Py_ssize_t end, object keeper, list events) except -1:
        """Append the events of work[:end]; return where the first incomplete operation starts."""
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t at, after
        cdef Publishes batch = None
        cdef char first
        while position < end:
            first = work[position]
            if first == b'P' and end - position >= 6 and work[position + 5] == 10:
                event = None
                if memcmp(work + position, b"PING\r", 5) == 0:
                    event = _PING
                elif memcmp(work + position, b"PONG\r", 5) == 0:
                    event = _PONG
                if event is not None:
                    events.append(event)
                    position += 6
                    batch = None
                    continue
            if first == b'I':
                after = self.info(work, position, end, events)
                if after > position:
                    position = after
                    batch = None
                    continue
            at = self.arguments_at(work, position, end)
            if at >= 0:
                if batch is None:
                    batch = Publishes()
                    batch.base = work
                    batch.keeper = keeper
                after = self.publish(work, position, at, end, batch)
                if after > position:
                    if batch.count == 1:
                        events.append(batch)
                        self.last = batch
                    position = after
                    continue
                if after == -2:
                    return position
            after = self.operation(work, position, end, events)
            if self.broken or after == position:
                return position
            position = after
            # +OK is no event: the batch before it goes on behind it, as in the reference.
            if not events or events[len(events) - 1] is not batch:
                batch = None
            if events and type(events[len(events) - 1]) is _Connect:
                return position
        return position

    cdef Py_ssize_t info(self, const char* work, Py_ssize_t position, Py_ssize_t end, list events) except -1:
        """Take INFO in its common form, of which a route has many; `position` itself when it is not that."""
        cdef Py_ssize_t start = position + 5
        cdef const char* newline
        cdef Py_ssize_t stop
        if start >= end or memcmp(work + position, b"INFO ", 5) != 0 or is_blank(work[start]):
            return position
        newline = <const char*>memchr(work + start, 10, end - start)
        if newline == NULL:
            return position
        stop = newline - work - 1
        if stop <= start or work[stop] != 13 or stop - start > self.control_line_max:
            return position
        events.append(_Info(PyBytes_FromStringAndSize(work + start, stop - start)))
        return stop + 2

    @cython.final
    cdef inline Py_ssize_t arguments_at(self, const char* work, Py_ssize_t position, Py_ssize_t end) noexcept:
        """Where the verb of a publish and the blank behind it end; -1 when this is another operation."""
        cdef char first = work[position] | 32
        cdef Py_ssize_t at = position + (self.plain_bytes if first == self.plain else 5)
        cdef const char* verb = work + at - 4
        if at > end or (first != self.plain and (first != b'h' or not self.headers_allowed)):
            return -1
        if (
            (verb[0] | 32) != self.letters[0]
            or (verb[1] | 32) != self.letters[1]
            or (verb[2] | 32) != self.letters[2]
            or not is_blank(verb[3])
        ):
            return -1
        return at

    cdef Py_ssize_t publish(
        self, const char* work, Py_ssize_t position, Py_ssize_t at, Py_ssize_t end, Publishes batch
    ) except -3:
        """Take one publish in its common form. -1: not in that form; -2: its payload has not arrived."""
        cdef bint has_header = (work[position] | 32) == b'h'
        cdef const char* newline
        cdef Py_ssize_t line_end, start, stop
        cdef Py_ssize_t argument_at[4]
        cdef int argument_size[4]
        cdef int count = 0
        cdef int expected = 3 if has_header else 2
        cdef int size, header_bytes
        cdef Span* span
        newline = <const char*>memchr(work + at, 10, end - at)
        if newline == NULL:
            return -1
        line_end = newline - work
        if line_end - at > self.control_line_max:
            return -1
        start = line_end + 1
        if line_end > at and work[line_end - 1] == 13:
            line_end -= 1
        while True:
            while at < line_end and is_blank(work[at]):
                at += 1
            if at == line_end:
                break
            if count == 4:
                return -1
            argument_at[count] = at
            while at < line_end and not is_blank(work[at]):
                if work[at] == 13:
                    return -1
                at += 1
            argument_size[count] = <int>(at - argument_at[count])
            count += 1
        if count != expected and count != expected + 1:
            return -1
        size = size_of(work + argument_at[count - 1], argument_size[count - 1])
        header_bytes = -1
        if has_header:
            header_bytes = size_of(work + argument_at[count - 2], argument_size[count - 2])
            if header_bytes < 0:
                return -1
        if size < 0 or size > self.payload_max or header_bytes > size:
            return -1
        stop = start + size
        if stop + 2 > end:
            if stop < end and work[stop] != 13:
                return -1
            self.wanted = stop + 2 - position if stop < end else stop + 1 - position
            return -2
        if work[stop] != 13 or work[stop + 1] != 10:
            return -1
        span = batch.add()
        span.subject = argument_at[0]
        span.subject_size = argument_size[0]
        if count == expected + 1:
            span.reply = argument_at[1]
            span.reply_size = argument_size[1]
        else:
            span.reply = 0
            span.reply_size = -1
        span.header_bytes = header_bytes
        span.message = start
        span.message_size = size
        return stop + 2

    cdef Py_ssize_t operation(self, const char* work, Py_ssize_t position, Py_ssize_t end, list events) except -1:
        """Let the reference parse one operation that is not a publish in its common form."""
        cdef const char* newline = <const char*>memchr(work + position, 10, end - position)
        cdef Py_ssize_t stop = end if newline == NULL else newline - work + 1
        cdef int size
        reference = self.reference(self.control_line_max, self.payload_max)
        reference.headers_allowed = self.headers_allowed
        # A control line is all that is needed, unless it is a publish: one for queue groups of a leaf node, or
        # one that the reference refuses, maybe for what it sees behind the payload.
        if newline != NULL and self.arguments_at(work, position, end) >= 0:
            size = last_size(work + position, stop - 1 - position)
            if size >= 0:
                stop = min(stop + size + 2, end)
        events.extend(reference.feed(PyBytes_FromStringAndSize(work + position, stop - position)))
        if reference.broken:
            self.broken = True
            return position
        self.wanted = reference.wanted_bytes
        if newline == NULL:
            # Behind PING, PONG and +OK anything may stand: the reference keeps only the verb of such a line.
            self.kept = reference.buffered_bytes
            return position
        return stop - <Py_ssize_t>reference.buffered_bytes


cdef class LeafParser(Parser):
    """Twin of leaf_wire.LeafParser."""

    def __cinit__(self, Py_ssize_t control_line_max, Py_ssize_t payload_max):
        self.reference = _LeafParser
        self.plain = b'l'
        self.plain_bytes = 5
        self.letters = b"msg"


cdef class Outbox:
    """Twin of fanout.Outbox."""

    cdef readonly object owner
    cdef public Py_ssize_t limit_bytes
    cdef public bint echo
    cdef public bint headers
    cdef public bint wants_no_responders
    cdef public bint tracks_replies
    cdef public bint is_route
    cdef public bint is_leaf
    cdef public bytes address
    cdef public bint overflowed
    cdef public bint listed
    cdef public uint64_t in_messages
    cdef public uint64_t in_bytes
    cdef public uint64_t out_messages
    cdef public uint64_t out_bytes
    cdef char* data
    cdef Py_ssize_t start
    cdef Py_ssize_t stop
    cdef Py_ssize_t capacity

    def __cinit__(self, owner, Py_ssize_t limit_bytes):
        self.owner = owner
        self.limit_bytes = limit_bytes
        self.echo = True
        self.headers = self.wants_no_responders = self.tracks_replies = self.is_route = self.is_leaf = False
        self.address = None
        self.overflowed = self.listed = False
        self.in_messages = self.in_bytes = self.out_messages = self.out_bytes = 0
        self.data = NULL
        self.start = self.stop = self.capacity = 0

    def __dealloc__(self):
        free(self.data)

    @property
    def pending_bytes(self):
        return self.stop - self.start

    cdef char* room(self, Py_ssize_t size) except? NULL:
        """Space for `size` more bytes at the end, or NULL when that would go over the limit."""
        cdef Py_ssize_t pending = self.stop - self.start
        cdef char* grown
        if pending + size > self.limit_bytes:
            self.overflowed = True
            return NULL
        if self.stop + size > self.capacity:
            if self.start > 0:
                memmove(self.data, self.data + self.start, pending)
                self.start = 0
                self.stop = pending
            if pending + size > self.capacity:
                self.capacity = pending + size if pending + size > 2 * self.capacity else 2 * self.capacity
                if self.capacity < 256:
                    self.capacity = 256
                grown = <char*>realloc(self.data, self.capacity)
                if grown == NULL:
                    raise MemoryError()
                self.data = grown
        return self.data + self.stop

    def append(self, bytes data):
        cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
        cdef char* at = self.room(size)
        if at != NULL:
            memcpy(at, PyBytes_AS_STRING(data), size)
            self.stop += size

    def peek(self):
        return PyMemoryView_FromMemory(self.data + self.start, self.stop - self.start, PyBUF_READ)

    def consume(self, Py_ssize_t count):
        assert 0 <= count <= self.stop - self.start, count
        self.start += count
        if self.start == self.stop:
            self.start = self.stop = 0
            # A little is kept for the next message; much is given back.
            if self.capacity > KEPT_BYTES_MAX:
                self.discard()

    cpdef discard(self):
        free(self.data)
        self.data = NULL
        self.start = self.stop = self.capacity = 0


cdef class Subscription:
    """Twin of fanout.Subscription."""

    cdef readonly bytes subject
    cdef readonly bytes queue
    cdef readonly bytes sid
    cdef readonly Outbox outbox
    cdef readonly object handler
    cdef list inbox
    cdef readonly Subscription gatherer
    cdef public uint64_t delivered
    cdef public uint64_t deliveries_max
    cdef public bint closed

    def __init__(self, bytes subject, queue, bytes sid, outbox, handler=None, with_=None):
        assert (outbox is None) != (handler is None), "a subscription has an outbox or a handler"
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.outbox = outbox
        self.handler = handler
        self.inbox = [] if outbox is None else None
        self.gatherer = with_
        self.delivered = self.deliveries_max = 0
        self.closed = False


cdef class Route:
    """Twin of fanout.Route."""

    cdef readonly tuple plain
    cdef readonly tuple queues
    cdef readonly object special

    def __init__(self, plain=(), queues=(), special=None):
        self.plain = tuple(plain)
        self.queues = tuple([tuple(members) for members in queues])
        self.special = special

    @property
    def is_empty(self):
        return not self.plain and not self.queues and self.special is None


cdef struct Message:
    # What the inner loop hands around: pointers instead of Python objects.
    const char* subject
    const char* reply
    const char* data
    Py_ssize_t subject_size
    Py_ssize_t reply_size
    Py_ssize_t data_size
    int header_bytes


cdef Message message_of(tuple publish):
    """Pointers into the parts of a publish, which must stay alive as long as the message is used."""
    cdef Message message
    cdef bytes subject = publish[0]
    cdef bytes reply = publish[1]
    cdef bytes data = publish[3]
    message.subject = PyBytes_AS_STRING(subject)
    message.subject_size = PyBytes_GET_SIZE(subject)
    message.reply = NULL
    message.reply_size = -1
    if reply is not None:
        message.reply = PyBytes_AS_STRING(reply)
        message.reply_size = PyBytes_GET_SIZE(reply)
    message.header_bytes = publish[2]
    message.data = PyBytes_AS_STRING(data)
    message.data_size = PyBytes_GET_SIZE(data)
    return message


cdef inline char* put(char* at, const char* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline char* put_word(char* at, const char* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    at[size] = b' '
    return at + size + 1


cdef inline char* put_number(char* at, uint64_t value) noexcept nogil:
    cdef char digits[20]
    cdef int count = 0
    while True:
        digits[count] = <char>(48 + value % 10)
        count += 1
        value //= 10
        if value == 0:
            break
    while count > 0:
        count -= 1
        at[0] = digits[count]
        at += 1
    return at


cdef char* put_leaf_names(
    char* at, bytes sid, const char* subject, Py_ssize_t subject_size, Message* message, bytes queues
) noexcept:
    """Twin of leaf_wire.leaf_names(), with a blank behind it."""
    cdef Py_ssize_t sid_size = PyBytes_GET_SIZE(sid)
    if sid_size > 0:
        at = put_word(at, PyBytes_AS_STRING(sid), sid_size)
    else:
        at = put_word(at, subject, subject_size)
    if queues is not None:
        at = put(at, b"+ " if message.reply_size >= 0 else b"| ", 2)
    if message.reply_size >= 0:
        if sid_size > 0:
            at = put(at, message.reply, message.reply_size)
            at = put_word(put(at, b"@", 1), subject, subject_size)
        else:
            at = put_word(at, message.reply, message.reply_size)
    if queues is not None:
        at = put(at, PyBytes_AS_STRING(queues), PyBytes_GET_SIZE(queues))
    return at


cdef inline bint is_reserved(const char* reply, Py_ssize_t size) noexcept nogil:
    if size < 4 or (reply[0] != b'_' and reply[0] != b'$'):
        return False
    return (
        memcmp(reply, b"_R_.", 4) == 0
        or memcmp(reply, b"$GR.", 4) == 0
        or (size >= 8 and memcmp(reply, b"$JS.ACK.", 8) == 0)
        or (size >= 5 and memcmp(reply, b"_GR_.", 5) == 0)
    )


def are_plain(messages):
    cdef tuple publish
    cdef bytes reply
    cdef Py_ssize_t size
    for publish in messages:
        if <long long>publish[2] > 0:
            return False
        reply = publish[1]
        if reply is not None:
            size = PyBytes_GET_SIZE(reply)
            if size >= 3 and memcmp(PyBytes_AS_STRING(reply) + size - 3, b"$FI", 3) == 0:
                return False
    return True


cdef class Fanout:
    """Twin of fanout.Fanout."""

    cdef uint64_t seed
    cdef list touched
    cdef public list dirty
    cdef public bint crowded

    def __init__(self, seed):
        self.seed = (seed & 0xFFFFFFFFFFFFFFFF) or 1
        self.touched = []
        self.dirty = []
        self.crowded = False

    def publish(self, batch, dict routes, resolve, origin):
        cdef Publishes run
        cdef Outbox source = origin
        cdef Span* span
        cdef Route route = None
        cdef Message message
        cdef Py_ssize_t i
        cdef Py_ssize_t previous_size = -1
        cdef const char* previous = NULL
        if type(batch) is not Publishes:
            self.publish_tuples(batch, routes, resolve, source)
            return
        run = batch
        assert not run.stale, "a batch is read before its parser is fed again"
        for i in range(run.count):
            span = &run.spans[i]
            message.subject = run.base + span.subject
            message.subject_size = span.subject_size
            message.reply = run.base + span.reply
            message.reply_size = span.reply_size
            message.data = run.base + span.message
            message.data_size = span.message_size
            message.header_bytes = span.header_bytes
            if source is not None:
                source.in_messages += 1
                source.in_bytes += span.message_size
                if span.reply_size > 0 and not source.is_route and is_reserved(message.reply, span.reply_size):
                    if not source.owner.reserved_reply(PyBytes_FromStringAndSize(message.reply, span.reply_size)):
                        continue
            # A burst mostly has one subject: its route is good until something outside of this loop runs.
            if span.subject_size != previous_size or memcmp(message.subject, previous, previous_size) != 0:
                subject = PyBytes_FromStringAndSize(message.subject, span.subject_size)
                route = routes.get(subject)
                if route is None:
                    route = resolve(subject)
                previous = message.subject
                previous_size = span.subject_size
            if route.special is not None:
                previous_size = -1
                route.special(source, run.publish_at(i))
            elif self.walk(route, source, &message, True):
                previous_size = -1
        self.call_handlers()

    cdef publish_tuples(self, batch, dict routes, resolve, Outbox source):
        cdef Route route
        for message in batch:
            subject, reply, _, data = message
            if source is not None:
                source.in_messages += 1
                source.in_bytes += len(data)
                if reply is not None and not source.is_route and is_reserved(reply, len(reply)):
                    if not source.owner.reserved_reply(reply):
                        continue
            route = routes.get(subject)
            if route is None:
                route = resolve(subject)
            if route.special is not None:
                route.special(source, message)
            else:
                self.deliver(route, source, message)
        self.call_handlers()

    cpdef bint deliver(self, Route route, Outbox origin, tuple publish, bint unanswered=True) except? True:
        cdef Message message = message_of(publish)
        cdef uint64_t before = self.delivered_count
        self.walk(route, origin, &message, unanswered)
        return self.delivered_count != before

    def acknowledge(self, messages, uint64_t first_seq, bytes head, replies):
        cdef dict routes = replies.routes
        cdef dict below = replies.below
        cdef dict literals = replies.literals
        cdef uint64_t seq = first_seq
        cdef Py_ssize_t head_size = PyBytes_GET_SIZE(head)
        cdef Py_ssize_t size, prefix_size = -1
        cdef const char* prefix = NULL
        cdef const char* name
        cdef char* text = <char*>malloc(head_size + 32)
        cdef char* at
        cdef bytes reply, kept
        cdef Route route = None
        cdef Message message
        if text == NULL:
            raise MemoryError()
        memcpy(text, PyBytes_AS_STRING(head), head_size)
        message.reply = NULL
        message.reply_size = -1
        message.header_bytes = -1
        message.data = text
        try:
            for publish in messages:
                reply = (<tuple>publish)[1]
                if reply is not None:
                    at = put_number(text + head_size, seq)
                    at[0] = b'}'
                    message.data_size = at + 1 - text
                    name = PyBytes_AS_STRING(reply)
                    size = PyBytes_GET_SIZE(reply)
                    message.subject = name
                    message.subject_size = size
                    # The reply subjects of one client mostly differ in the last token only.
                    if not (
                        prefix_size > 0
                        and size > prefix_size
                        and memcmp(name, prefix, prefix_size) == 0
                        and memchr(name + prefix_size, b'.', size - prefix_size) == NULL
                        and reply not in literals
                    ):
                        route = routes.get(reply)
                        prefix_size = -1
                        if route is None:
                            kept = reply[: reply.rfind(b".") + 1]
                            # As resolve() would find it, too.
                            if PyBytes_GET_SIZE(kept) < size and reply not in literals:
                                route = below.get(kept)
                            if route is None:
                                route = replies.resolve(reply)
                            if below.get(kept) is route:
                                prefix = PyBytes_AS_STRING(kept)
                                prefix_size = PyBytes_GET_SIZE(kept)
                    if route.special is not None:
                        prefix_size = -1
                        route.special(None, (reply, None, -1, PyBytes_FromStringAndSize(text, message.data_size)))
                    elif self.walk(route, None, &message, False):
                        prefix_size = -1
                seq += 1
        finally:
            free(text)
        self.call_handlers()

    def hand_out(self, Route route, list messages, bytes prefix, uint64_t first_seq, Py_ssize_t left):
        cdef uint64_t before = self.delivered_count
        cdef Py_ssize_t prefix_size = PyBytes_GET_SIZE(prefix)
        # Five numbers of at most twenty digits, and their dots.
        cdef char* text = <char*>malloc(prefix_size + 110)
        cdef char* at
        cdef tuple stored
        cdef bytes subject, data
        cdef object item
        cdef Message message
        if text == NULL:
            raise MemoryError()
        at = put(text, PyBytes_AS_STRING(prefix), prefix_size)
        at = put(at, b"1.", 2)
        prefix_size += 2
        message.reply = text
        try:
            for item in messages:
                # A named tuple, laid out like any other.
                stored = <tuple>item
                subject = stored[2]
                data = stored[4]
                message.subject = PyBytes_AS_STRING(subject)
                message.subject_size = PyBytes_GET_SIZE(subject)
                message.header_bytes = stored[3]
                message.data = PyBytes_AS_STRING(data)
                message.data_size = PyBytes_GET_SIZE(data)
                at = put_number(text + prefix_size, stored[0])
                at[0] = b'.'
                at = put_number(at + 1, first_seq)
                at[0] = b'.'
                at = put_number(at + 1, stored[1])
                at[0] = b'.'
                at = put_number(at + 1, left if left > 0 else 0)
                message.reply_size = at - text
                self.walk(route, None, &message, False)
                first_seq += 1
                left -= 1
        finally:
            free(text)
        return self.delivered_count - before

    cdef uint64_t delivered_count

    cdef bint walk(self, Route route, Outbox origin, Message* message, bint unanswered) except -1:
        """Deliver to everyone on the route. True when Python code ran that may have changed the routes."""
        cdef bint called_out = False
        cdef bint delivered = False
        cdef Py_ssize_t i, count, start, step
        cdef tuple recipient, members
        cdef int taken
        for i in range(len(route.plain)):
            recipient = <tuple>route.plain[i]
            taken = self.offer(recipient, origin, message)
            if taken > 0:
                delivered = True
                called_out |= taken > 1
        for i in range(len(route.queues)):
            members = <tuple>route.queues[i]
            count = len(members)
            start = <Py_ssize_t>(self.draw() % <uint64_t>count) if count > 1 else 0
            for step in range(count):
                recipient = <tuple>members[(start + step) % count]
                taken = self.offer(recipient, origin, message)
                if taken > 0:
                    delivered = True
                    called_out |= taken > 1
                    break
        if delivered:
            self.delivered_count += 1
        elif unanswered and message.reply_size >= 0 and origin is not None and origin.wants_no_responders:
            origin.owner.no_responders(
                PyBytes_FromStringAndSize(message.subject, message.subject_size),
                PyBytes_FromStringAndSize(message.reply, message.reply_size),
            )
            called_out = True
        return called_out

    cdef int offer(self, tuple recipient, Outbox origin, Message* message) except -1:
        """0: not taken; 1: taken; 2: taken, and Python code ran."""
        cdef Subscription subscription = <Subscription>recipient[0]
        cdef Outbox outbox
        cdef object seen = recipient[1]
        cdef const char* subject = message.subject
        cdef Py_ssize_t subject_size = message.subject_size
        cdef int result = 1
        if subscription.closed:
            return 0
        if seen is not None:
            subject = PyBytes_AS_STRING(seen)
            subject_size = PyBytes_GET_SIZE(seen)
        outbox = subscription.outbox
        if outbox is None:
            self.collect(subscription, origin, subject, subject_size, message)
            return 1
        if outbox is origin and not outbox.echo:
            return 0
        self.write(outbox, subscription.sid, None, subject, subject_size, message)
        subscription.delivered += 1
        if outbox.tracks_replies and message.reply_size >= 0:
            outbox.owner.reply_delivered(PyBytes_FromStringAndSize(message.reply, message.reply_size))
            result = 2
        if subscription.delivered == subscription.deliveries_max:
            subscription.closed = True
            outbox.owner.subscription_exhausted(subscription)
            result = 2
        return result

    cdef collect(self, Subscription subscription, Outbox origin, const char* subject, Py_ssize_t size, Message* message):
        reply = None
        if message.reply_size >= 0:
            reply = PyBytes_FromStringAndSize(message.reply, message.reply_size)
        subscription.delivered += 1
        if subscription.gatherer is not None:
            subscription = subscription.gatherer
        if not subscription.inbox:
            self.touched.append((subscription, origin))
        subscription.inbox.append((
            PyBytes_FromStringAndSize(subject, size),
            reply,
            message.header_bytes,
            PyBytes_FromStringAndSize(message.data, message.data_size),
        ))

    def encode(self, Outbox outbox, bytes sid, tuple publish):
        cdef Message message = message_of(publish)
        self.write(outbox, sid, None, message.subject, message.subject_size, &message)

    def encode_queues(self, Outbox outbox, bytes sid, tuple queues, tuple publish):
        assert outbox.is_leaf and queues, "queue groups are named to leaf nodes only"
        cdef Message message = message_of(publish)
        self.write(outbox, sid, b" ".join(queues) + b" ", message.subject, message.subject_size, &message)

    cdef int write(
        self, Outbox outbox, bytes sid, bytes queues, const char* subject, Py_ssize_t subject_size, Message* message
    ) except -1:
        """Append MSG or HMSG to an outbox, or what it is to other nodes and leaf nodes, and list it as dirty.

        `queues` is None, or names with a blank behind each.
        """
        cdef const char* data = message.data
        cdef Py_ssize_t data_size = message.data_size
        cdef int header_bytes = message.header_bytes
        cdef Py_ssize_t sid_size = PyBytes_GET_SIZE(sid)
        cdef Py_ssize_t line_max
        cdef char* at
        cdef char* begin
        if header_bytes > 0 and not outbox.headers:
            data += header_bytes
            data_size -= header_bytes
            header_bytes = 0
        # Two verbs of at most five bytes, three blanks, two numbers of at most ten digits, two line ends.
        line_max = subject_size + sid_size + (message.reply_size if message.reply_size > 0 else 0) + 36
        if outbox.is_route:
            line_max += 8
        if queues is not None:
            line_max += PyBytes_GET_SIZE(queues)
        at = outbox.room(line_max + data_size)
        if at != NULL:
            begin = at
            if outbox.is_route and outbox.address is not sid and outbox.address != sid:
                at = put(at, b"INFO ", 5)
                at = put(at, PyBytes_AS_STRING(sid), sid_size)
                at = put(at, b"\r\n", 2)
                outbox.address = sid
            if header_bytes > 0 or outbox.is_leaf:
                at[0] = b'H' if header_bytes > 0 else b'L'
                at += 1
            at = put(at, b"PUB " if outbox.is_route else b"MSG ", 4)
            if outbox.is_leaf:
                at = put_leaf_names(at, sid, subject, subject_size, message, queues)
            else:
                at = put_word(at, subject, subject_size)
                if not outbox.is_route:
                    at = put_word(at, PyBytes_AS_STRING(sid), sid_size)
                if message.reply_size >= 0:
                    at = put_word(at, message.reply, message.reply_size)
            if header_bytes > 0:
                at = put_number(at, header_bytes)
                at[0] = b' '
                at += 1
            at = put_number(at, data_size)
            at = put(at, b"\r\n", 2)
            at = put(at, data, data_size)
            at = put(at, b"\r\n", 2)
            outbox.stop += at - begin
            outbox.out_messages += 1
            outbox.out_bytes += data_size
            if outbox.stop - outbox.start > _STALL_BYTES:
                self.crowded = True
        if not outbox.listed:
            outbox.listed = True
            self.dirty.append(outbox)
        return 0

    cdef call_handlers(self):
        cdef Subscription subscription
        while self.touched:
            touched = self.touched
            self.touched = []
            for subscription, origin in touched:
                messages = subscription.inbox
                subscription.inbox = []
                subscription.handler(subscription, messages, origin)

    cdef uint64_t draw(self) noexcept:
        cdef uint64_t seed = self.seed
        seed ^= seed << 13
        seed ^= seed >> 7
        seed ^= seed << 17
        self.seed = seed
        return seed
