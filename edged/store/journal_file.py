"""One file of the journal: its header, its place on disk, and whether it was used.

A file is 4096 bytes of header, then frames. The header stands there twice, each copy with its own checksum,
so that a bad sector does not take the nonce and with it every frame. A file that was made ready but not used
yet has no header for its own number; what else is in it is left over from an earlier use.

Rule: a header says where the journal ended when the file was begun (`previous_number`, `previous_end`).
Frames between there and this file were cut off by a crash, or written when the disk failed: they do not
count. The nonce of that file stands there, too, so that a file of another store, or an old copy, is not taken
for it.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from edged.store.errors import Damaged

MAGIC: Final = b"edgedjn1"
HEADER_BYTES: Final = 4096
COPY_BYTES: Final = 2048
SALT_BYTES: Final = 16
KEY_ID_BYTES: Final = 8
JOURNAL: Final = "journal"
_LAYOUT: Final = struct.Struct("<8sIIQQQQQ16s8sQQ")
_SUFFIX: Final = ".log"
_SPARE: Final = "spare-"


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """What a file says about itself. `key_id` and `salt` are empty bytes (zeros) without encryption."""

    number: int
    nonce: int
    created_ns: int
    previous_number: int
    previous_end: int
    salt: bytes = bytes(SALT_BYTES)
    key_id: bytes = bytes(KEY_ID_BYTES)
    previous_nonce: int = 0
    store_id: int = 0

    def encode(self) -> bytes:
        """The whole header block."""
        fields = _LAYOUT.pack(
            MAGIC,
            0,
            1,
            self.number,
            self.nonce,
            self.created_ns,
            self.previous_number,
            self.previous_end,
            self.salt,
            self.key_id,
            self.previous_nonce,
            self.store_id,
        )
        copy = fields.ljust(COPY_BYTES, b"\0")
        copy = copy[:8] + struct.pack("<I", zlib.crc32(copy[12:])) + copy[12:]
        return copy + copy

    @classmethod
    def decode(cls, block: bytes, path: str) -> JournalHeader | None:
        """The header of a block read from the start of a file; None when there is none.

        Raises Damaged when there was one once: the magic is there, but neither copy is whole.
        """
        seen = False
        for start in (0, COPY_BYTES):
            copy = block[start : start + COPY_BYTES]
            if len(copy) < COPY_BYTES:
                continue
            seen = seen or copy[:8] == MAGIC
            fields = _LAYOUT.unpack_from(copy)
            if fields[0] == MAGIC and fields[1] == zlib.crc32(copy[12:]) and fields[2] == 1:
                return cls(*fields[3:])
        if seen:
            raise Damaged("neither copy of the header of a journal file is whole", path, 0)
        return None


def file_path(number: int) -> str:
    """Where a journal file is."""
    return f"{JOURNAL}/{number:020d}{_SUFFIX}"


def spare_path(number: int) -> str:
    """Where a file waits that is to be used again; the number only makes the name unique."""
    return f"{JOURNAL}/{_SPARE}{number:020d}{_SUFFIX}"


def file_numbers(names: list[str]) -> list[int]:
    """The numbers of the journal files among the names in the directory, in order."""
    return sorted(int(name[: -len(_SUFFIX)]) for name in names if _is_numbered(name))


def spare_names(names: list[str]) -> list[str]:
    """The spare files among the names."""
    return sorted(name for name in names if name.startswith(_SPARE) and name.endswith(_SUFFIX))


def _is_numbered(name: str) -> bool:
    digits = name.removesuffix(_SUFFIX)
    return name.endswith(_SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdigit()
