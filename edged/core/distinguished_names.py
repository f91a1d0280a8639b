"""Distinguished names: the subjects of certificates, and users that are named after them.

Rules: a name is read as RFC 4514 writes it, the most specific part first; the type of an attribute is
compared without case, its value exactly. Two names are the same when their parts are the same in the same
order; as a fallback, callers may ignore the order of the parts, but never leave a part out.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

# An octet in hex, an escaped special character, any other character, a backslash before nothing useful.
_CHARACTER: Final = re.compile(r'\\([0-9A-Fa-f]{2})|\\([ "#+,;<=>\\])|([^\\])|(\\)', re.DOTALL)

# The attributes that a name may hold; a certificate with any other cannot be matched part by part.
ATTRIBUTE_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.17": "POSTALCODE",
    "0.9.2342.19200300.100.1.25": "DC",
}

# One part: its (type, value) pairs, sorted, since their order has no meaning.
Part = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class DistinguishedName:
    """The subject of a certificate, comparable with one written in a configuration."""

    parts: tuple[Part, ...]

    def same_parts(self, other: "DistinguishedName") -> bool:
        """Whether both have the same parts, each as often, in whatever order."""
        return Counter(self.parts) == Counter(other.parts)


def part_of(pairs: list[tuple[str, str]]) -> Part:
    return tuple(sorted((kind.upper(), value) for kind, value in pairs))


def parse(text: str) -> DistinguishedName | None:
    """The name that the text spells; None when it spells none."""
    parts: list[Part] = []
    pairs: list[tuple[str, str]] = []
    for pair_text, separator in _split(text):
        kind, equals, value = pair_text.partition("=")
        plain = _unescape(value)
        # A value that begins with # is BER in hex, which nobody writes for users.
        if not equals or not kind.strip() or value.startswith("#") or plain is None:
            return None
        pairs.append((kind.strip(), plain))
        if separator != "+":
            parts.append(part_of(pairs))
            pairs = []
    return DistinguishedName(tuple(parts)) if parts and not pairs else None


def _split(text: str) -> list[tuple[str, str]]:
    """The pieces between unescaped commas and pluses, each with what ends it."""
    pieces: list[tuple[str, str]] = []
    start = position = 0
    while position < len(text):
        character = text[position]
        if character in ",+":
            pieces.append((text[start:position], character))
            start = position + 1
        position += 2 if character == "\\" else 1
    pieces.append((text[start:], ""))
    return pieces


def _unescape(value: str) -> str | None:
    """The value without its escapes and without unescaped blanks around it; None when an escape is broken."""
    octets = bytearray()
    kept = 0  # up to here nothing is a trailing blank
    for match in _CHARACTER.finditer(value.lstrip(" ")):
        octet, special, plain, broken = match.groups()
        if broken:
            return None
        if octet:
            octets.append(int(octet, 16))
        else:
            octets += (special or plain).encode("utf-8", "surrogatepass")
        kept = kept if plain == " " else len(octets)
    try:
        return octets[:kept].decode("utf-8")
    except UnicodeDecodeError:
        return None
