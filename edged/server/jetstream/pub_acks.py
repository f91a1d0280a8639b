"""What publishers to streams are told."""

from __future__ import annotations

import json

from edged.core import api_errors
from edged.core.api_errors import ApiError
from edged.store.errors import LeadershipLost, NotLeader, OutcomeUnknown, StoreError, StoreFull
from edged.store.usage import AccountFull


class PubAcks:
    """The acknowledgements of one stream. Names need no escapes: they hold none of what JSON would escape."""

    def __init__(self, stream: str, domain: str | None) -> None:
        name = json.dumps(stream, ensure_ascii=False)
        place = f',"domain":{json.dumps(domain, ensure_ascii=False)}' if domain else ""
        self._stream = name
        # All of an acknowledgement but its number and the closing brace.
        self.head = f'{{"stream":{name}{place},"seq":'.encode()

    def stored(self, seq: int, fields: bytes = b"") -> bytes:
        """The message is durable, with this seq; `fields` begin with a comma."""
        return b"%s%d%s}" % (self.head, seq, fields)

    def duplicate(self, seq: int, fields: bytes = b"") -> bytes:
        """The message was stored before, with this seq."""
        return b'%s%d,"duplicate": true%s}' % (self.head, seq, fields)

    def refused(self, error: ApiError) -> bytes:
        """The message was not stored."""
        document = json.dumps(error.document(), ensure_ascii=False, separators=(",", ":"))
        return f'{{"error":{document},"stream":{self._stream},"seq":0}}'.encode()


def total_field(value: str) -> bytes:
    """What an acknowledgement says of a counter; nothing if there is no total."""
    return b',"val":"%s"' % value.encode() if value else b""


def is_undecided(result: object) -> bool:
    """Whether another node decides: a publisher that hears nothing asks again, and reaches that one."""
    return isinstance(result, NotLeader | LeadershipLost)


def error_of(error: StoreError) -> ApiError:
    """How a failure of the store is told to clients."""
    if isinstance(error, AccountFull):
        return api_errors.ACCOUNT_RESOURCES_EXCEEDED
    if isinstance(error, StoreFull):
        return api_errors.INSUFFICIENT_RESOURCES
    if isinstance(error, OutcomeUnknown):
        return api_errors.stream_store_failed("the disk failed; whether the message is stored is not known")
    return api_errors.stream_store_failed(str(error))
