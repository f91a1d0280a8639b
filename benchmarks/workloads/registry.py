"""Every workload by name. A new family is a module with a tuple WORKLOADS, listed here."""

from __future__ import annotations

from benchmarks.workloads import cluster, connections, consumers, jetstream, publish, request
from benchmarks.workloads.stage import Workload

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for family in (
        publish.WORKLOADS,
        request.WORKLOADS,
        connections.WORKLOADS,
        jetstream.WORKLOADS,
        consumers.WORKLOADS,
        cluster.WORKLOADS,
    )
    for workload in family
}
