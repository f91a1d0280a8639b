"""What lies between accept and the first operation, beyond what the transports' own tests show."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trustme

from edged.config.options import TlsOptions
from edged.server.listener import HandshakeRate, ListenError, bind
from tests.server.live import live_server


def test_handshakes_beyond_the_limit_of_a_second_are_refused_until_it_is_over() -> None:
    rate = HandshakeRate()
    assert [rate.allow(2, now) for now in (10.0, 10.1, 10.2, 10.9, 11.0, 11.5, 11.9)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    assert all(rate.allow(0, 20.0) for _ in range(1000))


async def test_a_throttled_client_is_told_so_in_clear(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    name = str(tmp_path / "server.pem")
    tls = TlsOptions(cert_file=name, key_file=name, connection_rate_limit=1, timeout_s=0.05)
    async with live_server(tls=tls) as live:
        first, second = await live.client(connect=False), await live.client(connect=False)
        answers = [await first.closed(), await second.closed()]
        assert [b"-ERR 'Connection throttling is active. Please try again later.'"] in answers


def test_an_address_that_is_taken_is_named() -> None:
    taken = bind("127.0.0.1", -1)
    try:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already"):
            bind("127.0.0.1", port)
    finally:
        taken.close()


async def test_one_more_than_the_maximum_of_connections_is_told_so() -> None:
    async with live_server(max_connections=2) as live:
        clients = [await live.client() for _ in range(2)]
        surplus = await live.client(connect=False)
        assert await surplus.closed() == [b"-ERR 'maximum connections exceeded'"]
        await clients[0].stream.aclose()
        with trio.fail_after(5):
            while len(live.server.connections) > 1:
                await trio.testing.wait_all_tasks_blocked()
        again = await live.client()
        assert await again.barrier() == []
