"""The permission check against a naive model over a small alphabet, and nats-server's rules by example."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.config.options import PermissionsOptions, SubjectRules
from edged.config.options import ResponseRule as ResponseOptions
from edged.core.permissions import (
    ALL,
    RESPONSES_TRACKED_MAX,
    Permissions,
    ResponseRule,
    ResponseTracker,
)

SECOND_NS = 1_000_000_000

LITERALS = [
    b".".join(tokens) for count in (1, 2, 3) for tokens in itertools.product((b"a", b"b"), repeat=count)
]
TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda tokens, open_end: ".".join([*tokens, *([">"] if open_end else [])]),
    st.lists(TOKENS, min_size=1, max_size=2),
    st.booleans(),
) | st.just(">")
QUEUES = st.sampled_from(["q.a", "q.b", "q.*", "q.>", "r"])
ENTRIES = PATTERNS | st.builds("{} {}".format, PATTERNS, QUEUES)
ALLOW = st.none() | st.lists(ENTRIES, max_size=3)
DENY = st.lists(ENTRIES, max_size=3)
PLAIN_ALLOW = st.none() | st.lists(PATTERNS, max_size=3)
QUEUE_NAMES = st.none() | st.sampled_from([b"q.a", b"q.b", b"r", b"q"])


def naive_match(subject: str, pattern: str) -> bool:
    """By the words of the documentation, without any of the code under test."""
    names, wanted = subject.split("."), pattern.split(".")
    if wanted[-1] == ">":
        return len(names) >= len(wanted) and naive_match(
            ".".join(names[: len(wanted) - 1]) or "x", ".".join(wanted[:-1]) or "*"
        )
    return len(names) == len(wanted) and all(
        want in ("*", name) for name, want in zip(names, wanted, strict=True)
    )


def naive_literals(pattern: str) -> set[bytes]:
    return {literal for literal in LITERALS if naive_match(literal.decode(), pattern)}


@given(PLAIN_ALLOW, st.lists(PATTERNS, max_size=3), st.sampled_from(LITERALS))
def test_publish_is_allowed_when_listed_and_not_denied(
    allow: list[str] | None, deny: list[str], subject: bytes
) -> None:
    permissions = Permissions.from_lists(publish_allow=allow, publish_deny=deny)
    listed = allow is None or any(subject in naive_literals(entry) for entry in allow)
    denied = any(subject in naive_literals(entry) for entry in deny)
    assert permissions.may_publish(subject) == (listed and not denied)


@given(PLAIN_ALLOW, PATTERNS)
def test_subscription_is_allowed_when_one_entry_covers_all_of_it(
    allow: list[str] | None, wanted: str
) -> None:
    permissions = Permissions.from_lists(subscribe_allow=allow)
    # Three tokens tell `a.>` and `a.*` apart, so inclusion over the literals is inclusion of the patterns.
    covered = allow is None or any(naive_literals(wanted) <= naive_literals(entry) for entry in allow)
    assert permissions.may_subscribe(wanted.encode()) == covered


@given(ALLOW, DENY, PATTERNS, QUEUE_NAMES)
def test_what_is_delivered_on_an_accepted_subscription_is_allowed_and_not_denied(
    allow: list[str] | None, deny: list[str], wanted: str, queue: bytes | None
) -> None:
    permissions = Permissions.from_lists(subscribe_allow=allow, subscribe_deny=deny)
    if not permissions.may_subscribe(wanted.encode(), queue):
        return
    checked = permissions.needs_delivery_check(wanted.encode(), queue)
    for subject in naive_literals(wanted):
        if checked and not permissions.may_deliver(subject, queue):
            continue
        for entry in deny:
            denied_subject, _, denied_queue = entry.partition(" ")
            if not denied_queue or denied_queue.encode() == queue:
                assert subject not in naive_literals(denied_subject), (entry, subject)
        if allow is not None:
            assert any(subject in naive_literals(entry.split(" ")[0]) for entry in allow)


@given(DENY, st.sampled_from(LITERALS), QUEUE_NAMES)
def test_delivery_is_refused_exactly_where_a_deny_entry_matches(
    deny: list[str], subject: bytes, queue: bytes | None
) -> None:
    permissions = Permissions.from_lists(subscribe_deny=deny)
    denied = False
    for entry in deny:
        denied_subject, _, denied_queue = entry.partition(" ")
        if subject in naive_literals(denied_subject):
            denied |= not denied_queue
            denied |= queue is not None and bool(denied_queue) and naive_match(queue.decode(), denied_queue)
    assert permissions.may_deliver(subject, queue) == (not denied)


@given(ALLOW, DENY, st.binary(max_size=12), st.none() | st.binary(max_size=4))
def test_any_bytes_get_an_answer(
    allow: list[str] | None, deny: list[str], subject: bytes, queue: bytes | None
) -> None:
    permissions = Permissions.from_lists(subscribe_allow=allow, subscribe_deny=deny)
    permissions.may_publish(subject)
    permissions.may_subscribe(subject, queue)
    permissions.may_subscribe_partly(subject, queue)
    permissions.needs_delivery_check(subject, queue)
    permissions.may_deliver(subject, queue)


def test_no_permissions_allow_everything() -> None:
    assert Permissions.from_options(None) is ALL
    assert ALL.unrestricted
    assert ALL.may_publish(b"$SYS.anything")
    assert ALL.may_subscribe(b">", b"queue")
    assert not ALL.needs_delivery_check(b">")


def test_wildcard_that_only_overlaps_a_deny_is_accepted_and_filtered_at_delivery() -> None:
    permissions = Permissions.from_lists(subscribe_deny=["foo.*"])
    assert permissions.may_subscribe(b"*.bar")
    assert permissions.needs_delivery_check(b"*.bar")
    assert not permissions.may_deliver(b"foo.bar")
    assert permissions.may_deliver(b"baz.bar")
    assert not permissions.needs_delivery_check(b"baz.*")


def test_open_wildcard_is_not_covered_by_a_single_token_allow_entry() -> None:
    permissions = Permissions.from_lists(subscribe_allow=["foo.*"])
    assert permissions.may_subscribe(b"foo.*")
    assert permissions.may_subscribe(b"foo.bar")
    assert not permissions.may_subscribe(b"foo.>")
    assert not permissions.may_subscribe(b">")
    assert not permissions.may_subscribe(b"*.*")


def test_open_wildcard_is_refused_by_a_single_token_deny_entry_as_nats_server_does() -> None:
    assert not Permissions.from_lists(subscribe_deny=["foo.*"]).may_subscribe(b"foo.>")


def test_queue_entry_in_an_allow_list_permits_only_that_queue() -> None:
    permissions = Permissions.from_lists(subscribe_allow=["foo", "foo v1", "bar q.*"])
    assert permissions.may_subscribe(b"foo")
    assert permissions.may_subscribe(b"foo", b"v1")
    assert not permissions.may_subscribe(b"foo", b"v2")
    assert not permissions.may_subscribe(b"bar")
    assert permissions.may_subscribe(b"bar", b"q.1")
    assert permissions.may_subscribe(b"bar", b"q.*")
    assert not permissions.may_subscribe(b"bar", b"q")
    assert not permissions.may_subscribe(b"bar", b"q.>")


def test_queue_entry_in_a_deny_list_forbids_that_queue_at_subscribe_and_at_delivery() -> None:
    permissions = Permissions.from_lists(subscribe_deny=["a.b qq"])
    assert not permissions.may_subscribe(b"a.b", b"qq")
    assert permissions.may_subscribe(b"a.b")
    assert permissions.may_subscribe(b"a.*", b"qq")
    assert permissions.needs_delivery_check(b"a.*", b"qq")
    assert not permissions.may_deliver(b"a.b", b"qq")
    assert permissions.may_deliver(b"a.b", b"other")
    assert permissions.may_deliver(b"a.b")


def test_leaf_may_announce_a_wildcard_that_touches_what_is_allowed() -> None:
    permissions = Permissions.from_lists(subscribe_allow=["foo.>"], subscribe_deny=["bar.>"])
    assert permissions.may_subscribe_partly(b">")
    assert permissions.may_subscribe_partly(b"foo.a")
    assert not permissions.may_subscribe_partly(b"baz.>")
    assert not permissions.may_subscribe_partly(b"bar.*")
    assert not permissions.may_subscribe(b">")


def test_more_denies_can_be_added() -> None:
    permissions = ALL.denying(publish=[b"$JS.API.>"], subscribe=[b"$JS.API.>"])
    assert not permissions.may_publish(b"$JS.API.INFO")
    assert not permissions.may_subscribe(b"$JS.API.>")
    assert permissions.may_publish(b"foo")
    assert ALL.unrestricted


def test_allow_responses_without_an_allow_list_closes_everything_else() -> None:
    options = PermissionsOptions(allow_responses=ResponseOptions(2, 1.5))
    permissions = Permissions.from_options(options)
    assert permissions.allow_responses == ResponseRule(2, 1_500_000_000)
    assert not permissions.may_publish(b"foo")
    listed = PermissionsOptions(SubjectRules(allow=("foo",)), allow_responses=ResponseOptions())
    assert Permissions.from_options(listed).may_publish(b"foo")


@pytest.mark.parametrize("entry", ["", "a..b", ".a", "a.>.b", "a b c", " "])
def test_entry_that_is_no_subject_is_a_value_error(entry: str) -> None:
    with pytest.raises(ValueError, match="permission"):
        Permissions.from_lists(subscribe_allow=[entry])
    with pytest.raises(ValueError, match="permission"):
        Permissions.from_lists(publish_deny=[entry or "a b"])


def test_reply_is_open_for_as_many_answers_as_the_rule_says() -> None:
    tracker = ResponseTracker(ResponseRule(max_messages=2))
    assert not tracker.take(b"reply", 0)
    tracker.remember(b"reply", 0)
    assert tracker.take(b"reply", 1)
    assert tracker.take(b"reply", 2)
    assert not tracker.take(b"reply", 3)
    assert len(tracker) == 0


def test_reply_closes_when_its_time_is_over() -> None:
    tracker = ResponseTracker(ResponseRule(max_messages=-1, expires_ns=SECOND_NS))
    tracker.remember(b"reply", 0)
    assert tracker.take(b"reply", SECOND_NS)
    assert not tracker.take(b"reply", SECOND_NS + 1)
    assert len(tracker) == 0


def test_reply_seen_again_starts_anew() -> None:
    tracker = ResponseTracker(ResponseRule(max_messages=1, expires_ns=SECOND_NS))
    tracker.remember(b"reply", 0)
    tracker.remember(b"reply", SECOND_NS)
    assert tracker.take(b"reply", 2 * SECOND_NS)
    assert not tracker.take(b"reply", 2 * SECOND_NS)


def test_negative_bounds_mean_no_bound() -> None:
    tracker = ResponseTracker(ResponseRule(max_messages=-1, expires_ns=-1))
    tracker.remember(b"reply", 0)
    assert all(tracker.take(b"reply", 10**18) for _ in range(100))


def test_tracker_forgets_the_oldest_reply_when_it_is_full() -> None:
    tracker = ResponseTracker(ResponseRule())
    for number in range(RESPONSES_TRACKED_MAX + 1):
        tracker.remember(b"reply.%d" % number, number)
    assert len(tracker) == RESPONSES_TRACKED_MAX
    assert not tracker.take(b"reply.0", 0)
    assert tracker.take(b"reply.1", 0)


def test_expired_replies_are_dropped_before_the_oldest_good_one() -> None:
    tracker = ResponseTracker(ResponseRule(expires_ns=SECOND_NS))
    for number in range(10):
        tracker.remember(b"old.%d" % number, 0)
    tracker.remember(b"new", 2 * SECOND_NS)
    assert len(tracker) == 1
