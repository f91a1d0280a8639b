"""The HTTP upgrade decided as nats-server decides it (statuses and bodies were compared with 2.15.1)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.http_upgrade import (
    REQUEST_BYTES_MAX,
    Origin,
    RequestReader,
    UpgradeAccepted,
    UpgradeRefused,
    UpgradeRequest,
    UpgradeRules,
    decide_upgrade,
    parse_origin,
)

HEAD = (
    b"GET / HTTP/1.1\r\nHost: edge.example:8080\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
NO_RULES = UpgradeRules()


def read(data: bytes) -> UpgradeRequest:
    request = RequestReader().receive(data)
    assert request is not None
    return request


def accept(extra: bytes = b"", rules: UpgradeRules = NO_RULES, head: bytes = HEAD) -> UpgradeAccepted:
    return decide_upgrade(read(head + extra + b"\r\n"), rules)


def refuse(extra: bytes = b"", rules: UpgradeRules = NO_RULES, head: bytes = HEAD) -> int:
    with pytest.raises(UpgradeRefused) as refused:
        accept(extra, rules, head)
    return int(refused.value.status)


def test_a_good_request_gets_the_answer_that_nats_server_gives() -> None:
    accepted = accept()
    assert accepted.answer == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    )
    assert (accepted.compression, accepted.masking, accepted.is_leafnode) == (False, True, False)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (b"GET /", b"POST /", 405),
        (b"GET /", b"GET /mqtt", 404),
        (b"Upgrade: websocket\r\n", b"", 400),
        (b"Upgrade: websocket", b"Upgrade: h2c", 400),
        (b"Connection: keep-alive, Upgrade\r\n", b"", 400),
        (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b"", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"dGhlIHNhbXBsZQ==", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"!!!", 400),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"\xff\xfe", 400),
        (b"Version: 13", b"Version: 12", 400),
        (b"Host: edge.example:8080\r\n", b"", 400),
        (b"HTTP/1.1\r\nHost: edge.example:8080\r\n", b"HTTP/1.0\r\n", 400),
        (b"GET / HTTP/1.1", b"CONNECT {}", 400),
        (b"GET / HTTP/1.1", b"\x16\x03\x01\x00", 400),
    ],
)
def test_a_bad_request_is_refused_with_the_status_of_nats_server(old: bytes, new: bytes, status: int) -> None:
    assert refuse(head=HEAD.replace(old, new)) == status


def test_a_refusal_is_a_complete_http_answer_that_keeps_the_reason_to_itself() -> None:
    with pytest.raises(UpgradeRefused) as refused:
        accept(head=HEAD.replace(b"GET", b"POST"))
    answer = refused.value.response()
    assert answer.startswith(
        b"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain; charset=utf-8\r\n"
    )
    assert b"Sec-WebSocket-Version: 13\r\n" in answer
    assert answer.endswith(b"Content-Length: 19\r\n\r\nMethod Not Allowed\n")


@pytest.mark.parametrize("path", [b"/", b"/any/path?query", b"/nats"])
def test_any_path_is_a_client_and_leafnode_is_a_leaf(path: bytes) -> None:
    assert not accept(head=HEAD.replace(b"GET /", b"GET " + path)).is_leafnode
    assert accept(head=HEAD.replace(b"GET /", b"GET /leafnode?" + path)).is_leafnode


@pytest.mark.parametrize(
    ("offer", "taken"),
    [
        (b"permessage-deflate", True),
        (b"permessage-deflate; client_max_window_bits", True),
        (b"x-other, Permessage-Deflate ; client_no_context_takeover", True),
        (b"permessage-deflate; server_max_window_bits=10", False),
        (b"permessage-deflate; server_max_window_bits=10, permessage-deflate", True),
        (b"x-webkit-deflate-frame", False),
        (b"", False),
    ],
)
def test_compression_is_agreed_when_offered_and_configured(offer: bytes, taken: bool) -> None:
    extra = b"Sec-WebSocket-Extensions: " + offer + b"\r\n"
    assert accept(extra).compression is False
    accepted = accept(extra, UpgradeRules(compression=True))
    assert accepted.compression is taken
    parameters = b"server_no_context_takeover; client_no_context_takeover"
    agreed = b"\r\nSec-WebSocket-Extensions: permessage-deflate; " + parameters + b"\r\n"
    assert (agreed in accepted.answer) is taken


def test_a_leaf_that_asks_not_to_mask_is_told_so() -> None:
    accepted = accept(b"Nats-No-Masking: true\r\n")
    assert not accepted.masking
    assert accepted.answer.endswith(b"\r\nNats-No-Masking: true\r\n\r\n")


def test_configured_headers_are_in_the_answer() -> None:
    answer = accept(rules=UpgradeRules(answer_headers=(("X-Edge", "seven"),))).answer
    assert answer.endswith(b"\r\nX-Edge: seven\r\n\r\n")


@pytest.mark.parametrize(
    ("origin", "is_tls", "allowed"),
    [
        (b"http://edge.example:8080", False, True),
        (b"http://EDGE.example:8080", False, True),
        (b"https://edge.example:8080", False, False),
        (b"https://edge.example:8080", True, True),
        (b"http://edge.example", False, False),
        (b"http://evil.example:8080", False, False),
        (b"null", False, False),
        (b"http://edge.example:port", False, False),
        (b"http://[::1", False, False),
    ],
)
def test_same_origin_compares_scheme_host_and_port(origin: bytes, is_tls: bool, allowed: bool) -> None:
    rules = UpgradeRules(is_tls=is_tls, same_origin=True)
    extra = b"Origin: " + origin + b"\r\n"
    if allowed:
        accept(extra, rules)
    else:
        assert refuse(extra, rules) == 403
    accept(extra)


def test_allowed_origins_are_a_list_and_no_origin_is_no_browser() -> None:
    rules = UpgradeRules(
        allowed_origins=(parse_origin("https://app.example"), parse_origin("http://10.0.0.1:81"))
    )
    accept(b"Origin: https://app.example:443\r\n", rules)
    accept(b"Sec-WebSocket-Origin: http://10.0.0.1:81\r\n", rules)
    accept(b"", rules)
    assert refuse(b"Origin: http://app.example\r\n", rules) == 403
    assert refuse(b"Origin: https://app.example.evil\r\n", rules) == 403


def test_an_origin_has_its_default_port_and_needs_a_scheme() -> None:
    assert parse_origin("https://A.example") == Origin("https", "a.example", 443)
    assert parse_origin("http://[::1]:9") == Origin("http", "::1", 9)
    for text in ("app.example", "ftp://app.example", "https://", "http://a:99999"):
        with pytest.raises(ValueError, match=r".+"):
            parse_origin(text)


def test_cookies_and_forwarded_address_are_read() -> None:
    request = read(
        HEAD + b'Cookie: jwt=eyJh.bGc; user="device"; empty=; nonsense\r\nCookie: user=later\r\n'
        b"X-Forwarded-For: 192.0.2.9\r\n\r\n"
    )
    assert request.cookies() == {"jwt": "eyJh.bGc", "user": "later", "empty": ""}
    assert request.forwarded_for == "192.0.2.9"
    assert read(HEAD + b"X-Forwarded-For: 192.0.2.9, 10.0.0.1\r\n\r\n").forwarded_for is None
    assert read(HEAD + b"X-Forwarded-For: fe80::1%x\r\n\r\n").forwarded_for is None


def test_data_before_the_answer_is_refused() -> None:
    with pytest.raises(UpgradeRefused):
        RequestReader().receive(HEAD + b"\r\n\x82\x80abcd")


def test_a_request_head_that_is_too_long_is_refused_with_431() -> None:
    reader = RequestReader()
    with pytest.raises(UpgradeRefused) as refused:
        for _line in range(REQUEST_BYTES_MAX // 1000 + 2):
            assert (
                reader.receive(b"GET / HTTP/1.1\r\n" if _line == 0 else b"X: " + b"a" * 995 + b"\r\n") is None
            )
    assert refused.value.status == 431


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", HEAD])
def test_an_end_before_the_request_is_complete_is_refused(sent: bytes) -> None:
    reader = RequestReader()
    if sent:
        assert reader.receive(sent) is None
    with pytest.raises(UpgradeRefused):
        reader.receive(b"")


@given(cuts=st.lists(st.integers(1, len(HEAD) + 1), max_size=6))
def test_however_the_request_is_cut_it_reads_the_same(cuts: list[int]) -> None:
    data = HEAD + b"\r\n"
    borders = sorted({0, len(data), *cuts})
    reader = RequestReader()
    answers = [reader.receive(data[start:end]) for start, end in pairwise(borders)]
    assert answers[:-1] == [None] * (len(answers) - 1)
    assert answers[-1] == read(data)


@given(junk=st.binary(max_size=300))
def test_any_bytes_are_waited_for_refused_or_a_request(junk: bytes) -> None:
    try:
        request = RequestReader().receive(junk)
        if request is not None:
            decide_upgrade(request, UpgradeRules(same_origin=True, compression=True))
    except UpgradeRefused as refused:
        assert refused.response().startswith(b"HTTP/1.1 4")


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                ["origin", "host", "cookie", "sec-websocket-key", "sec-websocket-extensions", "upgrade"]
            ),
            st.text(st.characters(max_codepoint=255), max_size=30),
        ),
        max_size=8,
    )
)
def test_any_header_values_are_accepted_or_refused(headers: list[tuple[str, str]]) -> None:
    request = UpgradeRequest("GET", "/", (*headers, *read(HEAD + b"\r\n").headers))
    request.cookies()
    try:
        decide_upgrade(request, UpgradeRules(same_origin=True, compression=True))
    except UpgradeRefused as refused:
        assert refused.status in (400, 403)
