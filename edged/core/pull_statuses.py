"""What the requesters of messages are told when there are none, or none more.

Each is a header block; texts are those of nats-server, since clients compare them.
"""

from __future__ import annotations

from typing import Final

from edged.core import headers

_END: Final = b"\r\n\r\n"


def _status(line: bytes) -> bytes:
    """A block that says nothing but this line."""
    return b"%s %s%s" % (headers.VERSION, line, _END)


def _with_left(line: bytes, messages: int, size: int) -> bytes:
    text = b"%s %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d%s"
    return text % (headers.VERSION, line, messages, size, _END)


NO_MESSAGES: Final = _status(b"404 No Messages")
REQUESTS_PENDING: Final = _status(b"408 Requests Pending")
PUSH_BASED: Final = _status(b"409 Consumer is push based")
MAX_WAITING: Final = _status(b"409 Exceeded MaxWaiting")
CONSUMER_DELETED: Final = _status(b"409 Consumer Deleted")
LEADERSHIP_CHANGE: Final = _status(b"409 Leadership Change")
API_LEVEL: Final = _status(b"412 Required Api Level")
PIN_MISMATCH: Final = _status(b"423 Nats-Pin-Id mismatch")
FLOW_CONTROL: Final = _status(b"100 FlowControl Request")


def bad_request(reason: str) -> bytes:
    """It could not be read, or asks for what this consumer does not have."""
    return _status(b"400 Bad Request - " + reason.encode())


def exceeded(limit: str, value: object) -> bytes:
    """It asks for more than the consumer allows."""
    return _status(f"409 Exceeded {limit} of {value}".encode())


def request_timeout(messages: int, size: int) -> bytes:
    """Its time is over, and so much was not sent."""
    return _with_left(b"408 Request Timeout", messages, size)


def server_shutdown(messages: int, size: int) -> bytes:
    """The server leaves, and so much was not sent."""
    return _with_left(b"409 Server Shutdown", messages, size)


def batch_completed(messages: int, size: int) -> bytes:
    """It has all its messages, and they have fewer bytes than it allows."""
    return _with_left(b"409 Batch Completed", messages, size)


def too_large(messages: int, size: int) -> bytes:
    """The next message has more bytes than are left of it."""
    return _with_left(b"409 Message Size Exceeds MaxBytes", messages, size)


def wrong_pin(messages: int, size: int) -> bytes:
    """Another client is pinned by now."""
    return _with_left(b"423 Nats-Wrong-Pin-Id", messages, size)


def idle_heartbeat(consumer_seq: int, stream_seq: int, stalled: bytes | None = None) -> bytes:
    """Nothing was sent for a while; `stalled` is the flow control request that has no answer."""
    text = b"%s 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d%s%s"
    addition = b"" if stalled is None else b"\r\nNats-Consumer-Stalled: " + stalled
    return text % (headers.VERSION, consumer_seq, stream_seq, addition, _END)
