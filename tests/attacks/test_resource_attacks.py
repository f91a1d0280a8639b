"""Attacks on memory and descriptors, on a daemon in a process of its own, which is measured from outside.

Bounds are per connection or in all; they leave room for allocators, and are far below what the attack would
cost a server that sets memory aside, keeps what it reads, or waits for ever.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from edged.core.http_upgrade import REQUEST_BYTES_MAX
from tests.attacks.victims import CONNECT, Process, process, read_line, read_to_end

pytestmark = [pytest.mark.real, pytest.mark.slow]

MIB = 1024  # in KiB, as the kernel counts
LOGIN = b',"user":"a","pass":"b"'
AUTHORIZATION = "authorization { user: a, password: b, timeout: 60 }\n"
UNAUTHENTICATED = 1000
UNAUTHENTICATED_KIB_MAX = 64
# How many connections with a layer of their own are opened, and what one may cost inside of a handshake.
LAYERED = 300
HANDSHAKE_KIB_MAX = 128
# Nearly all that a request may have before it is refused.
LONG_HEAD_BYTES = REQUEST_BYTES_MAX - 1000


@pytest.fixture
def open_daemon(tmp_path: Path) -> Iterator[Process]:
    with process("max_closed_clients: 100", tmp_path) as running:
        yield running


# Sends all of its input, reading what comes back, and ends when the last operation was carried out.
FLOOD = """
import selectors, socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.setblocking(False)
last_words = b"SUB done done\\r\\nPUB done 0\\r\\n\\r\\n"
waiting = memoryview(sys.stdin.buffer.read() * int(sys.argv[2]) + last_words)
selector = selectors.DefaultSelector()
selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
end = b""
while not end.endswith(b"MSG done done 0\\r\\n\\r\\n"):
    ready = selector.select(30)
    if not ready:
        sys.exit("no answer after %r" % end)
    if ready[0][1] & selectors.EVENT_WRITE:
        waiting = waiting[connection.send(waiting[:262144]):]
        if not waiting:
            selector.modify(connection, selectors.EVENT_READ)
    if ready[0][1] & selectors.EVENT_READ:
        chunk = connection.recv(1 << 20)
        if not chunk:
            sys.exit("closed after %r" % end)
        end = (end + chunk)[-200:]
"""


def flood(running: Process, data: bytes, repeat: int) -> None:
    """Send a lot from another process: this one is too slow for it, and would be measured with it."""
    command = [sys.executable, "-c", FLOOD, str(running.server.port), str(repeat)]
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize(
    "partial",
    [
        b"",
        b"C",
        b"CONNECT " + b"x" * 4080,
        b'CONNECT {"name":"' + b"\xc3\xa9" * 2030,
        b"CONNECT" + b" " * 4090,
        b"CONNECT " + b"[" * 4080,
    ],
    ids=["silent", "one byte", "long line", "long name", "blanks", "nested"],
)
def test_unauthenticated_connections_cost_little_whatever_they_have_sent_so_far(
    partial: bytes, tmp_path: Path
) -> None:
    """Measured: 8 KiB for a silent one, 12.5 KiB for one with a full control line."""
    with process(AUTHORIZATION, tmp_path, LOGIN) as running:
        before = running.memory_kib()
        for _ in range(UNAUTHENTICATED):
            connection = running.connect()
            connection.sendall(partial)
        running.still_serves(LOGIN)
        grown = running.settled_memory_kib() - before
        assert grown / UNAUTHENTICATED <= UNAUTHENTICATED_KIB_MAX, f"{grown / UNAUTHENTICATED:.1f} KiB each"


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nNats-No-Masking: true\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
)


@pytest.mark.parametrize(
    ("request_head", "frame"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * LONG_HEAD_BYTES, b""),
        (b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * (LONG_HEAD_BYTES // 5), b""),
        (UPGRADE + b"Cookie: a=" + b"x" * LONG_HEAD_BYTES + b"\r\n\r\n", b"\x02\x01C"),
        (UPGRADE + b"\r\n", b"\x02\x7e\x10\x00CONNECT " + b"x" * 4000),
    ],
    ids=["long header", "many headers", "long cookie, then upgraded", "upgraded, then half a frame"],
)
def test_unauthenticated_websockets_cost_little_whatever_they_have_sent_so_far(
    request_head: bytes, frame: bytes, tmp_path: Path
) -> None:
    websocket = "websocket { port: ${port.ws}, no_tls: true, handshake_timeout: 60s, compression: true }"
    with process(AUTHORIZATION + websocket, tmp_path, LOGIN) as running:
        address = running.server.listeners["ws"]
        before = running.memory_kib()
        for _ in range(LAYERED):
            connection = socket.create_connection(address, timeout=20)
            running.sockets.append(connection)
            connection.sendall(request_head)
            if frame:
                assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")
                connection.sendall(frame)
        running.still_serves(LOGIN)
        grown = running.settled_memory_kib() - before
        assert grown / LAYERED <= UNAUTHENTICATED_KIB_MAX, f"{grown / LAYERED:.1f} KiB each"


def test_handshakes_that_never_end_cost_no_more_than_a_session_of_openssl(tmp_path: Path) -> None:
    """Measured: 88 KiB, nearly all of it OpenSSL's: a session with its record buffers."""
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = f"cert_file: '{tmp_path / 'cert.pem'}', key_file: '{tmp_path / 'key.pem'}'"
    config = f"{AUTHORIZATION}allow_non_tls: true\ntls {{ {files}, timeout: 60 }}"
    with process(config, tmp_path / "server", LOGIN) as running:
        before = running.memory_kib()
        for _ in range(LAYERED):
            running.connect().sendall(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(16_000))
        running.still_serves(LOGIN)
        grown = running.settled_memory_kib() - before
        assert grown / LAYERED <= HANDSHAKE_KIB_MAX, f"{grown / LAYERED:.1f} KiB each"


