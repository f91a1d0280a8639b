"""Atomic batches: order of idling, bounds, and books that balance whatever is sent.

What each member is answered is compared with a real server in tests/jetstream.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edged.core import headers
from edged.core.api_errors import ATOMIC_PUBLISH_INCOMPLETE_BATCH, INSUFFICIENT_RESOURCES
from edged.core.atomic_batches import Abandoned, AtomicBatches, Commit, Rejected, Staged, ack_fields, batch_id
from edged.core.batch_limits import BatchLimits, OpenBatches, api_level_missing
from edged.core.frames import MORE
from edged.core.wire import Publish

LIMITS = BatchLimits(api_level=5, idle_ns=10, atomic_messages_max=4, atomic_per_stream_max=3)


def member(batch: bytes, sequence: int, commit: bytes | None = None, payload: bytes = b"") -> Publish:
    fields = [(b"Nats-Batch-Id", batch), (b"Nats-Batch-Sequence", b"%d" % sequence)]
    if commit is not None:
        fields.append((b"Nats-Batch-Commit", commit))
    block = headers.encode(fields)
    return b"subject", b"reply", len(block), block + payload


def test_members_are_submitted_in_their_order_and_all_but_the_last_say_that_more_follow() -> None:
    batches = AtomicBatches(LIMITS, OpenBatches())
    for sequence in (1, 2):
        assert batches.member(member(b"a", sequence, payload=b"%d" % sequence), 0) == Staged()
    commit = batches.member(member(b"a", 3, b"1", b"3"), 0)
    assert isinstance(commit, Commit) and commit.batch_id == b"a"
    assert [message[3][-1:] for message in commit.messages] == [b"1", b"2", b"3"]
    assert [message[1] for message in commit.messages] == [None, None, b"reply"]
    assert [bool(message[2] & MORE) for message in commit.messages] == [True, True, False]
    assert len(batches) == 0


def test_an_end_makes_the_member_before_it_the_last() -> None:
    batches = AtomicBatches(LIMITS, OpenBatches())
    batches.member(member(b"a", 1, payload=b"one"), 0)
    commit = batches.member(member(b"a", 2, b"eob", b"ignored"), 0)
    assert isinstance(commit, Commit)
    assert commit.messages == [member(b"a", 1, b"1", b"one")]


def test_batches_idle_out_in_the_order_of_their_last_members() -> None:
    batches = AtomicBatches(LIMITS, OpenBatches())
    batches.member(member(b"a", 1), 0)
    batches.member(member(b"b", 1), 1)
    batches.member(member(b"a", 2), 5)
    assert batches.next_ns() == 11
    assert batches.expired(10) == []
    assert batches.expired(11) == [Abandoned(b"b", "timeout")]
    assert batches.expired(15) == [Abandoned(b"a", "timeout")]
    assert batches.next_ns() is None


def test_what_is_staged_is_bounded_over_all_streams_of_the_server() -> None:
    limits = BatchLimits(api_level=5, staged_bytes_max=1000)
    opened = OpenBatches()
    first, second = AtomicBatches(limits, opened), AtomicBatches(limits, opened)
    assert first.member(member(b"a", 1, payload=bytes(600)), 0) == Staged()
    refused = second.member(member(b"b", 1, payload=bytes(600)), 0)
    assert refused == Rejected(INSUFFICIENT_RESOURCES, Abandoned(b"b", "large"))
    first.close()
    assert second.member(member(b"b", 1, payload=bytes(600)), 0) == Staged()
    assert second.member(member(b"b", 2, payload=bytes(600)), 0) == Rejected(
        INSUFFICIENT_RESOURCES, Abandoned(b"b", "large")
    )
    assert (opened.atomic, opened.staged_bytes) == (0, 0)


def test_configured_limits_are_taken_where_they_are_set() -> None:
    changed = LIMITS.configured(7, 0, 0, 99)
    assert (changed.atomic_per_stream_max, changed.fast_per_stream_max, changed.idle_ns) == (7, 7, 99)
    assert (changed.atomic_per_server_max, changed.fast_per_server_max) == (1000, 50_000)
    assert changed.atomic_messages_max == 4 and changed.api_level == 5


def test_levels_that_are_none_or_too_high_are_missing() -> None:
    assert [level for level in (b"5", b"0", b"+5", b"-9", b"", None) if api_level_missing(level, 5)] == []
    wrong = (b"6", b"x", b"5 ", b"+", b"--5", b"9" * 30, b"-" + b"9" * 30)
    assert all(api_level_missing(level, 5) for level in wrong)


def test_the_acknowledgement_quotes_the_id_as_go_does() -> None:
    assert ack_fields(b'a"\\\x01\xc3\xa4', 3) == b',"batch":"a\\"\\\\\\x01\xc3\xa4","count":3'
    assert batch_id(member(b"x", 1)[3]) == b"x"
    assert batch_id(b"") == b""


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c", b"d"]),
            st.integers(0, 6),
            st.sampled_from([None, None, None, b"1", b"eob", b"x"]),
            st.integers(0, 12),
        ),
        max_size=60,
    )
)
def test_books_balance_and_a_commit_holds_every_member_from_the_first(
    steps: list[tuple[bytes, int, bytes | None, int]],
) -> None:
    opened = OpenBatches()
    batches = AtomicBatches(LIMITS, opened)
    now_ns = 0
    staged: dict[bytes, int] = {}
    for batch, sequence, commit, pause_ns in steps:
        now_ns += pause_ns
        for gone in batches.expired(now_ns):
            del staged[gone.batch_id]
        decision = batches.member(member(batch, sequence, commit), now_ns)
        if isinstance(decision, Staged):
            assert sequence == staged.get(batch, 0) + 1
            staged[batch] = sequence
        elif isinstance(decision, Commit):
            places = [headers.value(message[3], b"Nats-Batch-Sequence") for message in decision.messages]
            assert places == [b"%d" % place for place in range(1, len(places) + 1)]
            assert len(places) == staged.pop(batch, 0) + (commit == b"1")
        elif batch in staged:
            # Whatever is wrong with a member of an open batch ends it.
            del staged[batch]
        assert len(batches) == opened.atomic == len(staged)
    batches.close()
    assert (opened.atomic, opened.staged_bytes) == (0, 0)
    assert batches.member(member(b"a", 2), now_ns) == Rejected(ATOMIC_PUBLISH_INCOMPLETE_BATCH)
