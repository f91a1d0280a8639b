"""The scripts about streams and consumers, against three nodes: edged-hub answers as nats-server does."""

from __future__ import annotations

import pytest

from tests.differential.allowed import kept_reason
from tests.differential.clusters import ClusterPairs
from tests.differential.kept_in_clusters import KEPT, played
from tests.differential.steps import Case
from tests.servers import is_replaced

pytestmark = pytest.mark.real


def _marks(case: Case) -> list[pytest.MarkDecorator]:
    reason = kept_reason(case.id, KEPT)
    if reason is None or is_replaced("edged-hub"):
        return []
    return [pytest.mark.xfail(reason=reason, strict=True)]


@pytest.mark.parametrize(
    ("case", "replicas"),
    [
        pytest.param(case, replicas, id=f"R{replicas} {case.id}", marks=_marks(case))
        for case, replicas in played()
    ],
)
def test_a_hub_answers_as_nats_server_does(case: Case, replicas: int, cluster_pairs: ClusterPairs) -> None:
    servers = cluster_pairs.of(case)
    found = servers.difference(case, replicas)
    if found is not None:
        log = servers.pair.subject.log_tail()
        pytest.fail(f"{case.id} (R{replicas})\n{found}\n\nlog of the hub:\n{log}", pytrace=False)
