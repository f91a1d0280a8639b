"""What can be wrong with a store besides a flipped bit: bad sectors, and files that are not the right ones.

Each damage is named `kind:path:detail`, and is the same for the same reference and chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from tests.lab.bit_flips import flip
from tests.lab.fake_disk import FakeDisk, split
from tests.lab.reference import Reference
from tests.lab.rot_judge import Damage

SECTOR_BYTES: Final = 512
JOURNAL: Final = "journal"
STREAMS: Final = "streams"
CHECKPOINTS: Final = "checkpoints"
NOT_ROTTING: Final = frozenset(("lock",))


def is_rotting(path: str) -> bool:
    """Whether there is anything in the file."""
    return path not in NOT_ROTTING


def flip_of(reference: Reference, path: str, offset: int, bit: int) -> Damage:
    """One wrong bit. In the last batch of a killed store it looks like the tear that a crash leaves."""
    found = flip(reference.disk, path, offset, bit)
    steps_min = len(reference.done)
    if reference.doubtful is not None:
        file, line = reference.doubtful
        if journal_number(path) == file and offset >= line:
            steps_min -= reference.last_batch_steps
    return Damage(f"{reference.name}/{found.identity}", found.disk, True, steps_min)


def other_damages(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """All that is listed here, each kind in turn."""
    for make in (truncated, zeroed, missing, swapped, stale, resurrected, doubled, strange):
        yield from make(reference, foreign, chance)


def journal_number(path: str) -> int | None:
    """The number of a journal file, unless it is a spare one."""
    directory, name = split(path)
    digits = name.removesuffix(".log")
    return int(digits) if directory == JOURNAL and digits.isdigit() else None


def _paths(disk: FakeDisk) -> list[str]:
    return [path for path, _ in disk.files() if is_rotting(path)]


def _put(disk: FakeDisk, path: str, content: bytes) -> None:
    directory, name = split(path)
    disk.make_directory(directory)
    if name in disk.list(directory):
        disk.remove(path)
    file = disk.create(path)
    file.write_at(0, content)
    file.close()


def _damage(
    reference: Reference, identity: str, put: dict[str, bytes | None], may_be_silent: bool = True
) -> Damage:
    """Other files in the place of some. The end of the journal may be missing if the last file is hit."""
    disk = reference.disk.copy()
    for path, content in put.items():
        if content is None:
            disk.remove(path)
        else:
            _put(disk, path, content)
    numbers = [number for path in put if (number := journal_number(path)) is not None]
    steps_min = len(reference.done)
    if reference.last_file in numbers:
        lowest = reference.last_file
        while lowest - 1 in numbers:
            lowest -= 1
        steps_min = reference.steps_before(lowest)
    return Damage(f"{reference.name}/{identity}", disk, False, steps_min, may_be_silent)


def truncated(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Files that are too short."""
    for path, content in reference.disk.contents().items():
        if is_rotting(path) and content:
            sizes = {0, 1, len(content) - 1, *(chance.randrange(len(content)) for _ in range(24))}
            for size in sorted(sizes):
                yield _damage(reference, f"truncated:{path}:{size}", {path: content[:size]})


def zeroed(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Every sector once, zeros in its place."""
    for path, content in reference.disk.contents().items():
        for start in range(0, len(content) if is_rotting(path) else 0, SECTOR_BYTES):
            zeros = bytes(min(SECTOR_BYTES, len(content) - start))
            broken = content[:start] + zeros + content[start + SECTOR_BYTES :]
            if broken != content:
                yield _damage(reference, f"zeroed:{path}:{start}", {path: broken})


def missing(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Files that are gone, one at a time."""
    for path in _paths(reference.disk):
        yield _damage(reference, f"missing:{path}:", {path: None})


def swapped(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Two segments or checkpoints under each other's names. That no crash does.

    With two journal files the commands of both are lost, which is reported; but a message id that was seen in
    one of them cannot be known any more, so what exactly remains is not foretold here.
    """
    contents = reference.disk.contents()
    paths = _paths(reference.disk)
    for place, path in enumerate(paths):
        for other in paths[place + 1 :]:
            kind = path.partition("/")[0]
            if kind == "journal" or kind != other.partition("/")[0]:
                continue
            if contents[path] != contents[other]:
                put: dict[str, bytes | None] = {path: contents[other], other: contents[path]}
                yield _damage(reference, f"swapped:{path}:{other}", put, may_be_silent=False)


def stale(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """What a file held before."""
    now = reference.disk.contents()
    seen = set()
    for age, disk in enumerate(reversed(reference.earlier), 1):
        for path, content in disk.contents().items():
            if is_rotting(path) and path in now and now[path] != content and (path, content) not in seen:
                seen.add((path, content))
                yield _damage(reference, f"stale:{path}:{age}", {path: content})


def resurrected(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Files that were removed, back under their old names."""
    now = reference.disk.contents()
    seen = set()
    for age, disk in enumerate(reversed(reference.earlier), 1):
        for path, content in disk.contents().items():
            if is_rotting(path) and path not in now and (path, content) not in seen:
                seen.add((path, content))
                yield _damage(reference, f"resurrected:{path}:{age}", {path: content}, may_be_silent=False)


def _free_names(path: str) -> list[str]:
    """Where a file of the same kind could be that does not exist."""
    directory, name = split(path)
    if directory == JOURNAL:
        number = int(name.removesuffix(".log").removeprefix("spare-"))
        names = [f"{number + step:020d}.log" for step in (-3, 1, 2, 9)]
        return [f"{directory}/{other}" for other in (*names, f"spare-{number + 40:020d}.log")]
    if directory == CHECKPOINTS:
        number = int(name.removesuffix(".ckpt"))
        return [f"{directory}/{number + step:020d}.ckpt" for step in (-5, 1, 2, 40)]
    first, _, generation = name.removesuffix(".seg").partition("-")
    names = [
        f"{int(first) + step:020d}-{int(generation) + more:08d}.seg"
        for step in (0, 1)
        for more in (-1, 0, 1, 40)
    ]
    return [f"{directory}/{other}" for other in names]


def doubled(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """A file a second time, under a name that was free."""
    contents = reference.disk.contents()
    for path in _paths(reference.disk):
        for name in _free_names(path):
            if name not in contents and "-00" + "0" * 18 not in name:
                yield _damage(
                    reference, f"doubled:{path}:{name}", {name: contents[path]}, may_be_silent=False
                )


def strange(reference: Reference, foreign: Reference, chance: random.Random) -> Iterator[Damage]:
    """Files of another store, in the place of ours and beside them."""
    now = reference.disk.contents()
    by_kind: Callable[[str], str] = lambda path: path.partition("/")[0]  # noqa: E731
    for path, content in foreign.disk.contents().items():
        if not is_rotting(path):
            continue
        if path not in now:
            yield _damage(reference, f"strange:{path}:beside", {path: content}, may_be_silent=False)
        for place in _paths(reference.disk):
            if by_kind(place) == by_kind(path) and (place == path or chance.random() < 0.2):
                yield _damage(reference, f"strange:{place}:{path}", {place: content}, may_be_silent=False)
