"""Both versions of the hot loops, so that one test file runs over each of them, and how parsers are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from edged.core import fanout, leaf_wire, wire
from edged.core.wire import Connect

REFERENCE = SimpleNamespace(
    name="reference",
    Parser=wire.Parser,
    LeafParser=leaf_wire.LeafParser,
    Publishes=wire.Publishes,
    Fanout=fanout.Fanout,
    Outbox=fanout.Outbox,
    Route=fanout.Route,
    Subscription=fanout.Subscription,
    are_plain=fanout.are_plain,
)


def native() -> SimpleNamespace:
    """The native twin. Not having it is an error here: `make venv` builds it."""
    from edged.core import _native

    return SimpleNamespace(
        name="native", **{key: getattr(_native, key) for key in vars(REFERENCE) if key != "name"}
    )


both = pytest.mark.parametrize("twin", [REFERENCE, native()], ids=lambda twin: twin.name)


def events_of(parser: Any, chunks: list[bytes]) -> list[Any]:
    """All events of some input, batches flattened to their messages; each CONNECT is answered at once."""
    found: list[Any] = []
    for chunk in chunks:
        events = parser.feed(chunk)
        while True:
            for event in events:
                found.extend(event if hasattr(event, "__iter__") else [event])
            if not events or not isinstance(events[-1], Connect):
                break
            events = parser.feed(b"")
    return found
