"""Subjects against tables of what nats-server answers, and against a brute-force enumerator."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import subjects

# `c` occurs in no pattern: it stands for all the tokens that a pattern does not name.
LITERALS = [
    b".".join(parts) for size in range(1, 5) for parts in itertools.product([b"a", b"b", b"c"], repeat=size)
]

LONG = b".".join([b"t"] * 10_000)


def brute_matches(subject: bytes, pattern: bytes) -> bool:
    """Matching as the definition says it, one token at a time."""
    have, want = subject.split(b"."), pattern.split(b".")
    while want:
        if want == [b">"]:
            return len(have) >= 1
        if not have or want[0] not in (b"*", have[0]):
            return False
        have, want = have[1:], want[1:]
    return not have


def patterns() -> st.SearchStrategy[bytes]:
    token = st.sampled_from([b"a", b"b", b"*"])
    return st.builds(
        lambda body, tail: b".".join([*body[:2], b">"] if tail else body),
        st.lists(token, min_size=1, max_size=3),
        st.booleans(),
    )


@pytest.mark.parametrize(
    "subject",
    [
        b"a",
        b"a.b",
        b"*",
        b">",
        b"a.*.b",
        b"a.>",
        b"foo*",
        b"*foo",
        b">a",
        b"a.>>",
        b"a**",
        b"\xff\xfe.\x00",
        LONG,
    ],
)
def test_valid_subscription_accepts_what_nats_server_accepts(subject: bytes) -> None:
    assert subjects.valid_subscription(subject)


@pytest.mark.parametrize(
    "subject",
    [
        b"",
        b".",
        b".a",
        b"a.",
        b"a..b",
        b">.a",
        b"a.>.b",
        b"a b",
        b"a\tb",
        b"a\r",
        b"\n",
        b"a.\f",
        LONG + b".",
    ],
)
def test_valid_subscription_refuses_empty_tokens_blanks_and_an_inner_tail(subject: bytes) -> None:
    assert not subjects.valid_subscription(subject)
    assert not subjects.valid_literal(subject)


@pytest.mark.parametrize(
    ("subject", "literal"),
    [
        (b"a.b", True),
        (b"foo*", True),
        (b">a.b", True),
        (b"*", False),
        (b"a.*", False),
        (b"a.>", False),
        (b"a.>.b", False),
    ],
)
def test_literal_is_the_absence_of_wildcard_tokens(subject: bytes, literal: bool) -> None:
    assert subjects.is_literal(subject) is literal
    assert subjects.valid_literal(subject) is literal


@pytest.mark.parametrize(
    ("subject", "pattern", "expected"),
    [
        (b"foo.*", b"foo.*", True),
        (b"foo.*", b"foo.>", True),
        (b"foo.*", b">", True),
        (b"foo.*", b"foo.bar", False),
        (b"foo.>", b"foo.*", True),
        (b"foo.>", b"foo.>", True),
        (b"a.>.b", b"a.*.b", True),
        (b"foo", b"foo*", False),
        (b"foo*", b"foo*", True),
        (b"xfoo", b"*foo", False),
        (b"a", b"a.>", False),
        (b"a..b", b">", False),
        (b"a..b", b"a..b", False),
        (b"a..b", b"a.*.b", False),
        (b".a", b"*.a", False),
        (b"a.", b"a.>", False),
        (b"", b">", False),
        (b"", b"*", False),
        (b"\xff.\xfe", b"*.\xfe", True),
        (b"A", b"a", False),
    ],
)
def test_published_wildcards_are_plain_tokens_and_empty_tokens_match_nothing(
    subject: bytes, pattern: bytes, expected: bool
) -> None:
    assert subjects.matches(subject, pattern) is expected


@given(st.sampled_from(LITERALS), patterns())
def test_matches_agrees_with_the_definition(subject: bytes, pattern: bytes) -> None:
    assert subjects.matches(subject, pattern) is brute_matches(subject, pattern)


@given(patterns(), patterns())
def test_subset_and_overlap_agree_with_enumeration(first: bytes, second: bytes) -> None:
    matched_first = {literal for literal in LITERALS if brute_matches(literal, first)}
    matched_second = {literal for literal in LITERALS if brute_matches(literal, second)}
    assert subjects.is_subset(first, second) is (matched_first <= matched_second)
    assert subjects.overlaps(first, second) is bool(matched_first & matched_second)


@pytest.mark.parametrize("pattern", [b"a.b", b"*.b", b">", b"foo*"])
def test_a_pattern_is_a_subset_of_itself_and_overlaps_itself(pattern: bytes) -> None:
    assert subjects.is_subset(pattern, pattern)
    assert subjects.overlaps(pattern, pattern)


def test_subset_does_not_take_a_token_that_begins_with_a_star_for_a_wildcard() -> None:
    assert not subjects.is_subset(b"a.b", b"a.*b")
    assert not subjects.overlaps(b"a.b", b"a.*b")


def test_ten_thousand_tokens_are_compared_in_one_pass() -> None:
    stars = b".".join([b"*"] * 10_000)
    assert subjects.token_count(LONG) == 10_000
    assert subjects.matches(LONG, stars)
    assert subjects.matches(LONG, LONG[:-1] + b">")
    assert subjects.is_subset(LONG, stars)
    assert not subjects.is_subset(stars, LONG)
    assert subjects.overlaps(LONG, stars)
    assert not subjects.matches(LONG + b".t", stars)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_get_an_answer(first: bytes, second: bytes) -> None:
    for question in (subjects.matches, subjects.is_subset, subjects.overlaps):
        assert question(first, second) in (True, False)
    for check in (subjects.valid_subscription, subjects.valid_literal, subjects.is_literal):
        assert check(first) in (True, False)
    assert b".".join(subjects.tokens(first)) == first
    assert subjects.token_count(first) == (len(subjects.tokens(first)) if first else 0)


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_what_a_valid_pattern_matches_is_a_subset_of_it_when_literal(subject: bytes, pattern: bytes) -> None:
    if subjects.valid_literal(subject) and subjects.valid_subscription(pattern):
        assert subjects.matches(subject, pattern) is subjects.is_subset(subject, pattern)
        assert subjects.matches(subject, pattern) is subjects.overlaps(subject, pattern)


@pytest.mark.parametrize("name", ["ORDERS", "a-b_c", "ü" * 127, "x" * 255, "$KV", "\x00"])
def test_asset_name_accepts_a_token_of_at_most_255_bytes(name: str) -> None:
    assert subjects.valid_asset_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a.b", "a b", "*", ">", "a*", "a/b", "a\\b", "a\t", "\f", "x" * 256, "ü" * 128, "\ud800" * 86],
)
def test_asset_name_refuses_separators_wildcards_paths_and_long_names(name: str) -> None:
    assert not subjects.valid_asset_name(name)
