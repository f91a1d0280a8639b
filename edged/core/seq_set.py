"""A set of seqs in little memory when they are neighbours: one bit for each, in pages of 512.

Rules: the number of pages is bounded by whoever makes the set, because what is put in may come from
outside.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

PAGE_BITS: Final = 9
PAGE_SEQS: Final = 1 << PAGE_BITS
_IN_PAGE: Final = PAGE_SEQS - 1
_FULL: Final = (1 << PAGE_SEQS) - 1


class SeqSetFullError(ValueError):
    """The set would need more pages than it may have."""


class SeqSet:
    """Seqs, all of them positive."""

    __slots__ = ("_pages", "_pages_max")

    def __init__(self, pages_max: int) -> None:
        self._pages: dict[int, int] = {}
        self._pages_max = pages_max

    def add(self, seq: int) -> None:
        """Put a seq in."""
        self.add_page(seq >> PAGE_BITS, 1 << (seq & _IN_PAGE))

    def add_page(self, page: int, bits: int) -> None:
        """Put several neighbours in: bit n is the seq 512 * page + n."""
        before = self._pages.get(page, 0)
        if not before:
            if not bits:
                return
            if len(self._pages) >= self._pages_max:
                raise SeqSetFullError(f"more than {self._pages_max} pages")
        self._pages[page] = before | bits & _FULL

    def __contains__(self, seq: int) -> bool:
        return bool(self._pages.get(seq >> PAGE_BITS, 0) >> (seq & _IN_PAGE) & 1)

    def __len__(self) -> int:
        return sum(bits.bit_count() for bits in self._pages.values())

    def __bool__(self) -> bool:
        return bool(self._pages)

    def first(self) -> int:
        """The lowest seq; there must be one."""
        page = min(self._pages)
        bits = self._pages[page]
        return page * PAGE_SEQS + (bits & -bits).bit_length() - 1

    def add_all(self, others: SeqSet) -> None:
        """Put in what is in the other set."""
        for page, bits in others._pages.items():
            self.add_page(page, bits)

    def remove_all(self, others: SeqSet) -> None:
        """Take out what is in the other set, too."""
        for page in self._pages.keys() & others._pages.keys():
            self._keep(page, ~others._pages[page])

    def keep_ranges(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Take out what is in none of these ranges, which have first and last seq and do not overlap."""
        ordered = sorted((first, last) for first, last in ranges if first <= last)
        starts = [first for first, _ in ordered]
        for page in list(self._pages):
            base = page * PAGE_SEQS
            kept = 0
            # From the last range that starts at or before the page to the last that starts in it.
            position = max(bisect_right(starts, base) - 1, 0)
            while position < len(ordered) and starts[position] < base + PAGE_SEQS:
                low = max(starts[position] - base, 0)
                high = min(ordered[position][1] - base, PAGE_SEQS - 1)
                if low <= high:
                    kept |= (1 << high + 1) - (1 << low)
                position += 1
            self._keep(page, kept)

    def _keep(self, page: int, bits: int) -> None:
        left = self._pages[page] & bits
        if left:
            self._pages[page] = left
        else:
            del self._pages[page]
