"""TLS on a plain transport: the handshake with its bounds, and the encrypted transport after it.

Rules: OpenSSL works on memory only (ssl.SSLObject), so sending stays synchronous and every wait is ours. A
handshake has a time limit and a size limit; a peer that does not speak TLS is refused at its first byte.
accept_tls() and connect_tls() never close the wire: whoever called them does, on failure too.
Invariants: at most one chunk is encrypted ahead of the socket (layered.py); at most one receive buffer of
ciphertext waits for decryption.
"""

import contextlib
import ssl
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import trio

from edged.config.options import TlsOptions
from edged.server.first_bytes import TLS_HANDSHAKE_BYTE
from edged.server.layered import LayeredTransport
from edged.server.tls_context import certificate_is_pinned, cipher_suite_name
from edged.server.transport import (
    RECEIVE_BUFFER_BYTES,
    SHUTDOWN_TIMEOUT_S,
    ConnectionLost,
    PlainTransport,
    Transport,
)

HANDSHAKE_TIMEOUT_S: Final = 2.0
HANDSHAKE_BYTES_MAX: Final = 256 * 1024
"""The most bytes a peer may send before the handshake is done; OpenSSL takes certificates up to 100 KiB."""

_plain_buffer = bytearray(RECEIVE_BUFFER_BYTES)
_plain_view = memoryview(_plain_buffer)
"""Decrypted bytes, shared by all TLS connections under the rule for shared buffers in transport.py."""


class TlsHandshakeFailed(Exception):  # noqa: N818 - says what happened
    """No TLS connection came about; the text says why. The wire is left for the caller to close."""


class AfterInfo(Enum):
    """What follows an INFO that was sent in clear."""

    PLAIN = "the connection stays in clear"
    HANDSHAKE = "the client must begin the TLS handshake"
    EITHER = "the client chooses: look at its first byte (looks_like_tls)"


@dataclass(frozen=True, slots=True)
class Greeting:
    """How to begin with a new client.

    handshake_first without a delay: handshake, then INFO. With a delay: if looks_like_tls() within it, the
    same; else INFO in clear, then as after_info says.
    """

    handshake_first: bool
    hello_delay_s: float
    after_info: AfterInfo


def greeting(options: TlsOptions | None, allow_non_tls: bool) -> Greeting:
    """The decision, from the configuration alone."""
    if options is None:
        return Greeting(handshake_first=False, hello_delay_s=0.0, after_info=AfterInfo.PLAIN)
    after_info = AfterInfo.EITHER if allow_non_tls else AfterInfo.HANDSHAKE
    delay_s = options.handshake_first_delay_s if options.handshake_first else 0.0
    return Greeting(options.handshake_first, delay_s, after_info)


async def accept_tls(
    wire: PlainTransport,
    context: ssl.SSLContext,
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
    pinned_certs: frozenset[str] = frozenset(),
) -> "TlsTransport":
    """The server's side of the handshake. Raises TlsHandshakeFailed."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_side=True)
    transport = TlsTransport(wire, session, incoming, outgoing)
    await transport.handshake(timeout_s, must_look_like_tls=True)
    if not certificate_is_pinned(transport.peer_certificate_der, pinned_certs):
        raise TlsHandshakeFailed("the client's certificate is not pinned")
    return transport


async def connect_tls(
    wire: PlainTransport, context: ssl.SSLContext, server_name: str, timeout_s: float = HANDSHAKE_TIMEOUT_S
) -> "TlsTransport":
    """The client's side of the handshake, for links that this daemon dials. Raises TlsHandshakeFailed."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=server_name)
    transport = TlsTransport(wire, session, incoming, outgoing)
    await transport.handshake(timeout_s, must_look_like_tls=False)
    return transport


