"""The dead letters that a stream owes: messages that a consumer of it has given up, to be published again.

A stream has dead letters if its metadata say where they go. One is owed from the moment when the command is
applied that gives a message up (there were deliveries enough, or a client terminated it), until a command
says that it was taken.

Rules: part of the stream's state: everything here changes where commands are applied, and is in checkpoints,
but for letters of consumers that the journal does not know. A message that the stream would let go because
its consumers have settled it stays as long as a letter of it is owed. One that goes for another reason, be it
a limit, its age or a purge, does not take its letter with it: that has no payload then. Of a message that is
given up again by the same consumer while its letter is still owed there is one letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from edged.core.commands import GIVEN_UP, TERM
from edged.core.seq_runs import folded, unfolded

DEAD_LETTER: Final = "edged.dead_letter"
"""Where the metadata of a stream say the subject of its dead letters."""
OWED_MAX: Final = 65_536
"""With so many letters owed no more messages are given up: they stay with their consumers, which wait."""

_REASONS: Final = {GIVEN_UP: b"max_deliver", TERM: b"terminated"}
_COUNT_MAX: Final = 1 << 32


class DeadLetter(NamedTuple):
    """A message that was given up, and by whom."""

    consumer: int
    consumer_name: str
    seq: int
    # TERM or GIVEN_UP.
    kind: int
    # What the client said who terminated it; often nothing.
    text: str
    deliveries: int
    # When it was handed out for the last time; 0 if that is not known, as for the number of the first time.
    delivered_ns: int
    delivery_seq: int
    # How often the consumer had begun anew.
    resets: int

    @property
    def reason(self) -> bytes:
        """In a word."""
        return _REASONS[self.kind]

    @property
    def key(self) -> tuple[int, int]:
        """Which one it is among those that are owed."""
        return self.consumer, self.seq


def subject_of(config: Mapping[str, Any]) -> bytes:
    """Where the dead letters of a stream with this configuration go; empty if it has none."""
    return str((config.get("metadata") or {}).get(DEAD_LETTER) or "").encode()


class DeadLetters:
    """Of one stream."""

    __slots__ = ("_counts", "_released", "_volatile", "fresh", "owed", "subject")

    def __init__(self) -> None:
        self.subject = b""
        # By number of the consumer and seq, in the order in which they came to be owed.
        self.owed: dict[tuple[int, int], DeadLetter] = {}
        # Those of them that nobody has begun to send. Whoever sends them empties this.
        self.fresh: dict[tuple[int, int], None] = {}
        # How many letters are owed of a message.
        self._counts: dict[int, int] = {}
        # Messages that the stream would have let go if no letter were owed.
        self._released: set[int] = set()
        # Letters of consumers that the journal does not know.
        self._volatile: set[tuple[int, int]] = set()

    @property
    def is_full(self) -> bool:
        """Whether so many are owed that nothing more should be given up."""
        return len(self.owed) >= OWED_MAX

    def owe(self, letter: DeadLetter, is_volatile: bool) -> None:
        """A message was given up."""
        if letter.key not in self.owed:
            self.owed[letter.key] = letter
            self.fresh[letter.key] = None
            self._counts[letter.seq] = self._counts.get(letter.seq, 0) + 1
            if is_volatile:
                self._volatile.add(letter.key)

    def is_volatile(self, letter: DeadLetter) -> bool:
        """Whether the journal does not know of a letter."""
        return letter.key in self._volatile

    def taken(self, consumer: int, seqs: Sequence[int]) -> list[int]:
        """Letters were taken; the messages that the stream can let go now."""
        free = []
        for seq in seqs:
            if self.owed.pop((consumer, seq), None) is None:
                continue
            self._volatile.discard((consumer, seq))
            self.fresh.pop((consumer, seq), None)
            self._counts[seq] -= 1
            if not self._counts[seq]:
                del self._counts[seq]
                if seq in self._released:
                    self._released.discard(seq)
                    free.append(seq)
        return free

    def forget(self) -> list[int]:
        """The stream has no dead letters any more; the messages that it can let go now."""
        free = sorted(self._released)
        self.owed.clear()
        self.fresh.clear()
        self._counts.clear()
        self._released.clear()
        self._volatile.clear()
        return free

    # --- what the stream must keep ---

    @property
    def lowest(self) -> int | None:
        """The first message that must stay."""
        return min(self._counts, default=None)

    def not_held(self, seqs: Sequence[int]) -> list[int]:
        """Those of the messages that may go at once; the others go when their letters are taken."""
        if not self._counts:
            return list(seqs)
        self._released.update(seq for seq in seqs if seq in self._counts)
        return [seq for seq in seqs if seq not in self._counts]

    # --- checkpoints ---

    def snapshot(self) -> list[Any]:
        """Everything that a checkpoint keeps; empty if there is nothing."""
        kept = [list(letter) for key, letter in self.owed.items() if key not in self._volatile]
        return [kept, folded(sorted(self._released))] if kept else []

    def restore(self, snapshot: list[Any]) -> None:
        """The reverse of snapshot()."""
        if not snapshot:
            return
        for row in snapshot[0]:
            self.owe(DeadLetter(*row), is_volatile=False)
        self._released.update(unfolded(snapshot[1], _COUNT_MAX) or ())
