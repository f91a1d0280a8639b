"""The disk governor's decisions: what is refused, what is shed, in which order, and when it stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.config.jetstream_options import ShedClass, ShedOptions
from edged.core.space_rules import (
    NO_SPACE_RETRY_NS,
    SHED_RECORDS_MAX,
    Shed,
    ShedLedger,
    ShedRecord,
    Space,
    SpaceLimits,
    SpaceRules,
    StreamSpace,
    journal_file_bytes_default,
    reserve_bytes_default,
)

MIB = 1024 * 1024
ALARMS = ShedClass("alarms", ("ALARM*",), order=0, may_shed=False)
SYNCED = ShedClass("synced", ("*",), order=1, synced_only=True)
BULK = ShedClass("bulk", ("LOG?",), metadata=(("class", "bulk"),), order=2)
CLASSES = (BULK, SYNCED, ALARMS)


def rules(
    store_bytes_max: int = 1000, free_bytes_min: int = 0, classes: tuple[ShedClass, ...] = CLASSES
) -> SpaceRules:
    return SpaceRules(SpaceLimits(store_bytes_max, free_bytes_min, MIB), ShedOptions(90, 80, classes))


def plan(of: SpaceRules, used: int, *streams: StreamSpace, free: int = 10**12, dead: int = 0) -> list[Shed]:
    return of.plan(Space(free, used, dead), streams)


# --- what is refused ---


def test_bound_of_the_store_is_exact() -> None:
    bound = rules(store_bytes_max=1000)
    assert bound.refusal(100, Space(10**12, 900)) is None
    assert bound.refusal(101, Space(10**12, 900)) == (
        "insufficient storage: 900 of 1000 bytes are in use (max_file_store)"
    )
    assert bound.refusal(101, Space(10**12, 899)) is None
    assert rules(store_bytes_max=-1).refusal(10**9, Space(10**12, 10**15)) is None


def test_append_that_would_cross_the_floor_is_refused_and_a_smaller_one_is_not() -> None:
    floor = rules(-1, free_bytes_min=100)
    assert floor.refusal(50, Space(150, 0)) is None
    assert floor.refusal(51, Space(150, 0)) == (
        "insufficient storage: the disk has 150 bytes free, of which 100 are kept (free_space_min)"
    )


def test_after_the_floor_is_crossed_nothing_is_taken_until_there_is_room_for_the_reserve_and_more() -> None:
    floor_bytes = 64 * MIB
    floor = rules(-1, floor_bytes)
    floor.observe(floor_bytes, 0)
    assert not floor.is_full
    floor.observe(floor_bytes - 1, 1)
    assert floor.is_full
    resume_bytes = floor_bytes + MIB + 4 * MIB
    floor.observe(resume_bytes - 1, 2)
    assert floor.refusal(1, Space(resume_bytes - 1, 0)) is not None
    floor.observe(resume_bytes, 3)
    assert floor.refusal(1, Space(resume_bytes, 0)) is None


def test_disk_that_says_it_is_full_is_believed_for_a_moment_whatever_it_shows() -> None:
    full = rules(-1, 0)
    full.no_space(1000)
    for now_ns in (1000, 1000 + NO_SPACE_RETRY_NS - 1):
        full.observe(10**12, now_ns)
        assert full.refusal(1, Space(10**12, 0)) is not None
    full.observe(10**12, 1000 + NO_SPACE_RETRY_NS)
    assert full.refusal(1, Space(10**12, 0)) is None


def test_clock_set_back_does_not_keep_the_store_closed() -> None:
    full = rules(-1, 0)
    full.no_space(10**18)
    full.observe(10**12, 5)
    assert not full.is_full


@pytest.mark.parametrize(
    ("store_bytes_max", "expected"),
    [(-1, MIB), (0, MIB), (10 * MIB, MIB), (1000 * MIB, 10 * MIB), (10**6 * MIB, 64 * MIB)],
)
def test_reserve_is_a_hundredth_of_the_store_within_bounds(store_bytes_max: int, expected: int) -> None:
    assert reserve_bytes_default(store_bytes_max) == expected


@pytest.mark.parametrize(
    ("store_bytes_max", "expected"),
    [
        (-1, 32 * MIB),
        (0, MIB),
        (32 * MIB, MIB),
        (160 * MIB, 4 * MIB),
        (1024 * MIB, 32 * MIB),
        (1 << 50, 32 * MIB),
    ],
)
def test_journal_file_is_a_small_part_of_the_store(store_bytes_max: int, expected: int) -> None:
    assert journal_file_bytes_default(store_bytes_max) == expected


# --- what is shed ---


def test_nothing_is_shed_up_to_the_start_mark() -> None:
    assert plan(rules(), 900, StreamSpace("A", "LOG1", 900)) == []
    assert plan(rules(), 901, StreamSpace("A", "LOG1", 901)) == [Shed("A", "LOG1", 101, "bulk", False)]


def test_synced_messages_go_first_then_bulk_and_alarms_never() -> None:
    streams = (
        StreamSpace("A", "ALARM1", 500, synced_bytes=500, metadata=(("class", "bulk"),)),
        StreamSpace("A", "LOG1", 300, synced_bytes=50),
        StreamSpace("A", "DATA", 150, synced_bytes=20),
    )
    assert plan(rules(), 950, *streams) == [
        Shed("A", "LOG1", 50, "synced", True),
        Shed("A", "DATA", 20, "synced", True),
        Shed("A", "LOG1", 80, "bulk", False),
    ]


def test_when_synced_messages_suffice_bulk_stays() -> None:
    stream = StreamSpace("A", "LOG1", 950, synced_bytes=400)
    assert plan(rules(), 950, stream) == [Shed("A", "LOG1", 150, "synced", True)]


def test_streams_of_a_class_give_in_proportion() -> None:
    streams = (StreamSpace("A", "LOG1", 600), StreamSpace("A", "LOG2", 300), StreamSpace("A", "X", 30))
    assert [(shed.stream, shed.bytes) for shed in plan(rules(), 930, *streams)] == [
        ("LOG1", 87),
        ("LOG2", 44),
    ]


def test_class_without_anything_to_give_changes_nothing() -> None:
    assert plan(rules(), 950, StreamSpace("A", "DATA", 950), StreamSpace("A", "LOG1", 0)) == []


def test_without_classes_nothing_is_ever_shed() -> None:
    assert plan(rules(classes=()), 2000, StreamSpace("A", "LOG1", 2000)) == []


@pytest.mark.parametrize(
    ("stream", "is_in"),
    [
        (StreamSpace("A", "LOG1", 999), True),
        (StreamSpace("A", "LOG", 999), False),
        (StreamSpace("A", "LOG12", 999), False),
        (StreamSpace("A", "XLOG1", 999), False),
        (StreamSpace("B", "LOG1", 999), False),
        (StreamSpace("A", "X", 999, metadata=(("class", "bulk"), ("z", "1"))), True),
        (StreamSpace("A", "X", 999, metadata=(("class", "bulk"),)), False),
        (StreamSpace("B", "X", 999, metadata=(("class", "bulk"), ("z", "1"))), False),
    ],
)
def test_stream_is_in_a_class_by_name_or_by_all_metadata_in_the_named_accounts(
    stream: StreamSpace, is_in: bool
) -> None:
    one = ShedClass("c", ("LOG?", "a.b"), (("class", "bulk"), ("z", "1")), accounts=("A",))
    assert bool(plan(rules(classes=(one,)), 999, stream)) is is_in


def test_dots_and_brackets_in_patterns_are_themselves() -> None:
    one = ShedClass("c", ("a.b", "[x]"))
    assert plan(rules(classes=(one,)), 999, StreamSpace("A", "axb", 999), StreamSpace("A", "x", 999)) == []
    assert plan(rules(classes=(one,)), 999, StreamSpace("A", "[x]", 999))


def test_shedding_goes_on_to_the_stop_mark_and_starts_again_only_above_the_start_mark() -> None:
    one = rules()
    stream = StreamSpace("A", "LOG1", 1000)
    assert plan(one, 905, stream) != []
    assert plan(one, 850, stream) == [Shed("A", "LOG1", 50, "bulk", False)]
    assert plan(one, 800, stream) == []
    assert not one.is_shedding
    assert plan(one, 850, stream) == []


def test_bytes_on_their_way_out_are_not_shed_twice() -> None:
    one = rules()
    stream = StreamSpace("A", "LOG1", 950)
    assert plan(one, 950, stream) == [Shed("A", "LOG1", 150, "bulk", False)]
    assert plan(one, 950, StreamSpace("A", "LOG1", 800), dead=150) == []


def test_disk_filled_by_others_makes_the_store_smaller() -> None:
    one = SpaceRules(SpaceLimits(-1, 100, MIB), ShedOptions(90, 80, CLASSES))
    stream = StreamSpace("A", "LOG1", 500)
    assert plan(one, 500, stream, free=10_000) == []
    # 40 bytes below the floor: the store may be 460 bytes large, and comes down to 80% of that.
    assert plan(one, 500, stream, free=60) == [Shed("A", "LOG1", 132, "bulk", False)]
    assert plan(one, 50, StreamSpace("A", "LOG1", 50), free=0) == [Shed("A", "LOG1", 50, "bulk", False)]


STREAMS = st.lists(
    st.builds(
        lambda name, size, synced: StreamSpace("A", name, size, min(size, synced)),
        st.sampled_from(("ALARM1", "LOG1", "LOG2", "DATA")),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
    ),
    max_size=8,
)


@given(streams=STREAMS, room_bytes=st.integers(-(10**6), 10**6))
def test_sheds_are_no_more_than_there_is_and_no_more_than_needed(
    streams: list[StreamSpace], room_bytes: int
) -> None:
    used_bytes = sum(stream.bytes for stream in streams)
    capacity_bytes = max(used_bytes + room_bytes, 0)
    unique = [
        StreamSpace(f"A{position}", one.stream, one.bytes, one.synced_bytes)
        for position, one in enumerate(streams)
    ]
    sheds = rules(capacity_bytes).plan(Space(10**12, used_bytes), unique)
    shed_bytes = sum(shed.bytes for shed in sheds)
    if used_bytes * 100 <= capacity_bytes * 90:
        assert sheds == []
        return
    needed_bytes = used_bytes - capacity_bytes * 80 // 100
    gone: dict[str, int] = {}
    for shed in sheds:
        gone[shed.account] = gone.get(shed.account, 0) + shed.bytes
    sheddable_bytes = 0
    for stream in unique:
        may_bytes = {"A": 0, "L": stream.bytes, "D": stream.synced_bytes}[stream.stream[0]]
        assert gone.get(stream.account, 0) <= may_bytes
        sheddable_bytes += may_bytes
    # Every stream rounds up by less than a byte, in each of two classes.
    assert min(needed_bytes, sheddable_bytes) <= shed_bytes <= needed_bytes + 2 * len(unique)


# --- the ledger ---


def record(first_seq: int, last_seq: int, stream: str = "S", reason: str = "bulk") -> ShedRecord:
    return ShedRecord("A", stream, first_seq, last_seq, reason, 10, last_seq)


def test_shed_that_goes_on_extends_the_record_of_its_stream() -> None:
    ledger = ShedLedger()
    for one in (
        record(1, 5),
        record(1, 3, "T"),
        record(6, 9),
        record(10, 11, reason="synced"),
        record(20, 21),
    ):
        ledger.add(one)
    assert ledger.records() == [
        record(1, 3, "T"),
        ShedRecord("A", "S", 1, 9, "bulk", 20, 9),
        record(10, 11, reason="synced"),
        record(20, 21),
    ]
    assert (ledger.sheds_total, ledger.bytes_total) == (5, 50)


def test_ledger_forgets_the_oldest_records_but_not_the_totals() -> None:
    ledger = ShedLedger()
    for seq in range(0, 4 * SHED_RECORDS_MAX, 2):
        ledger.add(record(seq, seq))
    assert len(ledger.records()) == SHED_RECORDS_MAX + 1
    assert ledger.records()[-1].last_seq == 4 * SHED_RECORDS_MAX - 2
    assert ledger.bytes_total == 20 * SHED_RECORDS_MAX
    for number in range(3 * SHED_RECORDS_MAX):
        ledger.add(record(1, 1, f"S{number}"))
    assert len(ledger.records()) == 2 * SHED_RECORDS_MAX


def test_ledger_comes_back_from_its_snapshot() -> None:
    ledger = ShedLedger()
    for one in (record(1, 5), record(7, 8), record(1, 3, "T")):
        ledger.add(one)
    again = ShedLedger.restore(ledger.snapshot())
    assert again.snapshot() == ledger.snapshot()
    again.add(record(4, 4, "T"))
    assert record(1, 3, "T") not in again.records()
