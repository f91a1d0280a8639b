"""Archives of streams as nats-server 2.15 has them: written, read again, cut, damaged and made to do harm."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core.archive import MAGIC, ArchiveWriter
from edged.core.archive_parts import (
    ArchivedConsumer,
    ArchiveError,
    ArchiveLimits,
    ConsumerPosition,
    PendingMessage,
    SeqPair,
)
from edged.core.archive_reader import ArchiveReader, ArchiveSurvey
from edged.core.message import Message
from edged.core.s2_stream import IDENTIFIER
from tests.core.archive_cases import DATA, LIMITS, NEW, OLD_TAR, TAR, compressed, plain, read, survey
from tests.examples import examples
from tests.jetstream import archive_recipe as recipe

STATE = {"messages": 2, "bytes": 100, "first_seq": 3, "last_seq": 9, "consumer_count": 0}
POSITION = ConsumerPosition(SeqPair(7, 9), SeqPair(2, 4), {6: PendingMessage(3, 55)}, {6: 2})
CONSUMER = ArchivedConsumer("C", {"durable_name": "C", "ack_policy": "explicit"}, POSITION)
MESSAGES = [Message(3, 11, b"a.b", 0, b"one"), Message(7, 12, "ä.€".encode(), 12, b"NATS/1.0\r\n\r\ntwo")]


def archive(kept: list[Message], *consumers: ArchivedConsumer, **state: int) -> bytes:
    writer = ArchiveWriter(block_bytes=1000)
    document = {**STATE, "consumer_count": len(consumers), **state}
    parts = [writer.begin(document, 1), *(writer.consumer(consumer, 2) for consumer in consumers)]
    return b"".join([*parts, writer.messages(kept), writer.finish()])


def varint(number: int) -> bytes:
    output = b""
    while number >= 0x80:
        output += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return output + bytes((number,))


def entry(name: bytes, data: bytes = b"", seq: int = 0, ts_ns: int = 1, header_bytes: int = 0) -> bytes:
    numbers = (len(name), ts_ns * 2, seq, header_bytes, len(data) - header_bytes)
    return b"".join(map(varint, numbers)) + name + data


def state_entry(**more: Any) -> bytes:
    return entry(b"state.json", json.dumps({**STATE, **more}).encode())


def consumer_entry(name: str = "C", **more: Any) -> bytes:
    return entry(f"consumers/{name}".encode(), json.dumps({**CONSUMER.document(), **more}).encode())


END = bytes(5)
FIRST = entry(b"a.b", b"one", 3)
FLOOR = {"consumer_seq": 0, "stream_seq": 1}
SECOND = entry(b"a.c", b"two", 7)


# --- both kinds, as real servers wrote them ---


@pytest.mark.parametrize("name", [NEW, TAR, OLD_TAR])
@pytest.mark.parametrize("step", [1, 100, 1 << 30])
def test_an_archive_of_a_real_server_is_read_however_it_is_cut(name: str, step: int) -> None:
    contents, messages = read((DATA / name).read_bytes(), step=step)
    assert [message.seq for message in messages] == recipe.LIVE_SEQS
    for message in messages:
        block, payload = message.data[: message.header_bytes], message.data[message.header_bytes :]
        assert (message.subject, block, payload) == recipe.message(message.seq)
    times = [message.ts_ns for message in messages]
    assert times == sorted(times) and times[0] > 1_700_000_000 * 10**9
    state = contents.state
    assert (state.messages, state.first_seq, state.last_seq, state.consumers) == (10, 5, 16, 1)
    assert state.size_bytes == 1527
    (consumer,) = contents.consumers
    assert consumer.name == recipe.CONSUMER
    assert consumer.config.items() >= recipe.CONSUMER_CONFIG.items()
    assert consumer.position.delivered == recipe.DELIVERED
    assert consumer.position.ack_floor == recipe.ACK_FLOOR
    assert consumer.position.pending.keys() == recipe.PENDING_SEQS
    assert consumer.position.redelivered == recipe.REDELIVERED


@pytest.mark.parametrize("name", [NEW, TAR, OLD_TAR])
def test_an_archive_that_was_cut_anywhere_is_refused(name: str) -> None:
    whole = plain((DATA / name).read_bytes())
    # The second of the two empty blocks that end a tar says nothing new.
    ends = len(whole) if name == NEW else len(whole.rstrip(b"\0")) + 512
    for size in range(0, ends, 3 if name == NEW else 41):
        with pytest.raises(ArchiveError):
            survey(compressed(whole[:size]))
    for size in range(0, len((DATA / name).read_bytes()) - 1, 71):
        with pytest.raises(ArchiveError):
            survey((DATA / name).read_bytes()[:size])


@pytest.mark.parametrize("name", [NEW, TAR, OLD_TAR])
@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_read_within_the_bounds(name: str, data: st.DataObject) -> None:
    whole = bytearray(plain((DATA / name).read_bytes()))
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(whole) - 1))
        junk = data.draw(st.binary(min_size=1, max_size=12))
        whole[position : position + data.draw(st.integers(0, len(junk)))] = junk
    archive = compressed(bytes(whole))
    limits = ArchiveLimits(output_bytes_max=len(whole), message_bytes_max=300, documents_bytes_max=4000)
    try:
        contents, messages = read(archive, limits, step=data.draw(st.integers(1, len(archive))))
    except ArchiveError:
        return
    seqs = [message.seq for message in messages]
    assert seqs == sorted(set(seqs))
    assert all(len(message.data) <= 300 for message in messages)
    assert contents.state.consumers == len(contents.consumers)


@settings(max_examples=examples(80), deadline=None)
@given(data=st.binary(max_size=2000))
def test_bytes_that_are_no_archive_are_refused(data: bytes) -> None:
    for stream in (data, compressed(data), compressed(MAGIC + data)):
        with pytest.raises(ArchiveError):
            survey(stream)


def test_a_reader_that_failed_fails_again() -> None:
    reader = ArchiveReader(LIMITS)
    reader.feed(compressed(MAGIC + SECOND))
    for _ in range(2):
        with pytest.raises(ArchiveError, match="before the state"):
            reader.next_entry()
    with pytest.raises(ArchiveError, match="before the state"):
        reader.finish()


# --- written and read again ---


def test_what_is_written_is_read_again() -> None:
    contents, messages = read(archive(MESSAGES, CONSUMER), step=5)
    assert messages == MESSAGES
    assert contents.consumers == (CONSUMER,)
    assert (contents.state.first_seq, contents.state.last_seq, contents.state.size_bytes) == (3, 9, 100)
    assert contents.config is None and contents.live is None


def test_an_archive_without_messages_is_whole() -> None:
    contents, messages = read(archive([], messages=0, first_seq=10, last_seq=9))
    assert messages == []
    assert (contents.state.first_seq, contents.state.last_seq) == (10, 9)


def test_a_stream_that_never_held_a_message_begins_at_one() -> None:
    contents, _ = read(archive([], messages=0, first_seq=0, last_seq=0))
    assert (contents.state.first_seq, contents.state.last_seq) == (1, 0)


subjects = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters=" \t\r\n\f.*>"), min_size=1
)


@settings(max_examples=examples(60), deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1 << 62), subjects, st.binary(), st.binary())),
    step=st.integers(1, 500),
)
def test_any_messages_are_read_as_they_were_written(
    parts: list[tuple[int, int, str, bytes, bytes]], step: int
) -> None:
    seq, messages = 2, []
    for distance, ts_ns, subject, block, payload in parts:
        seq += distance
        messages.append(Message(seq, ts_ns, subject.encode(), len(block), block + payload))
    assert read(archive(messages, last_seq=seq), step=step)[1] == messages


def test_the_bytes_are_those_of_the_format() -> None:
    entries = [entry(b"a.b", b"one", 3, 11), entry("ä.€".encode(), MESSAGES[1].data, 7, 12, 12)]
    state = json.dumps(STATE, separators=(",", ":")).encode()
    expected = MAGIC + entry(b"state.json", state, ts_ns=1) + b"".join(entries) + END
    assert plain(archive(MESSAGES)) == expected


def test_a_message_after_the_last_seq_of_the_state_counts() -> None:
    # One that came while the archive was written.
    contents = survey(compressed(MAGIC + state_entry(last_seq=5) + FIRST + SECOND + END))
    assert contents.state.last_seq == 5


# --- made to do harm ---


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (FIRST, "before the state"),
        (entry(b"state.jsom", b"{}"), "begins with"),
        (END, "begins with"),
        (entry(b"state.json", b"[]"), "no JSON object"),
        (entry(b"state.json", b"{"), "no JSON"),
        (entry(b"state.json", b'{"messages": NaN}'), "no JSON"),
        (entry(b"state.json", b"[" * 60_000), "no JSON"),
        (entry(b"state.json", b'{"bytes": ' + b"9" * 5000 + b"}"), "no JSON"),
        (state_entry(messages=-1), "no number"),
        (state_entry(messages=True), "no number"),
        (state_entry(last_seq=1 << 63), "no number"),
        (state_entry(bytes="1"), "no number"),
        (state_entry(first_seq=11), "begins at 11"),
        (state_entry(consumer_count=65_537), "65537 consumers"),
        (state_entry(consumer_count=1) + END, "where a consumer was expected"),
        (state_entry(consumer_count=1) + FIRST, "before the state or a consumer"),
        (state_entry(consumer_count=1) + entry(b"consumers/a.b", b"{}"), "where a consumer was expected"),
        (state_entry(consumer_count=1) + entry(b"consumers/../a", b"{}"), "where a consumer was expected"),
        (state_entry(consumer_count=1) + entry(b"consumers/C", b"{}"), "no configuration"),
        (state_entry(consumer_count=1) + consumer_entry(config=7), "no JSON object"),
        (state_entry(consumer_count=1) + consumer_entry(state={"pending": {"1": 5}}), "no JSON object"),
        (state_entry(consumer_count=1) + consumer_entry(state={"pending": {"x": {}}}), "no number"),
        (state_entry(consumer_count=1) + consumer_entry(state={"redelivered": {"1": -1}}), "no number"),
        (
            state_entry(consumer_count=1) + consumer_entry(state={"ack_floor": {"stream_seq": 1}}),
            "acknowledged",
        ),
        (state_entry(consumer_count=2) + consumer_entry() * 2, "comes twice"),
        (state_entry() + consumer_entry(), "where a message was expected"),
        (state_entry() + SECOND + FIRST, "out of order"),
        (state_entry() + FIRST + FIRST, "out of order"),
        (state_entry() + entry(b"a", b"", 2), "out of order"),
        (state_entry() + entry(b"a", b"", 1 << 63), "out of order"),
        (state_entry() + entry(b"", b"one", 3), "no valid subject"),
        (state_entry() + entry(b"a b", b"one", 3), "no valid subject"),
        (state_entry() + entry(b"a\r\nPUB", b"one", 3), "no valid subject"),
        (state_entry() + entry(b"a..b", b"one", 3), "no valid subject"),
        (state_entry() + b"\x01\x01\x03\x00\x00a", "before 1970"),
        (state_entry() + entry(b"a", b"NATS", 0, header_bytes=4), "no message"),
        (state_entry() + FIRST + entry(b"a", b""), "where a message was expected"),
        (state_entry() + FIRST + END + b"\0", "after the end"),
        (state_entry() + FIRST + END + FIRST, "after the end"),
        (state_entry() + FIRST, "was cut"),
        (state_entry() + b"\xff" * 10, "does not end"),
        (state_entry() + b"\xff" * 9 + b"\x7f", "too large"),
        (state_entry() + varint(1 << 20), "was cut"),
        (state_entry() + varint(1 << 20) + b"\0\3\0\0", "a name of"),
    ],
)
def test_an_archive_against_the_rules_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ArchiveError, match=reason):
        survey(compressed(MAGIC + data))


@pytest.mark.parametrize("header_bytes", [0, 60_000])
def test_a_message_that_is_too_large_is_refused_before_it_is_there(header_bytes: int) -> None:
    start = entry(b"a", bytes(LIMITS.message_bytes_max + 1), 3, header_bytes=header_bytes)[:20]
    reader = ArchiveSurvey(LIMITS)
    reader.feed(compressed(MAGIC + state_entry() + start))
    with pytest.raises(ArchiveError, match="more than allowed"):
        reader.step()


def test_state_and_consumers_together_have_a_bound() -> None:
    consumers = b"".join(consumer_entry(str(number), padding="x" * 20_000) for number in range(4))
    with pytest.raises(ArchiveError, match="exceed"):
        survey(compressed(MAGIC + state_entry(consumer_count=4) + consumers))


def test_all_that_comes_out_of_the_compression_has_a_bound() -> None:
    messages = [Message(seq, 1, b"a", 0, bytes(60_000)) for seq in range(3, 40)]
    whole = archive(messages)
    with pytest.raises(ArchiveError, match="more than"):
        survey(whole)
    larger = ArchiveLimits(output_bytes_max=1 << 24, message_bytes_max=1 << 16)
    assert read(whole, larger)[1] == messages


def test_what_is_settled_or_was_never_delivered_does_not_wait() -> None:
    waits = {str(seq): {"Sequence": seq, "Timestamp": 1} for seq in (3, 4, 5, 9, 10)}
    pair = {"consumer_seq": 9, "stream_seq": 9}
    position = ConsumerPosition.parse(
        {
            "delivered": pair,
            "ack_floor": {"consumer_seq": 4, "stream_seq": 4},
            "pending": waits,
            "redelivered": {"4": 1, "5": 2, "7": 3},
        }
    )
    assert position.pending.keys() == {5, 9}
    assert position.redelivered == {5: 2}


def test_nothing_but_the_start_of_the_compression_is_no_archive() -> None:
    with pytest.raises(ArchiveError, match="was cut"):
        survey(IDENTIFIER)
