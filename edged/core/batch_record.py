"""The record at the end of each batch: how far the journal was durable, and what earlier commands came to.

It proves, after a crash, what was synced; and with it a replay gives every message the seq it had, even when
a record before it is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack

# One for all: making one takes longer than packing a record. It is done with before another thread gets in.
_PACKER: Final = msgpack.Packer()


@dataclass(frozen=True, slots=True)
class Applied:
    """How far a group was applied, its last seq then, and the appends refused since the report before."""

    group: int
    index: int
    last_seq: int
    refused: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """Everything before `synced_to` in file `synced_file` was durable when the record was made.

    The record itself may stand in a later file, when its batch did not fit into that one.
    """

    synced_file: int
    synced_to: int
    time_ns: int
    applied: tuple[Applied, ...]

    def encode(self) -> bytes:
        applied = [[one.group, one.index, one.last_seq, one.refused] for one in self.applied]
        return encode_batch_record(self.synced_file, self.synced_to, self.time_ns, applied)

    @classmethod
    def decode(cls, body: bytes) -> BatchRecord:
        """The reverse of encode(); the frame's checksum was good, so the bytes are ours."""
        synced_file, synced_to, time_ns, applied = msgpack.unpackb(body)
        return cls(
            synced_file,
            synced_to,
            time_ns,
            tuple(Applied(group, index, last, tuple(refused)) for group, index, last, refused in applied),
        )


def encode_batch_record(
    synced_file: int, synced_to: int, time_ns: int, applied: Sequence[Sequence[Any]]
) -> bytes:
    """The bytes of a BatchRecord, from a list [group, index, last seq, refused] for each group.

    Plain lists, as this is done for every batch.
    """
    body: bytes = _PACKER.pack([synced_file, synced_to, time_ns, applied])
    return body
