"""Inputs by mutation: seeds that are valid, changed in a few places.

Rules: the same seed gives the same inputs, in the same order, on every machine. An input has at most
INPUT_BYTES_MAX bytes; one in STRETCH_EVERY is blown up to as much, because what takes quadratic time or
memory shows on long inputs only.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

INPUT_BYTES_MAX = 512 * 1024
STRETCH_EVERY = 4000
# Inputs stay short otherwise: short ones are fast, and say more when they fail.
_USUAL_BYTES_MAX = 4096
_CHANGES_MAX = 6

_BYTES = b"\x00\t\n\r \"#$%&'()*+,-./0189:;<=>?@A[\\]^_`az{|}~\x7f\x80\xc3\xed\xff"
_NUMBERS = (
    *(b"0", b"-1", b"1", b"00", b"+1", b"127", b"128", b"255", b"256", b"4096", b"65535", b"65536"),
    *(b"999999999", b"2147483647", b"2147483648", b"4294967296", b"9223372036854775807"),
    *(b"9223372036854775808", b"18446744073709551616", b"1e308", b"1e999", b"9" * 30, b"9" * 5000),
)
_NUMBER = re.compile(rb"\d+")


class Mutator:
    """An endless stream of inputs for one target."""

    def __init__(self, seed: str, seeds: Sequence[bytes], words: Sequence[bytes]) -> None:
        assert seeds, "a target needs a seed"
        self._chance = random.Random(seed)
        self._seeds = seeds
        self._words = words or (b" ",)
        self._changes: tuple[Callable[[bytes], bytes], ...] = (
            *(self._replace_byte, self._replace_byte, self._insert_byte, self._flip_bit),
            *(self._insert_word, self._insert_word, self._replace_by_word, self._delete, self._repeat),
            *(self._change_number, self._change_number, self._splice, self._truncate, self._swap_case),
        )

    def next(self) -> bytes:
        """The next input."""
        chance = self._chance
        data = chance.choice(self._seeds)
        for _ in range(chance.randrange(_CHANGES_MAX + 1)):
            data = chance.choice(self._changes)(data)[:_USUAL_BYTES_MAX]
        return self._stretch(data) if chance.randrange(STRETCH_EVERY) == 0 else data

    def _place(self, data: bytes) -> int:
        return self._chance.randrange(len(data) + 1)

    def _range(self, data: bytes) -> tuple[int, int]:
        start = self._place(data)
        return start, min(len(data), start + self._chance.choice((1, 2, 4, 8, 16, 64)))

    def _replace_byte(self, data: bytes) -> bytes:
        place = self._place(data)
        return data[:place] + bytes((self._chance.choice(_BYTES),)) + data[place + 1 :]

    def _insert_byte(self, data: bytes) -> bytes:
        place = self._place(data)
        return data[:place] + bytes((self._chance.choice(_BYTES),)) + data[place:]

    def _flip_bit(self, data: bytes) -> bytes:
        if not data:
            return data
        place = self._chance.randrange(len(data))
        return data[:place] + bytes((data[place] ^ 1 << self._chance.randrange(8),)) + data[place + 1 :]

    def _insert_word(self, data: bytes) -> bytes:
        place = self._place(data)
        return data[:place] + self._chance.choice(self._words) + data[place:]

    def _replace_by_word(self, data: bytes) -> bytes:
        start, stop = self._range(data)
        return data[:start] + self._chance.choice(self._words) + data[stop:]

    def _delete(self, data: bytes) -> bytes:
        start, stop = self._range(data)
        return data[:start] + data[stop:]

    def _repeat(self, data: bytes) -> bytes:
        start, stop = self._range(data)
        return data[:start] + data[start:stop] * self._chance.choice((2, 3, 100)) + data[stop:]

    def _change_number(self, data: bytes) -> bytes:
        places = list(_NUMBER.finditer(data[:_USUAL_BYTES_MAX]))
        if not places:
            return data
        found = self._chance.choice(places)
        return data[: found.start()] + self._chance.choice(_NUMBERS) + data[found.end() :]

    def _splice(self, data: bytes) -> bytes:
        other = self._chance.choice(self._seeds)
        return data[: self._place(data)] + other[self._place(other) :]

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._place(data)]

    def _swap_case(self, data: bytes) -> bytes:
        start, stop = self._range(data)
        return data[:start] + data[start:stop].swapcase() + data[stop:]

    def _stretch(self, data: bytes) -> bytes:
        """Repeat a piece of the input, or a word, until the input is as long as it may be."""
        start, stop = self._range(data)
        piece = data[start:stop] if self._chance.random() < 0.5 else self._chance.choice(self._words)
        count = max(0, INPUT_BYTES_MAX - len(data)) // max(1, len(piece))
        return data[:start] + piece * count + data[start:]
