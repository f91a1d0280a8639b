"""Frames we send, judged by wsproto's client; messages we inflate, judged by zlib."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong
from wsproto.extensions import PerMessageDeflate

from edged.core.websocket_frames import BoundedInflate, FrameKind, encode_close, encode_data, encode_frame

LIMIT = 10_000


def client(deflate: bool = False) -> Connection:
    extension = PerMessageDeflate(client_no_context_takeover=True, server_no_context_takeover=True)
    if deflate:
        extension.finalize("permessage-deflate; client_no_context_takeover; server_no_context_takeover")
    return Connection(ConnectionType.CLIENT, [extension] if deflate else [])


def deflated(data: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (compressor.compress(data) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


def masked(first: int, payload: bytes) -> bytes:
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0x80 | 126,)) + size.to_bytes(2, "big")
    return bytes((first,)) + length + b"\0\0\0\0" + payload


def server_events(data: bytes, limit: int = LIMIT) -> list[object]:
    connection = Connection(ConnectionType.SERVER, [BoundedInflate(limit)])
    connection.receive_data(data)
    return list(connection.events())


def joined(events: list[object]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, BytesMessage))


def close_code(events: list[object]) -> int | None:
    return next((int(event.code) for event in events if isinstance(event, CloseConnection)), None)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("deflate", [False, True])
def test_a_data_frame_of_any_size_is_read_back_by_a_client(size: int, deflate: bool) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    connection = client(deflate)
    connection.receive_data(encode_data(memoryview(payload), deflate))
    assert joined(list(connection.events())) == payload


def test_small_data_is_not_compressed_and_large_is() -> None:
    assert encode_data(memoryview(bytes(64)), True)[0] == 0x82
    assert encode_data(memoryview(bytes(65)), True)[0] == 0xC2


def test_control_frames_are_read_back_by_a_client() -> None:
    connection = client()
    connection.receive_data(encode_frame(FrameKind.PONG, b"hi") + encode_close(1009, "too big"))
    assert list(connection.events()) == [Pong(b"hi"), CloseConnection(1009, "too big")]


def test_a_close_without_status_is_empty_and_a_long_reason_is_cut_between_characters() -> None:
    assert encode_close(None) == b"\x88\x00"
    frame = encode_close(1002, "ü" * 100)
    assert frame[1] == len(frame) - 2 == 124
    frame[4:].decode("utf-8")


@given(pieces=st.lists(st.binary(max_size=400), min_size=1, max_size=5), with_ping=st.booleans())
def test_a_compressed_message_in_fragments_inflates_with_or_without_pings_between(
    pieces: list[bytes], with_ping: bool
) -> None:
    data = b"".join(pieces)
    body = deflated(data)
    step = max(1, len(body) // len(pieces))
    fragments = [body[start : start + step] for start in range(0, len(body), step)] or [b""]
    wire = b""
    for number, fragment in enumerate(fragments):
        first = (0x42 if number == 0 else 0x00) | (0x80 if number == len(fragments) - 1 else 0)
        wire += masked(first, fragment)
        if with_ping and number < len(fragments) - 1:
            wire += masked(0x89, b"now")
    events = server_events(wire)
    assert joined(events) == data
    assert events.count(Ping(b"now")) == (len(fragments) - 1 if with_ping else 0)


def test_compressed_and_plain_messages_may_alternate() -> None:
    wire = masked(0xC2, deflated(b"one ")) + masked(0x82, b"two ") + masked(0xC2, deflated(b"three"))
    assert joined(server_events(wire)) == b"one two three"


def test_a_message_up_to_the_limit_is_inflated_and_one_byte_more_is_too_big() -> None:
    assert joined(server_events(masked(0xC2, deflated(bytes(LIMIT))))) == bytes(LIMIT)
    events = server_events(masked(0xC2, deflated(bytes(LIMIT + 1))))
    assert close_code(events) == 1009


def test_a_bomb_is_stopped_at_the_limit_without_being_inflated() -> None:
    bomb = deflated(bytes(50_000_000))
    assert len(bomb) < 60_000
    events = server_events(masked(0xC2, bomb))
    assert close_code(events) == 1009
    assert len(joined(events)) <= LIMIT


def test_a_bomb_in_fragments_is_stopped_at_the_limit() -> None:
    body = deflated(bytes(20_000))
    wire = masked(0x42, body[:10]) + masked(0x80, body[10:])
    assert close_code(server_events(wire)) == 1009


def test_bytes_after_the_end_of_a_deflate_stream_are_ignored_and_not_kept() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    ended = compressor.compress(b"PING\r\n") + compressor.flush(zlib.Z_FINISH)
    wire = masked(0x42, ended) + masked(0x00, bytes(30_000)) + masked(0x80, b"rest") + masked(0x82, b"next")
    assert joined(server_events(wire)) == b"PING\r\nnext"


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (masked(0xC2, b"\xff\xff\xff"), 1007),
        (masked(0xC9, b""), 1002),
        (masked(0x42, b"") + masked(0xC0, b""), 1002),
        (masked(0xA2, b""), 1002),
        (masked(0x92, b""), 1002),
    ],
    ids=[
        "not deflate",
        "compressed ping",
        "compressed continuation",
        "second reserved bit",
        "third reserved bit",
    ],
)
def test_misused_compression_is_a_protocol_error(wire: bytes, code: int) -> None:
    assert close_code(server_events(wire)) == code


@given(junk=st.binary(max_size=400))
def test_any_bytes_are_events_or_a_close_within_the_limit(junk: bytes) -> None:
    events = server_events(junk, limit=500)
    assert len(joined(events)) <= 500 * (len(events) + 1) + len(junk)
