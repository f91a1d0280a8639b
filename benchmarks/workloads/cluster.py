"""Clusters of three nodes on this machine, with streams in three copies.

What an acknowledgement is worth differs: edged-hub has synced a majority of copies before it, nats-server
syncs every two minutes, unless it is `nats-server-always`. Processor time and memory are those of all nodes
together.
`python -m benchmarks --cluster --servers edged-hub,nats-server,nats-server-always`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from benchmarks.results import Headline, Outcome
from benchmarks.servers import Served
from benchmarks.workloads import consumers, jetstream
from benchmarks.workloads.jetstream_api import ask, asking
from benchmarks.workloads.stage import Load, Workload

NODES = 3
_COPIES = {"num_replicas": NODES}
_CONSUMED, _QUICK_CONSUMED = 100_000, 5_000
_IDLE_STREAMS, _QUICK_IDLE_STREAMS = 200, 20
_IDLE_S, _QUICK_IDLE_S = 30.0, 3.0
_CALM_S, _QUICK_CALM_S = 10.0, 1.0


def measure_idle(server: Served, load: Load) -> Outcome:
    """What streams cost that nobody uses: elections and their like are over before the clock starts."""
    is_quick = load.limit.seconds is not None and load.limit.seconds < 1
    streams = _QUICK_IDLE_STREAMS if is_quick else _IDLE_STREAMS
    with asking(server) as connection:
        for number in range(streams):
            name = f"idle{number}"
            config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **_COPIES}
            ask(connection, f"STREAM.CREATE.{name}", config)
    for number in range(streams):
        server.settle(f"idle{number}")
    time.sleep(_QUICK_CALM_S if is_quick else _CALM_S)
    before, began_s = server.use(), time.monotonic()
    time.sleep(_QUICK_IDLE_S if is_quick else _IDLE_S)
    after, ended_s = server.use(), time.monotonic()
    return Outcome(
        count=0,
        seconds=ended_s - began_s,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_bytes,
    )


_CONSUME = consumers.Shape(
    messages=_CONSUMED, quick_messages=_QUICK_CONSUMED, batch=500, ahead=1000, stream=_COPIES
)

WORKLOADS = (
    *(
        Workload(
            f"cluster_w{window}_128B",
            f"publish to a stream in 3 copies, with acknowledgements: window {window}",
            partial(jetstream.measure_publish, jetstream.Shape(window=window, config=_COPIES)),
            is_jetstream=True,
            nodes=NODES,
        )
        for window in (1, 64, 1024, 8192)
    ),
    Workload(
        "cluster_consume",
        "pull with up to 1,000 messages on their way, acknowledged",
        partial(consumers.measure, _CONSUME),
        is_jetstream=True,
        nodes=NODES,
    ),
    Workload(
        "cluster_fetch",
        "pull in batches of 100, each acknowledged before the next",
        partial(consumers.measure, replace(_CONSUME, batch=100, ahead=100)),
        is_jetstream=True,
        nodes=NODES,
    ),
    Workload(
        "cluster_idle",
        "processor time of 200 streams in 3 copies that nobody uses, over 30 s",
        measure_idle,
        Headline.CPU,
        is_jetstream=True,
        nodes=NODES,
    ),
)