def test_claimed_payloads_that_never_come_set_no_memory_aside(open_daemon: Process) -> None:
    before = open_daemon.memory_kib()
    for _ in range(200):
        connection = open_daemon.login()
        connection.sendall(b"PUB a 1048576\r\n0123456789")
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 10 * MIB


def test_payload_in_small_pieces_costs_no_more_than_what_has_arrived(open_daemon: Process) -> None:
    before = open_daemon.memory_kib()
    connections = [open_daemon.login() for _ in range(50)]
    for connection in connections:
        connection.sendall(b"PUB a 1048576\r\n")
    for _ in range(10):
        for connection in connections:
            connection.sendall(b"x" * 1000)
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 10 * MIB


def test_a_million_pings_are_answered_and_nothing_is_kept(open_daemon: Process) -> None:
    flood(open_daemon, CONNECT % b"" + b"PING\r\n", 1)
    before = open_daemon.memory_kib()
    flood(open_daemon, b"PING\r\n" * 1000, 1000)
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 8 * MIB


def test_subscriptions_that_come_and_go_leave_nothing_behind(open_daemon: Process) -> None:
    data = b"".join(b"SUB a.%d.* %d\r\nUNSUB %d\r\n" % (number, number, number) for number in range(1000))
    flood(open_daemon, data, 5)
    before = open_daemon.memory_kib()
    flood(open_daemon, data, 50)
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 8 * MIB


def test_publishes_to_ever_new_subjects_fill_no_cache_without_bound(open_daemon: Process) -> None:
    data = b"".join(b"PUB new.%d.%s 0\r\n\r\n" % (number, b"x" * 100) for number in range(20_000))
    flood(open_daemon, data, 1)
    before = open_daemon.memory_kib()
    for part in range(5):
        flood(open_daemon, data.replace(b"new", b"new%d" % part), 1)
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 16 * MIB


def test_subscriptions_of_a_flood_are_given_back_when_the_connection_ends(open_daemon: Process) -> None:
    data = b"".join(b"SUB a.b.%d %d\r\n" % (number, number) for number in range(50_000))
    flood(open_daemon, data, 1)
    before = open_daemon.memory_kib()
    for _ in range(5):
        flood(open_daemon, data, 1)
    open_daemon.still_serves()
    assert open_daemon.memory_kib() - before < 16 * MIB


@pytest.mark.parametrize("config", ["max_pending: 8MB\nwrite_deadline: 30s"])
def test_subscriber_that_never_reads_is_cut_off_at_its_limit_and_memory_stays_flat(
    config: str, tmp_path: Path
) -> None:
    with process(config, tmp_path) as running:
        before = running.memory_kib()
        sleepers = []
        for _ in range(5):
            sleeper = running.login()
            sleeper.sendall(b"SUB big 1\r\nPING\r\n")
            read_line(sleeper)
            sleepers.append(sleeper)
        publisher = running.login()
        payload = b"PUB big 65536\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(800):
            publisher.sendall(payload)
        publisher.sendall(b"PING\r\n")
        read_line(publisher)
        # What the kernel had taken is still there to be read; then comes the end.
        for sleeper in sleepers:
            assert len(read_to_end(sleeper)) < 800 * 65536
        running.still_serves()
        assert running.memory_kib() - before < 48 * MIB
        log = running.server.log_path.read_text()
        assert log.count("slow consumer") == 5


