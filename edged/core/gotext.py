"""Quoting as nats-server's error texts have it, which clients pick apart."""

from __future__ import annotations

_NAMED = {7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 11: r"\v", 12: r"\f", 13: r"\r", 34: r"\"", 92: r"\\"}


def quote(data: bytes) -> str:
    """Bytes between double quotes: printable text as it is, everything else escaped. One line, always."""
    shown = []
    for character in data.decode("utf-8", "surrogateescape"):
        code = ord(character)
        if code in _NAMED:
            shown.append(_NAMED[code])
        elif 0xDC80 <= code <= 0xDCFF:
            shown.append(f"\\x{code - 0xDC00:02x}")
        elif character.isprintable():
            shown.append(character)
        elif code < 0x80:
            shown.append(f"\\x{code:02x}")
        elif code < 0x10000:
            shown.append(f"\\u{code:04x}")
        else:
            shown.append(f"\\U{code:08x}")
    return '"' + "".join(shown) + '"'
