"""TLS over real loopback sockets: our side is TlsTransport, the peer is trio's own SSL stream."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from cryptography import x509
from tcp_pair import receive_exactly, receive_to_end, send_all, tcp_pair

from edged.config.options import TlsOptions
from edged.server.layered import CHUNK_BYTES, CONTROL_BYTES_MAX
from edged.server.tls import (
    AfterInfo,
    Greeting,
    TlsHandshakeFailed,
    TlsTransport,
    accept_tls,
    connect_tls,
    greeting,
)
from edged.server.tls_context import certificate_is_pinned, server_context
from edged.server.transport import ConnectionLost

AUTHORITY = trustme.CA()


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    certificate = AUTHORITY.issue_cert("localhost")
    AUTHORITY.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return folder


@pytest.fixture
def options(files: Path) -> TlsOptions:
    return TlsOptions(cert_file=str(files / "cert.pem"), key_file=str(files / "key.pem"))


@pytest.fixture
def verifying(files: Path) -> TlsOptions:
    return TlsOptions(
        cert_file=str(files / "cert.pem"),
        key_file=str(files / "key.pem"),
        ca_file=str(files / "ca.pem"),
        verify=True,
    )


def client_context(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


@asynccontextmanager
async def tls_pair(
    options: TlsOptions, client: ssl.SSLContext | None = None, buffer_bytes: int | None = None
) -> AsyncIterator[tuple[TlsTransport, "trio.SSLStream[trio.SocketStream]"]]:
    with tcp_pair(buffer_bytes) as (wire, stream):
        peer = trio.SSLStream(stream, client or client_context(), server_hostname="localhost")
        accepted: list[TlsTransport] = []

        async def accept() -> None:
            accepted.append(
                await accept_tls(wire, server_context(options), pinned_certs=options.pinned_certs)
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await peer.do_handshake()
        yield accepted[0], peer


async def refusal(data: bytes, options: TlsOptions, timeout_s: float = 2.0) -> tuple[str, bytes]:
    """What accept_tls says about a peer that sends these bytes, and what the peer gets."""
    with tcp_pair() as (wire, peer):
        await peer.send_all(data)
        with pytest.raises(TlsHandshakeFailed) as failure:
            await accept_tls(wire, server_context(options), timeout_s)
        wire.close()
        received = b""
        try:
            while chunk := await peer.receive_some():
                received += chunk
        except trio.BrokenResourceError:
            pass  # We closed with input unread: a reset is a fine answer to an attacker.
        return str(failure.value), received


async def test_bytes_flow_both_ways_and_the_session_is_described(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, peer):
        await peer.send_all(b"CONNECT {}\r\n")
        assert bytes(await transport.receive()) == b"CONNECT {}\r\n"
        assert transport.send_nowait(b"+OK\r\n") == 5
        assert await peer.receive_some() == b"+OK\r\n"
        assert transport.tls_version == "1.3"
        assert transport.tls_cipher is not None
        assert transport.tls_cipher.startswith("TLS_")
        assert transport.peer_certificate_der is None
        assert transport.kind == "STANDARD"


async def test_tls_1_2_reports_the_suite_by_its_iana_name(options: TlsOptions) -> None:
    client = client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with tls_pair(options, client) as (transport, _peer):
        assert transport.tls_version == "1.2"
        assert transport.tls_cipher is not None
        assert transport.tls_cipher.startswith("TLS_ECDHE_")


async def test_large_transfers_in_both_directions_are_intact_through_small_socket_buffers(
    options: TlsOptions,
) -> None:
    upward, downward = b"up" * 700_000, bytes(range(256)) * 4_000
    async with tls_pair(options, buffer_bytes=8192) as (transport, peer):
        received_by_peer = bytearray()

        async def peer_receives() -> None:
            while len(received_by_peer) < len(downward):
                received_by_peer.extend(await peer.receive_some())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer_receives)
            nursery.start_soon(peer.send_all, upward)
            nursery.start_soon(send_all, transport, downward)
            assert await receive_exactly(transport, len(upward)) == upward
    assert bytes(received_by_peer) == downward


async def test_what_is_held_for_a_peer_that_does_not_read_is_bounded_and_driven_by_the_caller(
    options: TlsOptions,
) -> None:
    async with tls_pair(options, buffer_bytes=4096) as (transport, peer):
        accepted = 0
        while count := transport.send_nowait(bytes(1_000_000)):
            accepted += count
        assert accepted < 1_000_000, "the offer was cut, so the caller comes back"
        assert len(transport._tail) <= CHUNK_BYTES + CONTROL_BYTES_MAX
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, transport, bytes(10))
            remaining = accepted + 10
            while remaining:
                remaining -= len(await peer.receive_some())


async def test_a_single_byte_at_a_time_arrives_once_each_when_the_socket_is_full(options: TlsOptions) -> None:
    """The byte held back must be neither lost nor sent twice."""
    async with tls_pair(options, buffer_bytes=4096) as (transport, peer):
        sent = bytearray()
        while count := transport.send_nowait(b"a" * 50_000):
            sent.extend(b"a" * count)
        # The last byte was encoded, but not accepted: offering it again must not repeat it.
        rest = b"abcdefgh"
        received = bytearray()

        async def finish() -> None:
            for position in range(len(rest)):
                await send_all(transport, rest[position : position + 1])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            while not received.endswith(b"h"):
                received.extend(await peer.receive_some())
    assert bytes(received) == bytes(sent) + rest


async def test_the_peers_goodbye_is_the_end_of_the_stream(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, peer):
        await peer.send_all(b"last")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.aclose)
            assert await receive_to_end(transport) == b"last"
            await transport.shutdown()


async def test_an_end_without_goodbye_is_the_end_of_the_stream_too(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, peer):
        await peer.send_all(b"last")
        await peer.transport_stream.send_eof()
        assert await receive_to_end(transport) == b"last"


async def test_shutdown_says_goodbye_after_everything_accepted(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, peer):
        transport.send_nowait(b"-ERR 'Stale Connection'\r\n")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.shutdown)
            assert await peer.receive_some() == b"-ERR 'Stale Connection'\r\n"
            assert await peer.receive_some() == b"", "close_notify, not a cut"
            await peer.aclose()


async def test_shutdown_is_bounded_when_the_peer_never_reads(options: TlsOptions) -> None:
    async with tls_pair(options, buffer_bytes=4096) as (transport, _peer):
        while transport.send_nowait(bytes(100_000)):
            pass
        started_s = trio.current_time()
        await transport.shutdown(timeout_s=0.05)
        assert trio.current_time() - started_s < 1.0
        with pytest.raises(ConnectionLost):
            transport.send_nowait(b"x")


async def test_close_wakes_a_waiting_receiver(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, _peer):

        async def receive() -> None:
            with pytest.raises(ConnectionLost):
                await transport.receive()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            transport.close()


async def test_garbage_inside_a_session_is_connection_lost(options: TlsOptions) -> None:
    async with tls_pair(options) as (transport, peer):
        await peer.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        with pytest.raises(ConnectionLost):
            await transport.receive()


async def test_dialling_out_works_and_checks_the_servers_name(options: TlsOptions) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        server = trio.SSLStream(stream, server_context(options), server_side=True)
        await server.send_all(b"INFO {}\r\n")

    with tcp_pair() as (wire, stream):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, stream)
            transport = await connect_tls(wire, client_context(), "localhost")
            assert bytes(await transport.receive()) == b"INFO {}\r\n"

    async def serve_a_mistrusting_client(stream: trio.SocketStream) -> None:
        server = trio.SSLStream(stream, server_context(options), server_side=True)
        with pytest.raises(trio.BrokenResourceError):
            await server.do_handshake()

    with tcp_pair() as (wire, stream):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_a_mistrusting_client, stream)
            with pytest.raises(TlsHandshakeFailed, match="certificate"):
                await connect_tls(wire, client_context(), "elsewhere.example")
            wire.close()


# Attack inputs: each must end within the handshake limit, with nothing kept.


async def test_attack_plaintext_on_a_tls_port_is_refused_at_the_first_byte(options: TlsOptions) -> None:
    for plaintext in (b"CONNECT {}\r\nPING\r\n", b"GET / HTTP/1.1\r\n", b"P", b"\x00"):
        with trio.fail_after(1.0):
            reason, received = await refusal(plaintext, options)
        assert (reason, received) == ("the client does not speak TLS", b"")


async def test_attack_a_stalled_handshake_is_cut_after_two_seconds(
    options: TlsOptions, autojump_clock: trio.testing.MockClock
) -> None:
    for stalled in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        started_s = trio.current_time()
        reason, _received = await refusal(stalled, options)
        assert reason == "not done within 2 s"
        assert trio.current_time() - started_s == pytest.approx(2.0)


async def test_attack_a_handshake_dripping_bytes_is_cut_after_two_seconds(
    options: TlsOptions, autojump_clock: trio.testing.MockClock
) -> None:
    with tcp_pair() as (wire, peer):

        async def drip() -> None:
            for byte in b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200):
                await peer.send_all(bytes((byte,)))
                await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            with pytest.raises(TlsHandshakeFailed, match="not done within 2 s"):
                await accept_tls(wire, server_context(options))
            nursery.cancel_scope.cancel()


async def test_attack_junk_after_a_tls_first_byte_is_refused_with_an_alert(options: TlsOptions) -> None:
    with trio.fail_after(1.0):
        _reason, received = await refusal(b"\x16\x03\x01\x00\x05abcde", options)
    assert received[:1] in (b"\x15", b""), "an alert record, unless the reset overtook it"


async def test_attack_a_peer_that_leaves_during_the_handshake_is_a_failed_handshake(
    options: TlsOptions,
) -> None:
    with tcp_pair() as (wire, peer):
        await peer.send_all(b"\x16\x03\x01")
        await peer.send_eof()
        with pytest.raises(TlsHandshakeFailed, match="closed"):
            await accept_tls(wire, server_context(options))


def client_context_with_a_chain_of(count: int, folder: Path) -> ssl.SSLContext:
    context = client_context()
    leaf = AUTHORITY.issue_cert("device").private_key_and_cert_chain_pem.bytes()
    (folder / "chain.pem").write_bytes(leaf + AUTHORITY.cert_pem.bytes() * count)
    context.load_cert_chain(folder / "chain.pem")
    return context


async def test_attack_a_huge_certificate_chain_is_refused(verifying: TlsOptions, tmp_path: Path) -> None:
    client = client_context_with_a_chain_of(400, tmp_path)
    with tcp_pair() as (wire, stream):
        peer = trio.SSLStream(stream, client, server_hostname="localhost")

        async def send_chain() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await peer.do_handshake()
                await peer.receive_some()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_chain)
            with trio.fail_after(2.0), pytest.raises(TlsHandshakeFailed, match="excessive message size"):
                await accept_tls(wire, server_context(verifying))
            await wire.shutdown(timeout_s=0.1)


async def test_attack_an_endless_handshake_is_refused_by_its_size(options: TlsOptions) -> None:
    """A TLS 1.3 handshake ignores change-cipher-spec records; a flood of them must end nevertheless."""
    with tcp_pair() as (wire, peer):

        async def flood() -> None:
            await peer.send_all(hello_with_server_name(b"localhost"))
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await peer.send_all(b"\x14\x03\x03\x00\x01\x01" * 1_000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with trio.fail_after(2.0), pytest.raises(TlsHandshakeFailed):
                await accept_tls(wire, server_context(options), timeout_s=60.0)
            wire.close()


async def test_attack_renegotiation_is_off(options: TlsOptions) -> None:
    """TLS 1.3 has none. For 1.2 OpenSSL refuses it by this option; Python's client cannot ask for it."""
    assert server_context(options).options & ssl.OP_NO_RENEGOTIATION


