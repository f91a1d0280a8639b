"""The states a power cut may leave: all of them, or a fair choice, each with a name that leads back to it.

A state is named `operations-names-node.number...` in hexadecimal: how many operations had been done, which
changes of names had reached the disk, and for each file with unsynced bytes what of it had. `disk_model` says
which combinations are legal.

A sync alone leads to no new state: what is possible after it was possible before. So states are looked for
after every other operation, and at every mark, from where on more is promised. What looks the same is given
once between two marks.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tests.lab.disk_model import SECTOR_BYTES, DiskModel
from tests.lab.fake_disk import FailedSync, FakeDisk, Mark, Operation, Sync, SyncDirectory

# With more changes of names in the air than this, combinations are drawn instead of listed.
LISTED_LINKS_MAX: Final = 10
# When so many draws in a row brought nothing new, there is not much left to find.
REPEATED_MAX: Final = 12
# A number for the names, the files with unsynced bytes, and a number for each of them.
Choice = tuple[int, list[int], tuple[int, ...]]


class CrashState(NamedTuple):
    """A disk as found after the power came back. `mark` is the last mark before the cut, 0 without one."""

    identity: str
    mark: int
    disk: FakeDisk


class CrashStates:
    """The states of one history: an image, and what was done from there on."""

    def __init__(
        self, image: FakeDisk, operations: Sequence[Operation], sector_bytes: int = SECTOR_BYTES
    ) -> None:
        self._image = image
        self._operations = operations
        self._sector_bytes = sector_bytes

    def states(self, chance: random.Random, per_operation_max: int = 256) -> Iterator[CrashState]:
        """Every state of every moment, or a choice of at most so many where there are more."""
        model = DiskModel(self._image, self._sector_bytes)
        seen: set[int] = set()
        mark = 0
        yield from self._states_at(model, 0, mark, seen, chance, per_operation_max)
        for operation, done in enumerate(self._operations, 1):
            model.apply(operation, done)
            if isinstance(done, Mark):
                mark = done.value
                seen.clear()
            elif isinstance(done, Sync | FailedSync | SyncDirectory):
                continue
            yield from self._states_at(model, operation, mark, seen, chance, per_operation_max)

    def drawn_at_end(self, chance: random.Random) -> FakeDisk:
        """What a power cut after all operations may leave, by chance."""
        model = DiskModel(self._image, self._sector_bytes)
        for operation, done in enumerate(self._operations, 1):
            model.apply(operation, done)
        mask, dirty, numbers = _drawn(model, _moments(model) or [0], chance)
        tree = model.tree(mask)
        by_node = dict(zip(dirty, numbers, strict=True))
        contents = [
            model.files[node].content(by_node[node]) if node in by_node else model.files[node].durable
            for node in tree.nodes
        ]
        return model.disk(tree, contents)

    def replay(self, identity: str) -> CrashState:
        """The state with this name."""
        first, names, *numbers = identity.split("-")
        operation_count = int(first, 16)
        model = DiskModel(self._image, self._sector_bytes)
        mark = 0
        for operation, done in enumerate(self._operations[:operation_count], 1):
            model.apply(operation, done)
            mark = done.value if isinstance(done, Mark) else mark
        tree = model.tree(int(names, 16))
        by_node = dict((int(part, 16) for part in number.split(".")) for number in numbers)
        assert list(by_node) == model.dirty(tree), "the history is not the one this state is from"
        contents = [model.files[node].content(by_node.get(node, 0)) for node in tree.nodes]
        return CrashState(identity, mark, model.disk(tree, contents))

    def _states_at(
        self,
        model: DiskModel,
        operation: int,
        mark: int,
        seen: set[int],
        chance: random.Random,
        states_max: int,
    ) -> Iterator[CrashState]:
        files = model.files
        choices = _listed(model, states_max)
        repeated_max = REPEATED_MAX if choices is None else math.inf
        repeated = 0
        for mask, dirty, numbers in _drawn_choices(model, chance, states_max) if choices is None else choices:
            tree = model.tree(mask)
            by_node = dict(zip(dirty, numbers, strict=True))
            contents = [
                files[node].content(by_node[node]) if node in by_node else files[node].durable
                for node in tree.nodes
            ]
            signature = hash((tree.signature, *contents))
            if signature in seen:
                repeated += 1
                if repeated > repeated_max:
                    break
                continue
            repeated = 0
            seen.add(signature)
            parts = "".join(f"-{node:x}.{number:x}" for node, number in by_node.items())
            yield CrashState(f"{operation:x}-{mask:x}{parts}", mark, model.disk(tree, contents))


def _listed(model: DiskModel, choices_max: int) -> Iterator[Choice] | None:
    """All choices, or None if they are more than that."""
    if len(model.pending) > LISTED_LINKS_MAX:
        return None
    masks = [mask for mask in range(1 << len(model.pending)) if model.is_legal(mask)]
    dirty_of = [model.dirty(model.tree(mask)) for mask in masks]
    ranges = [[math.prod(model.files[node].radices()) for node in dirty] for dirty in dirty_of]
    if sum(math.prod(counts) for counts in ranges) > choices_max:
        return None
    return (
        (mask, dirty, numbers)
        for mask, dirty, counts in zip(masks, dirty_of, ranges, strict=True)
        for numbers in itertools.product(*map(range, counts))
    )


def _drawn_choices(model: DiskModel, chance: random.Random, choices_max: int) -> Iterator[Choice]:
    moments = _moments(model)
    for _ in range(choices_max):
        yield _drawn(model, moments, chance)


def _drawn(model: DiskModel, moments: list[int], chance: random.Random) -> Choice:
    """One choice. Pure chance would hardly ever tear a long write just once, so most choices are simpler."""
    kind = chance.randrange(5)
    moment = chance.choice(moments)
    links = len(model.pending)
    if kind == 0:  # Anything.
        mask = model.closed(chance.getrandbits(links) if links else 0)
    elif kind == 1:  # All of it, but for one part of one file.
        mask = (1 << links) - 1
    elif kind == 2:  # Nothing, but for one part of one file. Names all the same, or the file is not there.
        mask = (1 << links) - 1 if chance.random() < 0.8 else 0
    else:  # In order up to some moment, which is in the middle of a write.
        mask = sum(1 << place for place, link in enumerate(model.pending) if link.operation <= moment)
    tree = model.tree(mask)
    dirty = model.dirty(tree)
    odd = chance.choice(dirty) if dirty else -1
    numbers = (_drawn_number(model, node, kind, node == odd, moment, chance) for node in dirty)
    return mask, dirty, tuple(numbers)


def _moments(model: DiskModel) -> list[int]:
    """The operations that left something in the air."""
    moments = {link.operation for link in model.pending}
    for file in model.files.values():
        if file.is_dirty():
            moments.update(size.operation for size in file.sizes[1:])
            moments.update(version[0] for had in file.sectors.values() for version in had)
    return sorted(moments)


def _drawn_number(
    model: DiskModel, node: int, kind: int, is_odd: bool, moment: int, chance: random.Random
) -> int:
    file = model.files[node]
    radices = file.radices()
    filling = chance.randrange(radices[1])
    if kind == 0:
        return file.number([chance.randrange(radix) for radix in radices])
    if kind in (1, 2):
        digits = [radix - 1 for radix in radices] if kind == 1 else [0] * len(radices)
        if kind == 2:
            # Of a new file the size must be there for anything to be seen.
            digits[0] = chance.choice((0, radices[0] - 1))
        if is_odd:
            place = chance.randrange(len(digits))
            digits[place] = chance.randrange(radices[place])
    else:
        digits = file.digits_at(moment)
        before = file.digits_at(moment - 1)
        cut = chance.randrange(2, len(digits) + 1)
        # The sectors of the last write before the cut are there up to some place, or from some place on.
        digits[2:] = digits[2:cut] + before[cut:] if kind == 3 else before[2:cut] + digits[cut:]
    digits[1] = filling
    return file.number(digits)
