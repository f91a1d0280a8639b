"""How far a stream has taken over messages from others, as their `Nats-Stream-Source` headers say.

The header is `<stream> <seq> <filter> <transform> <subject>[ <identity>]`; a source is known by its stream,
filter and transform, because one stream may be a source several times.

Rules: a header of another form says nothing.
"""

from __future__ import annotations

from typing import NamedTuple

_FIELDS_MIN = 4
_FIELDS_WITH_IDENTITY = 6


class SourcePosition(NamedTuple):
    """The seq of the last message taken over, and the identity of the origin, empty if it is not known."""

    seq: int
    identity: str


def read_position(header: bytes) -> dict[str, SourcePosition]:
    """The source of a message and its position there, as a dict of one; empty if the header says nothing."""
    fields = header.decode("utf-8", "replace").split(" ")
    if len(fields) < _FIELDS_MIN or not fields[1].isdecimal() or not fields[1].isascii():
        return {}
    identity = fields[5] if len(fields) >= _FIELDS_WITH_IDENTITY else ""
    return {f"{fields[0]} {fields[2]} {fields[3]}": SourcePosition(int(fields[1][:20]), identity)}
