"""The table, the notes under it, and the JSON file of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.results import Headline, Measurement, Summary
from benchmarks.runner import Run
from benchmarks.servers import REFERENCE

_NOISE_CORES = 0.15
_GENERATOR_LIMIT_CORES = 0.95
_COLUMNS = (
    "workload",
    "server",
    "result",
    "spread",
    "MB/s",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
    "CPU µs",
    "cores",
    "gen",
    "RSS MiB",
    "lost",
    "ratio",
    "CPU ratio",
)
_LEFT_ALIGNED = 2
LEGEND = f"""\
result    median over the rounds: messages delivered, round trips or connections per second, or memory,
          or processor time per second
spread    (highest - lowest) / median of the result over the rounds
MB/s      payload only
CPU µs    processor time of the server, user and system, per message, round trip or connection
cores     processors that the server kept busy
gen       processors that the busiest process of the load generator kept busy: near 1 it was the limit
RSS MiB   highest resident memory of the server during the workload
ratio     result compared with {REFERENCE}; above 1 is better than {REFERENCE}, for memory too
CPU ratio CPU µs of {REFERENCE} / CPU µs; above 1 is better than {REFERENCE}"""


def table(summaries: Sequence[Summary], headlines: Mapping[str, Headline]) -> str:
    rows = [_row(summary, headlines[summary.workload]) for summary in summaries]
    widths = [max(len(row[column]) for row in (_COLUMNS, *rows)) for column in range(len(_COLUMNS))]
    lines = [_line(_COLUMNS, widths), "  ".join("-" * width for width in widths)]
    previous = summaries[0].workload if summaries else ""
    for summary, row in zip(summaries, rows, strict=True):
        if summary.workload != previous:
            lines.append("")
        previous = summary.workload
        lines.append(_line(row, widths))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column < _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()


def headline_text(figure: float, headline: Headline) -> str:
    if headline is Headline.RATE:
        return f"{figure:,.0f}/s"
    if headline is Headline.RSS:
        return f"{figure / 2**20:,.1f} MiB"
    if headline is Headline.CPU:
        return f"{figure * 1000:,.1f} ms/s"
    return f"{figure / 2**10:,.1f} KiB each"


def _row(summary: Summary, headline: Headline) -> tuple[str, ...]:
    latency = summary.latency
    return (
        summary.workload,
        summary.server,
        headline_text(summary.headline, headline),
        _figure(summary.spread, ".0%"),
        _figure(summary.payload_mb_per_s, ",.1f"),
        _figure(latency.p50_us if latency else None, ",.1f"),
        _figure(latency.p99_us if latency else None, ",.1f"),
        _figure(latency.p999_us if latency else None, ",.1f"),
        _figure(summary.server_cpu_us, ",.3f"),
        _figure(summary.server_cores, ".2f"),
        _figure(summary.generator_cores, ".2f"),
        _figure(summary.rss_bytes / 2**20, ",.1f"),
        f"{summary.lost:,}" if summary.lost else "",
        _figure(summary.ratio, ".2f"),
        _figure(summary.cpu_ratio, ".2f"),
    )


def _figure(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def notes(summaries: Sequence[Summary], measurements: Sequence[Measurement]) -> list[str]:
    """What a reader has to know before believing the table."""
    lines = []
    noisy = [measurement for measurement in measurements if measurement.foreign_cores > _NOISE_CORES]
    if noisy:
        worst = max(noisy, key=lambda measurement: measurement.foreign_cores)
        lines.append(
            f"Other programs were busy during {len(noisy)} of {len(measurements)} measurements "
            f"(up to {worst.foreign_cores:.1f} cores, in {worst.workload}): repeat the run on a calm machine."
        )
    limited = [
        f"{summary.workload} with {summary.server}"
        for summary in summaries
        if summary.generator_cores is not None and summary.generator_cores > _GENERATOR_LIMIT_CORES
    ]
    if limited:
        lines.append(f"The load generator may have been the limit in {', '.join(limited)}.")
    for summary in summaries:
        if summary.lost:
            lines.append(f"{summary.server} lost {summary.lost:,} in {summary.workload}, over all rounds.")
    for measurement in measurements:
        if measurement.error is not None:
            lines.append(
                f"{measurement.workload} failed with {measurement.server} in round "
                f"{measurement.round_number}: {measurement.error}"
            )
    return lines


def write_json(
    path: Path,
    run: Run,
    facts: Mapping[str, object],
    measurements: Sequence[Measurement],
    summaries: Sequence[Summary],
) -> None:
    document = {
        "machine": facts,
        "settings": {
            "rounds": run.rounds,
            "seconds": run.load.limit.seconds,
            "messages": run.load.limit.messages,
            "idle_connections": run.load.idle_connections,
            "settle_s": run.load.settle_s,
        },
        "workloads": {
            workload.name: {"summary": workload.summary, "headline": workload.headline.value}
            for workload in run.workloads
        },
        "summaries": [asdict(summary) for summary in summaries],
        "measurements": [asdict(measurement) for measurement in measurements],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
