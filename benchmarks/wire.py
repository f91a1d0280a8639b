"""The client side of the NATS protocol, as little of it as a load generator needs.

Rules: frames are built once, before the clock starts; connections announce protocol 0, so that the server has
no reason to send INFO later; a server's PING may still arrive at any time, so byte counts allow for it.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
from dataclasses import dataclass

PING = b"PING\r\n"
PONG = b"PONG\r\n"
REPLY_TIMEOUT_S = 30.0
RECEIVE_BYTES = 1 << 20

# Linux's IP_BIND_ADDRESS_NO_PORT; the socket module names it from Python 3.12 on. With it a bound source
# address shares its ports among destinations, as an unbound one does.
_BIND_ADDRESS_NO_PORT = 24
_CONNECTIONS_PER_SOURCE_ADDRESS = 20_000

_CONNECT_OPTIONS = {
    "verbose": False,
    "pedantic": False,
    "headers": True,
    "lang": "benchmark",
    "version": "1",
    "protocol": 0,
}
CONNECT_AND_PING = b"CONNECT " + json.dumps(_CONNECT_OPTIONS).encode() + b"\r\n" + PING


class GeneratorError(Exception):
    """The load could not be produced, or what came back is not what was sent."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the server listens, and which authority signed its certificate when it speaks TLS."""

    host: str
    port: int
    ca_file: str | None = None


def publish_frame(subject: bytes, payload: bytes, reply: bytes = b"", header: bytes = b"") -> bytes:
    target = b"%b %b" % (subject, reply) if reply else subject
    if header:
        total = len(header) + len(payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (target, len(header), total, header, payload)
    return b"PUB %b %d\r\n%b\r\n" % (target, len(payload), payload)


def delivered_frame(
    subject: bytes, sid: bytes, payload: bytes, reply: bytes = b"", header: bytes = b""
) -> bytes:
    """What a subscriber receives for publish_frame with the same arguments."""
    target = b"%b %b %b" % (subject, sid, reply) if reply else b"%b %b" % (subject, sid)
    if header:
        total = len(header) + len(payload)
        return b"HMSG %b %d %d\r\n%b%b\r\n" % (target, len(header), total, header, payload)
    return b"MSG %b %d\r\n%b\r\n" % (target, len(payload), payload)


def subscribe_frame(subject: bytes, sid: bytes, queue: bytes = b"") -> bytes:
    return b"SUB %b %b %b\r\n" % (subject, queue, sid) if queue else b"SUB %b %b\r\n" % (subject, sid)


def source_address(connection_number: int) -> str:
    """The loopback address to connect from: one has too few ports for tens of thousands of connections."""
    return f"127.0.0.{1 + connection_number // _CONNECTIONS_PER_SOURCE_ADDRESS}"


def open_socket(source: str | None = None) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if source is not None:
        connection.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        connection.bind((source, 0))
    return connection


def connect(endpoint: Endpoint, source: str | None = None) -> socket.socket:
    """A blocking connection on which the server has answered CONNECT and PING."""
    connection = open_socket(source)
    try:
        connection.settimeout(REPLY_TIMEOUT_S)
        connection.connect((endpoint.host, endpoint.port))
        read_until(connection, b"\r\n")
        if endpoint.ca_file is not None:
            context = ssl.create_default_context(cafile=endpoint.ca_file)
            connection = context.wrap_socket(connection, server_hostname=endpoint.host)
        connection.sendall(CONNECT_AND_PING)
        read_until(connection, PONG)
    except BaseException:
        connection.close()
        raise
    return connection


def wait_in_kernel(connection: socket.socket) -> None:
    """Let the kernel keep the timeout: Python's own costs a poll() before each call, and latency shows it."""
    connection.settimeout(None)
    timeout = struct.pack("@ll", int(REPLY_TIMEOUT_S), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)


def barrier(connection: socket.socket, frames: bytes = b"") -> bytes:
    """Send frames and a PING, and return what came with the PONG: then all of them are handled."""
    connection.sendall(frames + PING)
    return read_until(connection, PONG).replace(PONG, b"", 1)


def read_until(connection: socket.socket, ending: bytes) -> bytes:
    """Read whole lines until the ending is among them. An error from the server is raised.

    The server may say PING right after what is waited for, so the ending need not be the last.
    """
    received = bytearray()
    while not (received.endswith(b"\r\n") and ending in received):
        try:
            chunk = connection.recv(65536)
        except (BlockingIOError, TimeoutError):
            raise GeneratorError(f"waited for {ending!r} in vain, after {bytes(received[-200:])!r}") from None
        if not chunk:
            raise GeneratorError(f"the server closed the connection after {bytes(received[-200:])!r}")
        received += chunk
    if received.startswith(b"-ERR") or b"\r\n-ERR" in received:
        raise GeneratorError(f"the server answered {bytes(received[-200:])!r}")
    return bytes(received)


class FixedFrames:
    """Counts messages in a stream of frames of one size among which a server's PING may appear.

    Invariant: the kept tail is shorter than one frame.
    """

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.tail = b""
        """What followed the last whole frame."""

    def feed(self, chunk: bytes) -> int:
        """How many frames the chunk completes."""
        if not self.tail and len(chunk) % self.frame_bytes == 0 and PING not in chunk:
            return len(chunk) // self.frame_bytes
        # A PING sits between frames and no payload of ours contains one, so it can be cut out wherever it is.
        joined = (self.tail + chunk).replace(PING, b"")
        count, rest = divmod(len(joined), self.frame_bytes)
        self.tail = joined[len(joined) - rest :]
        return count
