"""Opens links: connects, shakes hands, and finds out who is at the other end.

Rules: every wait has a bound. Before the other end has shown who it is, it can make this node keep no more
than HELLO_BYTES_MAX. Whatever goes wrong is an OpenFailed that says what, or Refused with the reason of the
other end; the connection is closed then.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from edged.server.tls import TlsHandshakeFailed, accept_tls, connect_tls
from edged.server.transport import ConnectionLost, PlainTransport, Transport, send_all
from hub.limits import HELLO_BYTES_MAX
from hub.links import hello
from hub.links.addresses import Target
from hub.links.compression import ZstdTransport
from hub.links.frames import FrameError, Kind, frame, take
from hub.links.hello import Hello, Refused

CONNECT_TIMEOUT_S: Final = 2.0


class OpenFailed(Exception):  # noqa: N818 - says what happened
    """No link came about; the text says why."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A link that both ends want."""

    hello: Hello
    transport: Transport
    # What the other end sent right behind its last words of the handshake.
    first: bytes
    is_compressed: bool


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """What TLS between nodes needs, in both directions."""

    accepting: ssl.SSLContext
    dialling: ssl.SSLContext
    timeout_s: float
    pinned_certs: frozenset[str]


class _Words:
    """Reads the frames of a handshake one by one, and keeps what lies behind them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.rest = b""

    async def next(self) -> tuple[Kind, memoryview]:
        """The next frame. OpenFailed at the end of the connection; FrameError; ConnectionLost."""
        while True:
            taken = take(memoryview(self.rest), 0, HELLO_BYTES_MAX)
            if not isinstance(taken, int):
                kind, body, stop = taken
                self.rest = self.rest[stop:]
                return kind, body
            chunk = bytes(await self._transport.receive())
            if not chunk:
                raise OpenFailed("the other end closed the connection")
            self.rest += chunk

    async def expect(self, wanted: Kind) -> memoryview:
        """The next frame, which is to be of a kind. Refused when it is the reason why not."""
        kind, body = await self.next()
        if kind is Kind.REFUSED:
            raise hello.read_refusal(body)
        if kind is not wanted:
            raise FrameError(f"{kind.name} where {wanted.name} belongs")
        return body


async def dial(
    target: Target,
    ours: Hello,
    tls: TlsContexts | None,
    timeout_s: float,
    wanted: Callable[[Hello], None],
) -> Opened:
    """Open a link to a node. `wanted` raises Refused when this node does not want it after all."""
    transport: Transport = PlainTransport(await _connect(target.host, target.port))
    try:
        with trio.fail_after(timeout_s):
            if tls is not None:
                assert isinstance(transport, PlainTransport)
                transport = await connect_tls(transport, tls.dialling, target.host, tls.timeout_s)
            await send_all(transport, ours.frame())
            words = _Words(transport)
            theirs = Hello.read(await words.expect(Kind.HELLO))
            hello.check(ours, theirs)
            wanted(theirs)
            await send_all(transport, b"".join(frame(Kind.READY, [])))
        return _opened(ours, theirs, transport, words.rest)
    except (Refused, OpenFailed):
        transport.close()
        raise
    except (ConnectionLost, FrameError, TlsHandshakeFailed) as error:
        transport.close()
        raise OpenFailed(str(error)) from error
    except trio.TooSlowError as error:
        transport.close()
        raise OpenFailed(f"no answer within {timeout_s:g} s") from error
    except BaseException:
        transport.close()
        raise


async def accept(
    wire: PlainTransport,
    ours: Callable[[Hello], Hello],
    tls: TlsContexts | None,
    timeout_s: float,
    wanted: Callable[[Hello, Transport], Awaitable[None]],
) -> Opened:
    """Take a link of a node that dialled. `wanted` raises Refused when this node does not want it."""
    transport: Transport = wire
    try:
        with trio.fail_after(timeout_s):
            if tls is not None:
                transport = await accept_tls(wire, tls.accepting, tls.timeout_s, tls.pinned_certs)
            words = _Words(transport)
            try:
                theirs = Hello.read(await words.expect(Kind.HELLO))
                await wanted(theirs, transport)
            except Refused as refused:
                await send_all(transport, hello.refusal(refused))
                await transport.shutdown()
                raise
            answer = ours(theirs)
            await send_all(transport, answer.frame())
            try:
                await words.expect(Kind.READY)
            except OpenFailed:
                # It knows who is here now, and has a link already.
                raise Refused(hello.DUPLICATE) from None
        return _opened(answer, theirs, transport, words.rest)
    except (Refused, OpenFailed):
        transport.close()
        raise
    except (ConnectionLost, FrameError, TlsHandshakeFailed) as error:
        transport.close()
        raise OpenFailed(str(error)) from error
    except trio.TooSlowError as error:
        transport.close()
        raise OpenFailed(f"it did not say who it is within {timeout_s:g} s") from error
    except BaseException:
        transport.close()
        raise


def _opened(ours: Hello, theirs: Hello, transport: Transport, rest: bytes) -> Opened:
    if not hello.is_compressed(ours, theirs):
        return Opened(theirs, transport, rest, False)
    packed = ZstdTransport(transport)
    return Opened(theirs, packed, packed.unpack(rest), True)


async def _connect(host: str, port: int) -> socket.socket:
    """A connected socket. OpenFailed when no address of the host takes it."""
    failure = "it has no address"
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            for family, kind, protocol, _, address in found:
                connected = socket.socket(family, kind, protocol)
                try:
                    connected.setblocking(False)
                    code = connected.connect_ex(address)
                    if code == errno.EINPROGRESS:
                        await trio.lowlevel.wait_writable(connected)
                        code = connected.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                except BaseException:
                    connected.close()
                    raise
                if code == 0:
                    return connected
                connected.close()
                failure = os.strerror(code)
    except trio.TooSlowError:
        failure = f"no connection within {CONNECT_TIMEOUT_S:g} s"
    except OSError as error:
        failure = str(error)
    raise OpenFailed(failure)
