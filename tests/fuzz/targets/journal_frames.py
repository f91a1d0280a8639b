"""Journal frames: the twins scan any bytes alike. Commands: any bytes decode or are refused."""

from __future__ import annotations

from edged.core import _frames, commands, frames
from tests.fuzz.target import Target, chance_of

NONCE = 0x5EED0000204B5246
OTHER_NONCE = NONCE + 2**32
MARK = (NONCE & 0xFFFFFFFF).to_bytes(4, "little")


def written(nonce: int, count: int) -> bytes:
    """Some frames of each kind, one with the mark in its body."""
    buffer = frames.FrameBuffer()
    buffer.add(frames.BATCH, 0, 1, b"\x93\x00\x01\x90")
    for number in range(count):
        buffer.add_appends(1, number, 5, [(b"a.b", None, -1, MARK * number), (b"c", b"r", 2, b"hdpayload")])
        buffer.add(frames.COMMAND, 2, number, commands.encode(commands.Skip(number)))
    return bytes(buffer.finish(nonce, 0))


COMMAND_SEEDS = (
    commands.PutStream(1, bytes(16), "A", "S", {"subjects": ["a.>"], "max_age": 1.5, "flag": None}),
    commands.Purge(9, b"a.*", 2),
    commands.Dispatch(1, 2, (3, 4, 2**40), 5),
    commands.Shed(1, 2, "disk", 3),
    commands.Refill(7, 2, b"a.b", 2, b"hdpayload"),
)
WHOLE = written(NONCE, 3)
SEEDS = (WHOLE, WHOLE + bytes(64), WHOLE[:100] + written(OTHER_NONCE, 3)[100:], MARK * 30)
WORDS = (MARK, MARK + bytes(4), bytes(4), b"\x02\x01\x00\x00", b"\x10\x00\x00\x00", WHOLE[:40], b"\xff" * 4)


def run_scan(data: bytes) -> None:
    chance = chance_of(data)
    start = chance.choice((0, 0, 0, 7, len(data)))
    offset = chance.choice((0, 0, 0, 4096, 2**40))
    expected = frames.scan(data, NONCE, start, offset)
    found = _frames.scan(data, NONCE, start, offset)
    assert list(found.frames) == expected.frames, "the twin finds other frames"
    assert (found.damage, found.tail_start) == (expected.damage, expected.tail_start), "the twin differs"
    # Frames and damage, laid end to end, are all that lies before the tail.
    pieces = [(frame[0], frame[4] + frame[5]) for frame in expected.frames] + expected.damage
    position = start
    for piece_start, piece_end in sorted(pieces):
        assert piece_start == position < piece_end, (pieces, position)
        position = piece_end
    assert position == expected.tail_start
    for _, kind, _, _, body_start, size in expected.frames:
        if kind == frames.APPEND:
            assert append_of(frames.decode_append, data, body_start, size) == append_of(
                _frames.decode_append, data, body_start, size
            )
    assert append_of(frames.decode_append, data, start, len(data) - start) == append_of(
        _frames.decode_append, data, start, len(data) - start
    )


def append_of(decode_append: object, data: bytes, start: int, size: int) -> object:
    """What a body holds, or what is said against it."""
    assert callable(decode_append)
    try:
        return decode_append(data, start, size)
    except ValueError as error:
        return str(error)


def run_command(data: bytes) -> None:
    try:
        command = commands.decode(data)
    except ValueError:
        return
    assert commands.encode(commands.decode(commands.encode(command))) == commands.encode(command)


TARGETS = (
    Target("journal", run_scan, SEEDS, WORDS, share=10),
    Target("commands", run_command, tuple(commands.encode(seed) for seed in COMMAND_SEEDS), share=5),
)
