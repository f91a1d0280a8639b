"""Disks that are full, that turn read-only, and whose writes fail after they were accepted.

Each scenario follows a script in the namespaces of run_isolated() and returns its figures as a sentence. They
say how long things took on this machine. What is asserted of times is what is promised, and of several
attempts the middle one or the best, so that a busy machine is not taken for a slow store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from tests.disks.loop_filesystem import MEBIBYTE, HollowFilesystem, LoopFilesystem
from tests.disks.model import ViolationError
from tests.disks.operations import (
    FULL,
    CreateConsumer,
    CreateStream,
    DeleteMessage,
    Done,
    Operation,
    Outcome,
    Publish,
    Purge,
    Refused,
)
from tests.disks.session import Knowledge, Session
from tests.disks.worker import WorkerError

# What is promised: a full disk is answered at once, and writes go on by themselves soon after there is room.
REFUSAL_S_MAX: Final = 0.1
RESUMPTION_S_MAX: Final = 1.0
# The machine may be busy with something else: what counts is the best of so many attempts.
_ATTEMPTS: Final = 4
_FILLER_BYTES: Final = 4 * MEBIBYTE
_STREAMS: Final = (1, 2)
_REFUSALS_WANTED: Final = 50
_PUBLISHES_MAX: Final = 100_000


class Publisher:
    """Publishes what does not compress, to two streams in turn."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._random = Random(48)
        self._count = 0

    def publish(self, size: int = 1) -> list[Outcome]:
        return self._session.commit(*(self._message() for _ in range(size)))

    def until_refused(self) -> Refused:
        """Publish until the store says no."""
        while self._count < _PUBLISHES_MAX:
            refusal = first_refusal(self.publish(self._random.choice((1, 4, 16))))
            if refusal is not None:
                return refusal
        raise ViolationError(f"{self._count} messages went onto a disk that is too small for them")

    def _message(self) -> Publish:
        self._count += 1
        payload = b"%d " % self._count + self._random.randbytes(4000)
        return Publish(
            _STREAMS[self._count % 2], b"full.%d" % (self._count % 7), b"id-%d" % self._count, payload
        )


def first_refusal(outcomes: list[Outcome]) -> Refused | None:
    return next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)


def _begin(session: Session) -> Publisher:
    _expect_done(session, *(CreateStream(stream, 1) for stream in _STREAMS))
    _expect_done(session, *(CreateConsumer(stream, "alpha") for stream in _STREAMS))
    return Publisher(session)


def _expect_done(session: Session, *operations: Operation) -> None:
    outcomes = session.commit(*operations)
    if any(not isinstance(outcome, Done) for outcome in outcomes):
        raise ViolationError(f"{operations[0]} was answered with {outcomes[0]}")


def full_disk(subject_name: str) -> str:
    """Refused at once, nothing lost, deletes work, and writes go on when there is room again."""
    knowledge = Knowledge()
    with LoopFilesystem("ext4", 48 * MEBIBYTE) as filesystem:
        fillers = [filesystem.path / f"filler-{number}" for number in range(_ATTEMPTS)]
        for filler in fillers:
            filler.write_bytes(bytes(_FILLER_BYTES))
        root = filesystem.path / "store"
        with Session(subject_name, root, knowledge) as session:
            publisher = _begin(session)
            _expect_full(publisher.until_refused())
            refusals_s = _measure_refusals(session, publisher)
            session.check_readable()
            deletions_s = _delete_and_purge(session)
            session.check_readable()
            resumptions_s: list[float] = []
            for filler in fillers:
                _expect_full(publisher.until_refused())
                resumptions_s.append(_measure_resumption(filler, publisher))
            kept = _message_count(session)
            publisher.publish(16)
            session.check_readable()
            filesystem.cut_power()
        filesystem.unmount()
        filesystem.mount()
        with Session(subject_name, root, knowledge) as session:
            session.check_readable()
            session.close()
    _expect_within("a refusal", median(refusals_s), REFUSAL_S_MAX)
    _expect_within("the first write after space returned", min(resumptions_s), RESUMPTION_S_MAX)
    return (
        f"{kept:,} messages kept; {_spread('refused within', refusals_s)};"
        f" {_spread('while full, deletions and purges took', deletions_s)};"
        f" {_spread('writes went on after space returned within', resumptions_s)}"
    )


def _spread(what: str, times_s: list[float]) -> str:
    middle_ms, longest_ms = median(times_s) * 1000, max(times_s) * 1000
    return f"{what} {middle_ms:.1f} ms (median of {len(times_s)}, at most {longest_ms:.1f} ms)"


