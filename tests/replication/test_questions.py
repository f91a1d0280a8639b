"""Questions for lost messages and their answers, as they pass between nodes, and what is settled by them."""

from __future__ import annotations

from typing import Any

import pytest

from edged.core.message import Message
from edged.core.repair_records import Settled
from edged.store.losses import NOWHERE
from edged.store.message_index import LostRange
from edged.store.stream_log import StreamLog
from hub.limits import REPAIR_MESSAGES_MAX, REPAIR_RANGES_MAX
from hub.replication.questions import Answer, Question, answer
from hub.replication.repair import _common, _joined, _without
from tests.lab.fake_disk import FakeDisk
from tests.store.test_refill import damaged_store
from tests.store.test_store import options_with

STREAM = b"\x07" * 16
MESSAGES = (Message(3, 5, b"a", 0, b"x"), Message(9, 6, b"b", 2, b"hhx"))
ANSWER = Answer(12, 40, 20, MESSAGES, (range(4, 6), range(30, 31)))


def test_a_question_and_an_answer_come_over_as_they_were_sent() -> None:
    question = Question(1, STREAM, 12, (range(3, 10), range(15, 16)))
    assert Question.of_document(question.document()) == question
    assert Answer.of_document(ANSWER.document()) == ANSWER


@pytest.mark.parametrize(
    "change",
    [
        {"ranges": [[5, 4]]},
        {"ranges": [[1, 5], [5, 6]]},
        {"ranges": [[0, 1]]},
        {"ranges": [["1", 5]]},
        {"ranges": [[n * 2 + 1, n * 2 + 1] for n in range(REPAIR_RANGES_MAX + 1)]},
        {"ranges": None},
        {"group": "1"},
        {"stream": "x"},
    ],
)
def test_a_question_without_sense_is_refused(change: dict[str, Any]) -> None:
    document = Question(1, STREAM, 12, (range(3, 10),)).document()
    with pytest.raises(ValueError, match=r"question|ranges"):
        Question.of_document({**document, **change})


def test_an_answer_with_a_message_that_is_not_what_its_checksum_says_is_refused() -> None:
    for place, value in ((0, 4), (1, 6), (2, b"c"), (3, 1), (4, b"y"), (5, bytes(16))):
        document = ANSWER.document()
        document["messages"][0][place] = value
        with pytest.raises(ValueError, match="checksum"):
            Answer.of_document(document)
    with pytest.raises(ValueError, match="list of messages"):
        Answer.of_document({**ANSWER.document(), "messages": [None] * (REPAIR_MESSAGES_MAX + 1)})
    with pytest.raises(ValueError, match="answer"):
        Answer.of_document({})


def test_an_answer_is_bounded_and_tells_what_is_lost_there_too() -> None:
    store, before, lost = damaged_store(FakeDisk(), options_with())
    last_seq = store.stream(1).log.last_seq
    stream_id = store.stream(1).stream_id
    assert answer(store, Question(9, stream_id, 0, (range(1, 5),))) is None
    assert answer(store, Question(1, STREAM, 0, (range(1, 5),))) is None
    found = answer(store, Question(1, stream_id, 0, (range(1, last_seq + 100),)))
    assert found is not None
    assert found.to == last_seq + 99 and found.last_seq == last_seq
    assert {message.seq: message for message in found.messages} == {
        seq: message for seq, message in before.items() if seq not in lost
    }
    assert [seq for seqs in found.lost for seq in seqs] == lost


def test_ranges_are_joined_cut_and_compared() -> None:
    ranges = [range(1, 5), range(8, 12), range(20, 21)]
    assert list(_joined([range(8, 10), range(1, 5), range(9, 12), range(20, 21)])) == ranges
    assert list(_common(ranges, [range(4, 9), range(20, 30)])) == [range(4, 5), range(8, 9), range(20, 21)]
    assert list(_without(ranges, [range(2, 3), range(4, 10)])) == [
        *(range(1, 2), range(3, 4), range(10, 12), range(20, 21))
    ]


def lacking_in(log: StreamLog) -> list[int]:
    return [seq for seqs in log.lacking() for seq in seqs]


def test_what_is_settled_is_asked_for_no_more_and_what_nobody_has_stays_listed() -> None:
    store, before, lost = damaged_store(FakeDisk(), options_with())
    log = store.stream(1).log
    assert isinstance(log, StreamLog) and lacking_in(log) == lost
    assert log.missing_count == len(lost)
    outcomes: list[Any] = []
    settled = [Settled(1, 2, False), Settled(4, 5, True), before[3]]
    store.add_repair(1, settled, outcomes.append)
    assert not outcomes and log.lacking()[0].start == 1
    store.settle()
    assert outcomes == [[0, 0, 3]]
    assert lacking_in(log) == list(range(6, lost[-1] + 1))
    assert log.lost[0] == LostRange(4, 5, NOWHERE)
    # Two are settled for good, one is back; whether there were messages with the other two nobody knows.
    assert log.missing_count == len(lost) - 3
    assert log.get(3) == before[3]
