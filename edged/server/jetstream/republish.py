"""Publishes the messages of a stream once more, under another subject, when they are stored.

Rules: a message is republished at most once, and only if it was stored; whoever listens later gets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edged.core import headers
from edged.core.frames import HEADER_SIZE_MASK
from edged.core.gotime import format_rfc3339
from edged.core.stream_machine import Outcome, Stored
from edged.core.transform import SubjectTransform
from edged.core.wire import Publish
from edged.store.errors import StoreError

if TYPE_CHECKING:
    from edged.server.jetstream.stream import Stream

_END = b"\r\n\r\n"


class Republisher:
    """For a stream that republishes."""

    def __init__(self, stream: Stream) -> None:
        republish = stream.config.republish
        assert republish is not None
        self._stream = stream
        self._account = stream.account.account
        self._headers_only = republish.headers_only
        self._transform = SubjectTransform.parse((republish.src or ">").encode(), republish.dest.encode())

    def publish(self, messages: Sequence[Publish], outcomes: Sequence[Outcome]) -> None:
        """Pass on what was stored."""
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Stored):
                self._pass_on(message, outcome)

    def _pass_on(self, message: Publish, stored: Stored) -> None:
        subject, _, header_bytes, data = message
        target = self._transform.apply_with_chance(subject, self._account.draw)
        if target is None or not self._account.has_interest(target):
            return
        split = header_bytes & HEADER_SIZE_MASK if header_bytes > 0 else 0
        block, payload = data[:split] or headers.VERSION + _END, data[split:]
        fields = [
            (b"Nats-Stream", self._stream.name.encode()),
            (b"Nats-Subject", subject),
            (b"Nats-Sequence", b"%d" % stored.seq),
            (b"Nats-Time-Stamp", format_rfc3339(self._time_of(stored.seq)).encode()),
            (b"Nats-Last-Sequence", b"%d" % stored.previous_seq),
        ]
        if self._headers_only:
            fields.append((b"Nats-Msg-Size", b"%d" % len(payload)))
            payload = b""
        added = b"".join(b"\r\n%s: %s" % field for field in fields)
        block = block.removesuffix(_END) + added + _END
        self._account.publish(target, None, block + payload, len(block))

    def _time_of(self, seq: int) -> int:
        """When a message was stored. One that cannot be read, or is gone already, is from just now."""
        log = self._stream.log
        try:
            kept = log.get(seq)
        except (StoreError, OSError) as error:
            self._stream.jetstream.server.log.error(
                "a message that was just stored cannot be read",
                account=self._account.name,
                stream=self._stream.name,
                seq=seq,
                error=str(error),
            )
            kept = None
        return log.last_ts_ns if kept is None else kept.ts_ns
