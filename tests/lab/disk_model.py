"""What is durable on a disk after some operations, and what hangs in the air.

The model is POSIX taken at its word; a file system may promise more, and the store must not need it:
* A sector is written whole or not at all. Since the last sync of its file it may be at any version it has
  had, whatever the other sectors are at.
* The size of a file, too, is at any of its values since the last sync. Where the size grew by a write that
  did not reach the disk, there are zeros, noise, or what another file had there. Bytes from `allocate` or
  `truncate` are zeros.
* `sync` makes bytes and size durable, not the name. A name is durable after `sync_directory` on its
  directory, and can be reached if the directories above are durable as well. Before, each change of a name
  has happened or not, independently of all others except earlier changes of the same name.
* A rename within a directory is atomic. Between directories the new name may be there beside the old one, but
  never neither of them: that much every journaling file system gives.
* After a failed sync, what was unwritten then may never be written, whatever later syncs say.

A choice of what has reached the disk is a number for the names (one bit per change) and one for each file
with unsynced bytes, whose digits are the versions of its size, of the filling, and of each sector.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.lab.fake_disk import (
    DIRECTORY,
    ROOT,
    FailedSync,
    FakeDisk,
    Link,
    Node,
    Operation,
    Resize,
    Sync,
    SyncDirectory,
    Write,
)

SECTOR_BYTES: Final = 512
_NOISE: Final = random.Random(1).randbytes(1 << 16)
_ZEROS, _NOISY, _STALE = range(3)


class _Size(NamedTuple):
    """A size a file has had, since which operation.

    Bytes from `floor` on are not the durable ones any more; those up to `zero_to` are zeros unless written.
    """

    operation: int
    size: int
    floor: int
    zero_to: int


class FileModel:
    """One file: its durable bytes and all that may have become of them since."""

    def __init__(self, content: bytes, sector_bytes: int) -> None:
        self.sector_bytes = sector_bytes
        self.live = bytearray(content)
        self.stale = b""
        self.doubtful: set[int] = set()
        self._settle(content)

    def _settle(self, durable: bytes) -> None:
        size = len(self.live)
        self.durable = durable
        self.sizes = [_Size(0, size, size, 0)]
        self.sectors: dict[int, list[tuple[int, bytes]]] = {}
        self.is_grown_by_write = False
        self._changed()

    def _changed(self) -> None:
        self._built: dict[int, bytes] = {0: self.durable}
        self._radices: list[int] | None = None

    def write(self, operation: int, offset: int, data: bytes, stale: bytes) -> None:
        last = self.sizes[-1]
        end = offset + len(data)
        if end > last.size:
            if offset > last.size:
                self.live.extend(bytes(offset - last.size))
            zero_to = max(last.zero_to, offset) if offset > last.size else last.zero_to
            self.sizes.append(_Size(operation, end, last.floor, zero_to))
            self.is_grown_by_write = True
            self.stale = stale
        self.live[offset:end] = data
        for sector in range(offset // self.sector_bytes, (end - 1) // self.sector_bytes + 1):
            self._add_version(operation, sector)
            self.doubtful.discard(sector)
        self._changed()

    def _add_version(self, operation: int, sector: int) -> None:
        start = sector * self.sector_bytes
        version = bytes(self.live[start : start + self.sector_bytes])
        self.sectors.setdefault(sector, []).append((operation, version))

    def resize(self, operation: int, size: int) -> None:
        last = self.sizes[-1]
        if size > last.size:
            self.live.extend(bytes(size - last.size))
            self.sizes.append(_Size(operation, size, last.floor, size))
        else:
            del self.live[size:]
            self.sizes.append(_Size(operation, size, min(last.floor, size), min(last.zero_to, size)))
            for sector in self.sectors:
                if (sector + 1) * self.sector_bytes > size:
                    self._add_version(operation, sector)
        self._changed()

    def sync(self) -> None:
        if not self.is_dirty():
            return
        if not self.doubtful:
            self._settle(bytes(self.live))
            return
        durable = bytearray(self.live)
        kept = {sector: self.sectors[sector] for sector in sorted(self.doubtful)}
        for sector in kept:
            start = sector * self.sector_bytes
            old = self.durable[start : start + self.sector_bytes].ljust(self.sector_bytes, b"\0")
            durable[start : start + self.sector_bytes] = old
        del durable[len(self.live) :]
        self._settle(bytes(durable))
        self.sectors = kept
        self._changed()

    def fail_sync(self) -> None:
        self.doubtful.update(self.sectors)

    def is_dirty(self) -> bool:
        return bool(self.sectors) or len(self.sizes) > 1

    def radices(self) -> list[int]:
        """How many values the size, the filling and each sector can have, as digits of a number."""
        if self._radices is None:
            fillings = 1 if not self.is_grown_by_write else 3 if self.stale else 2
            self._radices = [len(self.sizes), fillings, *(len(had) + 1 for had in self.sectors.values())]
        return self._radices

    def digits_at(self, operation: int) -> list[int]:
        """All parts as they were after an operation."""
        digits = [sum(1 for size in self.sizes[1:] if size.operation <= operation), _ZEROS]
        digits.extend(sum(1 for version in had if version[0] <= operation) for had in self.sectors.values())
        return digits

    def number(self, digits: list[int]) -> int:
        number = 0
        for radix, digit in zip(reversed(self.radices()), reversed(digits), strict=True):
            number = number * radix + digit
        return number

    def content(self, number: int) -> bytes:
        """The bytes of one choice; the same object when asked again."""
        content = self._built.get(number)
        if content is None:
            content = self._build(number)
            if len(self._built) < 4096:
                self._built[number] = content
        return content

    def _build(self, number: int) -> bytes:
        sizes, fillings = self.radices()[:2]
        number, at = divmod(number, sizes)
        number, filling = divmod(number, fillings)
        size, floor, zero_to = self.sizes[at][1:]
        found = bytearray(self.durable[: min(size, floor)])
        if len(found) < size:
            found.extend(bytes(max(0, min(zero_to, size) - len(found))))
            found.extend(self._filled(filling, len(found), size))
        for sector, had in self.sectors.items():
            number, digit = divmod(number, len(had) + 1)
            start = sector * self.sector_bytes
            if digit and start < size:
                version = had[digit - 1][1].ljust(self.sector_bytes, b"\0")
                found[start : start + self.sector_bytes] = version
        del found[size:]
        return bytes(found)

    def _filled(self, filling: int, start: int, end: int) -> bytes:
        if filling == _ZEROS:
            return bytes(end - start)
        source = self.stale if filling == _STALE else _NOISE
        start %= len(source)
        times = (end - start) // len(source) + 2
        return (source * times)[start:][: end - start]


class _PendingLink(NamedTuple):
    """A change of names that is not durable, and the places in the list of those it cannot be without."""

    operation: int
    part: int
    link: Link
    needs: frozenset[tuple[int, int]]

    @property
    def key(self) -> tuple[int, int]:
        return self.operation, self.part


class Tree(NamedTuple):
    """The names that can be reached, and the files they stand for, in a fixed order."""

    directories: dict[str, dict[str, int]]
    nodes: tuple[int, ...]
    signature: int


def _apply(directories: dict[str, dict[str, int]], link: Link) -> None:
    for directory, name, target in link.changes:
        names = directories.setdefault(directory, {})
        if target is None:
            names.pop(name, None)
        else:
            names[name] = target
    if link.emptied is not None:
        directories.pop(link.emptied, None)


class DiskModel:
    """A disk after some operations: what is durable, and what hangs in the air."""

    def __init__(self, image: FakeDisk, sector_bytes: int = SECTOR_BYTES) -> None:
        self.sector_bytes = sector_bytes
        self.files = {node.number: FileModel(bytes(node.content), sector_bytes) for _, node in image.files()}
        self._directories = {
            path: {name: node.number for name, node in names.items()}
            for path, names in image.directories.items()
        }
        self._numbers_used = max(self.files, default=-1) + 1
        self.pending: list[_PendingLink] = []
        self._trees: dict[int, Tree] = {}

    def apply(self, operation: int, done: Operation) -> None:
        if isinstance(done, Write):
            if (file := self.files.get(done.node)) is not None:
                file.write(operation, done.offset, done.data, self._stale_for(done.node))
        elif isinstance(done, Resize):
            if (file := self.files.get(done.node)) is not None:
                file.resize(operation, done.size)
        elif isinstance(done, Sync):
            if (file := self.files.get(done.node)) is not None:
                file.sync()
        elif isinstance(done, FailedSync):
            if (file := self.files.get(done.node)) is not None:
                file.fail_sync()
        elif isinstance(done, Link):
            self._link(operation, done)
        elif isinstance(done, SyncDirectory):
            self._sync_directory(done.directory)

    def _stale_for(self, node: int) -> bytes:
        """What a block given to this file may have held before: the bytes of the last other file."""
        for other in sorted(self.files, reverse=True):
            if other != node and len(self.files[other].durable) >= self.sector_bytes:
                return self.files[other].durable
        return b""

    def _link(self, operation: int, link: Link) -> None:
        for change in link.changes:
            if change.target is not None and change.target not in self.files and change.target >= 0:
                self.files[change.target] = FileModel(b"", self.sector_bytes)
                self._numbers_used = max(self._numbers_used, change.target + 1)
        directories = {change.directory for change in link.changes}
        if len(directories) == 1:
            self._add_pending(operation, 0, link)
            return
        # From one directory to another: the new name first, and the old one only goes with it.
        added, removed = link.changes
        self._add_pending(operation, 0, Link((added,)))
        self._add_pending(operation, 1, Link((removed,)), frozenset(((operation, 0),)))

    def _add_pending(
        self, operation: int, part: int, link: Link, needs: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        names = {change[:2] for change in link.changes}
        earlier = {
            other.key
            for other in self.pending
            if any(change[:2] in names or change.directory == link.emptied for change in other.link.changes)
        }
        self.pending.append(_PendingLink(operation, part, link, needs | earlier))
        self._trees = {}

    def _sync_directory(self, directory: str) -> None:
        durable: set[tuple[int, int]] = set()
        for pending in reversed(self.pending):
            touches = any(change.directory == directory for change in pending.link.changes)
            if touches or pending.key in durable:
                durable.add(pending.key)
                durable.update(pending.needs)
        for pending in self.pending:
            if pending.key in durable:
                _apply(self._directories, pending.link)
        self.pending = [
            pending._replace(needs=pending.needs - durable)
            for pending in self.pending
            if pending.key not in durable
        ]
        self._trees = {}
        self._forget_unnamed()

    def _forget_unnamed(self) -> None:
        named = {target for names in self._directories.values() for target in names.values()}
        named.update(
            change.target
            for pending in self.pending
            for change in pending.link.changes
            if change.target is not None
        )
        self.files = {number: file for number, file in self.files.items() if number in named}

    def is_legal(self, mask: int) -> bool:
        """Whether everything that the chosen changes cannot be without is chosen as well."""
        chosen = {pending.key for place, pending in enumerate(self.pending) if mask >> place & 1}
        return all(pending.needs <= chosen for pending in self.pending if pending.key in chosen)

    def closed(self, mask: int) -> int:
        """The choice with what it cannot be without."""
        places = {pending.key: place for place, pending in enumerate(self.pending)}
        for place in reversed(range(len(self.pending))):
            if mask >> place & 1:
                for key in self.pending[place].needs:
                    mask |= 1 << places[key]
        return mask

    def tree(self, mask: int) -> Tree:
        """The names if exactly these changes of names have reached the disk."""
        tree = self._trees.get(mask)
        if tree is None:
            directories = {path: dict(names) for path, names in self._directories.items()}
            for place, pending in enumerate(self.pending):
                if mask >> place & 1:
                    _apply(directories, pending.link)
            tree = self._trees[mask] = _reachable(directories)
        return tree

    def dirty(self, tree: Tree) -> list[int]:
        """The files of a tree that have unsynced bytes."""
        return [number for number in tree.nodes if self.files[number].is_dirty()]

    def disk(self, tree: Tree, contents: Sequence[bytes]) -> FakeDisk:
        """A disk of one tree with these bytes in its files."""
        nodes = {number: Node(number, content) for number, content in zip(tree.nodes, contents, strict=True)}
        nodes[DIRECTORY.number] = DIRECTORY
        return FakeDisk.of(
            {
                path: {name: nodes[number] for name, number in names.items()}
                for path, names in tree.directories.items()
            },
            self._numbers_used,
        )


def _reachable(directories: dict[str, dict[str, int]]) -> Tree:
    found: dict[str, dict[str, int]] = {}
    nodes: dict[int, None] = {}
    waiting = [ROOT]
    while waiting:
        path = waiting.pop()
        names = found[path] = directories.get(path, {})
        for name, number in names.items():
            if number == DIRECTORY.number:
                waiting.append(f"{path}/{name}" if path else name)
            else:
                nodes[number] = None
    order = tuple(sorted(nodes))
    shape = tuple((path, tuple(sorted(found[path].items()))) for path in sorted(found))
    return Tree(found, order, hash((shape, order)))
