"""Which subject a stream may have for its dead letters.

Rules: one subject without wildcards, to which clients may publish. A letter must not come back to the stream
that it left, neither at once nor through others: a stream that takes it may have dead letters itself,
republish what it takes, or be the origin of more streams. All of that is followed, by subjects and names
alone, within the account.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edged.core.dead_letters import DEAD_LETTER
from edged.core.stream_config import StreamConfig
from edged.core.stream_origin_rules import Streams
from edged.core.stream_subject_rules import collide, is_literal, is_valid_subject, refusal

_SERVER_SPACES = ("$JS.", "$JSC.", "$NRG.", "$SYS.", "$GR.", "_GR_.")


def check_dead_letter(config: StreamConfig, others: Streams) -> None:
    """That the letters of the stream, and of others through it, go somewhere else. Raises ApiFailure."""
    subject = config.metadata.get(DEAD_LETTER)
    if subject is not None:
        if not is_valid_subject(subject) or not is_literal(subject):
            raise refusal(f"{DEAD_LETTER} must be a subject without wildcards")
        if subject.startswith(_SERVER_SPACES):
            raise refusal(f"{DEAD_LETTER} must not be a subject of the server")
        if any(collide(subject, one) for one in config.subjects):
            raise refusal(f"{DEAD_LETTER} must not be a subject of the stream itself")
    if _leads_back(config, others):
        raise refusal(f"{DEAD_LETTER} leads back to the stream that it comes from")


def _leads_back(config: StreamConfig, others: Streams) -> bool:
    """Whether messages could go round, by way of this stream and as a dead letter at least once."""
    if DEAD_LETTER not in config.metadata and not any(DEAD_LETTER in one.metadata for one in others.values()):
        return False
    streams = [one for one in others.values() if one.name != config.name] + [config]
    # A stream, and whether the way there was that of a dead letter somewhere.
    left = [(config, False)]
    seen: set[tuple[str, bool]] = set()
    while left:
        stream, is_letter = left.pop()
        for other, is_letter_now in _next(stream, streams):
            step = (other.name, is_letter or is_letter_now)
            if step == (config.name, True):
                return True
            if step not in seen:
                seen.add(step)
                left.append((other, step[1]))
    return False


def _next(stream: StreamConfig, streams: Sequence[StreamConfig]) -> Iterator[tuple[StreamConfig, bool]]:
    """The streams that may get what a stream has taken, and those that get its dead letters."""
    letter = stream.metadata.get(DEAD_LETTER)
    again = stream.republish.dest if stream.republish is not None else ""
    for other in streams:
        if letter and any(collide(letter, one) for one in other.subjects):
            yield other, True
        origins = [*other.sources, *([other.mirror] if other.mirror is not None else [])]
        if any(origin.name == stream.name and origin.external is None for origin in origins) or (
            again and any(collide(again, one) for one in other.subjects)
        ):
            yield other, False
