"""Header blocks: `NATS/1.0[ status[ text]]`, then `Key: Value` lines, then an empty line.

Rules: keys are matched exactly, as the bytes they are; the first of equal keys counts; blanks in front of a
value are not part of it. A block that a client sent is passed on verbatim, whatever it holds. But what the
server vouches for must not be forged: `without` takes out whatever any client might read as the key, since
they differ in case, blanks and line ends, and `adding` puts a line where all of them look. All is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

VERSION = b"NATS/1.0"
_LINE = b"\r\n"


def encode(fields: Iterable[tuple[bytes, bytes]], status: bytes = b"") -> bytes:
    """A header block; `status` is the inline status such as b"503" or b"408 Request Timeout"."""
    first = VERSION + b" " + status if status else VERSION
    lines = [first, *(key + b": " + value for key, value in fields)]
    return _LINE.join(lines) + _LINE + _LINE


def value(block: bytes, key: bytes) -> bytes | None:
    """The first value of a key, or None."""
    found = _find(block, key)
    if found is None:
        return None
    start, stop = found
    return block[start + len(key) + 1 : stop].lstrip(b" ")


def without_status(block: bytes) -> bytes:
    """The block without its inline status; empty when nothing else was in it."""
    end = block.find(b"\r")
    if end <= len(VERSION) or not block.startswith(VERSION):
        return block
    rest = VERSION + block[end:]
    return b"" if rest == VERSION + _LINE + _LINE else rest


def without(block: bytes, key: bytes) -> bytes:
    """The block with every line taken out that could be read as one of this key."""
    return re.sub(
        rb"(?<![^\r\n])[ \t]*" + re.escape(key) + rb"[ \t]*:[^\r\n]*(?:\r\n|\r|\n|\Z)",
        b"",
        block,
        flags=re.IGNORECASE,
    )


def adding(block: bytes, key: bytes, text: bytes) -> bytes:
    """The block with one more line at its end, before the empty line; an empty block becomes a new one."""
    end = block.find(_LINE + _LINE)
    head, rest = (block[:end], block[end + 4 :]) if end >= 0 else (block.rstrip(_LINE), b"")
    return (head or VERSION) + _LINE + key + b": " + text + _LINE + _LINE + rest


def _find(block: bytes, key: bytes) -> tuple[int, int] | None:
    """Where the first line of a key starts and ends (without its line end)."""
    wanted = _LINE + key + b":"
    start = block.find(wanted)
    if start < 0:
        return None
    stop = block.find(_LINE, start + len(wanted))
    return (start + 2, stop) if stop >= 0 else None
