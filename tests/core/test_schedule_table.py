"""The table of schedules, against a model that looks at everything every time."""

from __future__ import annotations

from datetime import UTC, tzinfo

from hypothesis import given, settings
from hypothesis import strategies as st

from edged.core import headers
from edged.core.schedule_table import TIME_NS_MAX, Due, ScheduleTable
from tests.examples import examples

SECOND = 1_000_000_000


def zone_of(name: str) -> tzinfo | None:
    return UTC if name == "UTC" else None


def every(seconds: int) -> bytes:
    return headers.encode([(b"Nats-Schedule", b"@every %ds" % seconds)])


def produced(scheduler: bytes, text: bytes) -> bytes:
    return headers.encode([(b"Nats-Scheduler", scheduler), (b"Nats-Schedule-Next", text)])


def table_of(*subjects: bytes) -> ScheduleTable:
    """Schedules of 10 s each, stored one after the other at time 0."""
    table = ScheduleTable()
    for seq, subject in enumerate(subjects, 1):
        table.stored(seq, 0, subject, every(10), zone_of)
    return table


def test_a_schedule_is_due_once_and_again_when_its_message_was_stored() -> None:
    table = table_of(b"a", b"b")
    assert table.next_ns() == 10 * SECOND
    assert table.due(10 * SECOND - 1) == []
    assert table.due(10 * SECOND) == [Due(b"a", 1, 10 * SECOND), Due(b"b", 2, 10 * SECOND)]
    assert table.due(99 * SECOND) == [] and table.next_ns() is None
    table.stored(3, 10 * SECOND, b"target", produced(b"a", b"1970-01-01T00:00:20Z"), zone_of)
    assert table.next_ns() == 20 * SECOND
    assert table.due(99 * SECOND) == [Due(b"a", 1, 20 * SECOND)]


def test_a_firing_that_came_to_nothing_is_due_again_later() -> None:
    table = table_of(b"a")
    table.due(10 * SECOND)
    table.released(b"a", 15 * SECOND)
    assert table.due(14 * SECOND) == []
    assert table.due(15 * SECOND) == [Due(b"a", 1, 15 * SECOND)]
    table.removed(1)
    table.released(b"a", 16 * SECOND)
    assert table.next_ns() is None


def test_a_new_message_replaces_the_schedule_of_its_subject() -> None:
    table = table_of(b"a")
    table.stored(2, 0, b"a", every(30), zone_of)
    assert table.entries() == [(b"a", 2, 30 * SECOND)]
    assert table.due(10 * SECOND) == []
    table.removed(1)
    assert b"a" in table
    table.removed(2)
    assert b"a" not in table and len(table) == 0


def test_a_plain_message_ends_the_schedule_and_a_produced_one_does_not() -> None:
    table = table_of(b"a", b"b", b"c")
    table.stored(4, 0, b"a", b"", zone_of)
    table.stored(5, 0, b"b", produced(b"elsewhere", b"purge"), zone_of)
    table.stored(6, 0, b"c", headers.encode([(b"Nats-Schedule", b"rubbish")]), zone_of)
    assert table.entries() == [(b"b", 2, 10 * SECOND)]


def test_a_message_of_an_unknown_schedule_changes_nothing() -> None:
    table = table_of(b"a")
    table.stored(2, 0, b"target", produced(b"b", b"1970-01-01T00:00:20Z"), zone_of)
    table.stored(3, 0, b"target", produced(b"a", b"rubbish"), zone_of)
    assert table.entries() == [(b"a", 1, 10 * SECOND)]


def test_times_are_kept_in_63_bits() -> None:
    table = ScheduleTable()
    table.stored(1, 0, b"a", headers.encode([(b"Nats-Schedule", b"@at 9999-01-01T00:00:00Z")]), zone_of)
    table.stored(2, 0, b"b", headers.encode([(b"Nats-Schedule", b"@at 1900-01-01T00:00:00Z")]), zone_of)
    assert table.entries() == [(b"a", 1, TIME_NS_MAX), (b"b", 2, 0)]


def test_a_subject_that_is_scheduled_over_and_over_does_not_fill_memory() -> None:
    table = ScheduleTable()
    for seq in range(1, 10_000):
        table.stored(seq, 0, b"a", every(1000 + seq), zone_of)
    assert len(table._heap) < 200
    assert table.due(10**18) == [Due(b"a", 9999, 10_999 * SECOND)]


@settings(max_examples=examples(50))
@given(st.data())
def test_the_table_agrees_with_a_naive_model(data: st.DataObject) -> None:
    table, model, flying = ScheduleTable(), dict[bytes, tuple[int, int]](), set[bytes]()
    now_ns = 0
    for seq in range(1, data.draw(st.integers(1, 60))):
        subject = data.draw(st.sampled_from([b"a", b"b", b"c", b"d"]))
        step = data.draw(
            st.sampled_from(["schedule", "plain", "again", "remove", "due", "restore", "release"])
        )
        now_ns += data.draw(st.integers(0, 5)) * SECOND
        if step == "schedule":
            seconds = data.draw(st.integers(1, 20))
            table.stored(seq, now_ns, subject, every(seconds), zone_of)
            model[subject] = (seq, now_ns + seconds * SECOND)
            flying.discard(subject)
        elif step == "plain":
            table.stored(seq, now_ns, subject, b"", zone_of)
            model.pop(subject, None)
            flying.discard(subject)
        elif step == "again":
            table.stored(seq, now_ns, b"target", produced(subject, b"1970-01-01T00:01:00Z"), zone_of)
            if subject in model:
                model[subject] = (model[subject][0], 60 * SECOND)
                flying.discard(subject)
        elif step == "remove":
            gone = data.draw(st.integers(1, seq))
            table.removed(gone)
            for name in [name for name, (kept, _) in model.items() if kept == gone]:
                del model[name]
                flying.discard(name)
        elif step == "release" and subject in flying:
            table.released(subject, now_ns + SECOND)
            model[subject] = (model[subject][0], now_ns + SECOND)
            flying.discard(subject)
        elif step == "restore":
            table, flying = ScheduleTable(table.entries()), set()
        elif step == "due":
            expected = [
                Due(name, *found)
                for name, found in model.items()
                if name not in flying and found[1] <= now_ns
            ]
            assert table.due(now_ns) == sorted(expected, key=lambda one: one.seq)
            flying |= {one.subject for one in expected}
        waiting = [at_ns for name, (_, at_ns) in model.items() if name not in flying]
        assert table.next_ns() == min(waiting, default=None)
        assert {name: (kept, at_ns) for name, kept, at_ns in table.entries()} == model
