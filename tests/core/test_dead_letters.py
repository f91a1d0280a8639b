"""Dead letters: when one is owed, what the stream keeps for it, what it looks like, and where it may go."""

from __future__ import annotations

from typing import Any

import pytest

from edged.core import headers
from edged.core.api_errors import ApiFailure
from edged.core.commands import (
    ACK,
    ACK_ALL,
    GIVEN_UP,
    TERM,
    Ack,
    Dispatch,
    LettersTaken,
    Purge,
    PutConsumer,
    RemoveConsumer,
    ResetConsumer,
    Terminate,
)
from edged.core.dead_letter_message import TEXT_BYTES_MAX, letter_id, letter_message, letter_text
from edged.core.dead_letters import DEAD_LETTER, OWED_MAX, DeadLetter, DeadLetters
from edged.core.message import Message
from edged.core.publish_rules import HEADER_BYTES_MAX
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig
from edged.core.stream_machine import StreamMachine
from edged.core.stream_rules import check_create
from edged.store.memory_log import MemoryLog

NOW_NS = 1_800_000_000 * 10**9
STREAM_ID = bytes(range(16))
WITH_LETTERS: dict[str, Any] = {"metadata": {DEAD_LETTER: "dead"}}


def stream(count: int = 5, **config: Any) -> StreamMachine:
    machine = StreamMachine(MemoryLog(), {"name": "S", "subjects": ["s"], **WITH_LETTERS, **config})
    if machine.rules.is_by_interest:
        consumer(machine)
    for _ in range(count):
        machine.append_run(NOW_NS, [(b"s", None, -1, b"")], 0, 0, [0])
    return machine


def consumer(machine: StreamMachine, number: int = 1, **config: Any) -> None:
    config = {"ack_policy": "explicit", "max_deliver": 2, **config}
    machine.apply(PutConsumer(number, f"c{number}", config))


def deliver(machine: StreamMachine, *seqs: int, number: int = 1, times: int = 1) -> None:
    found = machine.consumers[number]
    for time in range(times):
        first = found.hand_out(seqs, NOW_NS) if time == 0 else found.hand_out_again(seqs, NOW_NS + time)
        machine.apply(Dispatch(number, NOW_NS + time, seqs, first))


def owed(machine: StreamMachine) -> list[tuple[int, int, bytes, str, int]]:
    letters = machine.letters.owed.values()
    return [(one.consumer, one.seq, one.reason, one.text, one.deliveries) for one in letters]


def kept(machine: StreamMachine) -> list[int]:
    return [seq for seq in range(1, machine.log.last_seq + 1) if machine.log.has(seq)]


# --- when one is owed ---


def test_a_message_that_was_delivered_as_often_as_may_be_is_owed_until_it_is_taken() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1, 2, times=2)
    machine.apply(Ack(1, GIVEN_UP, (1, 2)))
    assert owed(machine) == [(1, 1, b"max_deliver", "", 2), (1, 2, b"max_deliver", "", 2)]
    assert machine.apply(LettersTaken(1, (1, 3))) == 1
    assert owed(machine) == [(1, 2, b"max_deliver", "", 2)]


def test_a_message_that_is_terminated_is_owed_with_what_the_client_said() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1, 2)
    machine.apply(Ack(1, TERM, (1,)))
    machine.apply(Terminate(1, 2, "broken"))
    assert owed(machine) == [(1, 1, b"terminated", "", 1), (1, 2, b"terminated", "broken", 1)]
    assert not machine.consumers[1].pending


@pytest.mark.parametrize("kind", [ACK, ACK_ALL])
def test_an_acknowledged_message_is_not(kind: int) -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1)
    machine.apply(Ack(1, kind, (1,)))
    machine.apply(Ack(1, GIVEN_UP, (1,)))
    machine.apply(Ack(1, TERM, (1,)))
    assert owed(machine) == []


