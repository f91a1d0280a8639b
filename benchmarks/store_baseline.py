"""How soon a server is ready again after SIGKILL with a large stream: `python -m benchmarks.store_baseline`.

A stream is filled once, every publish acknowledged, in a folder that is removed afterwards. Then, in each
round, the server is killed and started again. Measured from the start of the process: until /healthz says
that all is well, and until the stream's own information counts every message, which a client would notice.
The files are in the page cache, so this is the server's work and not the disk's.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.machine import machine_facts
from benchmarks.procfs import process_use
from benchmarks.servers import HOST, REFERENCE, ServerError, ServerKind, find_kinds
from benchmarks.wire import Endpoint, GeneratorError, connect, publish_frame, read_until, subscribe_frame

_STREAM: Final = "BASELINE"
_SUBJECTS: Final = 100
_PAYLOAD_BYTES: Final = 128
# Publishes sent at a time; as many again may be without their acknowledgement.
_CHUNK: Final = 2000
_ACK_MARK: Final = b'"seq":'
_REPLY: Final = b"_INBOX.baseline"
_READY_TIMEOUT_S: Final = 900.0
_POLL_DELAY_S: Final = 0.005
_MEBIBYTE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Restart:
    """One start after a kill."""

    healthy_s: float
    complete_s: float
    rss_bytes: int
    rss_peak_bytes: int


class StoreServer:
    """A server with JetStream files in a folder, which can be killed and started again."""

    def __init__(self, kind: ServerKind, folder: Path) -> None:
        self._kind = kind
        self._folder = folder
        self.endpoint = Endpoint(HOST, _free_port())
        self._http_port = _free_port()

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The process; it ends by SIGKILL."""
        ports = ("-a", HOST, "-p", str(self.endpoint.port), "-m", str(self._http_port))
        with (self._folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [self._kind.program, *ports, "-js", "-sd", str(self._folder / "store")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._kind.environ(),
            )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def wait_healthy(self, process: subprocess.Popen[bytes]) -> None:
        """Until /healthz answers that all is well."""
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if process.poll() is not None:
                raise ServerError(f"{self._kind.name} ended with status {process.returncode}")
            try:
                with urllib.request.urlopen(f"http://{HOST}:{self._http_port}/healthz", timeout=30):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(_POLL_DELAY_S)
        raise ServerError(f"{self._kind.name} was not healthy within {_READY_TIMEOUT_S:.0f} s")

    def wait_complete(self, messages: int) -> None:
        """Until the stream's information counts all messages."""
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        with connect(self.endpoint) as connection:
            while time.monotonic() < deadline_s:
                document = request(connection, f"$JS.API.STREAM.INFO.{_STREAM}")
                if document.get("state", {}).get("messages") == messages:
                    return
                time.sleep(_POLL_DELAY_S)
        raise ServerError(f"{self._kind.name} did not find its messages within {_READY_TIMEOUT_S:.0f} s")


def request(
    connection: socket.socket, subject: str, document: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask the JetStream API, on a connection with nothing else under way."""
    payload = b"" if document is None else json.dumps(document).encode()
    connection.sendall(
        subscribe_frame(_REPLY, b"1") + b"UNSUB 1 1\r\n" + publish_frame(subject.encode(), payload, _REPLY)
    )
    # A JetStream answer is JSON on one line.
    answer = read_until(connection, b"}\r\n")
    parsed: dict[str, Any] = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])
    return parsed


def fill(endpoint: Endpoint, messages: int) -> float:
    """Publish so many messages, each acknowledged; the seconds it took."""
    with connect(endpoint) as connection:
        config = {"name": _STREAM, "subjects": ["baseline.>"], "storage": "file"}
        created = request(connection, f"$JS.API.STREAM.CREATE.{_STREAM}", config)
        if "error" in created:
            raise GeneratorError(f"the stream was refused: {created['error']}")
        payload = b"x" * _PAYLOAD_BYTES
        frames = [publish_frame(b"baseline.%d" % (i % _SUBJECTS), payload, _REPLY) for i in range(_CHUNK)]
        connection.sendall(subscribe_frame(_REPLY, b"2"))
        started_s = time.monotonic()
        sent, acks = 0, _Acks(connection)
        while acks.count < messages:
            if sent < messages and sent - acks.count <= _CHUNK:
                size = min(_CHUNK, messages - sent)
                connection.sendall(b"".join(frames[:size]))
                sent += size
                _show_progress(sent, messages)
            else:
                acks.read()
        return time.monotonic() - started_s


class _Acks:
    """Counts acknowledgements in what a connection receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._tail = b""
        self.count = 0

    def read(self) -> None:
        chunk = self._connection.recv(1 << 18)
        if not chunk:
            raise GeneratorError("the server closed the connection")
        if b'"error"' in chunk or b"-ERR" in chunk:
            raise GeneratorError(f"the server answered {chunk[:200]!r}")
        joined = self._tail + chunk
        self.count += joined.count(_ACK_MARK)
        # The mark may be cut in two, but is not counted twice.
        self._tail = joined[-(len(_ACK_MARK) - 1) :]
        if b"PING\r\n" in chunk:
            self._connection.sendall(b"PONG\r\n")


def measure(server: StoreServer, messages: int) -> Restart:
    """Start the server, which was killed before, and wait until it is all there."""
    started_s = time.monotonic()
    with server.running() as process:
        server.wait_healthy(process)
        healthy_s = time.monotonic() - started_s
        server.wait_complete(messages)
        complete_s = time.monotonic() - started_s
        use = process_use(process.pid)
        return Restart(healthy_s, complete_s, use.rss_bytes, use.rss_peak_bytes)


def run(kind: ServerKind, messages: int, rounds: int, parent: Path | None) -> None:
    """Fill, then kill and start in turn, and print the figures."""
    with tempfile.TemporaryDirectory(prefix="store-baseline-", dir=parent) as name:
        folder = Path(name)
        server = StoreServer(kind, folder)
        with server.running() as process:
            server.wait_healthy(process)
            fill_s = fill(server.endpoint, messages)
            server.wait_complete(messages)
        store_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        restarts = [measure(server, messages) for _ in range(rounds)]
    print(
        f"{kind.name}, {messages:,} messages of {_PAYLOAD_BYTES} bytes in one stream ("
        f"{store_bytes / _MEBIBYTE:,.0f} MiB on disk, published in {fill_s:.1f} s), median of {rounds} kills:"
    )
    print(f"  healthy after   {median(one.healthy_s for one in restarts):8.3f} s")
    print(f"  complete after  {median(one.complete_s for one in restarts):8.3f} s")
    print(f"  RSS             {median(one.rss_bytes for one in restarts) / _MEBIBYTE:8.1f} MiB")
    print(
        f"  RSS at its peak {median(one.rss_peak_bytes for one in restarts) / _MEBIBYTE:8.1f} MiB", flush=True
    )


def _show_progress(count: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rpublished {count:,} of {total:,}" + ("\n" if count == total else ""))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_baseline", description=__doc__)
    parser.add_argument(
        "--messages", type=int, nargs="+", default=[1_000_000], help="sizes of the stream (default: 1000000)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="kills for each size (default: 3)")
    parser.add_argument(
        "--folder", type=Path, help="where the data lie meanwhile (default: the temporary one)"
    )
    parser.add_argument("--nats-server", metavar="PROGRAM", help="the nats-server to run")
    options = parser.parse_args(arguments)
    (kind,) = find_kinds([REFERENCE], {REFERENCE: options.nats_server})
    facts = machine_facts((kind,))
    print(f"{facts['cores']} cores, {facts['processor']}, Linux {facts['kernel']}")
    for messages in options.messages:
        run(kind, messages, options.rounds, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
