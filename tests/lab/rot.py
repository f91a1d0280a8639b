"""Rot in stores of the laboratory: every bit or a choice of bits, and all other damages, counted.

A store that reads the same bytes does the same. So a bit is not tried, but counted as never read, if the
undamaged store does not read its byte when it is opened, looked through, used further and opened again. All
these bytes are then made wrong at once, to see that it changes nothing.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from operator import or_
from typing import Final, NamedTuple

from tests.lab.damages import flip_of, is_rotting, other_damages
from tests.lab.fake_disk import FakeDisk, FakeFile, Node
from tests.lab.reference import Reference, make_reference
from tests.lab.rot_judge import SAME, WRONG, Damage, judge, wrong_when_used
from tests.lab.store_crash import Offence
from tests.lab.tested_store import TestedStore

UNREAD: Final = "never read, so the same"
ALL_UNREAD: Final = "all bytes never read, wrong at once"
# A store draws the sizes of its files, and its reads may depend on them: it is watched so many times.
LIVES_WATCHED: Final = 12
# So much of a choice is among the bytes that are not zero.
PART_OF_USED: Final = 0.8
BITS_PER_TASK: Final = 4000


class _ReadFile(FakeFile):
    """Remembers which bytes were read."""

    __slots__ = ("_read",)

    def __init__(self, disk: FakeDisk, node: Node, path: str, read: bytearray) -> None:
        super().__init__(disk, node, path)
        self._read = read

    def read_at(self, offset: int, size: int) -> bytes:
        found = super().read_at(offset, size)
        self._read[offset : offset + len(found)] = b"\x01" * len(found)
        return found


class _ReadDisk(FakeDisk):
    """Remembers which bytes of which files were read."""

    def __init__(self, image: FakeDisk) -> None:
        super().__init__()
        copy = image.copy()
        self.directories = copy.directories
        self._numbers_used = copy._numbers_used
        self.read = {path: bytearray(len(node.content)) for path, node in image.files()}
        # By its number a file is known under every name that it is given later.
        self._by_number = {node.number: self.read[path] for path, node in image.files()}

    def open(self, path: str) -> FakeFile:
        node = self._node(path)
        # What the store itself has made is of no interest.
        return _ReadFile(self, node, path, self._by_number.get(node.number, bytearray(1 << 16)))


class Bits:
    """All bits of a reference by number, and what is known about them."""

    def __init__(self, reference: Reference) -> None:
        contents = reference.disk.contents()
        self.paths = [path for path, content in contents.items() if is_rotting(path) and content]
        self._ends = list(accumulate(8 * len(contents[path]) for path in self.paths))
        self.count = self._ends[-1]
        self._used = [
            8 * offset + start
            for path, start in zip(self.paths, [0, *self._ends], strict=False)
            if "/spare-" not in path
            for offset, byte in enumerate(contents[path])
            if byte
        ]
        self._read = {path: bytearray(len(content)) for path, content in contents.items()}
        for life in range(LIVES_WATCHED):
            for path, read in _watched(reference, random.Random(life)).items():
                self._read[path] = bytearray(map(or_, self._read[path], read))

    def place(self, number: int) -> tuple[str, int, int]:
        """Path, offset and bit."""
        file = bisect_right(self._ends, number)
        start = self._ends[file - 1] if file else 0
        return self.paths[file], *divmod(number - start, 8)

    def is_read(self, path: str, offset: int) -> bool:
        """Whether a store that is opened, looked through, used further and opened again reads this byte."""
        return bool(self._read[path][offset])

    def note_unread(self, path: str) -> None:
        """Believe that nothing of this file is read; to see that it comes out."""
        self._read[path] = bytearray(len(self._read[path]))

    def unread_spoilt(self, reference: Reference) -> FakeDisk:
        """The disk with every byte wrong that is never read."""
        disk = reference.disk.copy()
        for path, node in disk.files():
            if path in self.paths:
                pairs = zip(node.content, self._read[path], strict=True)
                node.content = bytes(byte if is_read else byte ^ 0xFF for byte, is_read in pairs)
        return disk

    def choice(self, chance: random.Random, count: int) -> list[int]:
        """Some bits, most of them in bytes that are used."""
        in_used = {chance.choice(self._used) + chance.randrange(8) for _ in range(int(PART_OF_USED * count))}
        rest = max(0, min(count, self.count) - len(in_used))
        found = in_used | set(chance.sample(range(self.count), rest))
        while len(found) < min(count, self.count):
            found.add(chance.randrange(self.count))
        return sorted(found)


def _watched(reference: Reference, chance: random.Random) -> dict[str, bytearray]:
    """What a life of the undamaged store reads: all that `judge` may do with a damaged one."""
    disk = _ReadDisk(reference.disk)
    store = TestedStore(disk, chance)
    wrong = wrong_when_used(reference, disk, store, store.observe(), chance)
    assert not wrong, wrong
    return disk.read


@dataclass(slots=True)
class Tally:
    """What came of some damages, by the kind of file or damage and of verdict."""

    counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    offences: list[Offence] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""

    @property
    def total(self) -> int:
        return self.counts.total()

    def add(self, where: str, reference: Reference, damage: Damage) -> None:
        verdict = judge(reference, damage)
        self.counts[where, verdict.kind, verdict.is_noticed] += 1
        if verdict.seconds > self.slowest_s:
            self.slowest_s, self.slowest = verdict.seconds, damage.identity
        if verdict.kind == WRONG:
            self.offences.append(Offence(damage.identity, verdict.what))

    def merge(self, other: Tally) -> None:
        self.counts += other.counts
        self.offences += other.offences
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest

    def lines(self) -> Iterator[str]:
        """For people."""
        for (where, kind, is_noticed), count in sorted(self.counts.items()):
            yield f"  {count:9,}  {where}: {kind}{', noticed' * is_noticed}"


class Task(NamedTuple):
    """Some bits of a reference (`numbers`, or a range), or all other damages of it."""

    seed: int
    is_killed: bool
    numbers: tuple[int, ...] | range | None
    is_small: bool = False


@lru_cache(maxsize=8)
def reference_and_bits(seed: int, is_killed: bool, is_small: bool = False) -> tuple[Reference, Bits]:
    """Made once per process."""
    reference = make_reference(seed, is_killed, is_small)
    return reference, Bits(reference)


def run_task(task: Task) -> Tally:
    """Try what a task lists."""
    reference, bits = reference_and_bits(task.seed, task.is_killed, task.is_small)
    tally = Tally()
    if task.numbers is None or 0 in task.numbers[:1]:
        prove_unread(reference, bits, tally)
    if task.numbers is None:
        foreign, _ = reference_and_bits(task.seed + 1, task.is_killed)
        for damage in other_damages(reference, foreign, random.Random(task.seed)):
            kind, path, _ = damage.identity.partition("/")[2].split(":", 2)
            tally.add(f"{kind} {path.partition('/')[0]}", reference, damage)
        return tally
    for number in task.numbers:
        path, offset, bit = bits.place(number)
        directory = path.partition("/")[0]
        if not bits.is_read(path, offset):
            tally.counts[directory, UNREAD, False] += 1
        else:
            tally.add(directory, reference, flip_of(reference, path, offset, bit))
    return tally


def prove_unread(reference: Reference, bits: Bits, tally: Tally) -> None:
    """All bytes that are never read are wrong at the same time, and nothing is different."""
    for life in range(LIVES_WATCHED):
        identity = f"{reference.name}/{ALL_UNREAD}:{life}"
        damage = Damage(identity, bits.unread_spoilt(reference), True, len(reference.done))
        whole = judge(reference, damage._replace(disk=reference.disk.copy()))
        verdict = judge(reference, damage)
        tally.counts[ALL_UNREAD, verdict.kind, verdict.is_noticed] += 1
        if (verdict.kind, verdict.is_noticed) != (whole.kind, whole.is_noticed) or verdict.kind != SAME:
            tally.offences.append(Offence(identity, f"{verdict.kind}, not {whole.kind}: {verdict.what}"))


def flip_tasks(seeds: Iterable[int], flips_max: int | None) -> Iterator[Task]:
    """Every bit of all small references, or so many of the usual ones in all."""
    references = [(seed, is_killed) for seed in seeds for is_killed in (False, True)]
    is_small = flips_max is None
    for seed, is_killed in references:
        _, bits = reference_and_bits(seed, is_killed, is_small)
        numbers: list[int] | range = range(bits.count)
        if flips_max is not None:
            chance = random.Random(f"flips {seed:x} {is_killed}")
            numbers = bits.choice(chance, flips_max // len(references))
        for start in range(0, len(numbers), BITS_PER_TASK):
            part = numbers[start : start + BITS_PER_TASK]
            yield Task(seed, is_killed, part if isinstance(part, range) else tuple(part), is_small)


def damage_tasks(seeds: Iterable[int]) -> Iterator[Task]:
    """All that is not a flipped bit."""
    for seed in seeds:
        for is_killed in (False, True):
            yield Task(seed, is_killed, None)


def damage_named(identity: str) -> tuple[Reference, Damage]:
    """The damage with this name."""
    name, _, what = identity.partition("/")
    seed, end, *small = name.split(".")
    reference, bits = reference_and_bits(int(seed, 16), end == "killed", bool(small))
    if what.startswith(f"{ALL_UNREAD}:"):
        return reference, Damage(identity, bits.unread_spoilt(reference), True, len(reference.done))
    path, offset, bit = what.rsplit(":", 2)
    if bit.isdigit() and ":" not in path:
        return reference, flip_of(reference, path, int(offset), int(bit))
    foreign, _ = reference_and_bits(int(seed, 16) + 1, end == "killed")
    damages = other_damages(reference, foreign, random.Random(int(seed, 16)))
    return reference, next(damage for damage in damages if damage.identity == identity)
