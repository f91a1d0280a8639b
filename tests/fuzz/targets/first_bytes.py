"""What a connection begins with: PROXY headers, HTTP requests, WebSocket frames, monitoring queries."""

from __future__ import annotations

import zlib
from http import HTTPStatus

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage

from edged.core.http_upgrade import Origin, RequestReader, UpgradeRefused, UpgradeRules, decide_upgrade
from edged.core.proxy_header import (
    HEADER_BYTES_MAX,
    Missing,
    ProxyHeader,
    ProxyHeaderError,
    parse_proxy_header,
)
from edged.core.websocket_frames import BoundedInflate
from edged.server.monitoring.answers import BadRequest
from edged.server.monitoring.connz import ConnzOptions
from edged.server.monitoring.jsz import JszOptions
from edged.server.monitoring.parameters import from_query, parse_query
from edged.server.monitoring.subsz import SubszOptions
from tests.fuzz.target import Target, chance_of, cut

INFLATED_BYTES_MAX = 4096


def run_proxy(data: bytes) -> None:
    """The answer to a prefix is INCOMPLETE or the answer to the whole."""
    whole = _proxy_answer(data)
    if isinstance(whole, ProxyHeader):
        assert whole.length <= min(len(data), HEADER_BYTES_MAX)
    if len(data) >= HEADER_BYTES_MAX:
        assert whole is not Missing.INCOMPLETE
    chance = chance_of(data)
    for _ in range(4):
        part = _proxy_answer(data[: chance.randrange(len(data) + 1)])
        assert part in (Missing.INCOMPLETE, whole), (part, whole)


def _proxy_answer(data: bytes) -> object:
    try:
        return parse_proxy_header(data)
    except ProxyHeaderError:
        return ProxyHeaderError


RULES = (
    UpgradeRules(),
    UpgradeRules(is_tls=True, same_origin=True, compression=True),
    UpgradeRules(allowed_origins=(Origin("https", "example.com", 443),), answer_headers=(("X-A", "b"),)),
)


def run_upgrade(data: bytes) -> None:
    reader = RequestReader()
    try:
        for chunk in cut(data, chance_of(data)):
            request = reader.receive(chunk)
            if request is not None:
                break
        else:
            return
    except UpgradeRefused as refusal:
        _check_refusal(refusal)
        return
    request.cookies()
    assert request.forwarded_for is None or "\n" not in request.forwarded_for
    for rules in RULES:
        try:
            answer = decide_upgrade(request, rules).answer
            assert answer.startswith(b"HTTP/1.1 101 ") and answer.count(b"\r\n\r\n") == 1, answer
        except UpgradeRefused as refusal:
            _check_refusal(refusal)


def _check_refusal(refusal: UpgradeRefused) -> None:
    assert isinstance(refusal.status, HTTPStatus)
    assert refusal.response().startswith(b"HTTP/1.1 %d " % refusal.status.value)


def run_frames(data: bytes) -> None:
    """Frames from a client; a message never inflates beyond its bound."""
    chance = chance_of(data)
    extensions = [BoundedInflate(INFLATED_BYTES_MAX)] if chance.random() < 0.8 else []
    frames = Connection(ConnectionType.CLIENT if chance.random() < 0.8 else ConnectionType.SERVER, extensions)
    size = 0
    for chunk in cut(data, chance):
        frames.receive_data(chunk)
        for event in frames.events():
            if isinstance(event, BytesMessage | TextMessage):
                size += len(event.data)
                if event.message_finished:
                    assert not extensions or size <= max(INFLATED_BYTES_MAX, len(data)), size
                    size = 0
            elif isinstance(event, CloseConnection):
                assert 0 <= int(event.code) < 65_536
                return


def run_query(data: bytes) -> None:
    for options in (ConnzOptions, SubszOptions, JszOptions):
        try:
            from_query(options, parse_query(data.decode("latin-1")))
        except BadRequest as error:
            str(error).encode("utf-8", "surrogateescape")


def _frame(first: int, payload: bytes) -> bytes:
    size = bytes((len(payload),)) if len(payload) < 126 else b"\x7e" + len(payload).to_bytes(2, "big")
    return bytes((first,)) + size + payload


def _deflated(payload: bytes) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, -15)
    return (compressor.compress(payload) + compressor.flush(zlib.Z_SYNC_FLUSH))[:-4]


PROXY_SEEDS = (
    b"PROXY TCP4 10.0.0.1 10.0.0.2 1000 4222\r\nPING\r\n",
    b"PROXY TCP6 ::1 fe80::1 1000 4222\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(range(12)),
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" + bytes(range(36)) + b"PING\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
    b"PING\r\n",
)
REQUEST = (
    b"GET /path?x=y HTTP/1.1\r\nHost: example.com:8080\r\nUpgrade: websocket\r\n"
    b"Connection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: https://example.com\r\n"
    b'Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\nCookie: jwt=abc; a="b"\r\n'
    b"X-Forwarded-For: 1.2.3.4\r\nNats-No-Masking: true\r\n\r\n"
)
HTTP_WORDS = (
    *(
        b"GET ",
        b"POST ",
        b"HTTP/1.1",
        b"HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b": ",
        b"Host: a\r\n",
        b"/leafnode",
    ),
    *(b"Origin: http://[::1\r\n", b"Origin: https://a:99999\r\n", b"Content-Length: 5\r\n", b"/mqtt", b"%00"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Upgrade: h2c\r\n",
        b"Sec-WebSocket-Key: \xff\r\n",
        b"\xff",
        b"\x00",
    ),
)
FRAMES = (
    _frame(0x82, b"PING\r\n"),
    _frame(0x02, b"PI") + _frame(0x89, b"ping") + _frame(0x80, b"NG\r\n"),
    _frame(0xC2, _deflated(b"PUB a 5\r\nhello\r\n" * 8)),
    _frame(0x42, _deflated(b"x" * 9000)[:5]) + _frame(0x80, _deflated(b"x" * 9000)[5:]),
    _frame(0x88, b"\x03\xe8bye"),
    _frame(0x81, "é".encode()) + _frame(0x8A, b""),
    b"\x82\xfe\x00\x80\x01\x02\x03\x04" + bytes(128),
    b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
)
FRAME_WORDS = (
    b"\x82",
    b"\xc2",
    b"\x00",
    b"\x80",
    b"\x88\x02\x03\xe8",
    b"\x89\x00",
    b"\x7f",
    b"\xff",
    *FRAMES,
)
QUERIES = (
    b"sort=cid&limit=10&offset=5&subs=detail&auth=1&state=closed&cid=3&acc=A&filter_subject=a.b&user=u",
    b"acc=A&accounts=true&streams=1&consumers=1&config=1&leader_only=true&offset=1&limit=2",
    b"offset=9223372036854775807&limit=-9223372036854775808",
)
QUERY_WORDS = (
    b"&",
    b"=",
    b"%",
    b"%ff",
    b"+",
    b";",
    b"offset=",
    b"limit=",
    b"state=",
    b"subs=detail",
    b"\xff",
    b"=1",
)
TARGETS = (
    Target(
        "proxy", run_proxy, PROXY_SEEDS, (b"PROXY ", b"TCP4 ", b"::1", b" ", b"\r\n", b"%", b"\x21"), share=4
    ),
    Target("upgrade", run_upgrade, (REQUEST, b"GET / HTTP/1.1\r\n\r\n"), HTTP_WORDS, share=4),
    Target("frames", run_frames, FRAMES, FRAME_WORDS, share=4),
    Target("query", run_query, QUERIES, QUERY_WORDS, share=2),
)