def test_peer_with_a_closed_window_is_cut_off_at_the_write_deadline(tmp_path: Path) -> None:
    with process("write_deadline: 1s", tmp_path) as running:
        sleeper = socket.socket()
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.settimeout(20)
        sleeper.connect((running.server.host, running.server.port))
        running.sockets.append(sleeper)
        sleeper.sendall(CONNECT % b"" + b"SUB big 1\r\n")
        publisher = running.login()
        publisher.sendall((b"PUB big 65536\r\n" + b"x" * 65536 + b"\r\n") * 200 + b"PING\r\n")
        read_line(publisher)
        running.wait_until(
            lambda: "slow consumer" in running.server.log_path.read_text(), "the end of the slow consumer"
        )
        running.still_serves()


def test_peer_that_asks_and_never_reads_the_answers_is_cut_off(tmp_path: Path) -> None:
    with process("max_pending: 2MB\nmax_payload: 1MB", tmp_path) as running:
        before = running.memory_kib()
        attacker = running.login()
        try:
            for _ in range(1000):
                attacker.sendall(b"PING\r\n" * 10_000)
        except (ConnectionResetError, BrokenPipeError):
            pass  # The server had enough. It may also have read on for a moment, to part in peace.
        assert len(read_to_end(attacker)) < 60_000_000
        assert "slow consumer" in running.server.log_path.read_text()
        running.still_serves()
        assert running.memory_kib() - before < 16 * MIB


def test_half_open_connections_are_found_by_pings_and_closed(tmp_path: Path) -> None:
    with process("ping_interval: 1s\nping_max: 1", tmp_path) as running:
        silent = [running.login() for _ in range(20)]
        for connection in silent:
            connection.settimeout(20)
            assert read_to_end(connection).endswith(b"-ERR 'Stale Connection'\r\n")
        running.still_serves()


def test_ten_thousand_failed_logins_leave_no_memory_and_no_descriptors(tmp_path: Path) -> None:
    """Monitoring remembers closed connections up to max_closed_clients; the rest must be gone."""
    with process(AUTHORIZATION + "max_closed_clients: 1000", tmp_path, LOGIN) as running:
        # What is gone waits for the garbage collector; after this many it has come round.
        fail_logins(running, 5000)
        before = running.memory_kib()
        fail_logins(running, 5000)
        running.still_serves(LOGIN)
        assert running.memory_kib() - before < 12 * MIB


def fail_logins(running: Process, count: int) -> None:
    address = (running.server.host, running.server.port)
    for number in range(count):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(b'CONNECT {"user":"a","pass":"wrong%d%s"}\r\nPING\r\n' % (number, b"x" * 3000))
            answer = read_to_end(connection)
        assert answer.endswith(b"-ERR 'Authorization Violation'\r\n"), answer


def test_remembered_connections_keep_nothing_of_what_they_sent(tmp_path: Path) -> None:
    """Closed connections are shown by monitoring; their passwords and buffers must not stay with them."""
    with process(AUTHORIZATION + "max_closed_clients: 10000", tmp_path, LOGIN) as running:
        before = running.memory_kib()
        fail_logins(running, 3000)
        running.still_serves(LOGIN)
        grown = running.memory_kib() - before
        assert grown / 3000 < 4, f"{grown / 3000:.1f} KiB each"


def test_no_descriptor_left_makes_new_clients_wait_and_hurts_nobody_else(tmp_path: Path) -> None:
    with process("", tmp_path) as running:
        old = running.login()
        soft = running.descriptors() + 10
        limits = resource.prlimit(running.server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(running.server.pid, resource.RLIMIT_NOFILE, (soft, limits[1]))
        address = (running.server.host, running.server.port)
        crowd = [socket.create_connection(address, timeout=20) for _ in range(40)]
        running.sockets.extend(crowd)
        running.wait_until(lambda: "cannot accept" in running.server.log_path.read_text(), "the shortage")
        old.sendall(b"PING\r\n")
        assert read_line(old).startswith((b"PONG", b"INFO", b"PING"))
        for connection in crowd:
            connection.close()
        running.still_serves()
        resource.prlimit(running.server.pid, resource.RLIMIT_NOFILE, limits)
