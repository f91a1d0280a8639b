"""Messages and files that the tests of segments share: a store in memory, and streams of known content."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from zlib import crc32

from edged.core.message import Message
from edged.store.block_cache import BlockCache
from edged.store.box import Keyring
from edged.store.files import Bytes
from edged.store.guard import unguard
from edged.store.segment import Segment
from edged.store.segment_format import segment_path
from edged.store.segment_writer import Expiry, write_segment

STREAM_ID = bytes(range(16))
OTHER_STREAM_ID = bytes(range(16, 32))
SALT = bytes(range(100, 116))
START_NS = 1_700_000_000_000_000_000


class MemoryFile:
    """A file of MemoryFiles; counts what is read."""

    def __init__(self, files: MemoryFiles, data: bytearray) -> None:
        self._files = files
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        self._files.read_bytes += max(0, min(size, len(self._data) - offset))
        for sector in self._files.bad_sectors:
            if offset < sector + 512 and sector < offset + size:
                raise OSError(5, "Input/output error")
        return bytes(self._data[offset : offset + size])

    def write_at(self, offset: int, data: Bytes) -> None:
        if offset + len(data) > self._files.file_bytes_max:
            raise OSError(28, "No space left on device")
        self._data.extend(bytes(max(0, offset - len(self._data))))
        self._data[offset : offset + len(data)] = data

    def sync(self) -> None:
        self._files.calls.append("sync")

    def allocate(self, size: int) -> None:
        self._data.extend(bytes(max(0, size - len(self._data))))

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def close(self) -> None:
        pass


class MemoryFiles:
    """Files in memory, for tests that damage thousands of them."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.data = {path: bytearray(data) for path, data in (content or {}).items()}
        self.calls: list[str] = []
        self.read_bytes = 0
        self.bad_sectors: list[int] = []
        self.file_bytes_max = 1 << 40

    def open(self, path: str) -> MemoryFile:
        if path not in self.data:
            raise FileNotFoundError(2, "No such file or directory")
        return MemoryFile(self, self.data[path])

    def create(self, path: str) -> MemoryFile:
        if path in self.data:
            raise FileExistsError(17, "File exists")
        self.data[path] = bytearray()
        return self.open(path)

    def lock(self, path: str) -> MemoryFile:
        return self.open(path) if path in self.data else self.create(path)

    def make_directory(self, path: str) -> None:
        self.calls.append(f"make_directory {path}")

    def rename(self, old: str, new: str) -> None:
        self.calls.append("rename")
        self.data[new] = self.data.pop(old)

    def remove(self, path: str) -> None:
        self.calls.append("remove")
        del self.data[path]

    def sync_directory(self, path: str) -> None:
        self.calls.append(f"sync_directory {path}")

    def free_bytes(self) -> int:
        return 1 << 40

    # Last, because it hides the built-in name for what follows it.
    def list(self, directory: str) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.data if path.rpartition("/")[0] == directory)


def messages(
    count: int, first_seq: int = 1, seed: int = 1, data_bytes: int = 60, gaps: bool = False
) -> list[Message]:
    """Messages on a few subjects, some with headers; the same for the same arguments."""
    chance = random.Random(seed)
    found = []
    seq, ts_ns = first_seq, START_NS
    for _ in range(count):
        header = b"NATS/1.0\r\nNats-TTL: 5s\r\n\r\n" if chance.random() < 0.2 else b""
        data = header + chance.randbytes(chance.randrange(data_bytes + 1))
        found.append(Message(seq, ts_ns, b"plant.%d" % chance.randrange(7), len(header), data))
        seq += chance.choice((1, 1, 2, 50)) if gaps else 1
        ts_ns += chance.randrange(1_000_000)
    return found


def expires_ns(message: Message) -> int:
    """Messages with headers expire, those of even seq."""
    return message.ts_ns + 5_000_000_000 if message.seq % 2 == 0 else 0


def written(
    kept: list[Message],
    first_seq: int = 1,
    generation: int = 1,
    keys: Keyring | None = None,
    expiry: Expiry | None = expires_ns,
    salt: bytes | None = SALT,
    stream_id: bytes = STREAM_ID,
) -> tuple[MemoryFiles, str]:
    """A store in memory with one segment, and its path."""
    files = MemoryFiles()
    path = segment_path(stream_id, first_seq, generation)
    write_segment(files, path, stream_id, iter(kept), keys, expiry, salt)
    return files, path


def opened(
    files: MemoryFiles, path: str, keys: Keyring | None = None, expiry: Expiry | None = None
) -> Segment:
    """The segment there, with a cache of its own."""
    return Segment.open(files, path, BlockCache(1 << 24), keys, expiry)


def damaged(files: MemoryFiles, path: str, data: bytes) -> MemoryFiles:
    """The same store with other bytes in that file."""
    return MemoryFiles({**files.data, path: data})


def flips(data: bytes, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """The data with one bit changed, for every bit or for every `step`-th."""
    for bit in range(0, 8 * len(data), step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(changed)


def forged_head(mark: int, size: int) -> bytes:
    """The front of a guarded blob, with a good checksum, that claims any payload size."""
    head = struct.pack("<IBBHQI17I", mark, 1, 1, 0, size, 0, *[0] * 17)
    return head + struct.pack("<I", crc32(head))


def payload_of(blob: bytes) -> bytes:
    """The payload of a whole guarded blob."""
    return unguard(blob).payload
