"""What a new connection says first, looked at without taking it away: TLS, a PROXY header, or NATS in clear.

Rules: the bytes stay in the socket (MSG_PEEK), so whoever comes next reads from the start; only a complete
PROXY header is taken out. To wait for more than is there, the socket's low-water mark is raised: a socket
with some unread bytes is always readable, and waiting for that again would spin. Every wait has a bound.
"""

import socket
from typing import Final

import trio

from edged.core.proxy_header import (
    HEADER_BYTES_MAX,
    Missing,
    ProxyHeader,
    ProxyHeaderError,
    parse_proxy_header,
)
from edged.server.transport import ConnectionLost, PlainTransport

PROXY_HEADER_TIMEOUT_S: Final = 2.0
TLS_HANDSHAKE_BYTE: Final = 0x16
"""The first byte of a ClientHello; no NATS operation begins with it."""


async def looks_like_tls(transport: PlainTransport, timeout_s: float) -> bool:
    """Whether the peer begins a TLS handshake within the time; False also at its end, or when it is silent.

    Two uses: after INFO with allow_non_tls, to tell a ClientHello from CONNECT; and before INFO with a
    handshake_first delay, to see whether the client starts the handshake without waiting for INFO.
    Raises ConnectionLost.
    """
    with trio.move_on_after(timeout_s):
        first = await _peek(transport, 1)
        return first != b"" and first[0] == TLS_HANDSHAKE_BYTE
    return False


async def read_proxy_header(
    transport: PlainTransport, timeout_s: float = PROXY_HEADER_TIMEOUT_S
) -> ProxyHeader | None:
    """Take the PROXY header out and make its source the transport's remote address.

    None: the connection does not begin with a header (or is silent, or ended), and nothing was taken. Whether
    that is allowed is the caller's decision. Raises ProxyHeaderError and ConnectionLost.
    """
    with trio.move_on_after(timeout_s):
        header = await _wait_proxy_header(transport)
        if header is not None:
            _take(transport, header.length)
            if header.source_ip is not None:
                transport.remote_ip = header.source_ip
                transport.remote_port = header.source_port
        return header
    if not _peek_nowait(transport, 1):
        return None
    raise ProxyHeaderError("the header was not complete in time")


async def _wait_proxy_header(transport: PlainTransport) -> ProxyHeader | None:
    known = b""
    try:
        while True:
            data = await _peek(transport, HEADER_BYTES_MAX)
            answer = parse_proxy_header(data)
            if isinstance(answer, ProxyHeader):
                return answer
            if answer is Missing.ABSENT or not data:
                return None
            if len(data) == len(known):
                raise ProxyHeaderError("the connection ended inside the header")
            known = data
            _set_low_water_mark(transport, len(data) + 1)
    finally:
        _set_low_water_mark(transport, 1)


async def _peek(transport: PlainTransport, count: int) -> bytes:
    """Up to count unread bytes; b"" at the end of the stream."""
    while True:
        await transport.wait_receivable()
        data = _peek_nowait(transport, count)
        if data is not None:
            return data


def _peek_nowait(transport: PlainTransport, count: int) -> bytes | None:
    try:
        return transport.socket.recv(count, socket.MSG_PEEK)
    except BlockingIOError:
        return None
    except OSError as error:
        raise ConnectionLost(f"receive failed: {error}") from error


def _take(transport: PlainTransport, count: int) -> None:
    try:
        taken = transport.socket.recv(count)
    except OSError as error:
        raise ConnectionLost(f"receive failed: {error}") from error
    assert len(taken) == count, (len(taken), count)


def _set_low_water_mark(transport: PlainTransport, count: int) -> None:
    try:
        transport.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
    except OSError as error:
        raise ConnectionLost(f"the socket is gone: {error}") from error
