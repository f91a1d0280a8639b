"""The wire parsers: any input, cut anywhere, gives the same events from the reference and from the twin."""

from __future__ import annotations

from functools import partial
from typing import Any

from edged.core import _native, leaf_wire, wire
from edged.core.wire import Connect
from tests.fuzz.target import Target, chance_of, cut
from tests.fuzz.targets.wire_seeds import LEAF_SEEDS, LEAF_WORDS, SEEDS, WORDS

CONTROL_LINES = (64, 4096)
PAYLOAD_MAX = 100
# A verb, and the line end behind a payload.
_SLACK_BYTES = 16


def parse(parser: Any, chunks: list[bytes]) -> list[Any]:
    """All events, batches flattened. Like a connection, what is allowed changes with each CONNECT."""
    found: list[Any] = []
    for number, chunk in enumerate(chunks):
        # What sockets deliver is a memoryview; what waits for an answer was copied.
        events = parser.feed(memoryview(chunk) if number % 2 else chunk)
        while True:
            for event in events:
                found.extend(event if hasattr(event, "__iter__") else [event])
            if not events or not isinstance(events[-1], Connect):
                break
            parser.payload_max = PAYLOAD_MAX
            parser.headers_allowed = b"headers" in events[-1].body
            events = parser.feed(b"")
        held = parser.buffered_bytes
        assert held <= 2 * parser.control_line_max + parser.payload_max + _SLACK_BYTES, held
    return found


def run(reference: Any, data: bytes) -> None:
    twin = getattr(_native, reference.__name__)
    chance = chance_of(data)
    control_line_max = chance.choice(CONTROL_LINES)
    payload_max = chance.choice((0, PAYLOAD_MAX, PAYLOAD_MAX))
    headers_allowed = chance.random() < 0.7
    chunks = cut(data, chance)

    def events(parser_class: Any, pieces: list[bytes]) -> list[Any]:
        parser = parser_class(control_line_max, payload_max)
        parser.headers_allowed = headers_allowed
        return parse(parser, pieces)

    expected = events(reference, [data])
    assert events(reference, chunks) == expected, "the reference depends on cuts"
    assert events(twin, [data]) == expected, "the twin differs"
    assert events(twin, chunks) == expected, "the twin depends on cuts"


TARGETS = (
    Target("wire", partial(run, wire.Parser), SEEDS, WORDS, share=30),
    Target("leaf-wire", partial(run, leaf_wire.LeafParser), LEAF_SEEDS, LEAF_WORDS, share=15),
)