def test_a_message_that_was_given_up_and_is_terminated_late_is_owed_once() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1, times=2)
    machine.apply(Ack(1, GIVEN_UP, (1,)))
    machine.apply(LettersTaken(1, (1,)))
    machine.apply(Terminate(1, 1, "late"))
    assert owed(machine) == []


def test_a_message_that_is_gone_or_cannot_be_read_is_not_owed() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1, 2)
    machine.log.remove(1)
    # There were not deliveries enough: it was given up because it cannot be read.
    machine.apply(Ack(1, GIVEN_UP, (1, 2)))
    assert owed(machine) == []


def test_each_consumer_has_its_own_letter_and_a_stream_without_the_option_none() -> None:
    machine = stream()
    for number in (1, 2):
        consumer(machine, number)
        deliver(machine, 1, number=number)
        machine.apply(Ack(number, TERM, (1,)))
    assert list(machine.letters.owed) == [(1, 1), (2, 1)]
    plain = stream(metadata={})
    consumer(plain)
    deliver(plain, 1)
    plain.apply(Terminate(1, 1, "x"))
    assert (owed(plain), plain.consumers[1].pending) == ([], {})


def test_a_letter_stays_owed_when_its_consumer_or_its_message_goes() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1)
    machine.apply(Ack(1, TERM, (1,)))
    machine.apply(RemoveConsumer(1))
    machine.apply(Purge(0, b"", 0))
    assert list(machine.letters.owed) == [(1, 1)]
    assert machine.apply(LettersTaken(1, (1,))) == 1


# --- what the stream keeps ---


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_terminated_message_stays_until_its_letter_is_taken(retention: str) -> None:
    machine = stream(retention=retention)
    consumer(machine)
    deliver(machine, 1, 2, 3)
    machine.apply(Ack(1, TERM, (2,)))
    machine.apply(Ack(1, ACK, (1, 3)))
    assert kept(machine) == [2, 4, 5]
    machine.apply(LettersTaken(1, (2,)))
    assert kept(machine) == [4, 5]


def test_a_message_that_was_given_up_stays_after_its_letter_was_taken_until_somebody_settles_it() -> None:
    machine = stream(retention="workqueue")
    consumer(machine)
    deliver(machine, 1, 2, times=2)
    machine.apply(Ack(1, GIVEN_UP, (1, 2)))
    machine.apply(Ack(1, ACK, (2,)))
    machine.apply(LettersTaken(1, (1, 2)))
    assert kept(machine) == [1, 3, 4, 5]


def test_what_others_want_is_kept_for_them() -> None:
    machine = stream(retention="interest")
    consumer(machine, 2)
    deliver(machine, 1)
    machine.consumers[2].start_at(1)
    machine.apply(Ack(1, TERM, (1,)))
    machine.apply(LettersTaken(1, (1,)))
    assert kept(machine) == [1, 2, 3, 4, 5]


def test_a_consumer_that_goes_does_not_take_messages_with_it_whose_letters_are_owed() -> None:
    machine = stream(retention="interest")
    deliver(machine, 1, 2, 3)
    machine.apply(Ack(1, TERM, (2,)))
    machine.apply(RemoveConsumer(1))
    assert kept(machine) == [2]
    machine.apply(LettersTaken(1, (2,)))
    assert kept(machine) == []


def test_without_the_option_nothing_is_owed_and_nothing_kept_any_more() -> None:
    machine = stream(retention="workqueue")
    consumer(machine)
    deliver(machine, 1)
    machine.apply(Ack(1, TERM, (1,)))
    machine.configure({"name": "S", "subjects": ["s"], "retention": "workqueue"})
    assert (owed(machine), kept(machine)) == ([], [2, 3, 4, 5])


# --- checkpoints ---


