"""PROXY protocol headers: both versions, every cut, every lie."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.proxy_header import (
    HEADER_BYTES_MAX,
    Missing,
    ProxyHeader,
    ProxyHeaderError,
    parse_proxy_header,
)

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def binary(command: int, family: int, block: bytes, version: int = 2, transport: int = 1) -> bytes:
    return (
        SIGNATURE
        + bytes((version << 4 | command, family << 4 | transport))
        + len(block).to_bytes(2, "big")
        + block
    )


def ipv4_block(source: str = "192.0.2.7", port: int = 5555) -> bytes:
    return ipaddress.ip_address(source).packed + bytes(4) + port.to_bytes(2, "big") + b"\x10\x7e"


@pytest.mark.parametrize(
    ("line", "ip", "port"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 4222\r\n", "192.0.2.7", 5555),
        (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n", "2001:db8::1", 1),
        (b"PROXY TCP6 ::ffff:192.0.2.7 2001:db8::2 1 2\r\n", "192.0.2.7", 1),
        (b"PROXY UNKNOWN\r\n", None, 0),
        (b"PROXY UNKNOWN whatever the proxy says\r\n", None, 0),
    ],
)
def test_a_text_header_gives_the_source_and_its_own_length(line: bytes, ip: str | None, port: int) -> None:
    assert parse_proxy_header(line + b"CONNECT {}\r\n") == ProxyHeader(len(line), ip, port)


@pytest.mark.parametrize(
    "line",
    [
        b"PROXY \r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 5555\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 4222 1\r\n",
        b"PROXY UDP4 192.0.2.7 10.0.0.1 5555 4222\r\n",
        b"PROXY TCP4 ::1 ::1 5555 4222\r\n",
        b"PROXY TCP6 192.0.2.7 10.0.0.1 5555 4222\r\n",
        b"PROXY TCP6 fe80::1%eth0 fe80::2 5555 4222\r\n",
        b"PROXY TCP4 localhost 10.0.0.1 5555 4222\r\n",
        b"PROXY TCP4 192.0.2.7 nowhere 5555 4222\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 4222\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 4222\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 99999999999999999999\r\n",
        b"PROXY TCP4 \xff\xfe 10.0.0.1 5555 4222\r\n",
        b"PROXY " + b"x" * 200,
    ],
)
def test_a_wrong_text_header_is_refused(line: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse_proxy_header(line)


def test_a_binary_header_gives_the_source_and_skips_its_extensions() -> None:
    header = binary(1, 1, ipv4_block() + b"\x04\x00\x02ab")
    assert parse_proxy_header(header + b"CONNECT") == ProxyHeader(len(header), "192.0.2.7", 5555)
    block = ipaddress.ip_address("2001:db8::1").packed + bytes(16) + (77).to_bytes(2, "big") + bytes(2)
    assert parse_proxy_header(binary(1, 2, block)) == ProxyHeader(52, "2001:db8::1", 77)


def test_a_binary_header_without_source_is_the_proxy_itself() -> None:
    assert parse_proxy_header(binary(0, 0, b"")) == ProxyHeader(16)
    assert parse_proxy_header(binary(0, 1, ipv4_block())) == ProxyHeader(28)
    assert parse_proxy_header(binary(1, 0, b"xyz")) == ProxyHeader(19)


@pytest.mark.parametrize(
    "header",
    [
        binary(1, 1, ipv4_block(), version=1),
        binary(7, 1, ipv4_block()),
        binary(1, 1, ipv4_block(), transport=2),
        binary(1, 3, bytes(216)),
        binary(1, 1, bytes(11)),
        binary(1, 2, bytes(35)),
        binary(1, 1, bytes(HEADER_BYTES_MAX)),
        SIGNATURE + b"\x21\x11\xff\xff",
    ],
)
def test_a_wrong_binary_header_is_refused_without_waiting_for_its_claimed_length(header: bytes) -> None:
    with pytest.raises(ProxyHeaderError):
        parse_proxy_header(header)


@pytest.mark.parametrize(
    "data", [b"CONNECT {}\r\n", b"\x16\x03\x01", b"PROXIES", b"\r\n\r\nX", b"PING\r\n", b"GET /"]
)
def test_other_protocols_have_no_header(data: bytes) -> None:
    assert parse_proxy_header(data) is Missing.ABSENT


@given(
    header=st.sampled_from(
        [b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 4222\r\n", b"PROXY UNKNOWN\r\n", binary(1, 1, ipv4_block())]
    ),
    cut=st.integers(0, 60),
    rest=st.binary(max_size=40),
)
def test_every_cut_of_a_header_is_incomplete_and_what_follows_does_not_matter(
    header: bytes, cut: int, rest: bytes
) -> None:
    if cut < len(header):
        assert parse_proxy_header(header[:cut]) is Missing.INCOMPLETE
    answer = parse_proxy_header(header + rest)
    assert isinstance(answer, ProxyHeader)
    assert answer.length == len(header)


@given(
    prefix=st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE]),
    junk=st.binary(max_size=HEADER_BYTES_MAX),
)
def test_any_bytes_give_an_answer_or_a_refusal_and_never_wait_beyond_the_bound(
    prefix: bytes, junk: bytes
) -> None:
    data = (prefix + junk)[:HEADER_BYTES_MAX]
    try:
        answer = parse_proxy_header(data)
    except ProxyHeaderError:
        return
    if isinstance(answer, ProxyHeader):
        assert answer.length <= len(data)
    elif answer is Missing.INCOMPLETE:
        assert len(data) < HEADER_BYTES_MAX
