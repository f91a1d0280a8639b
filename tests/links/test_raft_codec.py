"""Messages of consensus as bytes: every one comes back as it was, and nothing else comes through."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from msgpack import packb

from hub.links import raft_codec
from hub.links.frames import FrameError, FrameReader, Kind, frame
from hub.links.hello import Hello, Introduction, Refused, read_refusal
from hub.raft import messages
from hub.raft.members import Members

numbers = some.integers(0, 2**64 - 1)
counts = some.integers(0, 2**32 - 1)
flags = some.booleans()
nodes = some.integers(1, 2**63 - 1)
payloads = some.none() | some.binary(max_size=40)


@some.composite
def memberships(draw: some.DrawFn) -> Members:
    everyone = draw(some.lists(nodes, min_size=1, max_size=8, unique=True))
    places = [draw(some.integers(0, 4)) for _ in everyone[1:]]

    def at(*wanted: int) -> frozenset[int]:
        return frozenset(node for node, place in zip(everyone[1:], places, strict=True) if place in wanted)

    return Members(at(0) | {everyone[0]}, at(1, 2), at(3), at(2))


blocks = some.builds(messages.Block, numbers, counts, numbers, counts, some.none() | memberships(), payloads)
snapshots = some.builds(messages.Snapshot, numbers, numbers, memberships(), numbers, numbers)
every_message = some.one_of(
    some.builds(messages.VoteRequest, numbers, numbers, numbers, flags, flags, flags),
    some.builds(messages.VoteReply, numbers, flags, flags, flags),
    some.builds(
        messages.Append, numbers, numbers, numbers, some.lists(blocks, max_size=4).map(tuple), numbers
    ),
    some.builds(messages.AppendReply, numbers, numbers, flags, numbers, numbers),
    some.builds(messages.Heartbeat, numbers, numbers, numbers, flags),
    some.builds(messages.HeartbeatReply, numbers, numbers),
    some.builds(messages.SnapshotPart, numbers, snapshots, numbers, counts, payloads),
    some.builds(messages.SnapshotReply, numbers, numbers, numbers, numbers),
    some.builds(messages.TransferNow, numbers),
    some.builds(messages.ReadRequest, numbers, numbers),
    some.builds(messages.ReadReply, numbers, numbers, numbers),
    some.builds(messages.RejoinRequest, numbers, numbers),
    some.builds(messages.RejoinReply, numbers, numbers, numbers),
)
addressed = some.tuples(numbers, every_message)


def packed(*wanted: tuple[int, messages.Message]) -> bytes:
    return b"".join(b"".join(raft_codec.encode(group, message)) for group, message in wanted)


@given(some.lists(addressed, max_size=5))
def test_messages_one_behind_the_other_come_back_as_they_were(
    wanted: list[tuple[int, messages.Message]],
) -> None:
    assert raft_codec.decode_all(memoryview(packed(*wanted))) == wanted


def test_every_kind_of_message_has_a_number_of_its_own() -> None:
    kinds = {kind for kind, _ in raft_codec._ENCODERS.values()}
    assert kinds == set(raft_codec._DECODERS)
    assert set(raft_codec._ENCODERS) == set(messages.Message.__args__)


@given(addressed)
def test_a_message_that_is_cut_anywhere_is_refused(one: tuple[int, messages.Message]) -> None:
    data = packed(one)
    for stop in range(len(data)):
        with pytest.raises(raft_codec.CodecError):
            raft_codec.decode(memoryview(data[:stop]))


@settings(max_examples=300)
@given(some.binary(max_size=200) | some.tuples(addressed, some.integers(0), some.integers(1, 255)))
def test_bytes_that_are_no_messages_are_refused_or_read_as_some_message(case: object) -> None:
    if isinstance(case, tuple):
        one, place, damage = case
        data = bytearray(packed(one))
        data[place % len(data)] ^= damage
    else:
        assert isinstance(case, bytes)
        data = bytearray(case)
    try:
        found = raft_codec.decode_all(memoryview(data))
    except raft_codec.CodecError:
        return
    # What was read has the meaning of all the bytes: they differ at most in the order of a set's members.
    assert len(packed(*found)) == len(data)


def test_a_payload_is_handed_on_without_a_copy() -> None:
    payload = memoryview(b"frames as they lie in the journal")
    block = messages.Block(5, 2, 3, len(payload), None, payload)
    parts = raft_codec.encode(7, messages.Append(3, 4, 3, (block,), 4))
    assert parts[-1] is payload


frames_wanted = some.lists(some.tuples(some.sampled_from(Kind), some.binary(max_size=60)), max_size=4)


@given(frames_wanted, some.lists(some.integers(0, 300), max_size=6))
def test_frames_are_the_same_however_they_are_cut(wanted: list[tuple[Kind, bytes]], cuts: list[int]) -> None:
    data = b"".join(part for kind, body in wanted for part in frame(kind, [body]))
    reader = FrameReader(64)
    found = []
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, stop in pairwise(edges):
        found.extend((kind, bytes(body)) for kind, body in reader.feed(data[start:stop]))
    assert found == wanted
    assert reader.held_bytes == 0


@given(some.sampled_from(Kind), some.binary(max_size=60), some.integers(0), some.integers(1, 255))
def test_a_damaged_frame_is_refused_or_still_awaited(
    kind: Kind, body: bytes, place: int, damage: int
) -> None:
    data = bytearray(b"".join(frame(kind, [body])))
    data[place % len(data)] ^= damage
    reader = FrameReader(256)
    try:
        assert reader.feed(bytes(data)) == []
    except FrameError:
        return
    assert reader.held_bytes == len(data)


documents = some.recursive(
    some.none() | flags | some.integers(-(2**63), 2**64 - 1) | some.floats() | some.text() | some.binary(),
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=8,
)
names_used = some.sampled_from(
    ("protocol", "link", "cluster", "frames_version", "compression", "introduction", "user", "password")
)


@given(some.binary(max_size=80) | some.dictionaries(names_used, documents).map(packb) | documents.map(packb))
def test_a_hello_that_is_none_is_refused_and_nothing_else_happens(body: bytes) -> None:
    with contextlib.suppress(FrameError, Refused):
        Hello.read(memoryview(body))
    with contextlib.suppress(FrameError):
        read_refusal(memoryview(body))


@given(some.builds(Introduction, nodes, some.text(max_size=9), some.text(max_size=9), some.just("a:1")))
def test_a_hello_comes_back_as_it_was(introduction: Introduction) -> None:
    ours = Hello("control", "C", introduction, 7, "accept", "user", "password")
    ((kind, body),) = FrameReader(10_000).feed(ours.frame())
    assert (kind, Hello.read(body)) == (Kind.HELLO, ours)


def test_a_frame_that_claims_too_much_is_refused_before_it_is_kept() -> None:
    reader = FrameReader(64)
    with pytest.raises(FrameError):
        reader.feed(b"".join(frame(Kind.HELLO, [bytes(65)]))[:9])
