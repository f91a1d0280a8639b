"""Asks a server for streams and consumers, before and after a load."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.servers import RunningServer
from benchmarks.wire import GeneratorError, connect, publish_frame, read_until, subscribe_frame

_REPLY = b"_INBOX.setup.x"


@contextmanager
def asking(server: RunningServer) -> Iterator[socket.socket]:
    """A connection for ask()."""
    with connect(server.endpoint) as connection:
        connection.sendall(subscribe_frame(_REPLY, b"1"))
        yield connection


def ask(connection: socket.socket, endpoint: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the API answers. Raises GeneratorError for an error."""
    payload = b"" if body is None else json.dumps(body).encode()
    connection.sendall(publish_frame(f"$JS.API.{endpoint}".encode(), payload, reply=_REPLY))
    answer = read_until(connection, b"}\r\n")
    if b'"error":' in answer:
        raise GeneratorError(f"{endpoint}: {answer[:300]!r}")
    document: dict[str, Any] = json.loads(answer[answer.index(b"{") : answer.rindex(b"}") + 1])
    return document
