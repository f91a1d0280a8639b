"""Attacks on the TLS port of a whole server: no TLS at all, stalls, floods, junk. Each leaves it serving.

What the handshake itself withstands (huge chains, renegotiation, server names) is tested with the transport.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.attacks.victims import victim
from tests.server.live import LiveServer

AUTHORITY = trustme.CA()


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tls")
    certificate = AUTHORITY.issue_cert("localhost")
    certificate.private_key_pem.write_to_path(folder / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    return f"tls {{ cert_file: '{folder / 'cert.pem'}', key_file: '{folder / 'key.pem'}', timeout: 2 }}"


@asynccontextmanager
async def secured(config: str) -> AsyncIterator[LiveServer]:
    async with victim(config) as live:
        yield live


async def secure_client_works(live: LiveServer) -> None:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    plain = await live.client(connect=False)
    stream = trio.SSLStream(plain.stream, context, server_hostname="localhost")
    with trio.fail_after(10):
        await stream.send_all(b'CONNECT {"verbose":false}\r\nPING\r\n')
        received = b""
        while b"PONG\r\n" not in received:
            chunk = await stream.receive_some(65536)
            assert chunk, received
            received += chunk


async def test_plaintext_on_a_tls_port_is_refused_without_an_answer_in_clear(config: str) -> None:
    async with secured(config) as live:
        client = await live.client(connect=False)
        await client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert await client.closed() == []
        await secure_client_works(live)


async def test_handshake_that_stalls_is_cut_after_two_seconds(config: str, mock_clock: MockClock) -> None:
    async with secured(config) as live:
        stalled = [await live.client(connect=False) for _ in range(10)]
        for client in stalled:
            await client.send(b"\x16\x03\x01\x02\x00\x01\x00")
        await wait_all_tasks_blocked()
        mock_clock.jump(2.1)
        for client in stalled:
            assert await client.closed() == []
        mock_clock.jump(2.0)
        await wait_all_tasks_blocked()
        assert not live.server.connections


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16\x03\x01\x40\x00" + b"\xff" * 16384,
        b"\x16\x03\x00\x00\x00",
        b"\x80\x2e\x01\x03\x01",
        b"\x00",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["short hello", "record of ones", "SSL 3", "SSL 2", "zero", "HTTP"],
)
async def test_junk_instead_of_a_handshake_is_refused(config: str, junk: bytes) -> None:
    async with secured(config) as live:
        client = await live.client(connect=False)
        await client.send(junk + bytes(64))
        await client.stream.send_eof()
        rest = b"".join(await client.closed())
        assert b"PONG" not in rest and b"-ERR" not in rest
        await secure_client_works(live)


async def test_records_without_end_before_the_handshake_are_cut(config: str) -> None:
    async with secured(config) as live:
        client = await live.client(connect=False)
        # A hello that says it goes on for 16 MB, in records that are all well formed.
        await client.send(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff")
        with trio.fail_after(10):
            try:
                for _ in range(200):
                    await client.stream.send_all(b"\x16\x03\x01\x40\x00" + bytes(16384))
            except trio.BrokenResourceError:
                pass  # The server closed while we were still sending.
            assert b"PONG" not in b"".join(await client.closed())
        await secure_client_works(live)


async def test_client_that_leaves_in_the_middle_of_the_handshake_leaves_nothing_behind(config: str) -> None:
    async with secured(config) as live:
        for _ in range(50):
            client = await live.client(connect=False)
            await client.send(b"\x16\x03\x01\x02\x00\x01\x00")
            await client.stream.aclose()
        with trio.fail_after(10):
            while live.server.connections:
                await trio.lowlevel.checkpoint()
        await secure_client_works(live)


def test_private_key_that_is_missing_stops_the_start_and_names_the_file_only(tmp_path: Path) -> None:
    from edged.config.document import ConfigError
    from edged.config.load import load_file

    (tmp_path / "server.conf").write_text("tls { cert_file: './none.pem', key_file: './none.key' }")
    with pytest.raises(ConfigError) as caught:
        load_file(tmp_path / "server.conf", {})
    assert "none" in str(caught.value)
