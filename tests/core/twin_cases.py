"""Both versions of the hot loops, so that one test file runs over each of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edged.core import fanout, wire

REFERENCE = SimpleNamespace(
    name="reference",
    Parser=wire.Parser,
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
