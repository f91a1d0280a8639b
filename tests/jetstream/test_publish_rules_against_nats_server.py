"""Publishing: which messages a stream takes, and what it holds afterwards, as nats-server does."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from itertools import combinations, count
from typing import Any

import pytest

from edged.core.stream_machine import Refused
from tests.jetstream.jetstream_servers import SERVERS
from tests.jetstream.publish_pair import Fields, PublishPair
from tests.jetstream.raw_client import RawClient
from tests.servers import RunningServer, start_server

pytestmark = pytest.mark.real

SERVER = 'jetstream: {store_dir: "${directory}/store"}'
_NUMBERS = count(1)


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """What our parts are compared with, and edged, which is made of them."""
    running = start_server(request.param, SERVER, tmp_path_factory.mktemp("publish"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[RawClient]:
    connected = RawClient(server.host, server.port)
    # The server removes its directory of streams with the last of them, while the next is being made.
    connected.api("STREAM.CREATE.stays", {"name": "stays", "subjects": ["stays"]})
    yield connected
    connected.close()


def pair_of(client: RawClient, **config: Any) -> PublishPair:
    name = f"s{next(_NUMBERS)}"
    return PublishPair(client, name=name, subjects=[f"{name}.>"], **config)


CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "everything": {"allow_rollup_hdrs": True, "allow_msg_ttl": True, "allow_atomic": True},
    "rollup without purge": {"allow_rollup_hdrs": False, "deny_purge": True, "allow_atomic": True},
    "few": {"max_msgs": 5, "allow_rollup_hdrs": True},
    "few bytes": {"max_bytes": 700, "allow_msg_ttl": True},
    "few of each": {"max_msgs_per_subject": 2, "allow_rollup_hdrs": True},
    "new refused": {"max_msgs": 6, "discard": "new", "allow_rollup_hdrs": True, "allow_atomic": True},
    "new bytes refused": {"max_bytes": 900, "discard": "new", "allow_rollup_hdrs": True},
    "key and value": {
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "max_bytes": 800,
        "max_msgs": 3,
        "allow_atomic": True,
    },
    "history": {"max_msgs_per_subject": 3, "discard": "new", "max_bytes": 1200, "allow_rollup_hdrs": True},
    "new of a subject refused": {
        "max_msgs_per_subject": 2,
        "discard": "new",
        "discard_new_per_subject": True,
        "allow_rollup_hdrs": True,
        "allow_atomic": True,
    },
    "small messages": {"max_msg_size": 120, "allow_rollup_hdrs": True},
    "counter": {"allow_msg_counter": True, "allow_rollup_hdrs": True},
    "schedules": {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True},
    "interest": {
        "retention": "interest",
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "allow_atomic": True,
    },
    "work": {"retention": "workqueue", "max_msgs": 4, "discard": "new"},
    "republished": {"republish": {"src": ">", "dest": "again.>"}, "max_msgs_per_subject": 2},
}

TTLS = ("1h", "3600", "never", "NEVER", "0", "00", "-1", "999ms", "1h0.5s", "x", "1h ", "+5h", "", "2", "1")
ROLLUPS = ("sub", "all", "SUB", "All", "x", "", "sub ", 'q"')
INCREMENTS = ("1", "+5", "-3", "x", "", "1.5", "0", "+", "99999999999999999999999")
WEIRD_NUMBERS = (
    "x",
    "",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "007",
    "1 ",
    "99999999999999999999999999",
)


class Sender:
    """Random messages, of which many are nearly right."""

    def __init__(self, pair: PublishPair, chance: random.Random) -> None:
        self._pair = pair
        self._chance = chance
        self.subjects = [f"{pair.name}.{tail}" for tail in ("a", "a.b", "c", "d.e.f")]

    def message(self) -> tuple[str, Fields, bytes]:
        chance = self._chance
        subject = chance.choice(self.subjects)
        fields: Fields = []
        for _ in range(chance.choice((0, 0, 1, 1, 1, 2, 3))):
            fields += self._field(subject)
        chance.shuffle(fields)
        payload = bytes(chance.choice((0, 0, 1, 10, 60, 200, 600)))
        if self._pair.config.get("allow_msg_counter") and any(key == "Nats-Incr" for key, _ in fields):
            payload = b""
        return subject, fields, payload

    def _field(self, subject: str) -> Fields:
        chance = self._chance
        kind = chance.randrange(12)
        value = ""
        if kind == 0:
            return [("Nats-Msg-Id", f"id{chance.randrange(12)}")]
        if kind == 1:
            return [("Nats-Expected-Stream", chance.choice((self._pair.name, self._pair.name, "other", "")))]
        if kind == 2:
            return [("Nats-TTL", self._ttl())]
        if kind == 3:
            return [("Nats-Expected-Last-Sequence", self._seq(self._pair.ours.machine.log.last_seq))]
        if kind in (4, 5):
            return self._expected_of_subject(subject)
        if kind == 6:
            return [
                ("Nats-Expected-Last-Msg-Id", chance.choice((self._last_id(), self._last_id(), "id1", "")))
            ]
        if kind == 7:
            return [("Nats-Rollup", chance.choice(ROLLUPS))]
        if kind == 8:
            return [("Nats-Incr", chance.choice(INCREMENTS))]
        if kind == 9:
            return self._schedule()
        if kind == 10:
            value = chance.choice((f"{self._pair.name} 5 > > x", ""))
            return [("Nats-Stream-Source", value)]
        return [("Other", "x" * chance.choice((1, 100))), ("nats-msg-id", "id1"), ("Nats-Msg-Id-", "id1")]

    def _ttl(self) -> str:
        """Not one that could be over before the test is."""
        ttl = self._chance.choice(TTLS)
        return "1h" if ttl in ("1", "2") else ttl

    def _last_id(self) -> str:
        return self._pair.ours.machine.last_message_id.decode()

    def _seq(self, right: int) -> str:
        chance = self._chance
        if chance.random() < 0.6:
            return str(right)
        return chance.choice((str(right + 1), "0", *WEIRD_NUMBERS))

    def _expected_of_subject(self, subject: str) -> Fields:
        chance = self._chance
        log = self._pair.ours.machine.log
        name = self._pair.name
        fields: Fields = []
        asked = subject
        if chance.random() < 0.4:
            asked = chance.choice(
                (f"{name}.>", f"{name}.*", f"{name}.a", ">", f"{name}..a", f"{name}.none", "")
            )
            fields.append(("Nats-Expected-Last-Subject-Sequence-Subject", asked))
        if chance.random() < 0.95:
            right = log.previous_matching(((asked or subject).encode(),), log.last_seq) or 0
            fields.append(("Nats-Expected-Last-Subject-Sequence", self._seq(right)))
        return fields

    def _schedule(self) -> Fields:
        chance = self._chance
        target = chance.choice((*self.subjects, "elsewhere", f"{self._pair.name}.*"))
        if chance.random() < 0.4:
            step = chance.choice(("purge", "purge", "later", ""))
            return [("Nats-Scheduler", chance.choice((*self.subjects, ""))), ("Nats-Schedule-Next", step)]
        pattern = chance.choice(("@at 2099-01-01T00:00:00Z", "@every 10h", "@bad", ""))
        return [("Nats-Schedule", pattern), ("Nats-Schedule-Target", target)]


def play(pair: PublishPair, chance: random.Random, steps: int, with_consumers: bool) -> None:
    """Publish, and now and then do something else. Without consumers nobody has interest."""
    sender = Sender(pair, chance)
    is_atomic = bool(pair.config.get("allow_atomic"))
    is_by_interest = pair.config["retention"] == "interest"
    consumers: set[int] = set()
    for _ in range(steps):
        kind = chance.random()
        log = pair.ours.machine.log
        if is_atomic and kind < 0.15:
            pair.publish_batch([sender.message() for _ in range(chance.choice((1, 2, 2, 3, 5)))])
        elif kind > 0.97 and not pair.config["deny_purge"]:
            purge(pair, chance, sender.subjects)
        elif kind > 0.94:
            pair.delete(chance.randrange(1, log.last_seq + 3))
        elif kind > 0.91 and is_by_interest and with_consumers:
            add_consumer(pair, chance, consumers)
        else:
            pair.publish(*sender.message())
        pair.compare()


def purge(pair: PublishPair, chance: random.Random, subjects: list[str]) -> None:
    request: dict[str, Any] = {}
    if chance.random() < 0.6:
        request["filter"] = chance.choice((*subjects, f"{pair.name}.>", f"{pair.name}.*", "nothing"))
    if chance.random() < 0.4:
        request["keep"] = chance.randrange(1, 4)
    elif chance.random() < 0.6:
        request["seq"] = chance.randrange(1, pair.ours.machine.log.last_seq + 4)
    pair.purge(**request)


def add_consumer(pair: PublishPair, chance: random.Random, consumers: set[int]) -> None:
    number = max(consumers, default=0) + 1
    consumers.add(number)
    name = pair.name
    pair.put_consumer(number, chance.choice(([], [f"{name}.a"], [f"{name}.*", f"{name}.d.>"])))


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize("title", CONFIGS)
def test_random_publishes_are_answered_and_kept_alike(
    server: RunningServer, client: RawClient, title: str, storage: str
) -> None:
    pair = pair_of(client, storage=storage, **CONFIGS[title])
    # edged has no consumers yet.
    with_consumers = server.name == "nats-server"
    play(pair, random.Random(f"{title} {storage}"), 150, with_consumers)
    pair.close()


# What is wrong with a message, one thing each; `%s` is the stream.
FAULTS: dict[str, Fields] = {
    "increment invalid": [("Nats-Incr", "x")],
    "increment": [("Nats-Incr", "1")],
    "stream": [("Nats-Expected-Stream", "other")],
    "ttl": [("Nats-TTL", "1h")],
    "ttl invalid": [("Nats-TTL", "x")],
    "last seq of subject": [("Nats-Expected-Last-Subject-Sequence", "77")],
    "subject only": [("Nats-Expected-Last-Subject-Sequence-Subject", "%s.a")],
    "last seq": [("Nats-Expected-Last-Sequence", "88")],
    "schedule": [("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "%s.z")],
    "scheduler": [("Nats-Scheduler", "%s.z")],
    "source": [("Nats-Stream-Source", "x 1 > > y")],
    "id": [("Nats-Msg-Id", "known")],
    "last id": [("Nats-Expected-Last-Msg-Id", "unknown")],
    "rollup": [("Nats-Rollup", "sub")],
    "rollup invalid": [("Nats-Rollup", "x")],
    "header": [("Other", "x" * 65_600)],
    "size": [],
    "none": [],
}
LARGE_BYTES = 80_000
FAULTY_CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {"max_msgs": 2, "discard": "new"},
    "counter": {"allow_msg_counter": True},
    "rollup and ttl": {"allow_rollup_hdrs": True, "allow_msg_ttl": True},
    "schedules": {"allow_msg_schedules": True, "allow_msg_ttl": True},
    "sealed": {"sealed": True},
    "interest": {"retention": "interest", "max_msgs": 2, "discard": "new"},
    "batches": {"allow_atomic": True, "allow_msg_ttl": True, "max_msgs": 3, "discard": "new"},
}


@pytest.mark.parametrize("title", FAULTY_CONFIGS)
def test_of_two_faults_the_same_one_is_named(client: RawClient, title: str) -> None:
    config = dict(FAULTY_CONFIGS[title])
    is_sealed = config.pop("sealed", False)
    is_counter = config.get("allow_msg_counter", False)
    pair = pair_of(client, storage="memory", max_msg_size=LARGE_BYTES - 1, **config)
    first: Fields = [("Nats-Msg-Id", "known")]
    pair.publish(f"{pair.name}.a", [*first, ("Nats-Incr", "1")] if is_counter else first)
    pair.publish(f"{pair.name}.b", [("Nats-Incr", "1")] if is_counter else [])
    if is_sealed:
        pair.update(sealed=True)
    answers = set()
    for one, other in combinations(FAULTS, 2):
        fields = [(key, value.replace("%s", pair.name)) for key, value in FAULTS[one] + FAULTS[other]]
        payload = bytes(LARGE_BYTES) if "size" in (one, other) else b""
        if config.get("allow_atomic") and not payload:
            answer = pair.publish_batch([(f"{pair.name}.c", [], b""), (f"{pair.name}.d", fields, b"")])
        else:
            answer = pair.publish(f"{pair.name}.c", fields, payload)
        answers.add(answer.get("error", {}).get("err_code"))
        pair.compare()
    assert is_sealed or len(answers) >= 8, answers
    pair.close()


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_changed_limits_take_effect_at_once(client: RawClient, storage: str) -> None:
    pair = pair_of(client, storage=storage)
    sender = Sender(pair, random.Random(7))
    for number in range(40):
        pair.publish(sender.subjects[number % 4], [], bytes(number))
    for change in (
        {"max_msgs_per_subject": 8},
        {"max_msgs": 25},
        {"max_bytes": 1300},
        {"discard": "new", "max_msgs": 10},
        {"max_msgs_per_subject": 2},
        {"discard": "old"},
        {"max_msg_size": 3},
    ):
        pair.update(**change)
        pair.compare()
        for number in range(3):
            pair.publish(sender.subjects[number], [], bytes(number))
            pair.compare()
    pair.close()


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_last_message_of_a_subject_leaves_a_marker_when_it_is_too_old(
    client: RawClient, storage: str
) -> None:
    pair = pair_of(
        client,
        storage=storage,
        allow_msg_ttl=True,
        subject_delete_marker_ttl=3600_000_000_000,
        max_age=10**12,
    )
    name = pair.name
    pair.update(subject_delete_marker_ttl=1_000_000_000)
    pair.publish(f"{name}.one", [("Nats-TTL", "1")])
    pair.publish(f"{name}.two", [])
    pair.publish(f"{name}.two", [("Nats-TTL", "1")])
    pair.publish(f"{name}.gone", [("Nats-TTL", "1"), ("KV-Operation", "PURGE")])
    pair.update(subject_delete_marker_ttl=3600_000_000_000)
    deadline = time.monotonic() + 15
    # There are two messages once before, too, when the marker is still to come.
    while (state := client.api(f"STREAM.INFO.{name}")["state"])["messages"] != 2 or state["last_seq"] != 5:
        assert time.monotonic() < deadline
    machine = pair.ours.machine
    command = machine.expired(time.time_ns() + 2_000_000_000)
    assert command is not None
    pair.ours.apply(command)
    pair.ours.restart()
    markers = pair.ours.machine.delete_markers(10)
    assert pair.ours.append(markers) == [5]
    pair.compare()
    request = {"last_by_subj": f"{name}.one"}
    found = client.api(f"STREAM.MSG.GET.{name}", request)["message"]
    ours = pair.ours.machine.log.get(5)
    assert ours is not None and base64.b64decode(found["hdrs"]) == ours.data
    # A marker for a subject that has a message again is not needed.
    (subject, reply, header_bytes, block) = markers[0]
    (outcome,) = pair.ours.append([(subject, reply, header_bytes, block)])
    assert isinstance(outcome, Refused)
    pair.close()
