"""Headers of the files in a tar, as archives of nats-server need them: POSIX (ustar) with PAX extensions.

    0    100  name          156  1    kind: 0 plain file, x extension for the file that follows
    124  12   size, octal   257  6    "ustar" and a zero byte
    148  8    sum of the header's bytes, these 8 counted as blanks
    345  155  what goes before the name

Rules: headers come from outside; ArchiveError is the only way to fail. A name is a text and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from edged.core.archive_parts import ArchiveError

BLOCK_BYTES: Final = 512

_EXTENSION: Final = ord("x")
_REGULAR: Final = (ord("0"), 0)
_MAGIC: Final = b"ustar\x00"
_SIZE_MAX: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class TarFile:
    """What is known of a file before its content."""

    name: str
    size: int
    kind: int

    @property
    def is_extension(self) -> bool:
        """Whether its content is about the file after it."""
        return self.kind == _EXTENSION

    @property
    def is_regular(self) -> bool:
        """Whether it is a plain file."""
        return self.kind in _REGULAR


def parse_header(header: bytes, records: dict[str, str] | None = None) -> TarFile:
    """From a block of 512 bytes; `records` of an extension go before what is in it."""
    blanked = header[:148] + b" " * 8 + header[156:]
    if sum(blanked) != _octal(header[148:156]) or header[257:263] != _MAGIC:
        raise ArchiveError("this is neither an archive of a stream nor a tar")
    name = _text(header[:100])
    if prefix := _text(header[345:500]):
        name = f"{prefix}/{name}"
    size = _octal(header[124:136])
    if records:
        name = records.get("path", name)
        text = records.get("size", str(size))
        if not text.isascii() or not text.isdecimal() or len(text) > 16:
            raise ArchiveError("a file of the archive has a size that is no number")
        size = int(text)
    if size > _SIZE_MAX:
        raise ArchiveError(f"{name!r} has {size} bytes")
    return TarFile(name, size, header[156])


def parse_records(data: bytes) -> dict[str, str]:
    """The content of an extension: lines of "<bytes of the line> <key>=<value>"."""
    records = {}
    while data:
        digits, blank, _ = data[:21].partition(b" ")
        size = int(digits) if digits.isdigit() else 0
        line = data[len(digits) + 1 : size - 1]
        key, equals, value = line.partition(b"=")
        if not blank or not len(digits) < size <= len(data) or data[size - 1 : size] != b"\n" or not equals:
            raise ArchiveError("an extension of the archive is damaged")
        records[_text(key)] = value.decode("utf-8", "replace")
        data = data[size:]
    return records


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "replace")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if digits.translate(None, b"01234567"):
        raise ArchiveError("a number of the archive is not octal")
    return int(digits, 8)