def _measure_refusals(session: Session, publisher: Publisher) -> list[float]:
    """Some small message may still find room; then it is simply one more that must be kept."""
    refusals_s: list[float] = []
    for _ in range(_PUBLISHES_MAX):
        refusal = first_refusal(publisher.publish(4))
        if refusal is not None:
            _expect_full(refusal)
            refusals_s.append(session.commits_s[-1])
            if len(refusals_s) == _REFUSALS_WANTED:
                return refusals_s
    raise ViolationError("a full disk keeps taking messages")


def _delete_and_purge(session: Session) -> list[float]:
    """While the disk is full: single messages of one stream, and half of the other; how long each took."""
    first, second = _STREAMS
    seqs = list(session.model.streams[first].messages)
    for seq in seqs[::10]:
        _expect_done(session, DeleteMessage(first, seq))
    _expect_done(session, Purge(second, session.model.streams[second].last_seq // 2))
    return session.commits_s[-len(seqs[::10]) - 1 :]


def _measure_resumption(filler: Path, publisher: Publisher) -> float:
    filler.unlink()
    started_s = time.monotonic()
    while time.monotonic() < started_s + 10 * RESUMPTION_S_MAX:
        if first_refusal(publisher.publish()) is None:
            return time.monotonic() - started_s
    raise ViolationError("the store is still full when the disk is not")


def read_only_disk(subject_name: str) -> str:
    """The filesystem turns read-only under the open store: no more acks, reads go on, all is kept."""
    knowledge = Knowledge()
    with LoopFilesystem("ext4", 64 * MEBIBYTE) as filesystem:
        root = filesystem.path / "store"
        with Session(subject_name, root, knowledge) as session:
            publisher = _begin(session)
            for _ in range(50):
                publisher.publish(8)
            filesystem.make_read_only()
            refusals = [publisher.publish() for _ in range(10)]
            if any(first_refusal(outcomes) is None for outcomes in refusals):
                raise ViolationError("acknowledged on a read-only filesystem")
            _expect_within("a refusal", max(session.commits_s[-10:]), REFUSAL_S_MAX)
            refusal_s = max(session.commits_s[-10:])
            if not knowledge.uncertain:
                session.check_readable()
            session.kill()
        filesystem.unmount()
        _open_read_only(filesystem, subject_name, root)
        filesystem.mount()
        with Session(subject_name, root, knowledge) as session:
            if first_refusal(Publisher(session).publish()) is not None:
                raise ViolationError("refused although the filesystem can be written again")
            kept = _message_count(session)
            session.close()
    return f"{kept:,} messages kept; refused within {refusal_s * 1000:.1f} ms"


def _open_read_only(filesystem: LoopFilesystem, subject_name: str, root: Path) -> None:
    """A store cannot be opened where nothing can be written, and says so."""
    filesystem.mount(is_read_only=True)
    try:
        with Session(subject_name, root, Knowledge()):
            pass
    except WorkerError as error:
        if "Read-only file system" not in str(error):
            raise
    else:
        raise ViolationError("a store was opened on a read-only filesystem")
    filesystem.unmount()


def failing_sync(subject_name: str) -> str:
    """Writes are accepted and fail at the sync, which fails once: the next one would say that all is well."""
    knowledge = Knowledge()
    with HollowFilesystem(64 * MEBIBYTE, room_bytes=8 * MEBIBYTE) as filesystem:
        root = filesystem.path / "store"
        with Session(subject_name, root, knowledge) as session:
            publisher = _begin(session)
            refusal = publisher.until_refused()
            for _ in range(20):
                publisher.publish()
            filesystem.give_room(64 * MEBIBYTE)
            for _ in range(5):
                # A store may go on now, or wait for a restart; if it goes on, it has to keep this as well.
                publisher.publish(4)
            failures, repetitions = session.sync_counts()
            session.kill()
        if not failures:
            raise ViolationError("no sync has failed: this has shown nothing")
        if repetitions:
            raise ViolationError(f"a file whose sync had failed was synced again, {repetitions} times")
        # The page cache would hide what the disk does not have.
        filesystem.unmount()
        filesystem.mount()
        with Session(subject_name, root, knowledge) as session:
            kept = _message_count(session)
            session.close()
    return f"{kept:,} messages kept; {failures} syncs failed, none was repeated; first answer: {refusal.text}"


def _message_count(session: Session) -> int:
    return sum(len(stream.messages) for stream in session.model.streams.values())


def _expect_full(refusal: Refused) -> None:
    if refusal.reason != FULL:
        raise ViolationError(f"a full disk was answered with: {refusal.reason}, {refusal.text}")


def _expect_within(what: str, seconds: float, seconds_max: float) -> None:
    if seconds > seconds_max:
        raise ViolationError(f"{what} took {seconds:.2f} s, more than {seconds_max:.1f} s")


SCENARIOS: Final[dict[str, Callable[[str], str]]] = {
    "full": full_disk,
    "read-only": read_only_disk,
    "failing-sync": failing_sync,
}