def hello_with_server_name(name: bytes) -> bytes:
    """A ClientHello with any nine bytes where the name of the server belongs."""
    hello = ssl.MemoryBIO()
    session = client_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    data = hello.read()
    assert data.count(b"localhost") == 1
    assert len(name) == 9
    return data.replace(b"localhost", name)


@pytest.mark.parametrize("name", [b"\xff" * 9, b"a\x00b.local", b"/../../..", b"*.*.*.*.*"])
@pytest.mark.parametrize("certificates", [1, 2])
# With several certificates, CPython reports a name that is not ASCII as "Exception ignored", on stderr.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
async def test_attack_a_junk_server_name_is_answered_or_refused(
    name: bytes, certificates: int, options: TlsOptions, autojump_clock: trio.testing.MockClock
) -> None:
    """With several certificates the name is looked at by us, with one it is not."""
    if certificates > 1:
        assert options.cert_file is not None
        assert options.key_file is not None
        options = TlsOptions(certs=((options.cert_file, options.key_file),) * certificates)
    _reason, received = await refusal(hello_with_server_name(name), options)
    assert received[:1] in (b"\x16", b"\x15", b""), "our part of a handshake, an alert, or nothing"


async def test_attack_answers_kept_for_a_peer_that_does_not_read_are_bounded(options: TlsOptions) -> None:
    """A flood of key updates, say, each of which asks for an answer."""
    async with tls_pair(options, buffer_bytes=4096) as (transport, _peer):
        while transport.send_nowait(bytes(100_000)):
            pass
        with pytest.raises(ConnectionLost):
            for _answer in range(3_000):
                transport._send_control(bytes(50))


