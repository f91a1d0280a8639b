"""Reading whole archives in tests, and the ones that real servers wrote."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from edged.core.archive_parts import ArchiveLimits
from edged.core.archive_reader import ArchiveContents, ArchiveMessages, ArchiveSurvey
from edged.core.message import Message
from edged.core.s2_stream import S2Reader, S2Writer

DATA = Path(__file__).parent.parent / "data" / "archives"
NEW = "nats-server-2.15.1.s2"
TAR = "nats-server-2.14.6.s2"
# The last version that had an index beside each block.
OLD_TAR = "nats-server-2.9.25.s2"

LIMITS = ArchiveLimits(output_bytes_max=1 << 20, message_bytes_max=1 << 16, documents_bytes_max=1 << 16)
WHOLE = 1 << 30


def survey(archive: bytes, limits: ArchiveLimits = LIMITS, step: int = WHOLE) -> ArchiveContents:
    """The first pass."""
    first = ArchiveSurvey(limits)
    for position in range(0, len(archive), step):
        first.feed(archive[position : position + step])
        while first.step():
            pass
    return first.finish()


def read(
    archive: bytes, limits: ArchiveLimits = LIMITS, step: int = WHOLE
) -> tuple[ArchiveContents, list[Message]]:
    """Both passes."""
    contents = survey(archive, limits, step)
    second = ArchiveMessages(contents, limits)
    messages = []
    for position in range(0, len(archive), step):
        second.feed(archive[position : position + step])
        while (message := second.next_message()) is not None:
            messages.append(message)
    second.finish()
    return contents, messages


def compressed(data: bytes) -> bytes:
    writer = S2Writer()
    return writer.write(data) + writer.flush()


def plain(archive: bytes) -> bytes:
    reader = S2Reader(WHOLE)
    reader.feed(archive)
    output = b""
    while (block := reader.next_block()) is not None:
        output += block
    return output


def tar_files(name: str) -> dict[str, bytes]:
    """The files in one of the archives, in their order."""
    with tarfile.open(fileobj=io.BytesIO(plain((DATA / name).read_bytes()))) as tar:
        return {member.name: _content(tar, member) for member in tar}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def tar_of(files: list[tuple[str, bytes]], **fields: object) -> bytes:
    """An archive with these files; `fields` go into the header of each."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            for key, value in fields.items():
                setattr(member, key, value)
            tar.addfile(member, io.BytesIO(data))
    return compressed(output.getvalue())
