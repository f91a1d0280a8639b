"""Encrypted journal frames: same places, other bytes, and nothing that was changed is believed."""

from __future__ import annotations

from typing import Any

from edged.core.frames import COMMAND
from edged.store.box import Keyring
from edged.store.sealed_frames import PURPOSE, TAG_BYTES, open_frames, seal_frames
from tests.core.frame_cases import both as both_frames

NONCE = 0x1234_5678_9ABC_DEF1
MESSAGES = [(b"orders.new", None, -1, b"secret payload %d" % number) for number in range(5)]


def box_of(key: str = "a key that is long enough") -> Any:
    box = Keyring.read(key, None, "chachapoly", {}).box(PURPOSE, b"s" * 16)
    assert box is not None
    return box


def filled(twin: Any) -> Any:
    buffer = twin.FrameBuffer(TAG_BYTES)
    buffer.add(COMMAND, 3, 7, b"a command")
    buffer.add_appends(2, 1, 99, MESSAGES)
    return buffer


@both_frames
def test_sealed_frames_stand_where_the_plain_ones_stood_and_open_to_the_same(twin: Any) -> None:
    plain = filled(twin)
    sealed = bytes(seal_frames(plain, box_of(), 4096).finish(NONCE, 4096))
    before = twin.scan(bytes(plain.finish(NONCE, 4096)), NONCE, 0, 4096)
    found = twin.scan(sealed, NONCE, 0, 4096)
    assert [frame[0] for frame in found.frames] == [frame[0] for frame in before.frames]
    assert b"secret" not in sealed
    data, frames, bad = open_frames(sealed, found.frames, box_of(), 4096)
    assert not bad
    assert data[frames[0][4] : frames[0][4] + frames[0][5]] == b"a command"
    assert [twin.decode_append(data, frame[4], frame[5])[3] for frame in frames[1:]] == [
        message[3] for message in MESSAGES
    ]


@both_frames
def test_a_frame_of_another_place_key_or_group_does_not_open(twin: Any) -> None:
    sealed = bytes(seal_frames(filled(twin), box_of(), 4096).finish(NONCE, 4096))
    frames = list(twin.scan(sealed, NONCE, 0, 4096).frames)
    assert len(open_frames(sealed, frames, box_of(), 8192)[2]) == len(frames)
    assert len(open_frames(sealed, frames, box_of("another key, long enough"), 4096)[2]) == len(frames)
    moved = [(start, kind, group + 1, index, body, size) for start, kind, group, index, body, size in frames]
    assert len(open_frames(sealed, moved, box_of(), 4096)[2]) == len(frames)
