"""Fast batches: every message that the server sends, in its order and to the byte."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from edged.core import fast_requests, headers
from edged.core.api_errors import STREAM_NOT_MATCH, ApiError
from edged.core.atomic_batches import ack_fields
from edged.core.batch_limits import BatchLimits, OpenBatches
from edged.core.fast_batches import Acknowledge, Effect, FastBatches, Refuse, Send, Submit
from edged.version import API_LEVEL
from tests.jetstream.jetstream_servers import SERVERS
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

CONFIG = """jetstream: {
  store_dir: "${directory}/store"
  limits: {batch: {max_inflight_per_stream: 4, max_inflight_total: 5, timeout: "1500ms"}}
}"""
IDLE_NS = 1_500_000_000
NUMBERS = itertools.count()
LIMITS = BatchLimits(API_LEVEL).configured(4, 5, 0, IDLE_NS)


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """What our parts are compared with, and edged, which is made of them."""
    running = start_server(request.param, CONFIG, tmp_path_factory.mktemp("fast"))
    yield running
    running.stop()


@dataclass
class Model:
    """A stream as far as it matters here: it knows message ids and refuses what is for another stream."""

    name: str
    batches: FastBatches
    last_seq: int = 0
    ids: dict[bytes, int] = field(default_factory=dict)
    sent: list[tuple[bytes, bytes]] = field(default_factory=list)

    def publish(self, reply: bytes, block: bytes, now_ns: int = 0) -> None:
        request = fast_requests.parse(reply)
        message = (b"x", reply, len(block) or -1, block)
        effects = self.batches.arrived(
            request, message, now_ns, refusable=bool(block), allowed=not self.name.startswith("off")
        )
        self._carry_out(effects)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append((effect.reply, effect.body))
            elif isinstance(effect, Acknowledge):
                fields = ack_fields(effect.batch_id, effect.count)
                known = b',"duplicate": true' if effect.duplicate else b""
                ack = b'{"stream":"%b","seq":%d%b%b}' % (self.name.encode(), effect.seq, known, fields)
                self.sent.append((effect.reply, ack))
            elif isinstance(effect, Refuse):
                self.sent.append((effect.reply, error_body(effect.error, self.name)))
            else:
                self._carry_out(self._outcome(effect))

    def _outcome(self, submit: Submit) -> list[Effect]:
        block = submit.message[3]
        if headers.value(block, b"Nats-Expected-Stream"):
            return self.batches.refused(submit, STREAM_NOT_MATCH)
        message_id = headers.value(block, b"Nats-Msg-Id")
        if message_id in self.ids:
            return self.batches.duplicate(submit, self.ids[message_id])
        self.last_seq += 1
        if message_id:
            self.ids[message_id] = self.last_seq
        return self.batches.stored(submit, self.last_seq)


def error_body(error: ApiError, stream: str) -> bytes:
    text = '{"error":{"code":%d,"err_code":%d,"description":"%s"},"stream":"%s","seq":0}'
    return (text % (error.code, error.err_code, error.description, stream)).encode()


class Pair:
    """The server and our batches, given the same messages."""

    def __init__(self, server: RunningServer) -> None:
        self.client = RawClient(server.host, server.port)
        self.open = OpenBatches()
        # A stream made anew under its name can find messages of the old one there: names are not reused.
        number = next(NUMBERS)
        self.models = {
            name: Model(f"{name}{number}", FastBatches(LIMITS, self.open)) for name in ("one", "two", "off")
        }
        for name, model in self.models.items():
            config = {"name": model.name, "subjects": [f"{model.name}.>"], "allow_batched": name != "off"}
            self.client.api(f"STREAM.CREATE.{model.name}", config)

    def close(self) -> None:
        for model in self.models.values():
            self.client.api(f"STREAM.DELETE.{model.name}")
            model.batches.close()
        assert self.open.fast == self.open.staged_bytes == 0
        self.client.close()

    def send(self, step: str, stream: str = "one") -> None:
        """`id.flow.mode.place.operation`, then after a blank the header: `id...`, `bad` or a level."""
        reply_text, _, kind = step.partition(" ")
        reply = b"R.f." + reply_text.encode() + b".$FI"
        block = b""
        if kind == "bad":
            block = headers.encode([(b"Nats-Expected-Stream", b"other")])
        elif kind.startswith("id"):
            block = headers.encode([(b"Nats-Msg-Id", kind.encode())])
        elif kind:
            block = headers.encode([(b"Nats-Required-Api-Level", kind.encode())])
        self.client.publish(self.models[stream].name.encode() + b".x", block, b"", reply)
        self.models[stream].publish(reply, block)

    def compare(self, stream: str = "one") -> list[bytes]:
        """What the stream has sent so far; the same from both."""
        model = self.models[stream]
        arrived = self.client.until_fence(model.name.encode() + b".fence")
        theirs = [(one.subject, one.payload) for one in arrived]
        model.last_seq += 1
        assert theirs == model.sent
        model.sent = []
        return [body for _, body in theirs]


@pytest.fixture
def pair(server: RunningServer) -> Iterator[Pair]:
    both = Pair(server)
    yield both
    both.close()


def run(first: int, last: int, mode: str = "fail", flow: int = 3, batch: str = "a") -> list[str]:
    """Messages of a batch from one place to another."""
    return [f"{batch}.{flow}.{mode}.{place}.{int(place > 1)}" for place in range(first, last + 1)]


SCRIPTS = [
    [*run(1, 10), "a.3.fail.11.2"],
    [*run(1, 10), "a.3.fail.11.3"],
    [*run(1, 9), "a.3.fail.10.3"],
    ["a.3.fail.1.2"],
    ["a.3.ok.1.2"],
    ["a.1.fail.1.0", "a.1.fail.2.3"],
    [*run(1, 3, flow=0), *run(4, 30, flow=0), "a.0.fail.31.3"],
    [*run(1, 700, flow=65536), "a.1.fail.701.3"],
    # Gaps, forwards and backwards, and what comes after the batch has ended.
    [*run(1, 4), *run(6, 8)],
    [*run(1, 4, "ok"), *run(6, 9, "ok"), "a.3.ok.10.3"],
    [*run(1, 4, "ok"), *run(3, 5, "ok")],
    [*run(1, 4), "a.3.fail.4.1", "a.3.fail.5.1"],
    [*run(1, 4), "a.3.fail.1.0"],
    [*run(1, 4), "a.3.fail.9.3"],
    [*run(1, 4, "ok"), "a.3.ok.9.3"],
    [*run(1, 4), "a.3.fail.9.2"],
    [*run(1, 4, "ok"), "a.3.ok.9.2"],
    [*run(1, 2), "a.3.ok.9.1"],
    ["a.3.fail.2.1", "a.3.fail.2.2", "a.3.fail.2.3", "a.3.fail.2.4"],
    # Pings.
    [*run(1, 7), "a.3.fail.7.4", "a.3.fail.1.4", *run(8, 8), "a.3.fail.8.4", "a.3.fail.9.4", "a.3.fail.9.1"],
    [*run(1, 7, "ok"), "a.3.ok.9.4", "a.3.ok.30.4", *run(31, 32, "ok"), "a.3.ok.33.3"],
    [*run(1, 2, "ok"), "a.3.ok.3.4", "a.3.ok.4.3"],
    ["a.3.ok.1.4", "a.3.ok.2.1", "a.3.ok.3.3"],
    ["a.3.fail.1.4", "a.3.fail.2.1"],
    # Refused messages.
    ["a.3.fail.1.0 bad", *run(2, 3)],
    ["a.3.ok.1.0 bad", *run(2, 7, "ok"), "a.3.ok.8.3"],
    ["a.3.fail.1.2 bad", "a.3.fail.1.0"],
    ["a.3.ok.1.2 bad", "a.3.ok.1.0"],
    [*run(1, 4), "a.3.fail.5.1 bad", *run(6, 8)],
    [*run(1, 4, "ok"), "a.3.ok.5.1 bad", *run(6, 8, "ok"), "a.3.ok.9.3"],
    [*run(1, 4), "a.3.fail.5.2 bad"],
    [*run(1, 4, "ok"), "a.3.ok.5.2 bad"],
    [*run(1, 4, "ok"), "a.3.ok.5.1 bad", "a.3.ok.5.4", "a.3.ok.6.3"],
    [*run(1, 4), "a.3.ok.5.1 bad", *run(6, 7), "a.3.fail.8.3"],
    [*run(1, 4, "ok"), "a.3.fail.5.1 bad", *run(6, 7, "ok")],
    # Messages that are there already.
    ["a.3.fail.1.0 id1", "a.3.fail.2.1 id1", "a.3.fail.3.1 id2", "a.3.fail.4.2 id2"],
    ["a.1.fail.1.2 id1", "b.1.fail.1.2 id1", "c.1.ok.1.2 id1"],
    ["a.9.fail.1.2 id1", "b.9.fail.1.2 id1", "c.9.ok.1.2 id1"],
    ["a.9.fail.1.2 id1", "b.9.fail.1.0 id1", "b.9.fail.2.1 id1", "b.9.fail.3.3"],
    ["a.2.fail.1.0 id1", *(f"a.2.fail.{place}.1 id1" for place in range(2, 8)), "a.2.fail.8.3"],
    # Levels.
    [*run(1, 2), "a.3.fail.3.1 5", "a.3.fail.4.1 6", *run(5, 5)],
    ["a.3.fail.1.0 x", "a.3.fail.1.0 0", "a.3.fail.2.3"],
    # Several batches share the flow.
    [
        *run(1, 4, flow=400),
        *run(1, 40, flow=400, batch="b"),
        *run(5, 9, flow=400),
        "b.400.fail.41.3",
        "a.9.ok.10.3",
    ],
    [*run(1, 1, flow=9), *run(1, 40, "ok", 300, "b"), *run(1, 40, "ok", 300, "c"), *run(2, 9, flow=9)],
    [f"{name}.3.fail.1.0" for name in "abcdef"],
    # Not rightly formed.
    *[
        [reply]
        for reply in (
            *("x", "a.3.fail.1.5", "a.3.fail.1.x", "a.3.fail.1.-1", "a.3.fail.0.0"),
            *("a.3.fail.1.1", "a.3.fail.1.3", "a.3.fail.2.0", "a.3.no.1.0", "a.3.FAIL.1.0"),
            *(
                "a.3.fail.18446744073709551615.1",
                "a.3.fail.18446744073709551614.1",
                "a.3.fail.x.1",
                "a.x.ok.1.0",
            ),
            *("a.-5.ok.1.0", "a.0.ok.1.0", "a.65535.ok.1.0", "a.70000.ok.1.0", "a.03.ok.01.00"),
            *("x" * 64 + ".3.ok.1.0", "x" * 65 + ".3.ok.1.0", "3.ok.1.0", "ok.1.0", "1.0"),
        )
    ],
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_server_and_our_batches_send_the_same(pair: Pair, script: list[str]) -> None:
    for step in script:
        pair.send(step)
    pair.compare()


def random_script(seed: int) -> list[str]:
    """Batches side by side, with gaps, refusals, duplicates, pings and ends wherever chance has it.

    No place comes again when gaps are allowed: there the server can forget to end the batch.
    """
    chance = random.Random(seed)
    modes = {batch: chance.choice(["ok", "fail"]) for batch in "abc"}
    places = dict.fromkeys(modes, 1)
    script = []
    for _ in range(chance.randrange(1, 40)):
        batch = chance.choice("abc")
        place = places[batch] + chance.choices([0, 1, 2, -1], [20, 1, 1, modes[batch] == "fail"])[0]
        place = max(place, 1)
        operation = chance.choices([int(place > 1), 2, 3 if place > 1 else 0, 4], [20, 1, 1, 2])[0]
        kind = chance.choice(
            ["", "", "", "", "", " bad", f" id{chance.randrange(4)}", " 6" if chance.random() < 0.2 else ""]
        )
        script.append(f"{batch}.{chance.choice([1, 2, 3, 7])}.{modes[batch]}.{place}.{operation}{kind}")
        if operation != 4:
            places[batch] = 1 if operation in (2, 3) else place + 1
    return script


@pytest.mark.parametrize("seed", range(40))
def test_random_scripts_are_answered_the_same(pair: Pair, seed: int) -> None:
    script = random_script(seed)
    for step in script:
        pair.send(step)
    pair.compare()


def test_the_last_message_ends_the_batch_with_an_acknowledgement_of_all(pair: Pair) -> None:
    for step in [*run(1, 3), "a.3.fail.4.2"]:
        pair.send(step)
    assert pair.compare() == [
        b'{"type":"ack","seq":0,"msgs":3}',
        b'{"type":"ack","seq":3,"msgs":3}',
        b'{"stream":"%b","seq":4,"batch":"a","count":4}' % pair.models["one"].name.encode(),
    ]


def test_a_stream_that_allows_no_fast_batches_says_so_first(pair: Pair) -> None:
    pair.send("x" * 65 + ".3.ok.1.0", "off")
    pair.send("wrong", "off")
    assert len(pair.compare("off")) == 2


def test_the_limit_of_the_server_counts_over_its_streams(pair: Pair) -> None:
    for name in "abc":
        pair.send(f"{name}.3.fail.1.0")
        pair.compare()
    for name in "def":
        pair.send(f"{name}.3.fail.1.0", "two")
        pair.compare("two")
    pair.send("a.3.fail.2.3")
    pair.compare()
    pair.send("f.3.fail.1.0", "two")
    assert b'"type":"ack"' in pair.compare("two")[0]


def test_a_batch_that_idles_is_forgotten_in_silence(pair: Pair) -> None:
    pair.send("a.3.fail.1.0")
    pair.compare()
    batches = pair.models["one"].batches
    assert batches.next_ns() == IDLE_NS
    assert batches.expired(IDLE_NS - 1) == 0
    assert batches.expired(IDLE_NS) == 1 and batches.next_ns() is None
    # An atomic batch with the same time limit says when that time is over, and started later.
    name = pair.models["two"].name
    update = {"name": name, "subjects": [f"{name}.>"], "allow_batched": True, "allow_atomic": True}
    pair.client.api(f"STREAM.UPDATE.{name}", update)
    pair.client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.{name}")
    clock = headers.encode([(b"Nats-Batch-Id", b"clock"), (b"Nats-Batch-Sequence", b"1")])
    pair.client.ask(f"{name}.x", clock)
    assert pair.client.receive().document["reason"] == "timeout"
    pair.send("a.3.fail.2.1")
    assert b"10208" in pair.compare()[0]