def test_what_is_owed_and_what_waits_for_it_is_in_a_checkpoint() -> None:
    machine = stream(retention="workqueue")
    consumer(machine)
    deliver(machine, 1, 2)
    machine.apply(Terminate(1, 1, "text"))
    restored = StreamMachine(machine.log, {"name": "S", "retention": "workqueue", **WITH_LETTERS})
    restored.restore(machine.snapshot())
    assert restored.letters.owed == machine.letters.owed
    assert list(restored.letters.fresh) == [(1, 1)]
    restored.apply(LettersTaken(1, (1,)))
    assert kept(restored) == [2, 3, 4, 5]
    assert "dead_letters" not in restored.snapshot()


def test_letters_of_a_consumer_in_memory_are_in_no_checkpoint() -> None:
    machine = stream()
    consumer(machine, mem_storage=True)
    deliver(machine, 1)
    machine.apply(Ack(1, TERM, (1,)))
    (letter,) = machine.letters.owed.values()
    assert machine.letters.is_volatile(letter)
    assert "dead_letters" not in machine.snapshot()


def test_there_is_a_bound() -> None:
    letters = DeadLetters()
    for seq in range(OWED_MAX - 1):
        letters.owe(DeadLetter(1, "c", seq, TERM, "", 1, 0, 0, 0), is_volatile=False)
    assert not letters.is_full
    letters.owe(DeadLetter(1, "c", OWED_MAX, TERM, "", 1, 0, 0, 0), is_volatile=False)
    assert letters.is_full


# --- what it looks like ---


def test_id_does_not_change_while_the_message_comes_again_and_does_after_a_reset() -> None:
    machine = stream()
    consumer(machine)
    deliver(machine, 1)
    ids = set()
    for time in range(2):
        machine.consumers[1].hand_out_again((1,), NOW_NS + 100 + time)
        copy = StreamMachine(machine.log, {"name": "S", **WITH_LETTERS})
        copy.restore(machine.snapshot())
        copy.apply(Ack(1, TERM, (1,)))
        ids.add(letter_id(copy.letters.owed[1, 1], STREAM_ID))
    assert len(ids) == 1
    machine.apply(ResetConsumer(1, 1))
    deliver(machine, 1)
    machine.apply(Ack(1, TERM, (1,)))
    assert letter_id(machine.letters.owed[1, 1], STREAM_ID) not in ids


def message(*fields: tuple[bytes, bytes]) -> Message:
    block = headers.encode(fields) if fields else b""
    return Message(7, NOW_NS, b"s.x", len(block), block + b"payload")


def test_letter_has_the_headers_and_the_payload_of_its_message() -> None:
    letter = DeadLetter(3, "c", 7, TERM, "why", 4, NOW_NS, 9, 1)
    fields = [(b"A", b"1"), (b"Nats-Rollup", b"all"), (b"nats-ttl", b"1s"), (b"Edged-Dead-Letter-Seq", b"1")]
    block, payload = letter_message(letter, STREAM_ID, "S", message(*fields))
    assert payload == b"payload"
    assert block.split(b"\r\n") == [
        b"NATS/1.0",
        b"Nats-Msg-Id: dead-letter-000102030405060708090a0b0c0d0e0f-3-1-7-9",
        b"Edged-Dead-Letter-Reason: terminated",
        b"Edged-Dead-Letter-Stream: S",
        b"Edged-Dead-Letter-Consumer: c",
        b"Edged-Dead-Letter-Sequence: 7",
        b"Edged-Dead-Letter-Deliveries: 4",
        b"Edged-Dead-Letter-Text: why",
        b"Edged-Dead-Letter-Delivered: 2027-01-15T08:00:00Z",
        b"Edged-Dead-Letter-Subject: s.x",
        b"Edged-Dead-Letter-Time: 2027-01-15T08:00:00Z",
        b"A: 1",
        b"Edged-Original-Nats-Rollup: all",
        b"Edged-Original-nats-ttl: 1s",
        b"Edged-Original-Edged-Dead-Letter-Seq: 1",
        b"",
        b"",
    ]


