"""Commands and their bytes: all come back as they were, and foreign bytes are a ValueError, nothing else."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import commands
from edged.core.commands import (
    BEFORE,
    COMMAND_BYTES_MAX,
    CONFIG_DEPTH_MAX,
    MOVE,
    PEERS,
    SEQS_MAX,
    TARGET,
    TEXT_BYTES_MAX,
    Ack,
    Command,
    Configure,
    Delete,
    Dispatch,
    Expire,
    LettersTaken,
    Purge,
    PutConsumer,
    PutStream,
    Refill,
    RemoveConsumer,
    RemoveStream,
    ResetConsumer,
    Shed,
    Skip,
    Terminate,
    UnknownCommand,
    assigned_to,
    decode,
    encode,
)

numbers = st.integers(0, 2**64 - 1)
texts = st.text(max_size=20)
seqs = st.lists(st.integers(0, 2**63 - 1), max_size=30).map(tuple)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
configs = st.dictionaries(st.text(max_size=8), plain, max_size=5)
groups = st.integers(1, 2**24 - 1)

any_command = st.one_of(
    st.builds(PutStream, groups, st.binary(min_size=16, max_size=16), texts, texts, configs),
    st.builds(RemoveStream, groups),
    st.builds(Delete, numbers, st.booleans()),
    st.builds(Purge, numbers, st.binary(max_size=20), numbers),
    st.builds(Expire, numbers, seqs),
    st.builds(PutConsumer, numbers, texts, configs),
    st.builds(RemoveConsumer, numbers),
    st.builds(Dispatch, numbers, numbers, seqs, numbers),
    st.builds(Ack, numbers, st.integers(0, 255), seqs),
    st.builds(Skip, numbers),
    st.builds(Shed, numbers, numbers, texts, numbers),
    st.builds(Refill, numbers, numbers, st.binary(max_size=20), numbers, st.binary(max_size=50)),
    st.builds(ResetConsumer, numbers, numbers),
    st.builds(Terminate, numbers, numbers, texts),
    st.builds(LettersTaken, numbers, seqs),
    st.builds(Configure, configs),
)

STREAM = PutStream(7, bytes(range(16)), "ACC", "ORDERS", {"subjects": ["orders.>"], "max_msgs": -1})

# One of each, with its bytes. These bytes are on disks: a test that fails here is right, the change is wrong.
GOLDEN: list[tuple[Command, str]] = [
    (
        STREAM,
        "960107c410000102030405060708090a0b0c0d0e0fa3414343a64f5244455253"
        "82a87375626a6563747391a86f72646572732e3ea86d61785f6d736773ff",
    ),
    (RemoveStream(7), "920207"),
    (Delete(5, True), "930305c3"),
    (Purge(9, b"a.*", 1), "940409c403612e2a01"),
    (Expire(3, (5, 8)), "930503920503"),
    (PutConsumer(1, "c", {}), "940601a16380"),
    (RemoveConsumer(1), "920701"),
    (Dispatch(1, 1000, (4, 5), 2), "950801cd03e892040102"),
    (Ack(1, 2, (300,)), "9409010291cd012c"),
    (ResetConsumer(1, 5), "930d0105"),
    (Terminate(3, 200, "bad"), "940e03ccc8a3626164"),
    (LettersTaken(3, (5, 6, 9)), "930f0393050103"),
    (Configure({"max_msgs": 5}), "921081a86d61785f6d73677305"),
    (Skip(10), "920a0a"),
    (Shed(1, 2, "disk", 3), "950b0102a46469736b03"),
    (Refill(7, 5, b"a", 2, b"hd1"), "960c0705c4016102c403686431"),
]


@pytest.mark.parametrize(("command", "expected"), GOLDEN, ids=lambda value: type(value).__name__)
def test_bytes_of_a_command_stay_as_they_are(command: Command, expected: str) -> None:
    assert encode(command).hex() == expected
    assert decode(bytes.fromhex(expected)) == command


def test_every_command_has_its_own_tag_and_is_frozen() -> None:
    classes = get_args(Command)
    assert {type(command) for command, _ in GOLDEN} == set(classes)
    assert len({known.tag for known in classes}) == len(classes) == 16
    for command, _ in GOLDEN:
        with pytest.raises(FrozenInstanceError):
            setattr(command, fields(command)[0].name, 1)


@given(any_command)
def test_what_is_encoded_is_decoded(command: Command) -> None:
    again = decode(encode(command))
    assert again == command and type(again) is type(command)


@pytest.mark.parametrize("tag", [0, 17, 255, 2**64 - 1, -1])
def test_unknown_tag_was_written_by_a_newer_version(tag: int) -> None:
    with pytest.raises(UnknownCommand, match=f"command {tag} was written by a newer version") as caught:
        decode(msgpack.packb([tag, "whatever", {"it": "holds"}]))
    assert caught.value.tag == tag


@pytest.mark.parametrize("command", [command for command, _ in GOLDEN], ids=lambda it: type(it).__name__)
def test_every_cut_and_every_addition_is_refused(command: Command) -> None:
    body = encode(command)
    for size in range(len(body)):
        with pytest.raises(ValueError):
            decode(body[:size])
    with pytest.raises(ValueError):
        decode(body + b"\0")
    values = msgpack.unpackb(body)
    for wrong in (
        values[:-1],
        [*values, 0],
        [values],
        {"tag": values[0]},
        values[0],
        None,
        [],
        ["1"],
        [True],
    ):
        with pytest.raises(ValueError):
            decode(msgpack.packb(wrong))


@pytest.mark.parametrize("command", [command for command, _ in GOLDEN], ids=lambda it: type(it).__name__)
def test_field_of_another_type_is_refused(command: Command) -> None:
    values = msgpack.unpackb(encode(command))
    nonsense: list[Any] = [None, -1, 1.5, "\u00e9", b"x", [-1], ["a"], [[1]], [True], {"a": 1}, [1.0]]
    for position, field in enumerate(fields(command), 1):
        for value in [*nonsense, msgpack.ExtType(5, b"x"), msgpack.Timestamp(1)]:
            changed = [*values[:position], value, *values[position + 1 :]]
            good = {
                "name": "\u00e9",
                "account": "\u00e9",
                "reason": "\u00e9",
                "subject": b"x",
                "data": b"x",
                "config": {"a": 1},
            }
            if field.name in good and good[field.name] == value:
                assert getattr(decode(msgpack.packb(changed)), field.name) == value
            else:
                with pytest.raises(ValueError, match="is not valid"):
                    decode(msgpack.packb(changed))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_command_or_a_value_error(body: bytes) -> None:
    try:
        command = decode(body)
    except ValueError:
        return
    assert decode(encode(command)) == command


@given(any_command, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damage_to_a_command_gives_a_command_or_a_value_error(
    command: Command, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encode(command))
    for place, value in changes:
        body[place % len(body)] = value
    test_any_bytes_are_a_command_or_a_value_error.hypothesis.inner_test(bytes(body))


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdd\x00\x00\xff\xff" * 2000,
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
        b"\x93\x05\x00\xdd\x00\x0f\xff\xff" + bytes(1_000_000),
        b"\x94\x06\x01\xa1c" + b"\x81\xa1a" * 900 + b"\x80",
        b"\x94\x06\x01\xa1c\x81\x91\x01\x01",
        b"\x94\x06\x01\xa1c\x81\xc4\x01a\x01",
        b"\x94\x06\x01\xa2\xff\xff\x80",
        bytes(COMMAND_BYTES_MAX + 1),
    ],
    ids=lambda body: body[:12].hex(),
)
def test_sizes_and_depths_beyond_the_bounds_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode(body)


def nested(depth: int) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for _ in range(depth - 1):
        config = {"inner": config}
    return config


def test_largest_commands_can_be_stored() -> None:
    for command in (
        Ack(2**64 - 1, 255, (2**63 - 1,) * SEQS_MAX),
        PutConsumer(1, "n" * TEXT_BYTES_MAX, nested(CONFIG_DEPTH_MAX)),
        PutConsumer(1, "n", {"list": [1] * SEQS_MAX}),
        Purge(0, b"s" * 65535, 0),
    ):
        assert decode(encode(command)) == command


@pytest.mark.parametrize(
    "command",
    [
        Ack(1, 1, (1,) * (SEQS_MAX + 1)),
        Ack(1, 256, ()),
        Expire(0, (-1,)),
        Expire(0, (2**64,)),
        Skip(2**64),
        Purge(0, b"s" * 65536, 0),
        RemoveStream(0),
        RemoveStream(2**24),
        PutStream(1, bytes(15), "A", "S", {}),
        PutConsumer(1, "n" * (TEXT_BYTES_MAX + 1), {}),
        PutConsumer(1, "\ud800", {}),
        PutConsumer(1, "c", nested(CONFIG_DEPTH_MAX + 1)),
        PutConsumer(1, "c", {"list": [1] * (SEQS_MAX + 1)}),
        PutConsumer(1, "c", {"large": "x" * COMMAND_BYTES_MAX}),
        PutConsumer(1, "c", {"number": 2**64}),
        PutConsumer(1, "c", {"tuple": (1, 2)}),
        PutConsumer(1, "c", {"key": {1: 2}}),
        PutConsumer(1, "c", {"text": "\ud800"}),
    ],
    ids=lambda command: f"{type(command).__name__}-{str(command)[:40]}",
)
def test_command_that_could_not_be_read_again_is_not_written(command: Command) -> None:
    with pytest.raises(ValueError):
        encode(command)


def test_config_that_contains_itself_is_not_written() -> None:
    config: dict[str, Any] = {}
    config["itself"] = config
    with pytest.raises(ValueError, match="config of PutConsumer cannot be stored"):
        encode(PutConsumer(1, "c", config))


def test_every_field_has_a_check() -> None:
    names = {field.name for known in get_args(Command) for field in fields(known)}
    assert names == set(commands._CHECKS)


def test_a_stream_that_moves_is_on_the_nodes_it_leaves_until_it_has_moved() -> None:
    here = {"name": "S", PEERS: [1, 2, 3]}
    assert assigned_to(here, [2]) == {PEERS: [2, 1, 3], TARGET: [2], BEFORE: [1, 2, 3], MOVE: 1}
    assert assigned_to(here, [2, 4]) == {PEERS: [2, 4, 1, 3], TARGET: [2, 4], BEFORE: [1, 2, 3], MOVE: 1}
    assert assigned_to(here, [3, 1, 2]) == {PEERS: [1, 2, 3]}


def test_a_stream_that_is_sent_elsewhere_while_it_moves_knows_where_it_was() -> None:
    moving = {PEERS: [2, 1, 3], TARGET: [2], BEFORE: [1, 2, 3], MOVE: 1}
    back = {PEERS: [1, 2, 3], TARGET: [1, 2, 3], BEFORE: [1, 2, 3], MOVE: 2}
    assert assigned_to(moving, [1, 2, 3]) == back


def test_a_stream_that_moved_before_moves_under_another_number() -> None:
    assert assigned_to({PEERS: [1], MOVE: 4}, [2])[MOVE] == 5
