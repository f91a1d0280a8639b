"""A bar for every workload: how much better or worse than nats-server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from benchmarks.results import Summary
from benchmarks.servers import REFERENCE

_BAR_HEIGHT_INCHES = 0.3
_BAR_SHARE = 0.8
_LABEL_ROOM = 1.3
_TITLE_COLUMNS = 90


class NothingToPlotError(Exception):
    """No workload was measured against both nats-server and another server."""


def write_plot(path: Path, summaries: Sequence[Summary], title: str) -> None:
    """Horizontal bars of the ratios, on a logarithmic axis so that twice and half look alike."""
    import matplotlib  # Only a run that asks for a plot needs it, and it is slow to import.

    ratios = {(summary.server, summary.workload): summary.ratio for summary in summaries if summary.ratio}
    if not ratios:
        raise NothingToPlotError("no workload was measured against both nats-server and another server")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    workloads = list(dict.fromkeys(workload for _, workload in ratios))
    servers = list(dict.fromkeys(server for server, _ in ratios))
    height_inches = 1.5 + _BAR_HEIGHT_INCHES * len(workloads) * (len(servers) + 1)
    figure, axes = pyplot.subplots(figsize=(9, height_inches), layout="constrained")
    thickness = _BAR_SHARE / len(servers)
    for offset, server in enumerate(servers):
        rows = [row for row, workload in enumerate(workloads) if (server, workload) in ratios]
        lengths = [ratios[server, workloads[row]] for row in rows]
        # Bars start at 1, so that their direction shows who is ahead.
        bars = axes.barh(
            [row - _BAR_SHARE / 2 + thickness * (offset + 0.5) for row in rows],
            [length - 1 for length in lengths],
            height=thickness,
            left=1,
            label=server,
        )
        axes.bar_label(bars, [f"{length:.2f}" for length in lengths], padding=3, fontsize=8)
    reach = max(2.0, *ratios.values(), *(1 / ratio for ratio in ratios.values())) * _LABEL_ROOM
    axes.set_xscale("log", base=2)
    axes.set_xlim(1 / reach, reach)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(workloads)), workloads)
    axes.invert_yaxis()
    axes.set_xlabel(f"compared with {REFERENCE} (right of 1: better)")
    axes.set_title("\n".join(wrap(title, _TITLE_COLUMNS)), fontsize=9)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
