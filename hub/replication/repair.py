"""Gets messages that this node has lost from the other nodes of their streams.

While messages are lost that another node may have, nothing is applied to the group
(hub/replication/replica.py), and this node does not lead it. The others are asked in rounds, whoever leads
first, each for what is still missing.

Rules:
* A message is taken only from a node that has applied as much as this one or more: what it still has nobody
  had deleted here. Where a node has passed a seq and says that there is no message, there is none to be had
  back.
* That a message is gone elsewhere may mean that it was deleted by a command which this node has yet to
  apply, and what that command comes to depends on the message. Where the number of messages that were lost
  says so, the copy of this node is given up as a whole, and comes anew from whoever leads.
* A copy is given up, too, when so much of a segment is bad that it cannot even be said what was in it.
* What no node has is given up when all other members have said in one round that they lost it, too. Until
  then it is asked for again: whoever did not answer, or could not read it just then, may have it.
* Only damage is damage. What the disk refuses now, here or elsewhere, changes nothing of what is known.
* What comes back is durable before it counts. What a committed command deleted meanwhile is refused then.
* Nothing here waits: ask() says what to ask whom next, and whoever asks tells what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edged.core.message import Message, counted_bytes
from edged.core.outcomes import Outcome, Refused
from edged.core.repair_records import GivenUp, Repaired, Settled
from edged.store.block_cache import COLUMNS
from edged.store.errors import StoreError, is_damage
from edged.store.segment import Segment
from edged.store.stream_log import StreamLog
from hub.limits import REPAIR_RANGES_MAX
from hub.raft.role import NOBODY
from hub.replication.questions import Answer, Question

if TYPE_CHECKING:
    from edged.store.group import StreamEntry
    from hub.raft.members import NodeId
    from hub.replication.replicas import Replicas


class Repair:
    """Of one stream on this node, from the moment on at which something is known to be lost."""

    def __init__(self, replicas: Replicas, group: int, given_up: set[int]) -> None:
        self._replicas = replicas
        self.group = group
        # Seqs that are listed, cannot be read here, and are nowhere else.
        self._given_up = given_up
        self._unreadable: list[int] = []
        # Whom to ask in this round, the one that is being asked first; from which seq on; what is left open.
        self._nodes: list[NodeId] = []
        self._from_seq = 0
        self._is_open = False
        # Why a node was not believed, or gave no answer.
        self.trouble = ""
        self.put_back = self.gone = self.lost = 0
        # What others have passed and do not have; whether one of them has applied more than this node.
        self._absent: list[range] = []
        self._is_other_ahead = False
        self.has_begun_anew = False
        # Whether so much of a segment is bad that it cannot even be said what was in it.
        self._is_index_bad = False
        self._look()

    @property
    def entry(self) -> StreamEntry | None:
        """The stream, while this node has a copy of it."""
        return self._replicas.store.catalog.streams.get(self.group)

    @property
    def _log(self) -> StreamLog | None:
        entry = self.entry
        log = None if entry is None or entry.group.replica is None else entry.log
        return log if isinstance(log, StreamLog) else None

    @property
    def is_over(self) -> bool:
        """Whether nothing is missing that somebody may have."""
        return not self._is_index_bad and not self.wanted() and not self._is_unheard

    @property
    def _is_unheard(self) -> bool:
        """Whether whoever leads may not know yet that this copy began anew, and be silent as all is well."""
        log, leader = self._log, self._replicas.leader(self.group)
        return self.has_begun_anew and log is not None and leader == NOBODY

    def wanted(self) -> list[range]:
        """The seqs that are missing, in order."""
        log = self._log
        if log is None:
            return []
        unreadable = (range(seq, seq + 1) for seq in self._unreadable if _is_unreadable(log, seq))
        return list(_joined([*log.lacking(), *unreadable]))

    def _look(self) -> None:
        log = self._log
        if log is None:
            return
        try:
            found = list(unreadable_seqs(log, self._replicas.store.cache.beyond_repair))
        except (StoreError, OSError) as error:
            self._note_bad_index(error)
        else:
            self._unreadable = [seq for seq in found if seq not in self._given_up]
            self._is_index_bad = False

    def _note_bad_index(self, error: StoreError | OSError) -> None:
        """The index of a segment cannot be read. A copy that nobody else has is kept, whatever it is like."""
        others = self._replicas.status(self.group).members.everyone - {self._replicas.node}
        self._is_index_bad = self._is_index_bad or (is_damage(error) and bool(others))

    # --- rounds ---

    def begin_round(self) -> None:
        """Ask everybody."""
        self._look()
        self._nodes, self._from_seq, self._is_open = [], 0, False
        self._absent, self._is_other_ahead = [], False
        if self._log is not None:
            status = self._replicas.status(self.group)
            others = sorted(status.members.everyone - {self._replicas.node})
            self._nodes = sorted(others, key=lambda node: node != status.leader)

    def ask(self) -> tuple[NodeId, Question] | None:
        """Whom to ask for what; None at the end of the round."""
        while self._nodes:
            entry = self.entry
            ranges = tuple(_from(self.wanted(), self._from_seq))[:REPAIR_RANGES_MAX]
            if entry is not None and (ranges or (self._is_unheard and not self._from_seq)):
                return self._nodes[0], Question(self.group, entry.stream_id, entry.group.applied, ranges)
            self._next_node()
        return None

    def _next_node(self) -> None:
        del self._nodes[0]
        self._from_seq = 0

    def failed(self, reason: str) -> None:
        """Whoever was asked gave no answer, or none that can be believed."""
        self.trouble = reason
        self._is_open = True
        self._next_node()

    def answered(self, question: Question, document: dict[str, Any], done: Callable[[], None]) -> None:
        """Take an answer over; `done` is told when that is durable, or did not work."""
        try:
            answer = Answer.of_document(document)
            records = self._believed(question, answer)
        except ValueError as error:
            self.failed(str(error))
            done()
            return
        self._from_seq = answer.to + 1
        self._put(records, done)

    def end_round(self, done: Callable[[], None]) -> None:
        """Settle what nobody has; `done` is told when that is durable."""
        log, entry = self._log, self.entry
        if log is None or entry is None:
            done()
            return
        status = self._replicas.status(self.group)
        absent = list(_common(log.lacking(), self._absent))
        nowhere = [] if self._is_open else list(_without(log.lacking(), absent))
        records: list[Repaired] = [Settled(seqs.start, seqs.stop - 1, True) for seqs in nowhere]
        self.lost += sum(map(len, nowhere))
        if not self._is_open:
            self._given_up.update(seq for seq in self._unreadable if _is_unreadable(log, seq))
            self._unreadable = []
        is_one_deleted = log.missing_count > sum(map(len, nowhere))
        if self._is_index_bad or (absent and self._is_other_ahead and is_one_deleted):
            if status.leader not in (NOBODY, self._replicas.node):
                self._begin_anew(entry.genesis, done)
                return
        else:
            records += [Settled(seqs.start, seqs.stop - 1, False) for seqs in absent]
            self.gone += sum(map(len, absent))
        self._put(records, done)

    def _begin_anew(self, genesis: tuple[int, ...], done: Callable[[], None]) -> None:
        def stored(outcomes: Sequence[Outcome] | StoreError) -> None:
            if not isinstance(outcomes, StoreError):
                self.has_begun_anew, self._is_index_bad = True, False
                self._replicas.begin_anew(self.group)
            done()

        self._replicas.store.add_repair(self.group, [GivenUp(genesis)], stored)

    # --- inside ---

    def _believed(self, question: Question, answer: Answer) -> list[Message]:
        """The messages of an answer. Raises ValueError if it does not belong to the question."""
        asked = question.ranges
        if asked and answer.to < asked[0].start:
            raise ValueError("it says nothing")
        seqs = [message.seq for message in answer.messages]
        if seqs != sorted(set(seqs)) or (seqs and seqs[-1] > answer.to):
            raise ValueError("its messages are in no order")
        if not all(any(seq in one for one in asked) for seq in seqs):
            raise ValueError("it sent what was not asked for")
        for message in answer.messages:
            self._check_listed(message)
        is_behind = answer.applied < question.applied
        end = min(answer.to, answer.last_seq)
        if (is_behind and seqs) or any(seqs.stop - 1 > end for seqs in _up_to(asked, answer.to)):
            # It is not as far as this node: what it has may be deleted, what it lacks may be on its way.
            self._is_open = True
        if answer.unsure:
            # Its disk refuses them for now.
            self._is_open = True
        taken = [range(seq, seq + 1) for seq in seqs]
        there = sorted([*taken, *answer.lost, *answer.unsure], key=_start_of)
        absent = list(_without(_up_to(asked, end), there))
        for one in absent:
            self._given_up.update(seq for seq in self._unreadable if seq in one)
        self._unreadable = [seq for seq in self._unreadable if seq not in self._given_up]
        self._absent = list(_joined([*self._absent, *absent]))
        self._is_other_ahead |= answer.applied > question.applied
        return [] if is_behind else list(answer.messages)

    def _check_listed(self, message: Message) -> None:
        """What the index of this node still knows of a message must be true of it."""
        log = self._log
        try:
            size = None if log is None else log.bytes_of(message.seq)
        except (StoreError, OSError) as error:
            size = None
            self._note_bad_index(error)
        found = counted_bytes(len(message.subject), message.header_bytes, len(message.data))
        if size is not None and size != found:
            raise ValueError(f"message {message.seq} is another one")

    def _put(self, records: Sequence[Repaired], done: Callable[[], None]) -> None:
        if not records or self._log is None:
            done()
            return

        def stored(outcomes: Sequence[Outcome] | StoreError) -> None:
            if isinstance(outcomes, StoreError):
                # A full disk, most likely: another round, later.
                self.trouble, self._is_open = str(outcomes), True
            else:
                pairs = zip(records, outcomes, strict=False)
                self.put_back += sum(
                    isinstance(record, Message) and not isinstance(outcome, Refused)
                    for record, outcome in pairs
                )
            self._replicas.mended(self.group)
            done()

        self._replicas.store.add_repair(self.group, records, stored)


def unreadable_seqs(log: StreamLog, beyond_repair: dict[str, set[int]]) -> Iterator[int]:
    """The messages of a log that are listed, and were found to be beyond repair when somebody read them.

    Raises Damaged if it cannot be said which these are, StoreError or OSError if that cannot be seen now.
    """
    for segment in log.segments:
        for position in sorted(beyond_repair.get(segment.path, ())):
            assert isinstance(segment, Segment), segment
            if position == COLUMNS:
                segment.columns()
                segment.sizes()
                continue
            entry = segment.table.entry(position)
            seq = log.next_matching((), entry.first_seq)
            while seq is not None and seq <= entry.last_seq:
                if log.peek(seq) is None:
                    yield seq
                seq = log.next_matching((), seq + 1)


def _is_unreadable(log: StreamLog, seq: int) -> bool:
    """Whether a message that could not be read is still that way. If the disk does not say, it is."""
    try:
        return log.has(seq) and log.peek(seq) is None
    except (StoreError, OSError):
        return True


def _start_of(seqs: range) -> int:
    return seqs.start


def _from(ranges: Iterable[range], seq: int) -> Iterator[range]:
    """Ranges without what is before a seq."""
    for seqs in ranges:
        if seqs.stop > seq:
            yield range(max(seqs.start, seq), seqs.stop)


def _up_to(ranges: Iterable[range], seq: int) -> Iterator[range]:
    """Ranges without what is behind a seq."""
    for seqs in ranges:
        if seqs.start <= seq:
            yield range(seqs.start, min(seqs.stop, seq + 1))


def _joined(ranges: Iterable[range]) -> Iterator[range]:
    """What is in any of the ranges, in order."""
    before: range | None = None
    for seqs in sorted(ranges, key=_start_of):
        if before is not None and seqs.start <= before.stop:
            before = range(before.start, max(before.stop, seqs.stop))
            continue
        if before is not None:
            yield before
        before = seqs
    if before is not None:
        yield before


def _common(ranges: Sequence[range], others: Sequence[range]) -> Iterator[range]:
    """What is in both; each of them is in order."""
    for seqs in ranges:
        for other in others:
            start, stop = max(seqs.start, other.start), min(seqs.stop, other.stop)
            if start < stop:
                yield range(start, stop)


def _without(ranges: Iterable[range], others: Sequence[range]) -> Iterator[range]:
    """What is in ranges and in none of the others; both in order."""
    for seqs in ranges:
        start = seqs.start
        for other in others:
            if other.stop <= start:
                continue
            if other.start >= seqs.stop:
                break
            if other.start > start:
                yield range(start, other.start)
            start = max(start, other.stop)
        if start < seqs.stop:
            yield range(start, seqs.stop)
