"""The PROXY protocol header, versions 1 (text) and 2 (binary): whom a load balancer speaks for.

Rules: pure and restartable. The caller hands over the first bytes of a connection, as many as it has, and
gets one of four answers: a header, INCOMPLETE (come back with more), ABSENT (the connection does not begin
with a header), or ProxyHeaderError (it does, and the header is bad). Nothing is consumed here:
ProxyHeader.length says how much belongs to the header.
Invariants: the answer for a prefix is INCOMPLETE or the final answer; more than HEADER_BYTES_MAX bytes are
never asked for.
"""

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import Final

HEADER_BYTES_MAX: Final = 536
"""The longest header accepted. It fits the smallest segment that every host must take in one piece."""

_TEXT_PREFIX: Final = b"PROXY "
_TEXT_LINE_BYTES_MAX: Final = 107
_BINARY_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_BINARY_FIXED_BYTES: Final = 16

_COMMAND_LOCAL: Final = 0
_COMMAND_PROXY: Final = 1
_TRANSPORT_STREAM: Final = 1
_FAMILY_UNSPECIFIED: Final = 0
_FAMILY_ADDRESS_BYTES: Final = {1: 4, 2: 16}


class ProxyHeaderError(ValueError):
    """The connection begins with a PROXY header that is wrong or not supported."""


class Missing(Enum):
    """Why there is no header (yet)."""

    INCOMPLETE = "the bytes may become a header"
    ABSENT = "the connection does not begin with a header"


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A complete header. source_ip is None when the proxy speaks for itself (a health check)."""

    length: int
    source_ip: str | None = None
    source_port: int = 0


def parse_proxy_header(data: bytes) -> ProxyHeader | Missing:
    """Look at the first bytes of a connection. Raises ProxyHeaderError."""
    if data.startswith(_TEXT_PREFIX):
        return _parse_text(data)
    if data.startswith(_BINARY_SIGNATURE):
        return _parse_binary(data)
    if _TEXT_PREFIX.startswith(data) or _BINARY_SIGNATURE.startswith(data):
        return Missing.INCOMPLETE
    return Missing.ABSENT


def _parse_text(data: bytes) -> ProxyHeader | Missing:
    line_end = data.find(b"\r\n", 0, _TEXT_LINE_BYTES_MAX)
    if line_end < 0:
        if len(data) >= _TEXT_LINE_BYTES_MAX:
            raise ProxyHeaderError(f"the line is longer than {_TEXT_LINE_BYTES_MAX} bytes")
        return Missing.INCOMPLETE
    length = line_end + 2
    words = data[len(_TEXT_PREFIX) : line_end].split()
    if words and words[0] == b"UNKNOWN":
        return ProxyHeader(length)
    if len(words) != 5:
        raise ProxyHeaderError("the line does not have protocol, two addresses and two ports")
    protocol, source, destination, source_port, destination_port = words
    version = {b"TCP4": 4, b"TCP6": 6}.get(protocol)
    if version is None:
        raise ProxyHeaderError("the protocol is not TCP4, TCP6 or UNKNOWN")
    _text_address(destination, version)
    _text_port(destination_port)
    return ProxyHeader(length, _text_address(source, version), _text_port(source_port))


def _text_address(word: bytes, version: int) -> str:
    if b"%" in word:
        # An IPv6 scope could carry any bytes into logs, and means nothing on this host.
        raise ProxyHeaderError("an address has a scope")
    try:
        address = ipaddress.ip_address(word.decode("ascii"))
    except ValueError:
        raise ProxyHeaderError("an address is not an IP address") from None
    if address.version != version:
        raise ProxyHeaderError("an address is not of the protocol's family")
    return _address_text(address)


def _text_port(word: bytes) -> int:
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise ProxyHeaderError("a port is not a number from 0 to 65535")
    return int(word)


def _parse_binary(data: bytes) -> ProxyHeader | Missing:
    if len(data) < _BINARY_FIXED_BYTES:
        return Missing.INCOMPLETE
    version, command = data[12] >> 4, data[12] & 0x0F
    family, transport = data[13] >> 4, data[13] & 0x0F
    length = _BINARY_FIXED_BYTES + int.from_bytes(data[14:16], "big")
    if version != 2:
        raise ProxyHeaderError(f"version {version} is not known")
    if command not in (_COMMAND_LOCAL, _COMMAND_PROXY):
        raise ProxyHeaderError(f"command {command} is not known")
    if length > HEADER_BYTES_MAX:
        raise ProxyHeaderError(f"the header is longer than {HEADER_BYTES_MAX} bytes")
    says_address = command == _COMMAND_PROXY
    if says_address and transport != _TRANSPORT_STREAM:
        raise ProxyHeaderError("only stream connections are supported")
    if says_address and family != _FAMILY_UNSPECIFIED and family not in _FAMILY_ADDRESS_BYTES:
        raise ProxyHeaderError(f"address family {family} is not supported")
    if len(data) < length:
        return Missing.INCOMPLETE
    if not says_address or family == _FAMILY_UNSPECIFIED:
        return ProxyHeader(length)
    return _binary_source(data[_BINARY_FIXED_BYTES:length], _FAMILY_ADDRESS_BYTES[family], length)


def _binary_source(block: bytes, address_bytes: int, length: int) -> ProxyHeader:
    """The block holds source and destination address, source and destination port, then extensions."""
    if len(block) < 2 * address_bytes + 4:
        raise ProxyHeaderError("the address block is too short")
    source = ipaddress.ip_address(block[:address_bytes])
    port = int.from_bytes(block[2 * address_bytes : 2 * address_bytes + 2], "big")
    return ProxyHeader(length, _address_text(source), port)


def _address_text(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """IPv4 inside IPv6 is shown as IPv4, as for direct connections."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
