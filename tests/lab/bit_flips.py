"""Rot: the same disk with one bit wrong, for every bit or for a choice of them.

A flip is named `path:offset:bit`, and given again by `flipped`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.lab.fake_disk import DIRECTORY, FakeDisk, Node, split


class Flip(NamedTuple):
    """One wrong bit. `disk` is a new disk that differs from the image in this bit only."""

    identity: str
    path: str
    offset: int
    bit: int
    disk: FakeDisk


def bit_flips(
    image: FakeDisk,
    chance: random.Random | None = None,
    flips_max: int | None = None,
    is_wanted: Callable[[str], bool] = lambda path: True,
) -> Iterator[Flip]:
    """All bits of all files in order, or, with chance, so many of them, evenly over all bytes of the disk."""
    image = image.copy()
    sizes = [(path, len(node.content)) for path, node in image.files() if is_wanted(path)]
    bit_count = 8 * sum(size for _, size in sizes)
    places: Iterator[int] | list[int] = iter(range(bit_count))
    if flips_max is not None and flips_max < bit_count:
        assert chance is not None, "a choice needs chance"
        places = sorted(chance.sample(range(bit_count), flips_max))
    position = end = 0
    files = iter(sizes)
    path = ""
    for place in places:
        while place >= end:
            path, size = next(files)
            position, end = end, end + 8 * size
        offset, bit = divmod(place - position, 8)
        yield flip(image, path, offset, bit)


def flip(image: FakeDisk, path: str, offset: int, bit: int) -> Flip:
    """The image with this bit wrong. All other files are shared with it until they are written to."""
    directory, name = split(path)
    directories = {}
    for other, names in image.directories.items():
        directories[other] = {
            key: node if node is DIRECTORY else Node(node.number, node.content) for key, node in names.items()
        }
    node = directories[directory][name]
    content = bytearray(node.content)
    content[offset] ^= 1 << bit
    node.content = bytes(content)
    numbers_used = max((node.number for _, node in image.files()), default=-1) + 1
    return Flip(f"{path}:{offset}:{bit}", path, offset, bit, FakeDisk.of(directories, numbers_used))


def flipped(image: FakeDisk, identity: str) -> Flip:
    """The flip with this name."""
    path, offset, bit = identity.rsplit(":", 2)
    return flip(image.copy(), path, int(offset), int(bit))
