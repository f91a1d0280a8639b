"""Where a new consumer begins: the seq of the message that it looks at first.

Rules: as with nats-server. What lies before the first message of the stream is moved up to it, what lies
behind the last is moved down to the next one; a seq that was asked for by number may be in the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edged.core.consumer_config import ConsumerConfig
from edged.core.message_log import MessageLog


class Start(NamedTuple):
    """The seq to begin with; with `last_per_subject` the messages that come first, and the last seq then."""

    seq: int
    chosen: Sequence[int] = ()
    chosen_to: int = 0


def start_of(
    config: ConsumerConfig, filters: Sequence[bytes], log: MessageLog, messages_per_subject_max: int
) -> Start:
    """Where a consumer begins that is made now."""
    if config.opt_start_seq:
        return Start(max(config.opt_start_seq, log.first_seq))
    chosen: Sequence[int] = ()
    chosen_to = 0
    policy = config.deliver_policy
    if policy == "last":
        seq = _last(filters, log)
    elif policy == "last_per_subject" and messages_per_subject_max != 1:
        chosen, chosen_to = log.last_seqs(filters), log.last_seq
        seq = chosen[0] if chosen else log.last_seq
    elif policy == "by_start_time":
        seq = _from_time(config.opt_start_time or 0, filters, log)
    elif policy == "new":
        seq = log.last_seq + 1
    else:
        # All of them; with one message on each subject that is the last of each, too.
        seq = log.first_seq
    if not log.last_seq:
        return Start(1)
    return Start(max(min(seq, log.last_seq + 1), log.first_seq), chosen, chosen_to)


def _last(filters: Sequence[bytes], log: MessageLog) -> int:
    if not filters:
        return log.last_seq
    return log.previous_matching(filters, log.last_seq) or 0


def _from_time(ts_ns: int, filters: Sequence[bytes], log: MessageLog) -> int:
    seq = log.seq_at_time(ts_ns)
    # Nearer to the first message that it wants, where one of the filters has all of its messages after that.
    firsts = [log.next_matching((one,), log.first_seq) for one in filters]
    nearest = min([first for first in firsts if first is not None and first >= seq], default=log.last_seq)
    return nearest if seq < nearest < log.last_seq else seq
