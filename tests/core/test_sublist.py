"""The subscription list against a plain list of (pattern, queue, item) searched by brute force."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import subjects
from edged.core.sublist import SubscriptionList

Entry = tuple[bytes, bytes | None, int]

TOKENS = [b"a", b"b", b"*", b"foo*"]
PATTERNS = st.builds(
    lambda body, tail: b".".join([*body, b">"] if tail or not body else body),
    st.lists(st.sampled_from(TOKENS), max_size=3),
    st.booleans(),
)
ENTRIES = st.lists(
    st.tuples(PATTERNS, st.sampled_from([None, b"q1", b"q2"]), st.integers(0, 3)), unique=True, max_size=30
)
SUBJECTS = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"foo*", b"*", b">", b""]), min_size=1, max_size=4
).map(b".".join)


class Thing:
    """An item whose life can be watched."""

    __slots__ = ("__weakref__",)


def filled(entries: list[Entry]) -> SubscriptionList[int]:
    subscriptions: SubscriptionList[int] = SubscriptionList()
    for pattern, queue, item in entries:
        subscriptions.insert(pattern, queue, item)
    return subscriptions


def check(subscriptions: SubscriptionList[int], entries: list[Entry], subject: bytes) -> None:
    """The answers for one subject must be those that a search through all entries gives."""
    reached = [entry for entry in entries if subjects.matches(subject, entry[0])]
    matched = subscriptions.match(subject)
    assert Counter(matched.plain) == Counter(item for _, queue, item in reached if queue is None)
    queues = {queue for _, queue, _ in reached if queue is not None}
    assert len(matched.queues) == len(queues)
    assert {queue: Counter(members) for queue, members in matched.queues} == {
        name: Counter(item for _, queue, item in reached if queue == name) for name in queues
    }
    assert subscriptions.has_interest(subject) is bool(reached)
    assert len(subscriptions) == len(entries)
    assert Counter(subscriptions) == Counter(item for _, _, item in entries)


@given(ENTRIES, st.lists(SUBJECTS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_match_agrees_with_brute_force_while_entries_are_removed_at_random(
    entries: list[Entry], published: list[bytes], chance: random.Random
) -> None:
    subscriptions = filled(entries)
    order = list(entries)
    chance.shuffle(order)
    remaining = list(entries)
    for entry in [None, *order]:
        if entry is not None:
            assert subscriptions.remove(*entry)
            assert not subscriptions.remove(*entry)
            remaining.remove(entry)
        for subject in published:
            check(subscriptions, remaining, subject)
    assert subscriptions.inserts == subscriptions.removes == len(entries)
    assert list(subscriptions) == []


@given(ENTRIES, SUBJECTS)
def test_what_all_subjects_below_a_prefix_reach_is_what_each_of_them_reaches(
    entries: list[Entry], subject: bytes
) -> None:
    subscriptions = filled(entries)
    prefix = subject[: subject.rfind(b".") + 1]
    if not prefix or prefix == subject or subscriptions.has_literal(subject):
        return
    common = subscriptions.match_all_below(prefix)
    if common is not None:
        found = subscriptions.match(subject)
        assert sorted(common.plain) == sorted(found.plain)
        assert {q: sorted(m) for q, m in common.queues} == {q: sorted(m) for q, m in found.queues}


def test_subjects_below_a_prefix_have_nothing_in_common_when_a_pattern_names_the_last_token() -> None:
    subscriptions: SubscriptionList[int] = SubscriptionList()
    subscriptions.insert(b"in.a.*", None, 1)
    assert subscriptions.match_all_below(b"in.a.") == subscriptions.match(b"in.a.x")
    subscriptions.insert(b"in.a.x.>", None, 2)
    assert subscriptions.match_all_below(b"in.a.") is None


@given(ENTRIES, PATTERNS)
def test_reverse_match_finds_the_items_whose_pattern_overlaps(entries: list[Entry], pattern: bytes) -> None:
    expected = Counter(item for held, _, item in entries if subjects.overlaps(held, pattern))
    assert Counter(filled(entries).reverse_match(pattern)) == expected


def test_items_of_one_pattern_come_in_insertion_order_also_when_they_are_many() -> None:
    for pattern in (b"a.b", b"a.*", b"a.>"):
        subscriptions = filled([(pattern, None, item) for item in range(100)])
        for item in range(0, 100, 3):
            subscriptions.remove(pattern, None, item)
        subscriptions.insert(pattern, None, 0)
        assert subscriptions.match(b"a.b").plain == [item for item in range(100) if item % 3] + [0]


def test_patterns_come_tail_first_from_the_shortest_and_the_literal_last() -> None:
    subscriptions: SubscriptionList[bytes] = SubscriptionList()
    for pattern in (b"a.b", b"a.*", b"*.b", b"a.>", b">"):
        subscriptions.insert(pattern, None, pattern)
    assert subscriptions.match(b"a.b").plain == [b">", b"a.>", b"*.b", b"a.*", b"a.b"]


def test_a_queue_that_is_held_under_several_patterns_is_one_queue() -> None:
    subscriptions = filled([(b"a.b", b"q", 1), (b"a.*", b"q", 2), (b">", b"r", 3), (b"a.b", None, 4)])
    matched = subscriptions.match(b"a.b")
    assert matched.plain == [4]
    assert matched.queues == [(b"r", [3]), (b"q", [2, 1])]


def test_same_item_may_stand_under_other_pattern_or_queue_but_not_twice_under_one() -> None:
    subscriptions = filled([(b"a", None, 1), (b"a", b"q", 1), (b"*", None, 1)])
    for pattern, queue in ((b"a", None), (b"a", b"q"), (b"*", None)):
        with pytest.raises(ValueError, match="already subscribed"):
            subscriptions.insert(pattern, queue, 1)
    assert len(subscriptions) == 3
    assert subscriptions.match(b"a").plain == [1, 1]


@pytest.mark.parametrize("pattern", [b"", b"a..b", b".a", b"a.", b"a.>.b", b"a b"])
def test_an_invalid_pattern_is_refused_and_leaves_nothing_behind(pattern: bytes) -> None:
    subscriptions: SubscriptionList[int] = SubscriptionList()
    with pytest.raises(ValueError, match="invalid subscription subject"):
        subscriptions.insert(pattern, None, 1)
    assert len(subscriptions) == subscriptions.inserts == 0
    assert not subscriptions.remove(pattern, None, 1)
    assert subscriptions.reverse_match(pattern) == []


def test_removing_what_is_not_there_changes_nothing() -> None:
    subscriptions = filled([(b"a.b", None, 1), (b"a.*.c", b"q", 2), (b"a.>", None, 3)])
    for pattern, queue, item in [
        (b"a.b", b"q", 1),
        (b"a.b", None, 2),
        (b"a.c", None, 1),
        (b"a.*", None, 2),
        (b"a.*.c", None, 2),
        (b"a.*.c.>", b"q", 2),
        (b"a.>", None, 1),
        (b">", None, 3),
    ]:
        assert not subscriptions.remove(pattern, queue, item)
    assert (len(subscriptions), subscriptions.removes) == (3, 0)
    assert subscriptions.match(b"a.b").plain == [3, 1]


def test_ten_thousand_tokens_can_be_inserted_matched_and_removed() -> None:
    subject = b".".join([b"t"] * 10_000)
    patterns = [
        subject,
        subject[:-1] + b"*",
        subject[:-1] + b">",
        b".".join([b"*"] * 10_000),
        b"t.*." + subject[4:],
    ]
    subscriptions = filled([(pattern, None, item) for item, pattern in enumerate(patterns)])
    assert sorted(subscriptions.match(subject).plain) == [0, 1, 2, 3, 4]
    assert sorted(subscriptions.reverse_match(subject)) == [0, 1, 2, 3, 4]
    assert sorted(subscriptions) == [0, 1, 2, 3, 4]
    assert subscriptions.match(subject + b".t").plain == [2]
    for item, pattern in enumerate(patterns):
        assert subscriptions.remove(pattern, None, item)
    assert not subscriptions.has_interest(subject)


@pytest.mark.parametrize("pattern", [b"a.b.c", b"a.*.c", b"*.*", b"a.b.>", b">"])
@pytest.mark.parametrize("queue", [None, b"q"])
def test_memory_is_freed_on_remove(pattern: bytes, queue: bytes | None) -> None:
    subscriptions: SubscriptionList[Thing] = SubscriptionList()
    gc.collect()
    tracked_before = len(gc.get_objects())
    things = [Thing() for _ in range(20)]
    for number, thing in enumerate(things):
        subscriptions.insert(b"%d." % number + pattern, queue, thing)
        subscriptions.insert(pattern, queue, thing)
    for number, thing in enumerate(things):
        assert subscriptions.remove(b"%d." % number + pattern, queue, thing)
        assert subscriptions.remove(pattern, queue, thing)
    watched = [weakref.ref(thing) for thing in things]
    del things, thing
    gc.collect()
    assert all(reference() is None for reference in watched)
    # 40 patterns would have left at least 40 leaves; the names of this function itself are a handful.
    del watched
    gc.collect()
    assert len(gc.get_objects()) - tracked_before < 10


def test_only_successful_work_is_counted() -> None:
    subscriptions = filled([(b"a", None, 1), (b"*", None, 2)])
    subscriptions.remove(b"a", None, 1)
    subscriptions.remove(b"a", None, 1)
    subscriptions.match(b"a")
    subscriptions.match(b"nobody.here")
    assert (subscriptions.inserts, subscriptions.removes, subscriptions.matches) == (2, 1, 2)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_any_bytes_are_either_refused_or_kept_and_found(pattern: bytes, subject: bytes) -> None:
    subscriptions: SubscriptionList[int] = SubscriptionList()
    try:
        subscriptions.insert(pattern, None, 1)
    except ValueError:
        assert not subjects.valid_subscription(pattern)
        return
    assert bool(subscriptions.match(subject).plain) is subjects.matches(subject, pattern)
    assert subscriptions.remove(pattern, None, 1)


def test_any_number_of_tokens_more_reach_the_same_if_only_a_tail_is_below() -> None:
    subscriptions: SubscriptionList[str] = SubscriptionList()
    subscriptions.insert(b"$JS.ACK.>", None, "all")
    found = subscriptions.match_all_below(b"$JS.ACK.", is_deep=True)
    assert found is not None
    assert found.plain == ["all"]
    subscriptions.insert(b"$JS.ACK.*.c.>", None, "some")
    assert subscriptions.match_all_below(b"$JS.ACK.", is_deep=True) is None
    assert subscriptions.match_all_below(b"$JS.ACK.") is not None


def test_a_subject_is_named_by_subscriptions_without_wildcards_in_the_queue_that_is_asked_for() -> None:
    subscriptions: SubscriptionList[str] = SubscriptionList()
    subscriptions.insert(b"a.*", None, "many")
    assert not subscriptions.is_named(b"a.b", None)
    subscriptions.insert(b"a.b", b"q", "member")
    assert not subscriptions.is_named(b"a.b", None)
    assert subscriptions.is_named(b"a.b", b"q")
    assert not subscriptions.is_named(b"a.b", b"other")
    subscriptions.insert(b"a.b", None, "one")
    assert subscriptions.is_named(b"a.b", None)
    subscriptions.remove(b"a.b", None, "one")
    assert not subscriptions.is_named(b"a.b", None)
