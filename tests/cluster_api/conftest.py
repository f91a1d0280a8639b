"""A cluster of three nodes, with a clock that does not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock

from tests.cluster_api.fake_cluster import FakeHub


@pytest.fixture
async def hub(nursery: trio.Nursery, autojump_clock: MockClock) -> AsyncIterator[FakeHub]:
    """Three nodes, the first of which leads the catalog."""
    hub = FakeHub(nursery)
    yield hub
    hub.close()
