"""Measurements, and what is made of them: medians over rounds and ratios to nats-server.

Rules: a figure is compared only with figures of the same run; a ratio above 1 always means "better than
nats-server", whether more of the figure is better (messages per second) or less of it (bytes of memory).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import median

from benchmarks.latency import Latency


class Headline(Enum):
    """The figure of an outcome that a workload is about, and in which the servers are compared."""

    RATE = "per second"
    RSS = "resident bytes"
    RSS_EACH = "resident bytes per connection"
    CPU = "processors kept busy"


@dataclass(frozen=True, slots=True)
class GeneratorUse:
    """Processor time of one process of the load generator. Near the elapsed time, it was the limit."""

    role: str
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one workload did against one server once.

    `count` is what the workload counts: messages delivered (published, when nobody subscribes), round trips
    or connections; `payload_bytes` is the payload of each.
    """

    count: int
    seconds: float
    server_cpu_s: float
    rss_bytes: int
    payload_bytes: int = 0
    lost: int = 0
    latency: Latency | None = None
    rss_bytes_each: float | None = None
    generator: tuple[GeneratorUse, ...] = ()

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def generator_cores(self) -> float:
        return max(use.cpu_s for use in self.generator) / self.seconds

    def headline(self, kind: Headline) -> float:
        if kind is Headline.RATE:
            return self.rate
        if kind is Headline.RSS:
            return float(self.rss_bytes)
        if kind is Headline.CPU:
            return self.server_cpu_s / self.seconds
        assert self.rss_bytes_each is not None
        return self.rss_bytes_each


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of one workload against one server."""

    workload: str
    server: str
    round_number: int
    outcome: Outcome | None
    error: str | None
    foreign_cores: float
    """Processors that other programs kept busy meanwhile: noise."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Medians over the rounds of one workload against one server."""

    workload: str
    server: str
    headline: float
    spread: float | None
    """(highest - lowest) / median of the headline figure; one round has none."""
    rate: float | None
    payload_mb_per_s: float | None
    latency: Latency | None
    server_cpu_us: float | None
    """Processor time of the server per message."""
    server_cores: float | None
    generator_cores: float | None
    """Of the busiest process of the load generator: at 1.0 it was the limit, not the server."""
    rss_bytes: float
    rss_bytes_each: float | None
    lost: int
    ratio: float | None = None
    cpu_ratio: float | None = None


def summarise(
    workload: str, headline: Headline, measurements: Sequence[Measurement], reference: str
) -> list[Summary]:
    """A summary for every server with an outcome, and ratios if the reference is among them."""
    outcomes: dict[str, list[Outcome]] = {}
    for measurement in measurements:
        if measurement.workload == workload and measurement.outcome is not None:
            outcomes.setdefault(measurement.server, []).append(measurement.outcome)
    medians = {server: _medians(workload, server, headline, rounds) for server, rounds in outcomes.items()}
    base = medians.get(reference)
    return [_compared(summary, base, headline) for summary in medians.values()]


def _medians(workload: str, server: str, headline: Headline, rounds: Sequence[Outcome]) -> Summary:
    figures = [outcome.headline(headline) for outcome in rounds]
    middle = median(figures)
    latencies = [outcome.latency for outcome in rounds if outcome.latency is not None]
    each = [outcome.rss_bytes_each for outcome in rounds if outcome.rss_bytes_each is not None]
    loaded = [outcome for outcome in rounds if outcome.count]
    return Summary(
        workload=workload,
        server=server,
        headline=middle,
        spread=(max(figures) - min(figures)) / middle if middle and len(figures) > 1 else None,
        rate=_median([outcome.rate for outcome in loaded]),
        payload_mb_per_s=_median([outcome.rate * outcome.payload_bytes / 1e6 for outcome in loaded]) or None,
        latency=Latency(
            median(latency.p50_us for latency in latencies),
            median(latency.p99_us for latency in latencies),
            median(latency.p999_us for latency in latencies),
        )
        if latencies
        else None,
        server_cpu_us=_median([outcome.server_cpu_s / outcome.count * 1e6 for outcome in loaded]),
        server_cores=_median([outcome.server_cpu_s / outcome.seconds for outcome in loaded]),
        generator_cores=_median([outcome.generator_cores for outcome in loaded if outcome.generator]),
        rss_bytes=median(outcome.rss_bytes for outcome in rounds),
        rss_bytes_each=_median(each),
        lost=sum(outcome.lost for outcome in rounds),
    )


def _median(figures: Sequence[float]) -> float | None:
    return median(figures) if figures else None


def _compared(summary: Summary, base: Summary | None, headline: Headline) -> Summary:
    if base is None or base.server == summary.server or not base.headline or not summary.headline:
        return summary
    if headline is Headline.RATE:
        ratio = summary.headline / base.headline
    else:
        ratio = base.headline / summary.headline
    cpu_ratio = (
        base.server_cpu_us / summary.server_cpu_us if base.server_cpu_us and summary.server_cpu_us else None
    )
    return replace(summary, ratio=ratio, cpu_ratio=cpu_ratio)
