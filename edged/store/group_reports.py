"""What a stretch of the journal says about one group: how far it was at times, and which appends are in it.

Gathered when a record of the group is lost, to find out which seqs the messages behind the hole have.

Rules: frames and reports are added in the order of the journal. Memory is some bytes for each report, and for
each row of appends without another command of the group in between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from edged.core.batch_record import Applied


class GroupReports:
    """The reports of one group, in order, and the indexes of its appends."""

    __slots__ = ("_gaps", "_indexes", "_jumps", "_last_seqs", "_refused", "_starts", "_stops", "_unsure")

    def __init__(self) -> None:
        self._indexes = array("Q")
        self._last_seqs = array("Q")
        # Appends with consecutive indexes: from a start to before the stop at the same place.
        self._starts = array("Q")
        self._stops = array("Q")
        # The indexes of the appends that were refused, in order.
        self._refused = array("Q")
        # The indexes of commands that may have left out seqs, in order.
        self._jumps = array("Q")
        # How many gaps there were in the batch records up to the last report, and between which reported
        # indexes there was one: of those some may have been refused that are not known.
        self._gaps = 0
        self._unsure: list[tuple[int, int]] = []

    @property
    def last_index(self) -> int:
        """Up to which index outcomes are known."""
        return self._indexes[-1] if self._indexes else 0

    def is_refused(self, index: int) -> bool:
        """Whether an append was refused."""
        place = bisect_left(self._refused, index)
        return place < len(self._refused) and self._refused[place] == index

    def is_sure(self, index: int) -> bool:
        """Whether it is known for certain if the append was refused."""
        is_reported = index <= self.last_index
        return is_reported and not any(first < index <= last for first, last in self._unsure)

    def add(self, report: Applied, gaps: int = 0) -> None:
        """A batch record reports this of the group; before it there were so many gaps in the records."""
        if gaps > self._gaps:
            self._unsure.append((self.last_index, report.index))
            self._gaps = gaps
        known_to = self._refused[-1] if self._refused else 0
        self._refused.extend(index for index in report.refused if index > known_to)
        if not self._indexes or report.index > self._indexes[-1]:
            self._indexes.append(report.index)
            self._last_seqs.append(report.last_seq)

    def add_append(self, index: int) -> None:
        """There is a message with this index. One that was there already counts once."""
        stops = self._stops
        if not stops or index > stops[-1]:
            self._starts.append(index)
            stops.append(index + 1)
        elif index == stops[-1]:
            stops[-1] = index + 1

    def add_jump(self, index: int) -> None:
        """There is a command with this index that may have left out seqs."""
        self._jumps.append(index)

    def last_seq_before(self, index: int) -> int | None:
        """The last seq before the command with this index, which is there; None if no report tells."""
        place = bisect_left(self._indexes, index - 1)
        if place == len(self._indexes):
            return None
        jump = bisect_left(self._jumps, index)
        if jump < len(self._jumps) and self._jumps[jump] <= self._indexes[place]:
            return None
        return self._last_seqs[place] - self._stored_between(index, self._indexes[place])

    def _stored_between(self, first: int, last: int) -> int:
        """How many messages with indexes from `first` to `last` were not refused."""
        count = 0
        for place in range(max(bisect_right(self._starts, first) - 1, 0), len(self._starts)):
            start, stop = max(self._starts[place], first), min(self._stops[place], last + 1)
            if start > last:
                break
            if start < stop:
                count += stop - start - bisect_left(self._refused, stop) + bisect_left(self._refused, start)
        return count
