"""What removes messages by more than their seq: purging, and outliving one's time.

Rules: these change the log and nothing else; how many messages went is told by its count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from edged.core.commands import Expire, Purge
from edged.core.message_log import MessageLog
from edged.core.message_ttl import is_delete_marker
from edged.core.subjects import is_literal


def purge(log: MessageLog, command: Purge) -> int:
    """Remove what the filter matches below `to_seq`, except the newest `keep`; how many went."""
    before = log.message_count
    end = command.to_seq or log.last_seq + 1
    if command.subject in (b"", b">") and not command.keep:
        log.compact_to(end)
        # Beyond the last message this decides where the next one goes, as with nats-server.
        log.skip_to(end - 1)
    else:
        subject = command.subject or b">"
        purge_subject(log, subject, _oldest_kept(log, subject, command.keep) if command.keep else end)
    return before - log.message_count


def purge_subject(log: MessageLog, subject: bytes, end: int) -> None:
    """Remove the messages below `end` on a subject, which may have wildcards."""
    if is_literal(subject):
        first = log.first_of(subject)
        while first is not None and first < end:
            log.remove(first)
            first = log.first_of(subject)
        return
    seq = log.next_matching((subject,), log.first_seq)
    while seq is not None and seq < end:
        log.remove(seq)
        seq = log.next_matching((subject,), seq + 1)


def _oldest_kept(log: MessageLog, subject: bytes, keep: int) -> int:
    seq = log.last_seq + 1
    for _ in range(keep):
        found = log.previous_matching((subject,), seq - 1)
        if found is None:
            return 0
        seq = found
    return seq


def expire(log: MessageLog, command: Expire, is_marked: bool) -> Iterable[tuple[bytes, None]]:
    """Remove what is too old; where that is marked, the subjects whose last message went, and was no marker.

    They come as the items of a dict.
    """
    lasts = _last_of_each(log, command) if is_marked else {}
    if command.to_seq > log.first_seq:
        log.compact_to(command.to_seq)
    for seq in command.seqs:
        log.remove(seq)
    return [(subject, None) for subject, is_kept in lasts.items() if is_kept and not log.count_of(subject)]


def _last_of_each(log: MessageLog, command: Expire) -> dict[bytes, bool]:
    """The subjects of messages that go, and whether the last one that goes is a message and no marker."""
    found: dict[bytes, bool] = {}
    for seq in _going(log, command):
        message = log.peek(seq)
        if message is not None:
            found[message.subject] = not is_delete_marker(message.data[: message.header_bytes])
    return found


def _going(log: MessageLog, command: Expire) -> Iterator[int]:
    seq = log.next_matching((), log.first_seq)
    while seq is not None and seq < command.to_seq:
        yield seq
        seq = log.next_matching((), seq + 1)
    yield from command.seqs
