"""Streams: publishes that are acknowledged, lookups, and what messages and subjects cost in memory.

A publisher waits for acknowledgements only when a window of messages is on its way. What an acknowledgement
is worth depends on the server: edged syncs first, unless it is `edged-os`; nats-server syncs every two
minutes, unless it is `nats-server-always`. Name all of them to compare like with like:
`python -m benchmarks --jetstream --servers edged,edged-os,nats-server,nats-server-always`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from benchmarks.generator.process import Limit, Worker
from benchmarks.generator.windowed import Answered, WindowedPlan, run_windowed
from benchmarks.results import GeneratorUse, Headline, Outcome
from benchmarks.servers import Served
from benchmarks.workloads.jetstream_api import ask, asking
from benchmarks.workloads.stage import Load, Workload, payload_of

_ACK = b'"seq":'
_FOUND = b"Nats-Sequence:"
_MEMORY_MESSAGES, _QUICK_MEMORY_MESSAGES = 1_000_000, 20_000
_FILL_WINDOW = 8192
_FILLED_SUBJECTS = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Who publishes what to which streams. Connections take the streams in turn."""

    window: int = 1024
    payload_bytes: int = 128
    connections: int = 1
    streams: int = 1
    subject_count: int = 10
    config: dict[str, Any] = field(default_factory=dict)

    def subjects(self) -> tuple[bytes, ...]:
        """One pattern per connection; with more streams than connections each of them has several lanes."""
        lanes = max(self.connections, self.streams)
        return tuple(b"bench%d.%%07d" % (number % self.streams) for number in range(lanes))


def measure_publish(shape: Shape, server: Served, load: Load) -> Outcome:
    """Publish to streams that are empty at first."""
    _create(server, shape)
    return _measure(server, shape, _plan(server, shape, load.limit))


def measure_direct_get(server: Served, load: Load) -> Outcome:
    """Ask for the last message of a subject, over and over."""
    shape = Shape(subject_count=_FILLED_SUBJECTS, config={"allow_direct": True}, window=64)
    _create(server, shape)
    filling = replace(shape, window=_FILL_WINDOW)
    _measure(server, filling, _plan(server, filling, Limit(None, _FILLED_SUBJECTS)))
    asking = WindowedPlan(
        server.endpoint,
        (b"$JS.API.DIRECT.GET.bench0.bench0.%07d",),
        _FILLED_SUBJECTS,
        b"",
        _FOUND,
        shape.window,
        load.limit,
    )
    return _measure(server, shape, asking)


def measure_memory(shape: Shape, server: Served, load: Load) -> Outcome:
    """Resident memory once many messages are stored and nothing is going on any more."""
    is_quick = load.limit.seconds is not None and load.limit.seconds < 1
    messages = load.limit.messages or (_QUICK_MEMORY_MESSAGES if is_quick else _MEMORY_MESSAGES)
    _create(server, shape)
    filled = _measure(server, shape, _plan(server, shape, Limit(None, messages)))
    time.sleep(load.settle_s)
    return replace(filled, rss_bytes=server.use().rss_bytes)


def _plan(server: Served, shape: Shape, limit: Limit) -> WindowedPlan:
    subjects = shape.subjects()
    # The window is that of all lanes together when there are more of them than connections.
    window = max(1, shape.window * shape.connections // len(subjects))
    payload = payload_of(shape.payload_bytes)
    return WindowedPlan(server.endpoint, subjects, shape.subject_count, payload, _ACK, window, limit)


def _measure(server: Served, shape: Shape, plan: WindowedPlan) -> Outcome:
    with Worker(run_windowed, plan) as worker:
        worker.wait_ready()
        before = server.use()
        worker.say()
        answered: Answered = worker.result()
        after = server.use()
    return Outcome(
        count=answered.messages,
        seconds=answered.finished_at_s - answered.started_at_s,
        payload_bytes=shape.payload_bytes,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=(GeneratorUse("publisher", answered.cpu_s),),
    )


def _create(server: Served, shape: Shape) -> None:
    with asking(server) as connection:
        for number in range(shape.streams):
            name = f"bench{number}"
            config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", **shape.config}
            ask(connection, f"STREAM.CREATE.{name}", config)
    for number in range(shape.streams):
        server.settle(f"bench{number}")


def _publish_workload(window: int, payload_bytes: int, connections: int, streams: int) -> Workload:
    size = "1KiB" if payload_bytes == 1024 else f"{payload_bytes}B"
    name = f"js_w{window}_{size}_{connections}c_{streams}s"
    lanes = f"{connections} connection{'s' * (connections > 1)}, {streams} stream{'s' * (streams > 1)}"
    shape = Shape(window, payload_bytes, connections, streams)
    summary = f"publish with acknowledgements: window {window}, {size}, {lanes}"
    return Workload(name, summary, partial(measure_publish, shape), is_jetstream=True)


_KEY_VALUE = Shape(subject_count=100_000, config={"max_msgs_per_subject": 5})

WORKLOADS = (
    *(
        _publish_workload(window, payload_bytes, connections, streams)
        for payload_bytes, connections, streams, window in product(
            (128, 1024), (1, 8), (1, 20), (1, 64, 1024, 8192)
        )
    ),
    Workload(
        "js_kv",
        "100,000 subjects in turn, 5 messages kept of each, window 1024",
        partial(measure_publish, _KEY_VALUE),
        is_jetstream=True,
    ),
    Workload("js_direct_get", "direct get by subject, window 64", measure_direct_get, is_jetstream=True),
    Workload(
        "js_memory_10",
        "resident memory after 1,000,000 messages on 10 subjects",
        partial(measure_memory, Shape(window=_FILL_WINDOW)),
        Headline.RSS,
        is_jetstream=True,
    ),
    Workload(
        "js_memory_1M",
        "resident memory after 1,000,000 messages on as many subjects",
        partial(measure_memory, Shape(window=_FILL_WINDOW, subject_count=1_000_000)),
        Headline.RSS,
        is_jetstream=True,
    ),
)
