"""From what a checkpoint, or another node, says of a log to the log: its segments are opened.

Rules: a segment that is gone or beyond repair is reported, and the log goes on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edged.core.expiry import message_expires_ns
from edged.core.stream_machine import StreamMachine
from edged.store.errors import Damaged, StoreBroken
from edged.store.sealed_part import SealedMessages
from edged.store.segment import Segment
from edged.store.stream_log import StreamLog

if TYPE_CHECKING:
    from edged.store.store import Store


def expect_expiries(machine: StreamMachine, log: StreamLog) -> None:
    """Have messages in segments expire."""
    for segment in log.segments:
        _expect_expiries(machine, segment)


def _expect_expiries(machine: StreamMachine, segment: SealedMessages) -> None:
    assert isinstance(segment, Segment)
    try:
        columns = segment.expiries()
    except Damaged:
        # The messages are still there, and so are their headers; they just stay longer.
        return
    for seq, expires_ns in zip(*columns, strict=True):
        machine.expiry.add(seq, expires_ns)


def restore_log(store: Store, stream_id: bytes, log: dict[str, Any]) -> StreamLog:
    """The log of a snapshot; the store's report says which segments cannot be read."""

    def open_segment(path: str) -> Segment:
        try:
            return Segment.open(
                store.files, path, store.cache, store.options.keys, expires_ns=message_expires_ns
            )
        except (Damaged, StoreBroken) as error:
            if isinstance(error, StoreBroken) and not isinstance(error.__cause__, FileNotFoundError):
                # The disk may give it another time: nothing is lost by not starting now.
                raise
            # Gone or beyond repair: the store goes on without it, and says so.
            store.report.damaged_segments.append((path, str(error)))
            raise Damaged("a segment cannot be read", path) from error

    reads = store.reads
    return StreamLog.restore(
        log, open_segment, stream_id, reads.read_hot, reads.decode_frame, store.columns, reads.read_span
    )
