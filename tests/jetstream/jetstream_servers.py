"""Servers with JetStream for tests that speak to edged and to nats-server alike, and what a stream holds.

Rules: names of streams are not used twice on one server: nats-server removes the files of a stream after it
has said that it is gone, and a new one of that name can find them.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

SERVERS = ("nats-server", "edged")
CONFIG = 'jetstream: {store_dir: "${directory}/store"}'

NO_MESSAGE = 10037

_NUMBERS = itertools.count(1)


def new_name(prefix: str = "s") -> str:
    """A name for a stream that no other one has."""
    return f"{prefix}{next(_NUMBERS)}"


@contextmanager
def running(kind: str, directory: Path, config: str = CONFIG) -> Iterator[RunningServer]:
    """A server of a kind, until the end of the block."""
    server = start_server(kind, config, directory)
    try:
        yield server
    finally:
        server.stop()


def kept(client: RawClient, stream: str) -> list[dict[str, Any]]:
    """The messages of a stream with everything that a client can see of them."""
    state = client.api(f"STREAM.INFO.{stream}")["state"]
    found = []
    for seq in range(max(1, state["first_seq"]), state["last_seq"] + 1):
        answer = client.ask(f"$JS.API.STREAM.MSG.GET.{stream}", b"", b'{"seq":%d}' % seq).document
        if "message" in answer:
            found.append(answer["message"])
        else:
            assert answer["error"]["err_code"] == NO_MESSAGE, answer
    assert len(found) == state["messages"], (state, len(found))
    for message in found:
        message["hdrs"] = base64.b64decode(message.get("hdrs", ""))
        message["data"] = base64.b64decode(message.get("data", ""))
    return found


def kept_without_times(client: RawClient, stream: str) -> list[tuple[int, str, bytes, bytes]]:
    """The same, as two servers that were given the same messages hold it."""
    return [
        (message["seq"], message["subject"], message["hdrs"], message["data"])
        for message in kept(client, stream)
    ]


def figures(client: RawClient, stream: str) -> dict[str, Any]:
    """The state of a stream with its subjects and what is deleted, without times."""
    request = {"deleted_details": True, "subjects_filter": ">"}
    state: dict[str, Any] = client.api(f"STREAM.INFO.{stream}", request)["state"]
    return {key: value for key, value in state.items() if key not in ("first_ts", "last_ts")}
