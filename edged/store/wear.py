"""What the flash has had to take: bytes written and syncs, in total and day by day.

Rules: time is an argument. A day is one of UTC, by the clock of the device. Days are kept in the order in
which they came up, so a clock that was years off for a while leaves an odd day behind but pushes none out
early.
"""

from dataclasses import dataclass
from typing import Any, Final

DAYS_MAX: Final = 32
_DAY_NS: Final = 86_400 * 1_000_000_000


@dataclass(slots=True)
class DayOfWear:
    """One day; number 0 is 1970-01-01."""

    number: int
    bytes_written: int = 0
    syncs: int = 0


class WearCounter:
    """Counts for ever in total, and for the last DAYS_MAX days on which something was written."""

    def __init__(self) -> None:
        self.bytes_written = 0
        self.syncs = 0
        self._days: list[DayOfWear] = []

    def add(self, bytes_written: int, syncs: int, now_ns: int) -> None:
        """Count what was written just now."""
        self.bytes_written += bytes_written
        self.syncs += syncs
        number = now_ns // _DAY_NS
        # Nearly always it is the last one.
        day = next((day for day in reversed(self._days) if day.number == number), None)
        if day is None:
            day = DayOfWear(number)
            self._days.append(day)
            del self._days[:-DAYS_MAX]
        day.bytes_written += bytes_written
        day.syncs += syncs

    def days(self) -> list[DayOfWear]:
        """The days, in the order in which they came up."""
        return list(self._days)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values for a checkpoint."""
        return {
            "bytes": self.bytes_written,
            "syncs": self.syncs,
            "days": [[day.number, day.bytes_written, day.syncs] for day in self._days],
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> "WearCounter":
        """The counter that a snapshot was taken of."""
        counter = cls()
        counter.bytes_written = snapshot["bytes"]
        counter.syncs = snapshot["syncs"]
        counter._days = [DayOfWear(*values) for values in snapshot["days"]]
        return counter
