"""Atomic batches: what each member is answered, what is announced, and what a commit stores."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from edged.core import headers
from edged.core.atomic_batches import Abandoned, AtomicBatches, Commit, Rejected, Staged, ack_fields
from edged.core.batch_limits import BatchLimits, OpenBatches
from edged.core.frames import MORE
from edged.core.stream_machine import Refused, StreamMachine
from edged.core.wire import Publish
from edged.store.memory_log import MemoryLog
from edged.version import API_LEVEL
from tests.jetstream.jetstream_servers import SERVERS
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

IDLE_NS = 1_500_000_000
CONFIG = """jetstream: {
  store_dir: "${directory}/store"
  limits: {batch: {max_inflight_per_stream: 3, max_inflight_total: 4, max_msgs: 5, timeout: "1500ms"}}
}"""
LIMITS = BatchLimits(API_LEVEL).configured(3, 4, 5, IDLE_NS)
NUMBERS = itertools.count()
ADVISORY = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED"
STREAMS = ("one", "two", "off")


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """What our parts are compared with, and edged, which is made of them."""
    running = start_server(request.param, CONFIG, tmp_path_factory.mktemp("atomic"))
    yield running
    running.stop()


class Pair:
    """The server and our batches, given the same members."""

    def __init__(self, server: RunningServer) -> None:
        self.client = RawClient(server.host, server.port)
        self.client.subscribe(f"{ADVISORY}.>")
        self._open = OpenBatches()
        self.batches = {stream: AtomicBatches(LIMITS, self._open) for stream in STREAMS}
        # A stream made anew under its name can find messages of the old one there: names are not reused.
        number = next(NUMBERS)
        self.names = {stream: f"{stream}{number}" for stream in STREAMS}
        self.announced: list[tuple[str, Abandoned]] = []
        # What decides about a batch once it is complete.
        self.machines: dict[str, StreamMachine] = {}
        for stream, name in self.names.items():
            config = {"name": name, "subjects": [f"{name}.>"], "allow_atomic": stream != "off"}
            self.client.api(f"STREAM.CREATE.{name}", config)
            self.machines[stream] = StreamMachine(MemoryLog(), config)

    def close(self) -> None:
        for stream, name in self.names.items():
            self.client.api(f"STREAM.DELETE.{name}")
            self.batches[stream].close()
        assert self._open.atomic == self._open.staged_bytes == 0
        self.client.close()

    def send(self, stream: str, fields: dict[str, str], payload: bytes = b"") -> str:
        """One member to both; the kind of decision, once they were found to be the same."""
        block = headers.encode((key.encode(), value.encode()) for key, value in fields.items())
        name = self.names[stream]
        subject = f"{name}.member".encode()
        before = self.client.api(f"STREAM.INFO.{name}")["state"]["last_seq"]
        answer = self.client.ask(subject, block, payload)
        message: Publish = (subject, b"reply", len(block), block + payload)
        # Time stands still: the server's batches do not live long enough to expire, unless a test waits.
        decision = self.batches[stream].member(message, 0, stream != "off")
        if isinstance(decision, Staged):
            assert answer.payload == b""
        elif isinstance(decision, Rejected):
            expected = {"error": decision.error.document(), "stream": name, "seq": 0}
            assert answer.document == expected
            if decision.abandoned is not None:
                self.announced.append((name, decision.abandoned))
        else:
            outcome = self.machines[stream].append_run(
                0, decision.messages, 0, 0, range(len(decision.messages))
            )[-1]
            if isinstance(outcome, Refused):
                assert answer.document == {"error": outcome.error.document(), "stream": name, "seq": 0}
                return "Rejected"
            self._compare_commit(name, decision, before, answer.payload)
        return type(decision).__name__

    def _compare_commit(self, name: str, commit: Commit, before: int, answer: bytes) -> None:
        count = len(commit.messages)
        fields = ack_fields(commit.batch_id, count)
        assert answer == b'{"stream":"%b","seq":%d%b}' % (name.encode(), before + count, fields)
        assert [bool(message[2] & MORE) for message in commit.messages] == [True] * (count - 1) + [False]
        assert [message[1] for message in commit.messages] == [None] * (count - 1) + [b"reply"]
        for seq, (subject, _, header_bytes, data) in enumerate(commit.messages, before + 1):
            kept = self.client.api(f"STREAM.MSG.GET.{name}", {"seq": seq})["message"]
            assert kept["subject"] == subject.decode()
            assert base64.b64decode(kept["hdrs"]) == data[: header_bytes & ~MORE]
            assert base64.b64decode(kept.get("data", "")) == data[header_bytes & ~MORE :]

    def compare_advisories(self) -> None:
        """The server announced what we did, and nothing else."""
        theirs = []
        while len(theirs) < len(self.announced):
            theirs.append(advisory(self.client.receive().document))
        ours = [(stream, gone.batch_id.decode(), gone.reason) for stream, gone in self.announced]
        assert sorted(theirs) == sorted(ours)
        self.announced.clear()


def advisory(document: dict[str, Any]) -> tuple[str, str, str]:
    assert document["type"] == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
    return document["stream"], document["batch"], document["reason"]


@pytest.fixture
def pair(server: RunningServer) -> Iterator[Pair]:
    both = Pair(server)
    try:
        yield both
    finally:
        both.close()


def member(batch: str, sequence: int | str, commit: str | None = None, **more: str) -> dict[str, str]:
    fields = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(sequence)}
    if commit is not None:
        fields["Nats-Batch-Commit"] = commit
    return {**fields, **{key.replace("_", "-"): value for key, value in more.items()}}


def test_a_batch_is_committed_by_its_last_member_or_by_an_end(pair: Pair) -> None:
    kinds = [
        pair.send("one", member("a", 1), b"first"),
        pair.send("one", member("b", 1)),
        pair.send("one", member("a", 2), b"second"),
        pair.send("one", member("a", 3, "1"), b"third"),
        pair.send("one", member("b", 2), b"x"),
        pair.send("one", member("b", 3, "eob"), b"not stored"),
        pair.send("one", member("c", 1, "1")),
        pair.send("two", member('quoted " \\ \u00e4', 1, "1")),
    ]
    assert kinds == ["Staged"] * 3 + ["Commit", "Staged", "Commit", "Commit", "Commit"]


@pytest.mark.parametrize(
    "script",
    [
        [member("a", 2)],
        [member("a", 0)],
        [member("a", 0, "eob")],
        [member("a", 6)],
        [member("a", 6, "eob")],
        [member("a", 7, "eob")],
        [member("a", 1), member("a", 3), member("a", 2)],
        [member("a", 1), member("a", 1), member("a", 2)],
        [member("a", 1, "eob")],
        [member("a", 1), member("a", 2, "x"), member("a", 2)],
        [member("a", 1), member("a", 2, ""), member("a", 2)],
        [member("a", 1, "EOB"), member("a", 2)],
        [member("a", 5, "x")],
        [member("a", ""), member("a", "x"), member("a", "-1"), member("a", "+1"), member("a", "1 ")],
        [
            member("a", "18446744073709551615"),
            member("a", "18446744073709551616"),
            member("a", "0" * 30 + "1"),
        ],
        [member("x" * 64, 1), member("x" * 65, 1), {"Nats-Batch-Id": "a"}],
        [member("a", number) for number in range(1, 8)],
        [*(member("a", number) for number in range(1, 6)), member("a", 6, "eob")],
        [*(member("a", number) for number in range(1, 6)), member("a", 6, "1")],
        [member("a", 1, Nats_Required_Api_Level=level) for level in (*"05", "-9", "+5")],
        *[
            [member("a", 1), member("a", 2, Nats_Required_Api_Level=level), member("a", 3, "1")]
            for level in ("", "5", "6", "x", "5 ", "99999999999999999999", "-99999999999999999999")
        ],
        [member("a", 1), member("a", 2, "1", Nats_Expected_Last_Msg_Id="x")],
        [member("a", 1, Nats_Expected_Last_Msg_Id="x"), member("a", 2, "1")],
        [member("a", 1, Nats_Expected_Last_Msg_Id=""), member("a", 2, "1")],
        [
            member("a", 1, Nats_Msg_Id="7"),
            member("a", 2, Nats_Msg_Id="8"),
            member("a", 3, "1", Nats_Msg_Id="7"),
        ],
        [member("a", 1, Nats_Msg_Id="7"), member("a", 2, "1", Nats_Msg_Id="8")],
        [member(name, 1) for name in "abcd"],
    ],
)
def test_a_member_is_answered_as_by_the_server(pair: Pair, script: list[dict[str, str]]) -> None:
    for fields in script:
        pair.send("one", fields, b"body")
    pair.compare_advisories()


def test_a_stream_that_allows_no_batches_says_so_first(pair: Pair) -> None:
    assert pair.send("off", member("x" * 65, "x", "x")) == "Rejected"
    assert pair.send("off", member("a", 1)) == "Rejected"


def test_the_limit_of_the_server_counts_over_its_streams(pair: Pair) -> None:
    kinds = [
        *(pair.send("one", member(name, 1)) for name in "abc"),
        *(pair.send("two", member(name, 1)) for name in "de"),
        pair.send("one", member("a", 2, "1")),
        pair.send("two", member("e", 1)),
        pair.send("one", member("f", 1)),
    ]
    assert kinds == ["Staged"] * 4 + ["Rejected", "Commit", "Staged", "Rejected"]


def test_a_batch_that_idles_is_announced_and_forgotten(pair: Pair) -> None:
    pair.send("one", member("a", 1))
    batches = pair.batches["one"]
    assert batches.next_ns() == IDLE_NS
    assert batches.expired(IDLE_NS - 1) == []
    assert batches.expired(IDLE_NS) == [Abandoned(b"a", "timeout")]
    assert advisory(json.loads(pair.client.receive().payload)) == (pair.names["one"], "a", "timeout")
    assert pair.send("one", member("a", 2)) == "Rejected"
    assert pair.send("one", member("a", 1)) == "Staged"
