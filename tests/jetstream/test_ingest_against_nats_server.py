"""What becomes of messages on their way into a stream, on the wire: the same from edged and nats-server.

What a stream takes and refuses is in test_publish_rules_against_nats_server.py and those of batches; here is
what happens around that: subjects are transformed, messages are passed on, counters count in batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from edged.core import headers
from tests.jetstream.jetstream_servers import SERVERS, figures, kept_without_times, new_name, running
from tests.jetstream.raw_client import RawClient, block_of

pytestmark = pytest.mark.real

Step = tuple[str, bytes, bytes]
TIME_STAMP = re.compile(rb"(Nats-Time-Stamp: )[0-9TZ:.-]+")


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RawClient]]:
    with (
        running(SERVERS[0], tmp_path_factory.mktemp("one")) as one,
        running(SERVERS[1], tmp_path_factory.mktemp("other")) as other,
    ):
        connected = [RawClient(server.host, server.port) for server in (one, other)]
        yield connected
        for client in connected:
            client.close()


def create(clients: list[RawClient], **config: Any) -> str:
    """A stream on both servers; its name."""
    name = new_name("in")
    wanted = {"name": name, "subjects": [f"{name}.>"], **config}
    configs = [client.api(f"STREAM.CREATE.{name}", wanted)["config"] for client in clients]
    assert configs[0] == configs[1]
    return name


def publish(clients: list[RawClient], name: str, steps: list[Step]) -> list[bytes]:
    """The answers, which must be the same to the byte; so is what the streams hold in the end."""
    answers = []
    for tail, block, payload in steps:
        both = [client.ask(f"{name}.{tail}", block, payload).payload for client in clients]
        assert both[0] == both[1], (tail, block, payload)
        answers.append(both[0])
    compare(clients, name)
    return answers


def compare(clients: list[RawClient], name: str) -> None:
    one, other = clients
    assert kept_without_times(one, name) == kept_without_times(other, name)
    assert figures(one, name) == figures(other, name)


def member(batch: str, place: int, commit: str = "", **more: str) -> bytes:
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(place)}
    if commit:
        fields["Nats-Batch-Commit"] = commit
    fields |= {key.replace("_", "-"): value for key, value in more.items()}
    return headers.encode((key.encode(), value.encode()) for key, value in fields.items())


# --- subjects ---

TRANSFORMS = [
    {"src": "", "dest": "all.>"},
    {"src": "{name}.*.*", "dest": "swapped.{{wildcard(2)}}.{{wildcard(1)}}"},
    {"src": "{name}.a.>", "dest": "{name}.only.a.>"},
    {"src": "{name}.*.>", "dest": "cut.{{left(1,2)}}.>"},
    {"src": "{name}.*.*", "dest": "parted.{{partition(5,1,2)}}.{{split(2,-)}}"},
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda one: one["dest"])
def test_subjects_are_transformed(clients: list[RawClient], transform: dict[str, str]) -> None:
    name = new_name("in")
    wanted = {key: value.replace("{name}", name) for key, value in transform.items()}
    config = {
        "name": name,
        "subjects": [f"{name}.>"],
        "subject_transform": wanted,
        "allow_atomic": True,
        "max_msgs_per_subject": 2,
    }
    for client in clients:
        client.api(f"STREAM.CREATE.{name}", config)
    steps: list[Step] = [
        *(
            (tail, b"", tail.encode())
            for tail in ("a.b", "a.b", "a.b", "c", "a", "long-word.x-y-z", "a.b.c.d")
        ),
        ("a.b", block_of(Nats_Expected_Last_Subject_Sequence="3"), b""),
        ("a.b", block_of(Nats_Msg_Id="1"), b"id"),
        ("a.b", block_of(Nats_Msg_Id="1"), b"id"),
        ("x.y", member("b", 1), b"member"),
        ("x.z", member("b", 2, "1"), b"last"),
    ]
    publish(clients, name, steps)


def test_a_status_is_not_kept(clients: list[RawClient]) -> None:
    name = create(clients)
    publish(
        clients,
        name,
        [
            ("a", b"NATS/1.0 503\r\n\r\n", b""),
            ("a", b"NATS/1.0 100 Idle Heartbeat\r\nA: b\r\n\r\n", b"x"),
            ("a", b"NATS/1.0\r\n\r\n", b"x"),
        ],
    )


def test_nobody_is_answered_by_a_stream_that_says_so(clients: list[RawClient]) -> None:
    name = create(clients, no_ack=True, allow_atomic=True, allow_batched=True, max_msg_size=100)
    for client in clients:
        for block, payload in (
            (b"", b"x"),
            (b"", bytes(200)),
            (block_of(Nats_Expected_Last_Sequence="9"), b""),
            (member("b", 1), b""),
            (member("b", 2, "1"), b""),
            (member("c", 2), b""),
        ):
            client.publish(f"{name}.a".encode(), block, payload, b"R.never")
        client.publish(f"{name}.a".encode(), b"", b"", b"R.never.b.3.fail.1.2.$FI")
        while client.api(f"STREAM.INFO.{name}")["state"]["messages"] < 4:
            pass
    # The end of a fast batch is told nevertheless.
    ends = [[client.receive(), *client.until_fence(b"$JS.API.INFO")] for client in clients]
    assert ends[0] == ends[1]
    assert [one.subject for one in ends[0]] == [b"R.never.b.3.fail.1.2.$FI"]
    compare(clients, name)


# --- passing on ---

REPUBLISHED = [
    {"src": ">", "dest": "{name}-again.>"},
    {"src": "", "dest": "{name}-again.>", "headers_only": True},
    {"src": "{name}.a.*", "dest": "{name}-again.{{wildcard(1)}}.x"},
]


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize("republish", REPUBLISHED, ids=str)
def test_stored_messages_are_published_again(
    clients: list[RawClient], republish: dict[str, Any], storage: str
) -> None:
    name = new_name("in")
    wanted = {
        key: value.replace("{name}", name) if isinstance(value, str) else value
        for key, value in republish.items()
    }
    config = {
        "name": name,
        "subjects": [f"{name}.>"],
        "republish": wanted,
        "storage": storage,
        "allow_atomic": True,
        "allow_rollup_hdrs": True,
        "subject_transform": {"src": f"{name}.t.*", "dest": f"{name}.a.{{{{wildcard(1)}}}}"},
    }
    for client in clients:
        client.api(f"STREAM.CREATE.{name}", config)
        client.subscribe(f"{name}-again.>")
    steps: list[Step] = [
        ("a.b", b"", b"one"),
        ("a.b", b"", b"two"),
        ("c", block_of(Own="x", Nats_Msg_Id="1"), b"three"),
        ("c", block_of(Own="x", Nats_Msg_Id="1"), b"known already"),
        ("a.c", block_of(Nats_Expected_Last_Sequence="77"), b"refused"),
        ("a.b", block_of(Nats_Rollup="sub"), b"four"),
        ("t.b", b"", b"five"),
        ("a.b", b"", b""),
        ("a.b", member("b", 1), b"six"),
        ("a.c", member("b", 2, "1"), b"seven"),
    ]
    publish(clients, name, steps)
    for client in clients:
        client.ask(f"{name}.fence", b"", b"")
    seen = [
        [
            (one.subject, TIME_STAMP.sub(rb"\1then", one.block), one.payload)
            for one in client.until_fence(b"$JS.API.INFO")
        ]
        for client in clients
    ]
    assert len(seen[0]) >= 5
    assert seen[0] == seen[1]


# --- counters in batches ---


def test_members_of_an_atomic_batch_are_counted(clients: list[RawClient]) -> None:
    name = create(clients, allow_msg_counter=True, allow_atomic=True)
    answers = publish(
        clients,
        name,
        [
            ("a", block_of(Nats_Incr="5"), b""),
            ("a", member("x", 1, Nats_Incr="1"), b""),
            ("b", member("x", 2, Nats_Incr="-7"), b""),
            ("a", member("x", 3, Nats_Incr="10"), b""),
            ("a", member("x", 4, "1", Nats_Incr="100"), b""),
            ("a", member("y", 1, Nats_Incr="1"), b""),
            ("a", member("y", 2, "1", Nats_Incr="wrong"), b""),
            ("a", member("z", 1, Nats_Incr="1"), b""),
            ("a", member("z", 2, "1"), b""),
            ("b", member("e", 1, Nats_Incr="1"), b""),
            ("b", member("e", 2, "eob"), b""),
            ("a", block_of(Nats_Incr="1"), b""),
        ],
    )
    assert b'"val":"117"' in answers[-1]


def test_messages_of_a_fast_batch_are_counted(clients: list[RawClient]) -> None:
    name = create(clients, allow_msg_counter=True, allow_batched=True)
    block = block_of(Nats_Incr="3")
    for client in clients:
        for place in range(1, 10):
            operation = 2 if place == 9 else int(place > 1)
            reply = b"R.f.batch.3.fail.%d.%d.$FI" % (place, operation)
            client.publish(f"{name}.a".encode(), block, b"", reply)
    arrived = [[], []]
    for number, client in enumerate(clients):
        while not arrived[number] or b'"count":9' not in arrived[number][-1][1]:
            one = client.receive()
            arrived[number].append((one.subject, one.payload))
    assert arrived[0] == arrived[1]
    compare(clients, name)
    assert kept_without_times(clients[0], name)[-1][3] == b'{"val":"27"}'


# --- time ---


def test_an_id_is_forgotten_when_its_window_is_over(clients: list[RawClient]) -> None:
    name = create(clients, duplicate_window=100_000_000)
    block = block_of(Nats_Msg_Id="1")
    for client in clients:
        assert client.ask(f"{name}.a", block, b"").document == {"stream": name, "seq": 1}
        duplicates = 0
        while "duplicate" in client.ask(f"{name}.a", block, b"").document:
            duplicates += 1
        assert duplicates
    compare(clients, name)


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_messages_that_outlive_their_time_leave_markers(clients: list[RawClient], storage: str) -> None:
    name = create(
        clients,
        storage=storage,
        allow_msg_ttl=True,
        max_age=1_500_000_000,
        subject_delete_marker_ttl=3600_000_000_000,
        allow_rollup_hdrs=True,
    )
    for client in clients:
        for tail, block in (
            ("by-ttl", block_of(Nats_TTL="1s")),
            ("by-age", b""),
            ("by-age", b""),
            ("stays", block_of(Nats_TTL="never")),
        ):
            client.ask(f"{name}.{tail}", block, b"x")
    for client in clients:
        while figures(client, name)["last_seq"] < 6:
            pass
    compare(clients, name)
    reasons = [
        headers.value(block, b"Nats-Marker-Reason") for _, _, block, _ in kept_without_times(clients[0], name)
    ]
    assert sorted(reason for reason in reasons if reason) == [b"MaxAge", b"MaxAge"]
