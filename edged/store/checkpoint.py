"""Checkpoints: the state of every group between two journal files, in one guarded file each.

Rules: a checkpoint is written under another name, synced, then renamed, so that it is there whole or not at
all. The two newest are kept: with the newest beyond repair, the older one and the journal files since then
give the same state. What is not understood is moved aside, never deleted. One that the disk does not give is
no better than a damaged one while another is good; without that it is no reason to go on, as the disk may
give it another time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import zstandard

from edged.store.box import LABEL_BYTES, SALT_BYTES, Keyring
from edged.store.errors import Damaged, OutcomeUnknown, StoreBroken
from edged.store.files import Files
from edged.store.guard import guard, unguard

CHECKPOINTS: Final = "checkpoints"
VERSION: Final = 1
GENERATIONS: Final = 2
MARK: Final = 0x504B4345  # "ECKP" in the order of the bytes
STATE_BYTES_MAX: Final = 1 << 30
"""What a checkpoint may unpack to: far beyond any real one, and still something to allocate."""
REFUSED: Final = "the disk does not give it"
PURPOSE: Final = b"checkpoint"
_SUFFIX: Final = ".ckpt"
_HEAD_BYTES: Final = LABEL_BYTES + SALT_BYTES


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state before journal file `next_file`."""

    next_file: int
    state: dict[str, Any]


def checkpoint_path(next_file: int) -> str:
    """Where a checkpoint is."""
    return f"{CHECKPOINTS}/{next_file:020d}{_SUFFIX}"


def checkpoint_numbers(files: Files) -> list[int]:
    """The checkpoints that are there, oldest first."""
    names = [name.removesuffix(_SUFFIX) for name in files.list(CHECKPOINTS) if name.endswith(_SUFFIX)]
    return sorted(int(name) for name in names if len(name) == 20 and name.isascii() and name.isdigit())


def encode_checkpoint(checkpoint: Checkpoint, keys: Keyring | None = None) -> bytes:
    """The bytes of the file."""
    packed = msgpack.packb([VERSION, checkpoint.next_file, checkpoint.state])
    content = zstandard.ZstdCompressor(level=3).compress(packed)
    keys = keys or Keyring()
    salt = os.urandom(SALT_BYTES)
    box = keys.box(PURPOSE, salt)
    if box is not None:
        content = box.seal(content, keys.label + salt)
    return guard(keys.label + salt + content, MARK)


def decode_checkpoint(blob: bytes, path: str, keys: Keyring | None = None) -> Checkpoint:
    """The reverse. Raises Damaged, WrongKey, or StoreBroken for a version of the future."""
    payload = unguard(blob, MARK).payload
    label, salt, content = payload[:LABEL_BYTES], payload[LABEL_BYTES:_HEAD_BYTES], payload[_HEAD_BYTES:]
    box = (keys or Keyring()).box_of(label, PURPOSE, salt)
    if box is not None:
        content = box.open(content, label + salt)
    try:
        packed = zstandard.ZstdDecompressor().decompress(content, max_output_size=STATE_BYTES_MAX)
        version, next_file, state = msgpack.unpackb(packed, strict_map_key=False)
    except (zstandard.ZstdError, ValueError) as error:
        raise Damaged(f"a checkpoint cannot be read ({error})", path) from error
    if version != VERSION:
        raise StoreBroken(f"a checkpoint has version {version}, this edged knows {VERSION}", path)
    return Checkpoint(next_file, state)


def save_checkpoint(files: Files, checkpoint: Checkpoint, keys: Keyring | None = None) -> None:
    """Write a checkpoint, durably. Raises OSError, and OutcomeUnknown when it may be there."""
    path = checkpoint_path(checkpoint.next_file)
    blob = encode_checkpoint(checkpoint, keys)
    _remove_if_there(files, path + ".tmp")
    file = files.create(path + ".tmp")
    try:
        file.write_at(0, blob)
        file.sync()
    finally:
        file.close()
    files.rename(path + ".tmp", path)
    try:
        files.sync_directory(CHECKPOINTS)
    except OSError as error:
        raise OutcomeUnknown(f"a checkpoint may be durable or not ({error})", path) from error


def load_newest(
    files: Files, belongs: Callable[[Checkpoint], bool], keys: Keyring | None = None
) -> tuple[Checkpoint | None, list[tuple[str, str]]]:
    """The newest good checkpoint that belongs to this store, and those that are not good with the reason.

    Raises OSError when none is good and the disk did not give all of them.
    """
    bad: list[tuple[str, str]] = []
    refused: OSError | None = None
    for number in reversed(checkpoint_numbers(files)):
        path = checkpoint_path(number)
        try:
            found = decode_checkpoint(_read_all(files, path), path, keys)
        except Damaged as error:
            bad.append((path, str(error)))
            continue
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            refused = refused or error
            bad.append((path, REFUSED))
            continue
        if found.next_file != number:
            bad.append((path, "its name does not fit its content"))
            continue
        if not belongs(found):
            bad.append((path, "it does not belong to the journal of this store"))
            continue
        return found, bad
    if refused is not None:
        raise refused
    return None, bad


def remove_older(files: Files) -> int:
    """Keep the newest generations; the oldest file number that is still needed. Raises OSError."""
    numbers = checkpoint_numbers(files)
    for number in numbers[:-GENERATIONS]:
        files.remove(checkpoint_path(number))
    return numbers[-GENERATIONS] if len(numbers) >= GENERATIONS else 0


def _read_all(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def _remove_if_there(files: Files, path: str) -> None:
    directory, _, name = path.rpartition("/")
    if name in files.list(directory):
        files.remove(path)
