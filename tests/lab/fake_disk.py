"""A disk in memory: the store's `Files` without the system, remembering what was done in which order.

Rules:
* What a running program sees is here; what a power cut would leave of it is worked out in `crash_states` from
  the image at the start and the list of operations.
* A disk that does not record costs little to make and to copy: bytes are shared until they are written to.
* Directories are known by their paths, since the store never renames one.
* A write that fails has written half of its bytes.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from edged.store.files import Bytes

ROOT: Final = ""
Content = bytes | bytearray
# Asked with the name of the operation and the path; answers with what is to be raised, if anything.
Fault = Callable[[str, str], OSError | None]


class Node:
    """A file without its name."""

    __slots__ = ("content", "number")

    def __init__(self, number: int, content: Content) -> None:
        self.number = number
        self.content = content

    def writable(self) -> bytearray:
        """The content, no longer shared with other disks."""
        if type(self.content) is bytes:
            self.content = bytearray(self.content)
        return self.content  # type: ignore[return-value]


# In the place of a node where a name stands for a directory.
DIRECTORY: Final = Node(-1, b"")
Names = dict[str, Node]


class Write(NamedTuple):
    node: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    """Truncated or allocated: new bytes are zeros, whatever happens."""

    node: int
    size: int


class Sync(NamedTuple):
    node: int


class FailedSync(NamedTuple):
    """The kernel has given up on what was unwritten, and will not try again."""

    node: int


class Change(NamedTuple):
    """One name in one directory: what it stands for now."""

    directory: str
    name: str
    target: int | None


class Link(NamedTuple):
    """Names changed together or not at all. `emptied` is the directory taken away, if it was one."""

    changes: tuple[Change, ...]
    emptied: str | None = None


class SyncDirectory(NamedTuple):
    directory: str


class Mark(NamedTuple):
    """Not an operation: from here on a promise holds."""

    value: int


Operation = Write | Resize | Sync | FailedSync | Link | SyncDirectory | Mark


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def split(path: str) -> tuple[str, str]:
    """The directory and the name in it."""
    directory, _, name = path.rpartition("/")
    return directory, name


class FakeFile:
    """An open file of a fake disk."""

    __slots__ = ("_disk", "_is_locked", "_is_sync_failed", "_node", "path")

    def __init__(self, disk: FakeDisk, node: Node, path: str, is_locked: bool = False) -> None:
        self._disk = disk
        self._node: Node | None = node
        self._is_locked = is_locked
        self._is_sync_failed = False
        self.path = path
        disk.open_count += 1

    def _open_node(self) -> Node:
        if self._node is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        return self._node

    def read_at(self, offset: int, size: int) -> bytes:
        node = self._open_node()
        self._disk.check("read", self.path)
        return bytes(node.content[offset : offset + size]) if size > 0 else b""

    def write_at(self, offset: int, data: Bytes) -> None:
        node = self._open_node()
        try:
            self._disk.check("write", self.path)
        except OSError:
            self._write(node, offset, bytes(data)[: len(data) // 2])
            raise
        self._write(node, offset, bytes(data))

    def _write(self, node: Node, offset: int, data: bytes) -> None:
        if not data:
            return
        disk = self._disk
        with disk.guard:
            end = offset + len(data)
            disk.take(end - len(node.content), self.path)
            content = node.writable()
            if offset > len(content):
                content.extend(bytes(offset - len(content)))
            content[offset:end] = data
            disk.record(Write(node.number, offset, data))

    def sync(self) -> None:
        node = self._open_node()
        if self._is_sync_failed:
            raise OSError(errno.EIO, "an earlier sync failed", self.path)
        try:
            self._disk.check("sync", self.path)
        except OSError:
            self._is_sync_failed = True
            self._disk.record(FailedSync(node.number))
            raise
        self._disk.record(Sync(node.number))

    def allocate(self, size: int) -> None:
        node = self._open_node()
        self._disk.check("allocate", self.path)
        if size > len(node.content):
            self._resize(node, size)

    def truncate(self, size: int) -> None:
        node = self._open_node()
        self._disk.check("truncate", self.path)
        if size != len(node.content):
            self._resize(node, size)

    def _resize(self, node: Node, size: int) -> None:
        disk = self._disk
        with disk.guard:
            grown = size - len(node.content)
            disk.take(grown, self.path)
            content = node.writable()
            if grown > 0:
                content.extend(bytes(grown))
            else:
                del content[size:]
            disk.record(Resize(node.number, size))

    def size(self) -> int:
        return len(self._open_node().content)

    def close(self) -> None:
        if self._node is None:
            return
        self._node = None
        self._disk.open_count -= 1
        if self._is_locked:
            self._disk.locked.discard(self.path)


class FakeDisk:
    """`Files` in memory. `capacity_bytes` makes it full at some size; `fault` is asked before operations."""

    def __init__(self, is_recording: bool = False, capacity_bytes: int | None = None) -> None:
        self.directories: dict[str, Names] = {ROOT: {}}
        self.operations: list[Operation] | None = [] if is_recording else None
        self.capacity_bytes = capacity_bytes
        self.fault: Fault | None = None
        self.open_count = 0
        self.locked: set[str] = set()
        self.guard = threading.Lock()
        self._numbers_used = 0

    # --- images ---

    @classmethod
    def of(cls, directories: dict[str, Names], numbers_used: int) -> FakeDisk:
        """A disk around names that nobody else holds."""
        disk = cls()
        disk.directories = directories
        disk._numbers_used = numbers_used
        return disk

    @classmethod
    def from_directory(cls, path: str | Path) -> FakeDisk:
        """What a directory of the system holds now."""
        disk = cls()
        for file in sorted(Path(path).rglob("*")):
            relative = file.relative_to(path).as_posix()
            if file.is_dir():
                disk.make_directory(relative)
            else:
                disk._add(relative, file.read_bytes())
        return disk

    def to_directory(self, path: str | Path) -> None:
        """Write everything below a directory of the system, to look at it."""
        for directory in self.directories:
            (Path(path) / directory).mkdir(parents=True, exist_ok=True)
        for name, node in self.files():
            (Path(path) / name).write_bytes(node.content)

    def copy(self, is_recording: bool = False) -> FakeDisk:
        """The same bytes under the same names; what is written to one is not seen in the other."""
        copy = FakeDisk(is_recording, self.capacity_bytes)
        nodes = {DIRECTORY.number: DIRECTORY}
        copy._numbers_used = self._numbers_used
        copy.directories = {}
        for path, names in self.directories.items():
            copied = copy.directories[path] = {}
            for name, node in names.items():
                if node.number not in nodes:
                    nodes[node.number] = Node(node.number, bytes(node.content))
                copied[name] = nodes[node.number]
        return copy

    def files(self) -> Iterator[tuple[str, Node]]:
        """All files with their paths, in the order of the paths."""
        for directory, names in sorted(self.directories.items()):
            for name, node in sorted(names.items()):
                if node is not DIRECTORY:
                    yield (f"{directory}/{name}" if directory else name), node

    def contents(self) -> dict[str, bytes]:
        """The bytes of all files."""
        return {path: bytes(node.content) for path, node in self.files()}

    def used_bytes(self) -> int:
        """The sizes of all files together."""
        return sum(len(node.content) for _, node in self.files())

    # --- what the operations share ---

    def check(self, operation: str, path: str) -> None:
        """Ask the fault."""
        if self.fault is not None and (error := self.fault(operation, path)) is not None:
            raise error

    def take(self, byte_count: int, path: str) -> None:
        """Refuse to grow beyond the capacity."""
        if byte_count <= 0 or self.capacity_bytes is None:
            return
        if self.used_bytes() + byte_count > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def record(self, operation: Operation) -> None:
        """Remember, if this disk records."""
        if self.operations is not None:
            self.operations.append(operation)

    def mark(self, value: int) -> None:
        """From here on the promise with this number holds."""
        self.record(Mark(value))

    def end_process(self) -> None:
        """A program has ended: its files are closed, its locks are free."""
        self.locked.clear()
        self.open_count = 0

    def _names(self, directory: str) -> Names:
        try:
            return self.directories[directory]
        except KeyError:
            raise _missing(directory) from None

    def _node(self, path: str) -> Node:
        directory, name = split(path)
        node = self._names(directory).get(name)
        if node is None:
            raise _missing(path)
        if node is DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _add(self, path: str, content: Content) -> Node:
        directory, name = split(path)
        names = self._names(directory)
        if name in names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        with self.guard:
            node = names[name] = Node(self._numbers_used, content)
            self._numbers_used += 1
            self.record(Link((Change(directory, name, node.number),)))
        return node

    # --- Files ---

    def open(self, path: str) -> FakeFile:
        self.check("open", path)
        return FakeFile(self, self._node(path), path)

    def create(self, path: str) -> FakeFile:
        self.check("create", path)
        return FakeFile(self, self._add(path, b""), path)

    def list(self, directory: str) -> list[str]:
        self.check("list", directory)
        return sorted(self._names(directory))

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        made = ROOT
        for name in path.split("/") if path else ():
            parent = made
            made = f"{parent}/{name}" if parent else name
            if made in self.directories:
                continue
            if name in self.directories[parent]:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), made)
            with self.guard:
                self.directories[parent][name] = DIRECTORY
                self.directories[made] = {}
                self.record(Link((Change(parent, name, DIRECTORY.number),)))

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        node = self._node(old)
        old_directory, old_name = split(old)
        new_directory, new_name = split(new)
        names = self._names(new_directory)
        if names.get(new_name) is DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
        if old == new:
            return
        with self.guard:
            del self.directories[old_directory][old_name]
            names[new_name] = node
            self.record(
                Link((Change(new_directory, new_name, node.number), Change(old_directory, old_name, None)))
            )

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self._node(path)
        directory, name = split(path)
        with self.guard:
            del self.directories[directory][name]
            self.record(Link((Change(directory, name, None),)))

    def remove_directory(self, path: str) -> None:
        self.check("remove_directory", path)
        if self._names(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        directory, name = split(path)
        with self.guard:
            del self.directories[path]
            del self.directories[directory][name]
            self.record(Link((Change(directory, name, None),), emptied=path))

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self._names(path)
        self.record(SyncDirectory(path))

    def free_bytes(self) -> int:
        return 1 << 40 if self.capacity_bytes is None else max(0, self.capacity_bytes - self.used_bytes())

    def lock(self, path: str) -> FakeFile:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        directory, name = split(path)
        if name not in self._names(directory):
            self.create(path).close()
        self.locked.add(path)
        return FakeFile(self, self._node(path), path, is_locked=True)
