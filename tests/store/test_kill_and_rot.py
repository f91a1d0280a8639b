"""A record rots, and the store was killed right after its last answer: every answer still holds.

What the last batch came to is then in no record, unless something in it was refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edged.core.api_errors import stream_wrong_last_sequence
from edged.core.commands import Skip
from edged.core.frames import MORE
from edged.core.stream_machine import Duplicate, Outcome, Refused
from edged.core.wire import Publish
from edged.store.errors import StoreError
from edged.store.store import Store
from tests.lab.fake_disk import FakeDisk
from tests.store.test_store import options_with, put_stream

NOW_NS = 1_700_000_000_000_000_000
Results = list[Sequence[Outcome] | StoreError]


def message(text: str, subject: str = "a", more: int = 0, **fields: str) -> Publish:
    lines = [f"Nats-{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()]
    block = "".join(["NATS/1.0\r\n", *lines, "\r\n"]) if fields else ""
    return subject.encode(), None, len(block) | more, (block + text).encode()


class Killed:
    """A store with one stream, what it is told, and what is left of it when a record rots."""

    def __init__(self) -> None:
        self.disk = FakeDisk()
        self.store = Store.open(self.disk, options_with())
        put_stream(self.store)

    def publish(self, *messages: Publish) -> Sequence[Outcome]:
        results: Results = []
        self.store.add_appends(1, messages, NOW_NS, results.append)
        self.store.settle()
        (outcomes,) = results
        assert not isinstance(outcomes, StoreError), outcomes
        return outcomes

    def after_rot_of(self, text: bytes) -> dict[int, bytes]:
        """The messages by their seqs once a message with this text has rotted and the process was killed."""
        disk = self.disk.copy()
        for path, content in disk.contents().items():
            if path.startswith("journal/") and text in content:
                file = disk.open(path)
                file.write_at(content.index(text), b"?")
                file.close()
                break
        else:
            raise AssertionError("it is not there")
        store = Store.open(disk, options_with())
        log = store.stream(1).log
        assert [(hole.first_seq, hole.last_seq) for hole in store.holes] == [(1, 1)]
        found = [log.get(seq) for seq in range(2, log.last_seq + 1)]
        return {one.seq: one.data.rpartition(b"\r\n")[2] for one in found if one is not None}


@pytest.fixture
def killed() -> Killed:
    return Killed()


def test_message_that_was_a_repetition_stays_one(killed: Killed) -> None:
    assert killed.publish(message("original", Msg_Id="1")) == [1]
    outcomes = killed.publish(message("again", Msg_Id="1"), message("after"))
    assert outcomes == [Duplicate(1), 2]
    assert killed.after_rot_of(b"original") == {2: b"after"}


def test_message_that_was_taken_because_of_a_lost_one_stays_taken(killed: Killed) -> None:
    assert list(killed.publish(message("lost", "key"))) == [1]
    revised = message("revised", "key", Expected_Last_Subject_Sequence="1")
    assert list(killed.publish(revised, message("after"))) == [2, 3]
    assert killed.after_rot_of(b"lost") == {2: b"revised", 3: b"after"}


def test_message_that_was_refused_because_of_a_lost_one_stays_refused(killed: Killed) -> None:
    assert list(killed.publish(message("lost", "key"))) == [1]
    late = message("late", "key", Expected_Last_Subject_Sequence="0")
    outcomes = killed.publish(late, message("after"))
    assert outcomes == [Refused(stream_wrong_last_sequence(1)), 2]
    assert killed.after_rot_of(b"lost") == {2: b"after"}


def test_atomic_batch_that_was_taken_because_of_a_lost_message_stays_whole(killed: Killed) -> None:
    assert list(killed.publish(message("lost", "key"))) == [1]
    first = message("first", "key", MORE, Expected_Last_Subject_Sequence="1")
    assert killed.publish(first, message("second"), message("after")) == [2, 3, 4]
    assert killed.after_rot_of(b"lost") == {2: b"first", 3: b"second", 4: b"after"}


def test_atomic_batch_that_was_refused_because_of_a_lost_message_stays_refused(killed: Killed) -> None:
    assert list(killed.publish(message("lost", Msg_Id="1"))) == [1]
    first, second = message("first", more=MORE), message("second", Msg_Id="1")
    *refused, seq = killed.publish(first, second, message("after"))
    assert seq == 2 and all(isinstance(outcome, Refused) for outcome in refused)
    assert killed.after_rot_of(b"lost") == {2: b"after"}


def test_message_that_is_here_is_not_taken_again_where_nobody_was_told_what_became_of_it(
    killed: Killed,
) -> None:
    assert list(killed.publish(message("lost"))) == [1]
    assert killed.publish(message("kept", Msg_Id="2")) == [2]
    results: Results = []
    killed.store.add_appends(1, [message("again", Msg_Id="2"), message("after")], NOW_NS, results.append)
    batch = killed.store.close_batch()
    killed.store.write(batch)
    killed.store.finish(batch)
    assert not results
    assert killed.after_rot_of(b"lost") == {2: b"kept", 3: b"after"}


def test_nobody_is_told_what_follows_a_refusal_before_a_record_has_it(killed: Killed) -> None:
    store = killed.store
    results: Results = []
    killed.publish(message("original", Msg_Id="1"))
    store.add_appends(1, [message("before")], NOW_NS, results.append)
    store.add_appends(1, [message("again", Msg_Id="1")], NOW_NS, results.append)
    first = store.close_batch()
    store.add_appends(1, [message("behind")], NOW_NS, results.append)
    second = store.close_batch()
    for batch in (first, second):
        store.write(batch)
        store.finish(batch)
    # The record of the second batch was made before anybody knew.
    assert [list(one) for one in results if not isinstance(one, StoreError)] == [[2]]
    store.settle()
    assert [list(one) for one in results[1:] if not isinstance(one, StoreError)] == [[Duplicate(1)], [3]]


def test_seqs_that_were_left_out_behind_a_lost_message_move_no_other(killed: Killed) -> None:
    """As a mirror does, whose origin has lost some: all of it in one batch."""
    results: Results = []
    store = killed.store
    store.add_appends(1, [message("lost"), message("next")], NOW_NS, results.append)
    store.add(1, Skip(10), results.append)
    store.add_appends(1, [message("after")], NOW_NS, results.append)
    store.settle()
    assert list(killed.publish(message("later"))) == [12]
    assert killed.after_rot_of(b"lost") == {2: b"next", 11: b"after", 12: b"later"}


def test_what_a_start_has_decided_holds_at_the_next_one(killed: Killed) -> None:
    assert killed.publish(message("original", Msg_Id="1")) == [1]
    killed.store.add_appends(1, [message("again", Msg_Id="1"), message("after")], NOW_NS, lambda _: None)
    killed.store.write(killed.store.close_batch())
    killed.disk.end_process()
    store = Store.open(killed.disk, options_with())
    shown = store.stream(1).log.get(2)
    assert shown is not None and shown.data == b"after"
    killed.disk.end_process()
    assert killed.after_rot_of(b"original") == {2: b"after"}