class TlsTransport(LayeredTransport):
    """Application bytes in TLS records. Made by accept_tls and connect_tls."""

    __slots__ = ("_ended", "_incoming", "_is_buffer_full", "_outgoing", "_session")

    def __init__(
        self, wire: Transport, session: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        super().__init__(wire)
        self._session = session
        self._incoming = incoming
        self._outgoing = outgoing
        self._ended = False
        # Whether decrypting stopped because the buffer was full, so there may be more.
        self._is_buffer_full = False

    @property
    def tls_version(self) -> str | None:
        version = self._session.version()
        return None if version is None else version.removeprefix("TLSv")

    @property
    def tls_cipher(self) -> str | None:
        cipher = self._session.cipher()
        return None if cipher is None else cipher_suite_name(cipher[0])

    @property
    def peer_certificate_der(self) -> bytes | None:
        return self._session.getpeercert(binary_form=True)

    async def handshake(self, timeout_s: float, must_look_like_tls: bool) -> None:
        """Shake hands, once, before anything else. Raises TlsHandshakeFailed."""
        try:
            with trio.move_on_after(timeout_s) as scope:
                await self._handshake(must_look_like_tls)
        except ssl.SSLError as error:
            self._send_alert()
            raise TlsHandshakeFailed(_reason(error)) from error
        except ConnectionLost as error:
            raise TlsHandshakeFailed(str(error)) from error
        if scope.cancelled_caught:
            raise TlsHandshakeFailed(f"not done within {timeout_s:g} s")

    async def _handshake(self, must_look_like_tls: bool) -> None:
        received = 0
        while True:
            try:
                self._session.do_handshake()
            except ssl.SSLWantReadError:
                self._send_control(self._outgoing.read())
                await self._drain_tail()
            else:
                self._send_control(self._outgoing.read())
                return
            data = await self.wire.receive()
            if not data:
                raise TlsHandshakeFailed("the peer closed the connection")
            if must_look_like_tls and received == 0 and data[0] != TLS_HANDSHAKE_BYTE:
                raise TlsHandshakeFailed("the client does not speak TLS")
            received += len(data)
            if received > HANDSHAKE_BYTES_MAX:
                raise TlsHandshakeFailed("the peer's handshake is too long")
            self._incoming.write(data)

    def _send_alert(self) -> None:
        """Tell the peer what OpenSSL did not like, if the socket takes it."""
        # When the peer is gone, the failure that brought us here is still what is reported.
        with contextlib.suppress(ConnectionLost):
            self._send_control(self._outgoing.read())

    def _encode(self, chunk: memoryview) -> bytes:
        try:
            self._session.write(chunk)
        except ssl.SSLError as error:
            raise ConnectionLost(f"TLS failed: {_reason(error)}") from error
        return self._outgoing.read()

    @property
    def has_work(self) -> bool:
        return self._is_buffer_full

    def receive_nowait(self) -> memoryview | bytes | None:
        while True:
            if self._ended:
                return b""
            count = self._decrypt()
            if count:
                return _plain_view[:count]
            if self._ended:
                return b""
            data = self.wire.receive_nowait()
            if data is None:
                return None
            if not data:
                # An end without close_notify is an end all the same: NATS operations carry their lengths.
                self._ended = True
                return b""
            self._incoming.write(data)

    def _decrypt(self) -> int:
        """Decrypt what is complete into the shared buffer; how many bytes that gave."""
        session, incoming = self._session, self._incoming
        count = 0
        try:
            while count < RECEIVE_BUFFER_BYTES and (incoming.pending or session.pending()):
                # With a buffer given, read() returns a count, whatever its annotation says.
                taken = cast(int, session.read(RECEIVE_BUFFER_BYTES - count, _plain_view[count:]))
                if not taken:
                    self._ended = True
                    break
                count += taken
        except ssl.SSLWantReadError:
            pass  # The last record is not complete yet.
        except ssl.SSLZeroReturnError:
            self._ended = True
        except ssl.SSLError as error:
            self._send_alert()
            raise ConnectionLost(f"TLS failed: {_reason(error)}") from error
        self._is_buffer_full = count == RECEIVE_BUFFER_BYTES
        if self._outgoing.pending:
            # Answers of the protocol itself, such as to a key update.
            self._send_control(self._outgoing.read())
        return count

    async def shutdown(self, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        deadline = trio.current_time() + timeout_s
        try:
            with trio.move_on_at(deadline) as scope:
                scope.shield = True
                await self._drain_tail()
                self._say_goodbye()
                await self._drain_tail()
        except ConnectionLost:
            pass  # The peer did not wait for our goodbye.
        await self.wire.shutdown(max(0.0, deadline - trio.current_time()))

    def _say_goodbye(self) -> None:
        # It wants the peer's goodbye, or the session is broken; ours is written if it can be.
        with contextlib.suppress(ssl.SSLError):
            self._session.unwrap()
        self._send_control(self._outgoing.read())


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words; for a refused certificate, why."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return (error.reason or type(error).__name__).lower().replace("_", " ")
