"""Subjects, permissions and the subscription list against models that are slow and obvious.

The input is cut at blanks: each piece is a subject, a pattern, or the name of a queue.
"""

from __future__ import annotations

import itertools

from edged.core import subjects
from edged.core.permissions import Permissions, SubscribeEntry
from edged.core.sublist import SubscriptionList
from tests.fuzz.target import Target

PIECES_MAX = 12


def matches_model(subject: list[bytes], pattern: list[bytes]) -> bool:
    """Token by token, from the definition."""
    if not subject or not pattern:
        return not subject and not pattern
    if pattern == [b">"]:
        return True
    return pattern[0] in (b"*", subject[0]) and matches_model(subject[1:], pattern[1:])


def pieces_of(data: bytes) -> list[bytes]:
    return data.split(b" ")[:PIECES_MAX]


def run_subjects(data: bytes) -> None:
    pieces = pieces_of(data)
    for one, other in itertools.product(pieces, repeat=2):
        first, second = one.split(b"."), other.split(b".")
        valid = b"" not in first
        found = subjects.matches(one, other)
        if len(first) < 50:
            assert found == (valid and matches_model(first, second)), (one, other)
        assert subjects.overlaps(one, other) == subjects.overlaps(other, one), (one, other)
        if subjects.is_subset(one, other):
            assert subjects.overlaps(one, other), (one, other)
        if subjects.valid_subscription(one) and subjects.valid_subscription(other):
            if subjects.is_literal(one):
                assert subjects.is_subset(one, other) == subjects.overlaps(one, other) == found
            elif subjects.is_subset(one, other) and subjects.is_subset(other, one):
                assert one == other
    for piece in pieces:
        tokens = piece.split(b".")
        assert subjects.has_empty_token(piece) == (b"" in tokens)
        assert subjects.is_literal(piece) == (not {b"*", b">"} & set(tokens))
        expected = b"" not in tokens and b">" not in tokens[:-1] and not set(piece) & set(b" \t\r\n\f")
        assert subjects.valid_subscription(piece) == expected, piece
        subjects.valid_asset_name(piece.decode("utf-8", "surrogateescape"))


def run_list(data: bytes) -> None:
    pieces = pieces_of(data)
    patterns = [piece for piece in pieces if subjects.valid_subscription(piece)]
    found: SubscriptionList[int] = SubscriptionList()
    for place, pattern in enumerate(patterns):
        found.insert(pattern, b"q" if place % 3 == 2 else None, place)
    removed = set(range(0, len(patterns), 4))
    for place in removed:
        assert found.remove(patterns[place], b"q" if place % 3 == 2 else None, place)
    left = [place for place in range(len(patterns)) if place not in removed]
    assert sorted(found) == left
    for subject in pieces:
        matched = found.match(subject)
        got = sorted([*matched.plain, *(item for _, items in matched.queues for item in items)])
        assert got == [place for place in left if subjects.matches(subject, patterns[place])], subject
        assert found.has_interest(subject) == bool(got)
        if subjects.valid_subscription(subject):
            near = [place for place in left if subjects.overlaps(subject, patterns[place])]
            assert sorted(found.reverse_match(subject)) == near, subject
    for place in left:
        assert found.remove(patterns[place], b"q" if place % 3 == 2 else None, place)
    assert len(found) == 0 and not list(found)


def run_permissions(data: bytes) -> None:
    """What a client may subscribe to and is sent is allowed and not denied, for every literal subject."""
    pieces = pieces_of(data)
    valid = [piece for piece in pieces if subjects.valid_subscription(piece)]
    third = len(valid) // 3
    allow, deny, wanted = valid[:third], valid[third : 2 * third], valid[2 * third :]
    permissions = Permissions(
        publish_allow=tuple(allow) or None,
        publish_deny=tuple(deny),
        subscribe_allow=tuple(map(SubscribeEntry, allow)) or None,
        subscribe_deny=tuple(map(SubscribeEntry, deny)),
    )
    literals = [piece for piece in pieces if subjects.is_literal(piece)]
    for literal in literals:
        allowed = not allow or any(subjects.matches(literal, entry) for entry in allow)
        denied = any(subjects.matches(literal, entry) for entry in deny)
        assert permissions.may_publish(literal) == (allowed and not denied), literal
        for pattern in wanted:
            if not (subjects.matches(literal, pattern) and permissions.may_subscribe(pattern)):
                continue
            delivered = permissions.may_deliver(literal)
            assert not delivered or (allowed and not denied), (pattern, literal)
            if not permissions.needs_delivery_check(pattern):
                assert allowed and not denied, (pattern, literal)


SEEDS = (
    b"a a.b a.b.c a.* *.b > a.> *.* a.*.c",
    b"foo foo.bar foo.* *.bar foo.> > foo.*.> *.*.bar foo.bar.baz",
    b"a..b .a a. . .. *.. >.a a.>.b *a a* >a",
    b"$JS.API.> $SYS.REQ.*.PING $JS.API.STREAM.INFO.* $JS.> $SYS.> a",
    b"a.b.c.d.e.f.g.h a.*.c.*.e.*.g.* *.b.*.d.*.f.*.h > a.b.c.d.>",
)
WORDS = (
    *(
        b".",
        b"*",
        b">",
        b" ",
        b"..",
        b"a",
        b"b",
        b".*",
        b".>",
        b"*.",
        b">.",
        b" a.b",
        b" *.b",
        b" >",
        b" a.*",
    ),
    *(b"foo", b".bar", b"$SYS", b"\xff", b"\x00", b"\t"),
)
TARGETS = (
    Target("subjects", run_subjects, SEEDS, WORDS, share=5),
    Target("sublist", run_list, SEEDS, WORDS, share=5),
    Target("permissions", run_permissions, SEEDS, WORDS, share=3),
)
