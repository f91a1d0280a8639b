"""Changing header blocks of stored messages: lines taken out, put in the place of others, or added.

Rules: a key is matched exactly as the bytes it is, as nats-server does with what a stream stores; what must
not be forged whatever its spelling is the business of headers.without. A block that loses its last line
becomes empty: the message has no headers then. All functions are total and linear.
"""

from __future__ import annotations

from edged.core import headers

_LINE = b"\r\n"
_EMPTY_BYTES = len(headers.VERSION + _LINE + _LINE)


def removed(block: bytes, *keys: bytes) -> bytes:
    """The block without the lines of these keys."""
    for key in keys:
        block = removed_prefix(block, key + b":")
    return block


def removed_prefix(block: bytes, prefix: bytes) -> bytes:
    """The block without the lines that begin with the prefix."""
    if _LINE + prefix not in block:
        return block
    first, *lines = block.split(_LINE)
    # What follows the last line end is no line: nothing, in a block that is complete.
    tail = lines.pop()
    kept = [line for line in lines if not line.startswith(prefix)]
    left = _LINE.join([first, *kept, tail])
    return left if len(left) > _EMPTY_BYTES else b""


def replaced(block: bytes, key: bytes, text: bytes) -> bytes:
    """The block with `text` as the value of the first line of the key, which is added if there is none."""
    start = block.find(_LINE + key + b":")
    if start < 0:
        return headers.adding(block, key, text)
    value_start = start + len(_LINE) + len(key) + 1
    # One blank before the value stays, as it was written.
    if block[value_start : value_start + 1] == b" ":
        value_start += 1
    value_stop = block.find(b"\r", value_start)
    return block if value_stop < 0 else block[:value_start] + text + block[value_stop:]
