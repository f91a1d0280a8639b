"""Consumers: messages that are pulled or pushed, and acknowledged one by one.

The stream is filled before the clock starts. It stops when every message was acknowledged and the server has
none pending any more; edged has them on the disk then.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks.generator.consuming import Consumed, ConsumingPlan, LanePlan, run_consuming
from benchmarks.generator.process import Limit, Worker
from benchmarks.generator.windowed import WindowedPlan, run_windowed
from benchmarks.results import GeneratorUse, Outcome
from benchmarks.servers import Served
from benchmarks.wire import (
    REPLY_TIMEOUT_S,
    GeneratorError,
)
from benchmarks.workloads.jetstream_api import ask, asking
from benchmarks.workloads.stage import PAYLOAD_BYTES, Load, Workload, payload_of

_STREAM = "bench0"
_MESSAGES, _QUICK_MESSAGES = 200_000, 10_000
_REPLAYED, _QUICK_REPLAYED = 1_000_000, 20_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Who consumes how. With `workers` several connections share a consumer."""

    messages: int = _MESSAGES
    quick_messages: int = _QUICK_MESSAGES
    consumers: int = 1
    workers: int = 1
    batch: int = 100
    ahead: int = 100
    is_push: bool = False
    stream: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=lambda: {"ack_policy": "explicit"})


def measure(shape: Shape, server: Served, load: Load) -> Outcome:
    """Fill a stream, and consume it."""
    is_quick = load.limit.seconds is not None and load.limit.seconds < 1
    messages = shape.quick_messages if is_quick else shape.messages
    with asking(server) as connection:
        stream = {"name": _STREAM, "subjects": [f"{_STREAM}.>"], "storage": "file", **shape.stream}
        ask(connection, f"STREAM.CREATE.{_STREAM}", stream)
        server.settle(_STREAM)
        _fill(server, messages)
        lanes: list[LanePlan] = []
        for number in range(shape.consumers):
            name = f"c{number}"
            config = {"durable_name": name, **shape.config}
            request = f"$JS.API.CONSUMER.MSG.NEXT.{_STREAM}.{name}".encode()
            if shape.is_push:
                config["deliver_subject"] = f"deliver.{name}"
                lanes.append(LanePlan(f"deliver.{name}".encode()))
            for worker in range(0 if shape.is_push else shape.workers):
                lanes.append(LanePlan(b"_INBOX.lane%d.%d" % (number, worker), request))
            body = {"stream_name": _STREAM, "config": config}
            ask(connection, f"CONSUMER.DURABLE.CREATE.{_STREAM}.{name}", body)
        is_acknowledged = shape.config["ack_policy"] != "none"
        plan = ConsumingPlan(
            server.endpoint,
            tuple(lanes),
            messages * shape.consumers,
            shape.batch,
            shape.ahead,
            is_acknowledged,
        )
        with Worker(run_consuming, plan) as worker_process:
            worker_process.wait_ready()
            before = server.use()
            worker_process.say()
            consumed: Consumed = worker_process.result()
            for number in range(shape.consumers if is_acknowledged else 0):
                _wait_acknowledged(connection, f"c{number}")
            finished_at_s = time.monotonic() if is_acknowledged else consumed.finished_at_s
            after = server.use()
    return Outcome(
        count=consumed.messages,
        seconds=finished_at_s - consumed.started_at_s,
        payload_bytes=PAYLOAD_BYTES,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=(GeneratorUse("consumer", consumed.cpu_s),),
    )


def _fill(server: Served, messages: int) -> None:
    payload = payload_of(PAYLOAD_BYTES)
    subject = _STREAM.encode() + b".%07d"
    plan = WindowedPlan(server.endpoint, (subject,), 10, payload, b'"seq":', 8192, Limit(None, messages))
    with Worker(run_windowed, plan) as worker:
        worker.wait_ready()
        worker.say()
        worker.result()


def _wait_acknowledged(connection: socket.socket, name: str) -> None:
    deadline_s = time.monotonic() + REPLY_TIMEOUT_S
    while ask(connection, f"CONSUMER.INFO.{_STREAM}.{name}")["num_ack_pending"]:
        if time.monotonic() > deadline_s:
            raise GeneratorError(f"{name} still has messages that are not acknowledged")
        time.sleep(0.005)


_FETCH = Shape()
_CONSUME = Shape(batch=500, ahead=1000)
_QUEUE = replace(_CONSUME, workers=8, batch=100, ahead=200, stream={"retention": "workqueue"})
_REPLAY = replace(
    _CONSUME, messages=_REPLAYED, quick_messages=_QUICK_REPLAYED, config={"ack_policy": "none"}, ahead=5000
)

WORKLOADS = tuple(
    Workload(f"js_{name}", summary, partial(measure, shape), is_jetstream=True)
    for name, summary, shape in (
        ("fetch", "pull in batches of 100, each acknowledged before the next", _FETCH),
        ("fetch_8", "the same by 8 consumers, each of which gets all messages", replace(_FETCH, consumers=8)),
        ("consume", "pull with up to 1,000 messages on their way, acknowledged", _CONSUME),
        (
            "consume_8",
            "the same by 8 consumers, each of which gets all messages",
            replace(_CONSUME, consumers=8),
        ),
        ("push", "push, acknowledged one by one", Shape(is_push=True)),
        ("push_8", "the same to 8 consumers", Shape(is_push=True, consumers=8)),
        ("work_queue_8", "a work queue with 8 workers that pull and acknowledge", _QUEUE),
        ("replay", "1,000,000 messages from the beginning, without acknowledgements", _REPLAY),
    )
)
