"""Round trips: request and reply through the server, and PING and PONG with it.

A request and its reply are two messages through the server but count as one round trip.
"""

from __future__ import annotations

from functools import partial

from benchmarks.generator.process import Worker
from benchmarks.generator.requester import RequestPlan, run_pinger, run_requester, run_responder
from benchmarks.results import GeneratorUse, Outcome
from benchmarks.servers import Served
from benchmarks.workloads.stage import PAYLOAD_BYTES, Load, Workload, payload_of


def measure_request_reply(in_flight: int, server: Served, load: Load) -> Outcome:
    plan = RequestPlan(server.endpoint, payload_of(PAYLOAD_BYTES), in_flight, load.limit)
    with Worker(run_responder, plan) as responder, Worker(run_requester, plan) as requester:
        responder.wait_ready()
        requester.say()
        requester.wait_ready()
        before = server.use()
        requester.say()
        trips = requester.result()
        responder_cpu_s = responder.result()
        after = server.use()
    return Outcome(
        count=trips.count,
        seconds=trips.seconds,
        payload_bytes=PAYLOAD_BYTES,
        latency=trips.latency,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=(GeneratorUse("requester", trips.cpu_s), GeneratorUse("responder", responder_cpu_s)),
    )


def measure_ping(server: Served, load: Load) -> Outcome:
    with Worker(run_pinger, RequestPlan(server.endpoint, b"", 1, load.limit)) as pinger:
        pinger.say()
        pinger.wait_ready()
        before = server.use()
        pinger.say()
        trips = pinger.result()
        after = server.use()
    return Outcome(
        count=trips.count,
        seconds=trips.seconds,
        latency=trips.latency,
        server_cpu_s=after.cpu_s - before.cpu_s,
        rss_bytes=after.rss_peak_bytes,
        generator=(GeneratorUse("pinger", trips.cpu_s),),
    )


WORKLOADS = (
    Workload("request_reply_1", "request and reply, one in flight", partial(measure_request_reply, 1)),
    Workload("request_reply_64", "request and reply, 64 in flight", partial(measure_request_reply, 64)),
    Workload("ping_rtt", "PING and PONG on one connection", measure_ping),
)
