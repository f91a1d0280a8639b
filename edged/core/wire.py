"""The client side of the wire protocol, without I/O: bytes in, events out.

`Parser` is for clients; what it has in common with `leaf_wire.LeafParser` is in `OperationParser`.

Rules:
* `feed()` may be given the input cut at any byte; the events are the same for every cut.
* `feed()` stops after a CONNECT, because what follows depends on how the CONNECT is answered (headers,
  payload limit). The caller answers it and goes on with `feed(b"")`.
* Runs of PUB and HPUB become one `Publishes`. It is read before the next `feed()`, never kept.
* After a `Broken` nothing more is parsed: the connection is closed, with `-ERR` first when it has a text.
* No memory is set aside for a size that a client claims: the buffer grows with what has arrived, and what
  has arrived is bounded by the control line limit or the payload limit.

This is the reference; `_native.pyx` is its twin and runs under the same tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

# A size has at most nine digits, as in nats-server: more is refused before it is converted.
SIZE_DIGITS_MAX = 9

UNKNOWN_OPERATION = "Unknown Protocol Operation"
CONTROL_LINE_EXCEEDED = "maximum control line exceeded"
PAYLOAD_EXCEEDED = "Maximum Payload Violation"


@dataclass(frozen=True, slots=True)
class Connect:
    """CONNECT with its JSON, not yet looked at."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUB; the queue is None for a plain subscription."""

    subject: bytes
    queue: bytes | None
    sid: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUB; `deliveries_max` of 0 ends the subscription at once."""

    sid: bytes
    deliveries_max: int


@dataclass(frozen=True, slots=True)
class Info:
    """INFO from a peer. Clients have no reason to send it, but may."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """PING."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PONG."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The input cannot be followed any further. `error` is the text for -ERR, or None to close in silence."""

    error: str | None
    reason: Literal["protocol", "control_line", "payload", "peer_error"]


PING = Ping()
PONG = Pong()

# (subject, reply or None, header bytes or -1, header block + payload): a tuple, as there is one per message.
Publish = tuple[bytes, bytes | None, int, bytes]


class Publishes:
    """A run of publishes from one connection, in order: PUB and HPUB, or LMSG and HMSG."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages: list[Publish] = []

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[Publish]:
        return iter(self.messages)


# What every peer may send; `OwnEvent` is what only its kind does.
SharedEvent = Connect | Info | Ping | Pong | Broken | Publishes
OwnEvent = TypeVar("OwnEvent")
Event = SharedEvent | Subscribe | Unsubscribe

# Verbs that nothing in particular must follow; all others are followed by a blank.
_SHARED_VERBS = (b"PING", b"PONG", b"CONNECT", b"INFO", b"+OK", b"-ERR")
_FILLER_IGNORED = (b"PING", b"PONG", b"+OK")
_BLANKS = b" \t"
# Makes a small letter a capital one.
_UPPER = 0xDF

_arguments_of = re.compile(rb"[^ \t]+").findall


def publish_form(verb: bytes, sizes: int) -> re.Pattern[bytes]:
    """The common form of a publish: one match per message in pure Python. All else goes the long way."""
    letters = b"".join(b"[%c%c]" % pair for pair in zip(verb, verb.lower(), strict=True))
    name, sizes_at_end = rb"([^ \t\r\n]+)[ \t]+", rb"[ \t]+".join([rb"(\d{1,9})"] * sizes)
    return re.compile(rb"%s[ \t]+%s(?:%s)?%s[ \t]*\r?\n" % (letters, name, name, sizes_at_end))


def parse_size(text: bytes) -> int:
    """A decimal size, or -1 when it is no size that a server would take."""
    if not text or len(text) > SIZE_DIGITS_MAX or not text.isdigit():
        return -1
    return int(text)


def _batch(events: list[SharedEvent | OwnEvent]) -> Publishes:
    """The batch at the end of `events`, a new one if the last event is something else."""
    if events and isinstance(events[-1], Publishes):
        return events[-1]
    batch = Publishes()
    events.append(batch)
    return batch


