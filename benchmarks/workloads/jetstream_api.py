"""Asks a server for streams and consumers, before and after a load."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.servers import Served
from benchmarks.wire import (
    REPLY_TIMEOUT_S,
    Endpoint,
    GeneratorError,
    connect,
    publish_frame,
    read_until,
    subscribe_frame,
)


@contextmanager
def asking(server: Served) -> Iterator[socket.socket]:
    """A connection for ask()."""
    with asking_at(server.endpoint) as connection:
        yield connection


@contextmanager
def asking_at(endpoint: Endpoint, wait_s: float = REPLY_TIMEOUT_S) -> Iterator[socket.socket]:
    """The same to a certain node, whose answers are waited for so long."""
    with connect(endpoint) as connection:
        connection.settimeout(wait_s)
        connection.sendall(subscribe_frame(_inbox(connection), b"1"))
        yield connection


def ask(connection: socket.socket, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the API answers. Raises GeneratorError for an error."""
    payload = b"" if body is None else json.dumps(body).encode()
    connection.sendall(publish_frame(f"$JS.API.{endpoint}".encode(), payload, reply=_inbox(connection)))
    answer = read_until(connection, b"}\r\n")
    if b'"error":' in answer:
        raise GeneratorError(f"{endpoint}: {answer[:300]!r}")
    document: dict[str, Any] = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])
    return document


def _inbox(connection: socket.socket) -> bytes:
    """Where this connection is answered, and no other one that is open."""
    port: int = connection.getsockname()[1]
    return b"_INBOX.setup.%d" % port
