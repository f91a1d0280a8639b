"""Fixtures of the differential tests: the pairs of servers, started on demand and ended with the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.clusters import ClusterPairs
from tests.differential.pairs import Pairs
from tests.servers import edged_server, nats_server, real_server

__all__ = ["cluster_pairs", "edged_server", "nats_server", "pairs", "real_server"]


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    """The servers of the whole run, by configuration."""
    started = Pairs(tmp_path_factory.mktemp("differential"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cluster_pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPairs]:
    """The clusters of the whole run."""
    started = ClusterPairs(tmp_path_factory.mktemp("clusters"))
    yield started
    started.stop()
