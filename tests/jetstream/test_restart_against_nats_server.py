"""Streams of a server that ends and starts again: what edged and nats-server know and say afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.jetstream_servers import SERVERS, figures, kept_without_times, running
from tests.jetstream.raw_client import RawClient, block_of

pytestmark = pytest.mark.real

HOUR = 3600_000_000_000
STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {},
    "SHORT": {"max_msgs": 3},
    "LATE": {"first_seq": 100},
    "SEALED": {"max_age": HOUR},
    "KEYS": {"max_msgs_per_subject": 2, "discard": "new", "allow_rollup_hdrs": True},
    "COUNTED": {"allow_msg_counter": True},
    "BATCHED": {"allow_atomic": True},
    "QUEUE": {"retention": "workqueue"},
    "UNWANTED": {"retention": "interest"},
    "LASTING": {"allow_msg_ttl": True, "subject_delete_marker_ttl": HOUR},
}
# What is asked of both afterwards: subject, headers, payload.
AFTERWARDS: list[tuple[str, bytes, bytes]] = [
    ("PLAIN.a", block_of(Nats_Msg_Id="stays"), b"known"),
    ("PLAIN.a", block_of(Nats_Expected_Last_Sequence="5"), b"right or wrong"),
    ("PLAIN.a", block_of(Nats_Expected_Last_Sequence="5"), b"right or wrong"),
    ("PLAIN.b", block_of(Nats_Expected_Last_Subject_Sequence="4"), b"right or wrong"),
    ("PLAIN.b", block_of(Nats_Expected_Last_Msg_Id="stays"), b"right or wrong"),
    ("SHORT.a", b"", b"next"),
    ("LATE.a", b"", b"next"),
    ("SEALED.a", b"", b"refused"),
    ("KEYS.a", block_of(Nats_Rollup="sub"), b"alone"),
    ("COUNTED.a", block_of(Nats_Incr="5"), b""),
    ("BATCHED.a", block_of(Nats_Batch_Id="open", Nats_Batch_Sequence="2"), b"of a batch that is gone"),
    ("BATCHED.a", block_of(Nats_Msg_Id="member"), b"known"),
    ("QUEUE.a", b"", b"next"),
    ("UNWANTED.a", b"", b"next"),
    ("LASTING.a", block_of(Nats_TTL="2h"), b"next"),
]


def fill(client: RawClient) -> None:
    """Streams of all kinds with a history."""
    for name, config in STREAMS.items():
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    for subject, block in (
        *(("PLAIN.a", block_of(Nats_Msg_Id="purged")), ("PLAIN.a", b""), ("PLAIN.b", b"")),
        *(("PLAIN.b", block_of(Nats_Msg_Id="stays")), ("PLAIN.c", b"")),
        *[("SHORT.a", b"")] * 5,
        *(("LATE.a", b""), ("SEALED.a", b""), *[("KEYS.a", b"")] * 3),
        ("COUNTED.a", block_of(Nats_Incr="37")),
        ("BATCHED.a", block_of(Nats_Batch_Id="open", Nats_Batch_Sequence="1")),
        ("BATCHED.b", block_of(Nats_Batch_Id="b", Nats_Batch_Sequence="1", Nats_Msg_Id="member")),
        ("BATCHED.b", block_of(Nats_Batch_Id="b", Nats_Batch_Sequence="2", Nats_Batch_Commit="1")),
        *(("QUEUE.a", b""), ("UNWANTED.a", b""), ("UNWANTED.a", b"")),
        *(("LASTING.a", block_of(Nats_TTL="1h")), ("LASTING.b", block_of(Nats_TTL="never"))),
    ):
        is_counted = subject.startswith("COUNTED")
        client.ask(subject, block, b"" if is_counted else b"x")
    client.api("STREAM.MSG.DELETE.PLAIN", {"seq": 2})
    client.api("STREAM.PURGE.PLAIN", {"seq": 2})
    client.api("STREAM.UPDATE.SEALED", {"name": "SEALED", "subjects": ["SEALED.>"], "sealed": True})
    client.api("STREAM.PURGE.QUEUE")


def known(client: RawClient) -> dict[str, Any]:
    """Of every stream: its configuration, what it holds, and its figures."""
    return {
        name: (
            client.api(f"STREAM.INFO.{name}")["config"],
            kept_without_times(client, name),
            figures(client, name),
        )
        for name in client.api("STREAM.NAMES")["streams"]
    }


def after_a_restart(kind: str, directory: Path) -> tuple[list[Any], dict[str, Any], tuple[bool, bool]]:
    """The answers afterwards; what is known before and after them; and what is otherwise with the other one:
    whether a stream in memory is there, and whether the id of a message is known that was removed.
    """
    with running(kind, directory) as server:
        client = RawClient(server.host, server.port)
        fill(client)
        before = known(client)
        client.api("STREAM.CREATE.MEMORY", {"name": "MEMORY", "storage": "memory"})
        client.ask("MEMORY", b"", b"x")
        client.close()
    with running(kind, directory) as server:
        client = RawClient(server.host, server.port)
        found = known(client)
        memory = found.pop("MEMORY", None)
        assert memory is None or memory[1] == []
        assert found == before
        answers = []
        for subject, block, payload in AFTERWARDS:
            answers.append((subject, client.ask(subject, block, payload).document))
        found["afterwards"] = {name: facts for name, facts in known(client).items() if name != "MEMORY"}
        answer = client.ask("PLAIN.a", block_of(Nats_Msg_Id="purged"), b"x").document
        client.close()
    return answers, found, (memory is not None, "duplicate" in answer)


def test_streams_are_as_they_were_and_go_on_alike(tmp_path: Path) -> None:
    theirs, ours = (after_a_restart(kind, tmp_path / kind) for kind in SERVERS)
    assert ours[:2] == theirs[:2]
    assert ours[0][0][1]["duplicate"] is True
    # These two are on the page on compatibility.
    assert (theirs[2], ours[2]) == ((False, False), (True, True))
