"""What tests of mirrors and sources share: one edged for a module, without streams for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.origin_pair import OriginServer


@pytest.fixture(scope="module")
def running_edged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OriginServer]:
    """An edged for all tests of a module."""
    server = OriginServer("edged", tmp_path_factory.mktemp("edged"))
    yield server
    server.stop()


@pytest.fixture
def edged(running_edged: OriginServer) -> Iterator[OriginServer]:
    """An edged without streams."""
    yield running_edged
    running_edged.forget()
