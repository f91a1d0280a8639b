"""Figures of the store's benchmarks: medians over what was measured, what is needed, and the table of both.

Rules: a figure is a median and has its lowest and highest value beside it; a figure that has to reach
something says what, and whether it does. Nothing here measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

_COLUMNS: Final = ("part", "case", "figure", "median", "lowest", "highest", "values", "needed", "")
_LEFT_ALIGNED: Final = 3
_FORMS: Final = {"/s": ",.0f", "µs": ",.2f", "ms": ",.1f", "s": ",.3f", "MiB": ",.1f", "#": ",.0f"}


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure has to be, at least or at most."""

    bound: float
    is_minimum: bool

    def is_met(self, value: float) -> bool:
        """Whether a figure is good enough."""
        return value >= self.bound if self.is_minimum else value <= self.bound


def at_least(bound: float) -> Goal:
    """A goal for what should be large."""
    return Goal(bound, is_minimum=True)


def at_most(bound: float) -> Goal:
    """A goal for what should be small."""
    return Goal(bound, is_minimum=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, several times. A ratio has no unit."""

    part: str
    case: str
    name: str
    values: tuple[float, ...]
    unit: str = ""
    goal: Goal | None = None

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def is_met(self) -> bool | None:
        """Whether the median reaches the goal; None without one."""
        return None if self.goal is None else self.goal.is_met(self.median)

    def text(self, value: float) -> str:
        """A value with its unit."""
        text = format(value, _FORMS.get(self.unit, ".2f"))
        # A count is a number and nothing else.
        return text if self.unit in ("", "#") else text + ("" if self.unit == "/s" else " ") + self.unit

    def document(self) -> dict[str, Any]:
        """Everything about it, for the JSON file."""
        goal = self.goal
        return {
            "part": self.part,
            "case": self.case,
            "figure": self.name,
            "unit": self.unit,
            "median": self.median,
            "values": list(self.values),
            "needed": None if goal is None else {"at_least" if goal.is_minimum else "at_most": goal.bound},
            "is_met": self.is_met,
        }


def ratio(case: str, name: str, one: Figure, other: Figure, goal: Goal | None = None) -> Figure:
    """How many times the median of another figure one has; for figures that were not measured in pairs."""
    return Figure(one.part, case, name, (one.median / other.median,), "", goal)


def pair_ratios(bare_s: Sequence[float], ours_s: Sequence[float]) -> tuple[float, ...]:
    """What part of the speed of its neighbours each of our slices has: bare, ours, bare, ours, ..., bare."""
    assert len(bare_s) == len(ours_s) + 1, (len(bare_s), len(ours_s))
    return tuple((bare_s[i] + bare_s[i + 1]) / 2 / ours for i, ours in enumerate(ours_s))


def table(figures: Sequence[Figure]) -> str:
    """All figures, a blank line between parts."""
    rows = [_row(figure) for figure in figures]
    widths = [max(len(row[column]) for row in (_COLUMNS, *rows)) for column in range(len(_COLUMNS))]
    lines = [_line(_COLUMNS, widths), "  ".join("-" * width for width in widths).rstrip()]
    for position, (figure, row) in enumerate(zip(figures, rows, strict=True)):
        if position and figures[position - 1].part != figure.part:
            lines.append("")
        lines.append(_line(row, widths))
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    goal = figure.goal
    needed = "" if goal is None else ("≥ " if goal.is_minimum else "≤ ") + figure.text(goal.bound)
    verdict = {None: "", True: "met", False: "MISSED"}[figure.is_met]
    return (
        figure.part,
        figure.case,
        figure.name,
        figure.text(figure.median),
        figure.text(min(figure.values)),
        figure.text(max(figure.values)),
        str(len(figure.values)),
        needed,
        verdict,
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if column < _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip()