async def test_a_client_without_certificate_is_refused_when_one_is_required(verifying: TlsOptions) -> None:
    with tcp_pair() as (wire, stream):
        peer = trio.SSLStream(stream, client_context(), server_hostname="localhost")

        async def connect() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await peer.do_handshake()
                await peer.receive_some()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            with pytest.raises(TlsHandshakeFailed, match="peer did not return a certificate"):
                await accept_tls(wire, server_context(verifying))
            await wire.shutdown(timeout_s=0.1)


async def test_a_client_certificate_is_exposed_and_its_pin_is_checked(verifying: TlsOptions) -> None:
    certificate = AUTHORITY.issue_cert("device-7")
    async with tls_pair(verifying, client_context(certificate)) as (transport, _peer):
        der = transport.peer_certificate_der
    assert der is not None
    expected = x509.load_pem_x509_certificate(certificate.cert_chain_pems[0].bytes())
    assert x509.load_der_x509_certificate(der) == expected
    assert certificate_is_pinned(der, frozenset())
    assert not certificate_is_pinned(der, frozenset({"00" * 32}))
    assert not certificate_is_pinned(None, frozenset({"00" * 32}))


async def test_a_certificate_that_is_not_pinned_fails_the_handshake(verifying: TlsOptions) -> None:
    certificate = AUTHORITY.issue_cert("device-8")
    with tcp_pair() as (wire, stream):
        peer = trio.SSLStream(stream, client_context(certificate), server_hostname="localhost")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.do_handshake)
            with pytest.raises(TlsHandshakeFailed, match="not pinned"):
                await accept_tls(wire, server_context(verifying), pinned_certs=frozenset({"ab" * 32}))


def test_the_greeting_follows_the_configuration() -> None:
    first = TlsOptions(handshake_first=True)
    delayed = TlsOptions(handshake_first=True, handshake_first_delay_s=0.05)
    assert greeting(None, False) == Greeting(False, 0.0, AfterInfo.PLAIN)
    assert greeting(TlsOptions(), False) == Greeting(False, 0.0, AfterInfo.HANDSHAKE)
    assert greeting(TlsOptions(), True) == Greeting(False, 0.0, AfterInfo.EITHER)
    assert greeting(first, False) == Greeting(True, 0.0, AfterInfo.HANDSHAKE)
    assert greeting(delayed, False) == Greeting(True, 0.05, AfterInfo.HANDSHAKE)
    assert greeting(delayed, True) == Greeting(True, 0.05, AfterInfo.EITHER)
