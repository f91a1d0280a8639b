"""Damage to the files of a node that is not running, as disks and people do it. Chance is an argument.

What is written in a file ends at its last byte that is not zero: servers allocate files before they fill
them, and damage behind that would be none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Final

CHUNK_BYTES: Final = 4096
_STALE_SHARE: Final = 0.5
_DELETED_SHARE: Final = 0.5
_FLIPS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Which files of a server's folder hold messages, and which hold what it knows besides. An asterisk
    stands for anything, also for slashes."""

    messages: Sequence[str]
    state: Sequence[str]

    def patterns(self, target: str) -> Sequence[str]:
        """Of `messages` or `state`."""
        return {"messages": self.messages, "state": self.state}[target]


LAYOUTS: Final[Mapping[str, Layout]] = {
    "nats-server": Layout(
        messages=("*/streams/*/msgs/*.blk",),
        state=("*/snapshots/snap*", "*.inf", "*.sum", "*.idx", "*.db", "*/_meta_/msgs/*.blk"),
    ),
    "edged-hub": Layout(messages=("*streams/*/*.seg", "*journal/*.log"), state=("*checkpoints/*.ckpt",)),
}

# What files were before, by path from the top of the folder.
Copies = Mapping[str, bytes]


def matching(root: Path, patterns: Sequence[str]) -> list[Path]:
    """Files that hold something, in a fixed order."""
    found = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    return [
        path
        for path in found
        if any(fnmatch("/" + path.relative_to(root).as_posix(), pattern) for pattern in patterns)
    ]


def copies_of(root: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    """The content of files, to bring some of it back later. The server may be writing meanwhile."""
    copies = {}
    for path in matching(root, patterns):
        try:
            copies[path.relative_to(root).as_posix()] = path.read_bytes()
        except FileNotFoundError:
            continue  # The server has just removed it.
    return copies


def flip_bits(path: Path, random: Random) -> str:
    """Flip one to four bits."""
    data = bytearray(path.read_bytes())
    used = used_bytes(data)
    places = [random.randrange(max(1, used) * 8) for _ in range(random.randint(1, _FLIPS_MAX))]
    for place in places:
        data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    return f"flipped bits {places} of {path.name}"


def truncate(path: Path, random: Random) -> str:
    """Cut off an end; short ones are more likely than long ones."""
    data = path.read_bytes()
    used = used_bytes(data)
    cut = min(used, max(1, int(used * random.random() ** 2)))
    path.write_bytes(data[: used - cut])
    return f"cut {cut} of {used} bytes off {path.name}"


def bring_back(path: Path, before: bytes, random: Random) -> str:
    """Put older content in the place of half of the blocks."""
    data = bytearray(path.read_bytes())
    chunks = [
        start
        for start in range(0, min(len(before), len(data)), CHUNK_BYTES)
        if random.random() < _STALE_SHARE
    ]
    for start in chunks:
        end = min(start + CHUNK_BYTES, len(before), len(data))
        data[start:end] = before[start:end]
    path.write_bytes(data)
    return f"brought {len(chunks)} old blocks back into {path.name}"


def delete(path: Path, random: Random) -> str:
    """Remove it, or not: some stay."""
    if random.random() >= _DELETED_SHARE:
        return f"left {path.name}"
    path.unlink()
    return f"deleted {path.name}"


KINDS: Final = ("flip", "truncate", "stale", "delete")
_SIMPLE: Final[Mapping[str, Callable[[Path, Random], str]]] = {
    "flip": flip_bits,
    "truncate": truncate,
    "delete": delete,
}


def damage(root: Path, patterns: Sequence[str], kind: str, before: Copies, random: Random) -> list[str]:
    """Damage all files that match and have something in them, in one way; what was done to each."""
    done = []
    paths = [path for path in matching(root, patterns) if used_bytes(path.read_bytes())]
    # Some files stay when some are deleted, but one goes always.
    doomed = random.choice(paths) if paths else None
    for path in paths:
        if kind == "delete" and path == doomed:
            path.unlink()
            done.append(f"deleted {path.name}")
        elif kind == "stale":
            older = before.get(path.relative_to(root).as_posix())
            if older is not None:
                done.append(bring_back(path, older, random))
        else:
            done.append(_SIMPLE[kind](path, random))
    return done


def used_bytes(data: bytes | bytearray) -> int:
    """How long it is without the zeros at its end."""
    return len(data.rstrip(b"\0"))
