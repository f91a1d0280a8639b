"""Connections: how fast they are accepted, and what the server's memory costs with and without them."""

from __future__ import annotations

import time

from benchmarks.generator.connector import ConnectPlan, HoldPlan, run_connector, run_holder
from benchmarks.generator.process import Worker
from benchmarks.results import GeneratorUse, Headline, Outcome
from benchmarks.servers import Served
from benchmarks.workloads.stage import Load, Workload

_CONNECTS_IN_FLIGHT = 16


def measure_connect_rate(server: Served, load: Load) -> Outcome:
    with Worker(run_connector, ConnectPlan(server.endpoint, _CONNECTS_IN_FLIGHT, load.limit)) as connector:
        connector.wait_ready()
        before = server.use()
        connector.say()
        connected = connector.result()
        after = server.use()
    return Outcome(
        count=connected.count,
        seconds=connected.seconds,
        latency=connected.latency,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=(GeneratorUse("connector", connected.cpu_s),),
    )


def measure_idle_connections(server: Served, load: Load) -> Outcome:
    with Worker(run_holder, HoldPlan(server.endpoint, load.idle_connections)) as holder:
        time.sleep(load.settle_s)
        before = server.use()
        holder.say()
        holder.wait_ready()
        opened = server.use()
        time.sleep(load.settle_s)
        after = server.use()
        holder.say()
        held = holder.result()
    return Outcome(
        count=held.opened,
        seconds=held.seconds,
        lost=held.lost,
        server_cpu_s=opened.cpu_s - before.cpu_s,
        rss_bytes=after.rss_bytes,
        rss_bytes_each=(after.rss_bytes - before.rss_bytes) / held.opened,
        generator=(GeneratorUse("holder", held.cpu_s),),
    )


def measure_idle_rss(server: Served, load: Load) -> Outcome:
    before = server.use()
    time.sleep(load.settle_s)
    after = server.use()
    return Outcome(
        count=0, seconds=load.settle_s, server_cpu_s=after.cpu_s - before.cpu_s, rss_bytes=after.rss_bytes
    )


WORKLOADS = (
    Workload("connect_rate", "connect, CONNECT, PING, PONG, close; 16 at a time", measure_connect_rate),
    Workload(
        "idle_connections", "memory per idle connection", measure_idle_connections, headline=Headline.RSS_EACH
    ),
    Workload("idle_rss", "memory of a server just started", measure_idle_rss, headline=Headline.RSS),
)
