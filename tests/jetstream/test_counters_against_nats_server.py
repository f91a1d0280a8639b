"""Counters: what is refused, what is stored and acknowledged, and how totals from other streams are taken."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from edged.core import counters, headers
from edged.core.api_errors import ApiError
from edged.core.counters import Counted
from tests.jetstream.jetstream_servers import SERVERS
from tests.jetstream.raw_client import DEADLINE_S, RawClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

CONFIG = 'jetstream: {store_dir: "${directory}/store"}'


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """What our parts are compared with, and edged, which is made of them."""
    running = start_server(request.param, CONFIG, tmp_path_factory.mktemp("counters"))
    yield running
    running.stop()


@pytest.fixture
def client(server: RunningServer) -> Iterator[RawClient]:
    connected = RawClient(server.host, server.port)
    yield connected
    connected.close()


def create(client: RawClient, name: str, **more: Any) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_counter": True, **more}
    client.api(f"STREAM.CREATE.{name}", config)


def block_with(*fields: tuple[str, str]) -> bytes:
    return headers.encode((key.encode(), value.encode()) for key, value in fields)


def kept(client: RawClient, stream: str, subject: str) -> tuple[bytes, bytes]:
    """The block and the payload of the last message of a subject."""
    message = client.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})["message"]
    return base64.b64decode(message.get("hdrs", "")), base64.b64decode(message.get("data", ""))


LONG = "9" * 5000
STEPS: list[tuple[str, bytes, bytes]] = [
    *[
        ("c.plain", block_with(("Nats-Incr", text)), b"")
        for text in (
            *("1", "+41", "-50", "0", "-0", "007", LONG, "-" + LONG, "-1" + LONG, " 5", "5 ", "1_000", "0x5"),
            *("", "+", "-", "--1", "1.5", "1e3", "abc", "12abc", "\u0665", "+ 5"),
        )
    ],
    ("c.plain", b"", b""),
    ("c.plain", b"", b"x"),
    ("c.plain", block_with(("Own", "x")), b""),
    ("c.plain", block_with(("nats-incr", "5")), b""),
    ("c.plain", block_with(("Nats-Incr", "1")), b"x"),
    (
        "c.plain",
        block_with(("Own", "kept"), ("Nats-Incr", "2"), ("Nats-Incr", "3"), ("Nats-Msg-Id", "7")),
        b"",
    ),
    *[
        ("c.plain", block_with(("Nats-Incr", "1"), (key, value)), b"")
        for key, value in (
            *(("Nats-Rollup", "sub"), ("Nats-Rollup", ""), ("Nats-Expected-Stream", "c")),
            *(("Nats-Expected-Last-Msg-Id", "7"), ("Nats-Expected-Last-Sequence", "0")),
            *(("Nats-Expected-Last-Subject-Sequence", "1"), ("Nats-Expected-Last-Sequence", "x")),
            ("Nats-Expected-Last-Subject-Sequence-Subject", "c.x"),
        )
    ],
    ("c.plain", block_with(("Nats-Incr", "x"), ("Nats-Rollup", "sub")), b"x"),
    # A client can write what only the server should; it is taken at its word until it is not readable.
    (
        "c.noted",
        block_with(("Nats-Incr", "1"), ("Nats-Counter-Sources", '{"o":{"s":"5","r":"1"}, "<a&b>":{}}')),
        b"",
    ),
    ("c.noted", block_with(("Nats-Incr", "1")), b""),
    ("c.noted", block_with(("Nats-Counter-Sources", "x"), ("Nats-Incr", "1")), b""),
    ("c.noted", block_with(("Nats-Incr", "1"), ("Nats-Counter-Sources", '{"o":null}')), b""),
    *[
        (f"c.broken.{number}", block_with(("Nats-Incr", increment), *sources), b"")
        for number, text in enumerate(
            ("x", "[]", "null", "{}", '{"o":5}', '{"o":{"s":5}}', '{"o":{"s":null}}', '"')
        )
        for increment, sources in (("1", [("Nats-Counter-Sources", text)]), ("2", []))
    ],
    ("off.plain", block_with(("Nats-Incr", "1")), b""),
    ("off.plain", block_with(("Nats-Incr", "1")), b"x"),
    ("off.plain", block_with(("Nats-Incr", "x")), b""),
    ("off.plain", block_with(("Nats-Incr", "")), b""),
]


def test_increments_are_refused_added_and_acknowledged_as_the_server_does(client: RawClient) -> None:
    create(client, "c")
    create(client, "off", allow_msg_counter=False)
    last: dict[str, tuple[bytes, bytes]] = {}
    for subject, block, payload in STEPS:
        answer = client.ask(subject, block, payload).document
        counts = subject.startswith("c.")
        ours: Counted | ApiError | None = counters.refusal(block, len(payload), counts, sourced=False)
        if ours is None and counts:
            ours = counters.counted(subject.encode(), block, payload, last.get(subject))
        if isinstance(ours, ApiError):
            assert answer.get("error") == ours.document(), (subject, block[:200], answer)
            continue
        assert "error" not in answer, (subject, block[:200], answer)
        if ours is not None:
            assert answer["val"] == ours.value == counters.value_of(ours.payload)
            last[subject] = kept(client, "c", subject)
            assert last[subject] == (ours.block, ours.payload)
    # Steps were refused and steps were taken, or this compared nothing.
    assert counters.value_of(last["c.plain"][1]) == "-1" + "9" * 4999 + "2"


def test_totals_of_other_streams_are_added_once_and_noted(client: RawClient) -> None:
    """Two streams flow into a third that counts itself, too, and all of it into a fourth."""
    create(client, "one")
    create(client, "two")
    sources = [
        {"name": "one", "subject_transforms": [{"src": "one.a", "dest": "sum.a"}]},
        {"name": "two", "subject_transforms": [{"src": "two.*", "dest": "sum.a"}]},
    ]
    create(client, "sum", sources=sources)
    create(client, "again", sources=[{"name": "sum"}])
    steps = [
        ("one.a", "5"),
        ("two.a", "7"),
        ("two.b", "100"),
        ("one.a", "-3"),
        ("sum.a", "1000"),
        ("two.a", "1"),
    ]
    for subject, increment in steps:
        answer = client.ask(subject, block_with(("Own", "x"), ("Nats-Incr", increment))).document
        assert "error" not in answer, answer
    poll_messages(client, "sum", len(steps))
    poll_messages(client, "again", len(steps))
    for stream in ("sum", "again"):
        last: tuple[bytes, bytes] | None = None
        for seq in range(1, len(steps) + 1):
            message = client.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})["message"]
            block, payload = base64.b64decode(message["hdrs"]), base64.b64decode(message["data"])
            origin = headers.value(block, b"Nats-Stream-Source")
            arrived = block_with(("Own", "x"), ("Nats-Incr", "1000")), b""
            if origin:
                arrived = at_origin(client, origin)
            ours = counters.counted(message["subject"].encode(), *arrived, last)
            assert isinstance(ours, Counted)
            assert (ours.block, ours.payload) == (block, payload)
            last = (block, payload)
        assert last is not None and counters.value_of(last[1]) == "1110"


def at_origin(client: RawClient, origin: bytes) -> tuple[bytes, bytes]:
    """A sourced message as it arrived: what its stream has, and the header that says where it is from."""
    stream, seq, *_ = origin.decode().split(" ")
    message = client.api(f"STREAM.MSG.GET.{stream}", {"seq": int(seq)})["message"]
    block = base64.b64decode(message["hdrs"])
    # A message that had been sourced before gets the new header in the place of the old one.
    lines = [line for line in block.split(b"\r\n") if not line.startswith(b"Nats-Stream-Source:")]
    return headers.adding(b"\r\n".join(lines), b"Nats-Stream-Source", origin), base64.b64decode(
        message["data"]
    )


def poll_messages(client: RawClient, stream: str, count: int) -> None:
    """Ask until a stream has so many messages."""
    for _ in range(int(DEADLINE_S * 1000)):
        if client.api(f"STREAM.INFO.{stream}")["state"]["messages"] >= count:
            return
    raise AssertionError(f"{stream} does not fill")
