"""How a stored message looks when it is delivered: its headers, and the subject to acknowledge it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from edged.core import headers
from edged.core.ack_subject import first_prefix
from edged.core.message import Message

if TYPE_CHECKING:
    from edged.core.wire import Publish
    from edged.server.jetstream.consumers.consumer import Consumer

_SIZE: Final = b"Nats-Msg-Size"
_PIN: Final = b"Nats-Pin-Id"


class Envelopes:
    """Of one consumer, as its configuration was when this was made."""

    def __init__(self, consumer: Consumer) -> None:
        self.prefix = first_prefix(consumer.stream.name, consumer.machine.name)
        self._is_bare = consumer.config.headers_only

    @property
    def are_plain(self) -> bool:
        """Whether messages are sent as they are stored."""
        return not self._is_bare

    def wrap(self, message: Message, ack: bytes, pin_id: str = "") -> Publish:
        """A message as it is sent."""
        _, _, subject, header_bytes, data = message
        if not self._is_bare and not pin_id:
            return subject, ack, header_bytes, data
        block, payload = data[:header_bytes], data[header_bytes:]
        if self._is_bare:
            block = headers.adding(block, _SIZE, b"%d" % len(payload))
            payload = b""
        if pin_id:
            block = headers.adding(block, _PIN, pin_id.encode())
        return subject, ack, len(block), block + payload