class OperationParser(Generic[OwnEvent]):
    """Turns the bytes of one connection into events. The three limits may be changed between two feeds.

    A subclass says which verbs publish and change interest, and what stands behind them.
    """

    __slots__ = ("_buffer", "_wanted_bytes", "broken", "control_line_max", "headers_allowed", "payload_max")

    # Without headers, and with them.
    _publish_verbs: ClassVar[tuple[bytes, bytes]]
    _publish_forms: ClassVar[tuple[re.Pattern[bytes], re.Pattern[bytes]]]
    # To subscribe, and to end that.
    _interest_verbs: ClassVar[tuple[bytes, bytes]]

    def __init__(self, control_line_max: int, payload_max: int) -> None:
        self.control_line_max = control_line_max
        self.payload_max = payload_max
        self.headers_allowed = False
        self._buffer = bytearray()
        self._wanted_bytes = 0
        self.broken = False

    @property
    def buffered_bytes(self) -> int:
        """What is held of an operation that has not arrived completely."""
        return len(self._buffer)

    @property
    def wanted_bytes(self) -> int:
        """How many bytes must be held before it is worth parsing again."""
        return self._wanted_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> list[SharedEvent | OwnEvent]:
        """All events that `data`, together with what was left over before, completes."""
        if self.broken:
            return []
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._wanted_bytes:
                return []
            work = bytes(self._buffer)
            self._buffer.clear()
        else:
            work = bytes(data)
        self._wanted_bytes = 0
        events: list[SharedEvent | OwnEvent] = []
        rest = self._parse(work, events)
        if self.broken:
            return events
        self._buffer += work[rest:]
        return events

    def _parse(self, work: bytes, events: list[SharedEvent | OwnEvent]) -> int:
        """Append the events of `work`; return where the first incomplete operation starts."""
        position = 0
        end = len(work)
        while position < end:
            after = self._publish(work, position, events)
            if after < 0:
                after = self._operation(work, position, events)
            if after == position or self.broken:
                return position
            position = after
            if events and type(events[-1]) is Connect:
                return position
        return position

    def _publish(self, work: bytes, position: int, events: list[SharedEvent | OwnEvent]) -> int:
        """Take publishes in their common form; -1 when the next operation is something else."""
        messages: list[Publish] | None = None
        plain, with_headers = self._publish_forms
        plain_start = self._publish_verbs[0][0]
        end = len(work)
        while position < end:
            if work[position] & _UPPER == plain_start:
                match = plain.match(work, position)
                if match is None:
                    break
                subject, reply, total_size = match.groups()
                header_bytes = -1
            else:
                match = with_headers.match(work, position) if self.headers_allowed else None
                if match is None:
                    break
                subject, reply, header_size, total_size = match.groups()
                header_bytes = int(header_size)
            start = match.end()
            size = int(total_size)
            stop = start + size
            if start - position > self.control_line_max or size > self.payload_max or header_bytes > size:
                break
            if work[stop : stop + 2] != b"\r\n":
                break
            if messages is None:
                messages = _batch(events).messages
            messages.append((subject, reply, header_bytes, work[start:stop]))
            position = stop + 2
        return position if messages is not None else -1

    def _operation(self, work: bytes, position: int, events: list[SharedEvent | OwnEvent]) -> int:
        """Parse any one operation; `position` itself when it is not complete, with `broken` set when bad."""
        verb = self._verb(work, position)
        if verb is None:
            self._break(events, UNKNOWN_OPERATION, "protocol")
            return position
        if not verb:
            return position
        start = position + len(verb)
        newline = work.find(b"\n", start)
        if verb in _FILLER_IGNORED:
            if newline < 0:
                # What follows the verb carries nothing, so it is not kept while the line end is awaited.
                del self._buffer[:]
                self._buffer += verb
                self._wanted_bytes = 0
                return len(work)
            if verb != b"+OK":
                events.append(PING if verb == b"PING" else PONG)
            return newline + 1
        blanks_start = start
        while start < len(work) and work[start] in _BLANKS:
            start += 1
        stop = newline if newline >= 0 else len(work)
        if stop > start and work[stop - 1] == 0x0D:
            stop -= 1
        # Blanks count on their own, so that a line of nothing else is bounded too.
        if max(stop - start, start - blanks_start) > self.control_line_max:
            self._break(events, CONTROL_LINE_EXCEEDED, "control_line")
            return position
        if newline < 0:
            return position
        return self._arguments(verb, work[start:stop], work, position, newline + 1, events)

    def _arguments(
        self,
        verb: bytes,
        line: bytes,
        work: bytes,
        position: int,
        after: int,
        events: list[SharedEvent | OwnEvent],
    ) -> int:
        if verb == b"CONNECT":
            events.append(Connect(line))
            return after
        if verb == b"INFO":
            events.append(Info(line))
            return after
        if verb == b"-ERR":
            self._peer_error(line, events)
            return after
        arguments = _arguments_of(line)
        # A lone CR would reach subscribers inside a MSG line and break their parsers.
        if b"\r" in line:
            self._break(events, None, "protocol")
        elif verb in self._publish_verbs:
            sizes = 1 + self._publish_verbs.index(verb)
            return self._payload(arguments[:-sizes], arguments[-sizes:], work, position, after, events)
        elif (change := self._interest(verb, arguments)) is not None:
            events.append(change)
        else:
            self._break(events, None, "protocol")
        return after

    def _payload(
        self,
        names: list[bytes],
        sizes: list[bytes],
        work: bytes,
        position: int,
        start: int,
        events: list[SharedEvent | OwnEvent],
    ) -> int:
        """Take the payload of a publish whose line ends before `start`.

        `names` and `sizes` are the arguments of the line; there are two sizes when it has headers.
        """
        with_headers = len(sizes) == 2
        if not self._is_address(names) or (with_headers and not self.headers_allowed):
            self._break(events, None, "protocol")
            return position
        header_bytes = parse_size(sizes[0]) if with_headers else -1
        size = parse_size(sizes[-1])
        if size < 0 or (with_headers and header_bytes < 0) or header_bytes > size:
            self._break(events, None, "protocol")
            return position
        if size > self.payload_max:
            self._break(events, PAYLOAD_EXCEEDED, "payload")
            return position
        stop = start + size
        ending = work[stop : stop + 2]
        if ending not in (b"\r\n", b"\r", b""):
            self._break(events, UNKNOWN_OPERATION, "protocol")
            return position
        if ending != b"\r\n":
            self._wanted_bytes = stop + 2 - position if ending else stop + 1 - position
            return position
        self._take(names, header_bytes, work[start:stop], events)
        return stop + 2

    def _is_address(self, names: list[bytes]) -> bool:
        """Whether these may stand before the sizes of a publish: its subject, and its reply subject."""
        return 1 <= len(names) <= 2

    def _take(
        self, names: list[bytes], header_bytes: int, data: bytes, events: list[SharedEvent | OwnEvent]
    ) -> None:
        """Append a publish that is complete."""
        reply = names[1] if len(names) == 2 else None
        _batch(events).messages.append((names[0], reply, header_bytes, data))

    def _interest(self, verb: bytes, arguments: list[bytes]) -> OwnEvent | None:
        """What a change of interest says; None when it is not put as it should be."""
        raise NotImplementedError

    def _peer_error(self, text: bytes, events: list[SharedEvent | OwnEvent]) -> None:
        """The peer reports an error: it is about to close the connection."""
        self._break(events, None, "peer_error")

    def _verb(self, work: bytes, position: int) -> bytes | None:
        """The verb at `position`; empty when more bytes are needed to tell; None when it is none of ours."""
        head = work[position : position + 8].upper()
        spaced = self._publish_verbs + self._interest_verbs
        for verb in spaced:
            if head.startswith(verb):
                if len(head) == len(verb):
                    return b""
                return verb if head[len(verb)] in _BLANKS else None
        for verb in _SHARED_VERBS:
            if head.startswith(verb):
                return verb
        return b"" if any(verb.startswith(head) for verb in spaced + _SHARED_VERBS) else None

    def _break(
        self,
        events: list[SharedEvent | OwnEvent],
        error: str | None,
        reason: Literal["protocol", "control_line", "payload", "peer_error"],
    ) -> None:
        self.broken = True
        self._buffer.clear()
        events.append(Broken(error, reason))


class Parser(OperationParser[Subscribe | Unsubscribe]):
    """Turns the bytes of one client into events."""

    __slots__ = ()

    _publish_verbs = (b"PUB", b"HPUB")
    _publish_forms = (publish_form(b"PUB", 1), publish_form(b"HPUB", 2))
    _interest_verbs = (b"SUB", b"UNSUB")

    def _interest(self, verb: bytes, arguments: list[bytes]) -> Subscribe | Unsubscribe | None:
        if verb == b"SUB" and len(arguments) in (2, 3):
            queue = arguments[1] if len(arguments) == 3 else None
            return Subscribe(arguments[0], queue, arguments[-1])
        if verb == b"UNSUB" and len(arguments) in (1, 2):
            deliveries_max = parse_size(arguments[1]) if len(arguments) == 2 else 0
            return Unsubscribe(arguments[0], max(deliveries_max, 0))
        return None
