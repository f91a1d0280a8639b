"""A raw client connection: sends bytes as they are, cuts what arrives into frames, decides nothing.

Rules: a frame is one protocol line with the payload that belongs to it, kept as the bytes that arrived.
Waiting always has a deadline. A reset by the server counts as its end of the connection: whether the kernel
says one or the other depends on unread input, not on the protocol.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from dataclasses import dataclass

FRAME_DEADLINE_S = 5.0
QUIET_S = 0.15
RECEIVE_BYTES = 65536

MESSAGE = re.compile(rb"(H?MSG) .*?(\d+)$", re.DOTALL)


class NoFrameError(AssertionError):
    """Nothing arrived before the deadline."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One protocol line, without its CRLF, and the payload of a message, without its CRLF.

    `line_end` is what ended the line (always CRLF from a correct server), `payload_end` what followed the
    payload.
    """

    line: bytes
    line_end: bytes
    payload: bytes | None = None
    payload_end: bytes = b""

    @property
    def kind(self) -> bytes:
        """The operation, for example b"MSG"."""
        return self.line.split(b" ", 1)[0]

    @property
    def reply(self) -> bytes | None:
        """The reply subject of a message, if it has one."""
        words = self.line.split()
        if self.kind == b"MSG" and len(words) == 5:
            return words[3]
        return words[3] if self.kind == b"HMSG" and len(words) == 6 else None


def cut_frame(data: bytes) -> tuple[Frame | None, bytes]:
    """Take the first whole frame off the bytes that arrived so far; None while it is incomplete."""
    end = data.find(b"\n")
    if end < 0:
        return None, data
    line_end = b"\r\n" if data[end - 1 : end] == b"\r" else b"\n"
    line, rest = data[: end + 1 - len(line_end)], data[end + 1 :]
    message = MESSAGE.match(line)
    if message is None:
        return Frame(line, line_end), rest
    payload_bytes = int(message.group(2))
    if len(rest) < payload_bytes + 2:
        return None, data
    payload, after = rest[:payload_bytes], payload_bytes + 2
    return Frame(line, line_end, payload, rest[payload_bytes:after]), rest[after:]


class Connection:
    """One client connection to a server under test."""

    def __init__(self, host: str, port: int, *, pings_shown: bool = False) -> None:
        self._host = host
        self._socket: socket.socket = socket.create_connection((host, port), timeout=FRAME_DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pings_shown = pings_shown
        self._data = b""
        self.closed = False

    def send(self, data: bytes) -> None:
        """Send everything, unless the server has ended the connection: its own answer is read later."""
        try:
            self._socket.settimeout(FRAME_DEADLINE_S)
            self._socket.sendall(data)
        except OSError:  # The server closed while we were sending; what it said before is still readable.
            return

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Become a TLS connection; the caller records what goes wrong."""
        self._socket.settimeout(FRAME_DEADLINE_S)
        self._socket = context.wrap_socket(self._socket, server_hostname=self._host)

    def frame(self, deadline_s: float = FRAME_DEADLINE_S) -> Frame | None:
        """The next frame, or None when the server ended the connection.

        The server's own PINGs are answered and not shown, because when they come depends on how long a script
        takes; a script about them asks to see them, and then they stay unanswered.
        """
        until = time.monotonic() + deadline_s
        while True:
            frame, self._data = cut_frame(self._data)
            if frame is not None and frame.kind == b"PING" and not self._pings_shown:
                self.send(b"PONG\r\n")
            elif frame is not None:
                return frame
            elif not self._receive(until):
                return self._last_words()

    def _receive(self, until: float) -> bool:
        """Wait for more bytes; False at the end of the connection."""
        if self.closed:
            return False
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise NoFrameError(f"nothing arrived in time; unfinished: {self._data[:200]!r}")
        self._socket.settimeout(left_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise NoFrameError(f"nothing arrived in time; unfinished: {self._data[:200]!r}") from None
        except OSError:  # Reset by the server, or TLS ended without goodbye: the same end for our purpose.
            data = b""
        self.closed = not data
        self._data += data
        return bool(data)

    def _last_words(self) -> Frame | None:
        """Bytes that never became a whole frame are shown once, so that they are compared too."""
        words, self._data = self._data, b""
        return Frame(words, b"") if words else None

    def close(self) -> None:
        """End the connection and wait for the server's end, so that its subscriptions are gone."""
        try:
            self._socket.settimeout(FRAME_DEADLINE_S)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(RECEIVE_BYTES):
                pass
        except OSError:  # Already ended by the server.
            pass
        self._socket.close()
        self.closed = True
