"""Which changes of JetStream a reload takes over, and which it refuses by name."""

from __future__ import annotations

import pytest

from edged.config.jetstream_options import JetStreamOptions
from edged.config.options import Options
from edged.server.reload import ReloadRefused, refuse_fixed


def options(**fields: object) -> Options:
    return Options(jetstream=JetStreamOptions(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max_memory", "max_store"])
def test_room_for_jetstream_may_grow_and_not_shrink(name: str) -> None:
    refuse_fixed(options(**{name: 5}), options(**{name: 6}))
    refuse_fixed(options(**{name: -1}), options(**{name: 6}))
    refuse_fixed(options(**{name: 5}), options(**{name: -1}))
    with pytest.raises(ReloadRefused, match=f"jetstream.{name} cannot be lowered"):
        refuse_fixed(options(**{name: 5}), options(**{name: 4}))
