"""What a command of a stream came to.

Rules: an outcome says what happened, and never why something was done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from edged.core.api_errors import ApiError


class Stored(NamedTuple):
    """The message was stored, and is to be published again: the seq of its subject's last one goes along.

    A tuple: there is one per message of a stream that republishes.
    """

    seq: int
    # 0 without one.
    previous_seq: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was stored before, under this seq."""

    seq: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing, because of this."""

    error: ApiError


# The seq of a message that was taken, how many messages went, or one of the classes above.
Outcome = int | Stored | Duplicate | Refused
