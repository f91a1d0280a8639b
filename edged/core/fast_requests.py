"""What a message of a fast batch says in its reply subject.

The subject is `<prefix>.<batch id>.<flow>.<ok or fail>.<place>.<operation>.$FI`; everything is read from its
end, so the prefix may have any number of tokens, even none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SUFFIX: Final = b".$FI"
START: Final = 0
APPEND: Final = 1
COMMIT: Final = 2
COMMIT_END: Final = 3
PING: Final = 4

FLOW_DEFAULT: Final = 10
FLOW_MAX: Final = 2**16 - 1
# The greatest number is left out, so that the place after any place is a number, too.
PLACE_MAX: Final = 2**64 - 2
_DIGITS_MAX: Final = 20
_GAP_MODES: Final = {b"ok": True, b"fail": False}


@dataclass(frozen=True, slots=True)
class FastRequest:
    """Place and purpose of a message in a fast batch; `flow` is the most messages per acknowledgement."""

    batch_id: bytes
    place: int
    flow: int
    gaps_allowed: bool
    operation: int

    @property
    def is_ping(self) -> bool:
        """It asks how far the server is; it is no message."""
        return self.operation == PING

    @property
    def is_last(self) -> bool:
        """It is stored, and the batch is over."""
        return self.operation == COMMIT

    @property
    def is_end(self) -> bool:
        """The batch is over; it is no message."""
        return self.operation == COMMIT_END


def is_fast(reply: bytes) -> bool:
    """Whether a reply subject is of a fast batch, rightly formed or not."""
    return len(reply) > len(SUFFIX) and reply.endswith(SUFFIX)


def parse(reply: bytes) -> FastRequest | None:
    """What a reply subject says for which is_fast() holds; None when it is not rightly formed."""
    parts = reply[: -len(SUFFIX)].rsplit(b".", 5)
    if len(parts) < 6:
        return None
    _, batch_id, flow_text, gap_mode, place_text, operation_text = parts
    operation, place, flow = _number(operation_text), _number(place_text), _number(flow_text)
    if operation is None or operation > PING or gap_mode not in _GAP_MODES:
        return None
    if place is None or not 1 <= place <= PLACE_MAX:
        return None
    if (place == 1 and operation in (APPEND, COMMIT_END)) or (place > 1 and operation == START):
        return None
    return FastRequest(batch_id, place, min(flow or FLOW_DEFAULT, FLOW_MAX), _GAP_MODES[gap_mode], operation)


def _number(text: bytes) -> int | None:
    if not text.isdigit():
        return None
    digits = text.lstrip(b"0")
    return int(digits or b"0") if len(digits) <= _DIGITS_MAX else 10**_DIGITS_MAX