def test_letter_of_a_message_that_is_gone_says_so() -> None:
    letter = DeadLetter(3, "c", 7, GIVEN_UP, "", 4, 0, 0, 0)
    block, payload = letter_message(letter, STREAM_ID, "S", None)
    assert headers.value(block, b"Edged-Dead-Letter-Missing") == b"true"
    assert headers.value(block, b"Edged-Dead-Letter-Subject") is None
    assert payload == b""


def test_headers_that_no_stream_would_take_are_left_out() -> None:
    letter = DeadLetter(3, "c", 7, GIVEN_UP, "", 4, 0, 0, 0)
    block, payload = letter_message(letter, STREAM_ID, "S", message((b"A", b"a" * (HEADER_BYTES_MAX - 20))))
    assert headers.value(block, b"Edged-Dead-Letter-Headers") == b"too large"
    assert (headers.value(block, b"A"), payload) == (None, b"payload")


def test_what_a_client_says_is_one_line() -> None:
    assert letter_text(b" a\r\nNats-Rollup: all\x00\x7f") == "a Nats-Rollup: all"
    assert letter_text(b"\xff\xe4ok") == "ok"
    assert len(letter_text(b"x" * 5000)) == TEXT_BYTES_MAX


# --- where it may go ---


def config_of(name: str, dead: str | None = None, **fields: Any) -> StreamConfig:
    metadata = {} if dead is None else {DEAD_LETTER: dead}
    return StreamConfig.stored(
        {"name": name, "subjects": [f"{name.lower()}.>"], "metadata": metadata, **fields}
    )


def refused(config: StreamConfig, *others: StreamConfig) -> str:
    try:
        check_create(config, StreamBounds(), {other.name: other for other in others})
    except ApiFailure as failure:
        assert failure.error.err_code == 10052
        return failure.error.description
    return ""


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("", "must be a subject without wildcards"),
        ("a..b", "must be a subject without wildcards"),
        ("a b", "must be a subject without wildcards"),
        ("dead.*", "must be a subject without wildcards"),
        ("dead.>", "must be a subject without wildcards"),
        ("$JS.API.INFO", "must not be a subject of the server"),
        ("$SYS.REQ.USER.INFO", "must not be a subject of the server"),
        ("a.dead", "must not be a subject of the stream itself"),
    ],
)
def test_subject_that_cannot_be_is_refused(subject: str, words: str) -> None:
    assert refused(config_of("A", subject)) == f"{DEAD_LETTER} {words}"


def test_letters_go_to_another_stream_or_to_nobody_yet() -> None:
    assert refused(config_of("A", "dead.a")) == ""
    assert refused(config_of("A", "d.a"), config_of("D"), config_of("B", "d.b")) == ""
    assert refused(config_of("A", "d.a"), config_of("D", "e.d"), config_of("E")) == ""


LEADS_BACK = f"{DEAD_LETTER} leads back to the stream that it comes from"


@pytest.mark.parametrize(
    "others",
    [
        [config_of("D", "a.again")],
        [config_of("D", "e.x"), config_of("E", "a.x")],
        [config_of("D", republish={"src": ">", "dest": "a.>"})],
        [config_of("D"), config_of("M", subjects=[], mirror={"name": "D"}, metadata={DEAD_LETTER: "a.x"})],
    ],
)
def test_letters_that_would_come_back_are_refused(others: list[StreamConfig]) -> None:
    assert refused(config_of("A", "d.a"), *others) == LEADS_BACK


def test_a_stream_that_closes_a_ring_for_others_is_refused() -> None:
    first, second = config_of("A", "d.a"), config_of("D")
    closing = config_of("C", sources=[{"name": "D"}], republish={"src": ">", "dest": "a.>"})
    assert refused(closing, first, second) == LEADS_BACK
    assert refused(config_of("A", "d.a", sources=[{"name": "D"}]), second) == LEADS_BACK
    # Without a dead letter on its way that is nobody's business here.
    assert refused(config_of("A", sources=[{"name": "D"}]), second, config_of("B", "d.b")) == ""
