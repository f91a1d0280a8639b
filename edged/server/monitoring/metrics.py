"""/metrics: the server in Prometheus' exposition format. docs/metrics.md describes every metric.

Rules: nothing is counted here; a scrape reads the state of the server when it comes. Names begin with
`edged_` and end with their unit. The only label whose values come from outside is the account, and accounts
are bounded by the configuration or by the operator.

prometheus_client costs memory, so this module is imported only when there is a port to scrape.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from edged.core.gotime import SECOND
from edged.server import reasons
from edged.server.monitoring.healthz import HealthzOptions, healthz
from edged.server.monitoring.process import Process, descriptors_max, descriptors_open
from edged.server.monitoring.totals import (
    Traffic,
    accounts_of,
    routes_cached,
    stalls_total,
    subscriptions_total,
    traffic_of,
)
from edged.version import EDGED_VERSION, NATS_VERSION

if TYPE_CHECKING:
    from edged.server.account import Account
    from edged.server.server import Server

_SLOW_REASONS = {
    reasons.SLOW_CONSUMER_PENDING: "pending_bytes",
    reasons.SLOW_CONSUMER_DEADLINE: "write_deadline",
}


class Metrics:
    """A registry of our own: the global one of the library would add metrics of the interpreter."""

    def __init__(self, server: Server, process: Process) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(ServerCollector(server, process))

    def page(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type, in the format that the scraper prefers."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class ServerCollector(Collector):
    """Reads a server when it is scraped."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process

    def collect(self) -> Iterator[Metric]:
        # One pass over the connections serves all metrics: there may be very many of them.
        counts = {account: traffic_of(account) for account in self._server.accounts.values()}
        cached = {account: len(routes_cached(account)) for account in self._server.accounts.values()}
        yield from self._about()
        yield from self._clients(sum(counts.values(), Traffic()), sum(cached.values()))
        yield from self._accounts(counts, cached)
        yield from self._usage()

    def _about(self) -> Iterator[Metric]:
        server = self._server
        build = GaugeMetricFamily(
            "edged_build_info", "Versions; always 1.", labels=["version", "nats_version", "python_version"]
        )
        build.add_metric([EDGED_VERSION, NATS_VERSION, platform.python_version()], 1)
        yield build
        now_ns = server.now_ns()
        yield _gauge("edged_start_time_seconds", "When the server started.", server.started_at_ns / SECOND)
        yield _gauge("edged_uptime_seconds", "How long it runs.", (now_ns - server.started_at_ns) / SECOND)
        yield _gauge(
            "edged_config_load_time_seconds",
            "When the configuration in force was loaded.",
            server.configured_at_ns / SECOND,
        )
        is_healthy = healthz(server, HealthzOptions()).status == 200
        yield _gauge("edged_healthy", "1 when /healthz says ok.", int(is_healthy))
        yield _gauge("edged_lame_duck", "1 while clients are sent away.", int(server.is_lame_duck))
        holes = server.jetstream.store.holes if server.jetstream is not None else []
        yield _gauge(
            "edged_lost_seqs",
            "Seqs of streams whose messages this node has lost and does not have back.",
            sum(hole.last_seq - hole.first_seq + 1 for hole in holes),
        )
        requests = CounterMetricFamily(
            "edged_http_requests", "Requests to the monitoring port.", labels=["path"]
        )
        for path, count in sorted(server.http_requests.items()):
            requests.add_metric([path], count)
        yield requests

    def _clients(self, counts: Traffic, cached: int) -> Iterator[Metric]:
        server = self._server
        connections = server.connections.values()
        yield _gauge("edged_connections", "Clients that are connected.", len(connections))
        yield _gauge(
            "edged_connections_limit", "max_connections; -1 is no limit.", server.options.max_connections
        )
        yield _counter("edged_connections_accepted", "Connections ever accepted.", server.total_connections)
        pending_bytes = sum(connection.outbox.pending_bytes for connection in connections)
        yield _gauge("edged_pending_bytes", "Bytes that wait for clients to read them.", pending_bytes)
        yield _gauge("edged_subscriptions", "Subscriptions.", subscriptions_total(server))
        yield _gauge("edged_routes_cached", "Subjects whose route is ready for use.", cached)
        for name, (text, read) in _TRAFFIC.items():
            yield _counter(f"edged_{name}", text, read(counts))
        slow = CounterMetricFamily(
            "edged_slow_consumers", "Clients closed because they did not keep up.", labels=["reason"]
        )
        for reason, label in _SLOW_REASONS.items():
            slow.add_metric([label], server.slow_consumers[reason])
        yield slow
        yield _counter(
            "edged_stale_connections",
            "Clients closed because they left pings unanswered.",
            server.stale_connections,
        )
        yield _counter(
            "edged_stalls", "Times a publisher was made to wait for a slow subscriber.", stalls_total(server)
        )

    def _accounts(self, counts: Mapping[Account, Traffic], cached: Mapping[Account, int]) -> Iterator[Metric]:
        accounts = accounts_of(self._server)
        gauges: dict[str, tuple[str, Callable[[Account], int]]] = {
            "connections": ("Clients in the account.", lambda account: len(account.connections)),
            "subscriptions": ("Subscriptions in the account.", lambda account: len(account.subscriptions)),
            "routes_cached": (
                "Subjects of the account whose route is ready.",
                lambda account: cached[account],
            ),
        }
        for name, (text, figure) in gauges.items():
            gauge = GaugeMetricFamily(f"edged_account_{name}", text, labels=["account"])
            for account in accounts:
                gauge.add_metric([account.name], figure(account))
            yield gauge
        for name, (text, read) in _TRAFFIC.items():
            counter = CounterMetricFamily(f"edged_account_{name}", text, labels=["account"])
            for account in accounts:
                counter.add_metric([account.name], read(counts[account]))
            yield counter
        slow = CounterMetricFamily(
            "edged_account_slow_consumers",
            "Clients of the account closed because they did not keep up.",
            labels=["account"],
        )
        for account in accounts:
            slow.add_metric([account.name], account.slow_consumers)
        yield slow

    def _usage(self) -> Iterator[Metric]:
        usage = self._process.usage()
        yield _counter("edged_process_cpu_seconds", "Processor time used.", usage.cpu_s)
        yield _gauge("edged_process_resident_memory_bytes", "Memory in RAM.", usage.resident_bytes)
        yield _gauge("edged_process_virtual_memory_bytes", "Memory mapped.", usage.virtual_bytes)
        yield _gauge("edged_process_open_fds", "File descriptors in use.", descriptors_open())
        yield _gauge("edged_process_max_fds", "File descriptors allowed.", descriptors_max())


_TRAFFIC: dict[str, tuple[str, Callable[[Traffic], int]]] = {
    "received_messages": ("Messages that clients published.", lambda counts: counts.in_messages),
    "received_bytes": ("Bytes of messages that clients published.", lambda counts: counts.in_bytes),
    "sent_messages": ("Messages delivered to clients.", lambda counts: counts.out_messages),
    "sent_bytes": ("Bytes of messages delivered to clients.", lambda counts: counts.out_bytes),
}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    """The library adds `_total` to the name."""
    return CounterMetricFamily(name, text, value=value)
