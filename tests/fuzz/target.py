"""What can be fuzzed: a function of bytes that must not raise, and what its inputs are made of.

Rules: `run` is a pure function of its input, chance included (see `chance_of`), so that a failing input fails
again. It checks by plain assert; whatever else it raises is a fault of the code under test as well.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """`share` is its part of all inputs; `words` are what mutations insert besides bytes."""

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()
    share: int = 5


def chance_of(data: bytes) -> random.Random:
    """Random numbers that depend on the input and on nothing else."""
    return random.Random(zlib.crc32(data))


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """The input in up to five pieces, none of them empty."""
    places = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(4))})
    return [data[start:stop] for start, stop in itertools.pairwise(places)]
