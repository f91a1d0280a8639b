"""Fixtures of the tests that drive the real `nats` command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extra.operators import Operator
from tests.jetstream.jetstream_servers import SERVERS


@pytest.fixture(params=SERVERS)
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Operator]:
    made = Operator(request.param, tmp_path)
    yield made
    made.server.stop()
