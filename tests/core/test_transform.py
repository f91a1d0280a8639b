"""Subject transforms against tables of results, and against the definition of each function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.transform import SubjectTransform, TransformError, fnv1a_32, with_placeholders

RESULTS = [
    ("orders", "new.orders", b"orders", b"new.orders"),
    ("", "edge.>", b"a", b"edge.a"),
    ("", "edge.>", b"a.b.c", b"edge.a.b.c"),
    ("dev.>", "site.7.>", b"dev.x.y.z", b"site.7.x.y.z"),
    ("dev.>", ">", b"dev.x.y", b"x.y"),
    ("dev.*.>", "$1.in.>", b"dev.x.y.z", b"x.in.y.z"),
    ("dev.*.temp.*", "$2.$1", b"dev.x.temp.y", b"y.x"),
    ("dev.*.temp.*", "t.{{wildcard(2)}}.{{ Wildcard ( 1 ) }}", b"dev.x.temp.y", b"t.y.x"),
    ("dev.*.*", "only.$2", b"dev.x.y", b"only.y"),
    ("dev.*", "$1.$1", b"dev.x", b"x.x"),
    ("dev.*", "b.$+1", b"dev.x", b"b.x"),
    ("dev.*", "b.$01", b"dev.x", b"b.x"),
    # Zero and negative indexes name the first token.
    ("dev.*", "b.$0.{{wildcard(-4)}}", b"dev.x", b"b.dev.dev"),
    (">", "{{left(0,2)}}.>", b"abc.d", b"ab.abc.d"),
    # What is not a number after a dollar, or not quite a function, is a literal.
    (
        "dev.*",
        "$JS.$1x.$.{{}}.{{a.x{{wildcard(1)}}.b}}",
        b"dev.x",
        b"$JS.$1x.$.{{}}.{{a.x{{wildcard(1)}}.b}}",
    ),
    ("dev.*", "$99999999999999999999", b"dev.x", b"$99999999999999999999"),
    ("*", "{{splitfromleft(1,2)}}", b"abcde", b"ab.cde"),
    ("*", "{{splitFromRight(1, 2)}}", b"abcde", b"abc.de"),
    ("*", "{{SplitFromLeft(1,5)}}.{{splitfromright(1,0)}}", b"abcde", b"abcde.abcde"),
    ("*", "{{slicefromleft(1,2)}}", b"abcde", b"ab.cd.e"),
    ("*", "{{slicefromleft(1,2)}}", b"abcd", b"ab.cd"),
    ("*", "{{slicefromright(1,2)}}", b"abcde", b"a.bc.de"),
    ("*", "{{ SliceFromRight ( 1 , 2 ) }}", b"abcd", b"ab.cd"),
    ("*", "{{slicefromleft(1,-1)}}.{{slicefromright(1,9)}}", b"abcd", b"abcd.abcd"),
    ("*", "{{left(1,3)}}.{{Left(1,4)}}.{{left(1,0)}}", b"abcd", b"abc.abcd.abcd"),
    ("*", "{{right(1,3)}}.{{Right(1,9)}}.{{right(1,-2)}}", b"abcd", b"bcd.abcd.abcd"),
    ("*", "{{split(1,-)}}", b"-a-b--c-", b"a.b.c"),
    ("*", "{{split(1, --)}}", b"a--b-c", b"a.b-c"),
    ("*", "{{Split(1,-)}}", b"abc", b"abc"),
    ("*", "x.{{split(1,-)}}.y", b"--a", b"x.a.y"),
    ("*", "{{split(1,)}}", "é€x".encode(), "é.€.x".encode()),
    ("*", "{{split(1,)}}", b"\xff\xe2\x82z", b"\xff.\xe2.\x82.z"),
    ("*.*", "{{split(2,_)}}.{{splitfromleft(1,1)}}", b"ab.c_d", b"c.d.a.b"),
    ("*", "p.{{partition(10)}}", b"foo", b"p.3"),
    ("*.*", "p.{{Partition(10)}}", b"foo.bar", b"p.6"),
    ("*.*", "p.{{partition(100,1,2)}}", b"foo.bar", b"p.20"),
    ("*.*", "p.{{partition(100, 2 , 1)}}", b"bar.foo", b"p.20"),
    ("*", "p.{{partition(10,0)}}", b"foo", b"p.3"),
    ("foo.bar", "p.{{partition(10)}}", b"foo.bar", b"p.6"),
    ("foo.bar", "p.{{partition(10,1)}}", b"foo.bar", b"p.6"),
    ("*", "p.{{partition(0)}}", b"foo", b"p.0"),
    ("a.*", "b.{{partition(-3)}}", b"a.abcdef-gh", b"b.2478055083"),
    ("a.*", "b.{{partition(-2147483649)}}", b"a.x", b"b.713825786"),
    ("a.*", "b.{{partition(2147483647)}}", b"a.x", b"b.713825786"),
    ("a.*", "", b"a.x", b"a.x"),
    ("", "", b"any.thing", b"any.thing"),
    (">", ">", b"odd..*", b"odd..*"),
    ("\u00e9.*", "$1.\u00e9", b"\xc3\xa9.x", b"x.\xc3\xa9"),
]

REFUSED = [
    ("a..b", "x", "not a valid subject"),
    ("a b", "x", "not a valid subject"),
    ("a.>.b", "x", "not a valid subject"),
    ("a", "x..y", "empty token"),
    ("a", "x.", "empty token"),
    ("a.*", "x.*", "write $1 or {{wildcard(1)}}"),
    ("a.>", "x.>.y", "before its end"),
    ("a.*", "x.$1.>", "must both end"),
    ("a.>", "x.y", "must both end"),
    ("a.*", "x y", "has a blank"),
    ("a.*", "x.y\t", "has a blank"),
    ("a.*", "x.$2", "does not have that wildcard"),
    ("a.*", "x.{{wildcard(2)}}", "does not have that wildcard"),
    ("a.>", "x.$1.>", "does not have that wildcard"),
    ("a.*", "x.{{partition(3,1,2)}}", "does not have that wildcard"),
    ("a", "x.$1", "needs a wildcard"),
    ("a", "x.{{left(0,1)}}", "needs a wildcard"),
    ("a.*", "x.{{nothing(1)}}", "not a function"),
    ("a.*", "x.{{WILDCARD(1)}}", "not a function"),
    ("a.*", "x.{{sPlit(1,-)}}", "not a function"),
    ("a.*", "x.{{wildcard 1}}", "not a function"),
    ("a.*", "x.{{ wildcard1) }}", "not a function"),
    ("a.*", "x.{{wildcard()}}", "takes 1 argument, not 0"),
    ("a.*", "x.{{wildcard(1,2)}}", "takes 1 argument, not 2"),
    ("a.*", "x.{{wildcard(one)}}", "not a number"),
    ("a.*", "x.{{wildcard(1_0)}}", "not a number"),
    ("a.*", "x.{{wildcard(\u0663)}}", "not a number"),
    ("a.*", "x.{{wildcard(1)}}{{wildcard(1)}}", "not a number"),
    ("a.*", "x.{{wildcard(" + "9" * 5000 + ")}}", "not a number"),
    ("a.*", "x.{{partition()}}", "not a number"),
    ("a.*", "x.{{partition(10,1, )}}", "not a number"),
    ("a.*", "x.{{partition(2147483648)}}", "out of range"),
    ("a.*", "x.{{partition(-9223372036854775809)}}", "not a number"),
    ("a.*", "x.{{random()}}", "takes 1 argument, not 0"),
    ("a.*", "x.{{random(1,2)}}", "takes 1 argument, not 2"),
    ("a.*", "x.{{random(2147483648)}}", "out of range"),
    ("a.*", "x.{{left(1)}}", "takes 2 arguments, not 1"),
    ("a.*", "x.{{slicefromleft(1,2,3)}}", "takes 2 arguments, not 3"),
    ("a.*", "x.{{splitfromright(1,-2147483649)}}", "out of range"),
    ("a.*", "x.{{splitfromleft(1,99999999999)}}", "out of range"),
    ("a.*", "x.{{split(1)}}", "takes 2 arguments, not 1"),
    ("a.*", "x.{{split(1,-,-)}}", "takes 2 arguments, not 3"),
    ("a.*", "x.{{split(1,- )}}", "may not have a blank"),
]


@pytest.mark.parametrize(("source", "destination", "subject", "expected"), RESULTS)
def test_apply_gives_the_expected_subject(
    source: str, destination: str, subject: bytes, expected: bytes
) -> None:
    transform = SubjectTransform.parse(source, destination)
    assert not transform.needs_chance
    assert transform.apply(subject) == expected
    assert SubjectTransform.parse(source.encode(), destination.encode()).apply(subject) == expected


@pytest.mark.parametrize(("source", "destination", "message"), REFUSED)
def test_what_cannot_be_used_is_refused_with_a_reason(source: str, destination: str, message: str) -> None:
    with pytest.raises(TransformError) as caught:
        SubjectTransform.parse(source, destination)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("source", "destination", "subject"),
    [
        ("a.*", "b.$1", b"a"),
        ("a.*", "b.$1", b"a.b.c"),
        ("a.*", "b.$1", b"x.b"),
        ("a.>", "b.>", b"a"),
        ("a", "b", b"a.b"),
        ("a.*", "", b"b.x"),
        # Wildcards and empty tokens that were published are no literals; a transform leaves them alone.
        ("a.*", "b.$1", b"a.*"),
        ("a.>", "b.>", b"a.>"),
        ("a.>", "b.>", b"a..b"),
        ("", "b.>", b""),
        ("*foo", "b", b"xfoo"),
    ],
)
def test_a_subject_that_the_source_does_not_match_gives_none(
    source: str, destination: str, subject: bytes
) -> None:
    assert SubjectTransform.parse(source, destination).apply(subject) is None


def test_random_asks_for_a_number_below_its_bound_each_time() -> None:
    asked: list[int] = []

    def draw(bound: int) -> int:
        asked.append(bound)
        return bound - 1

    transform = SubjectTransform.parse("a.*", "b.{{random(6)}}.$1.{{ Random ( -4 ) }}.{{random(0)}}")
    assert transform.needs_chance
    assert transform.apply_with_chance(b"a.x", draw) == b"b.5.x.3.0"
    assert asked == [6, 4]
    assert transform.apply_with_chance(b"other", draw) is None
    assert asked == [6, 4]


def test_random_works_with_a_literal_source() -> None:
    assert SubjectTransform.parse("a", "b.{{random(9)}}").apply_with_chance(b"a", lambda bound: 7) == b"b.7"


def test_fnv1a_has_the_published_values() -> None:
    assert fnv1a_32(b"") == 0x811C9DC5
    assert fnv1a_32(b"a") == 0xE40C292C
    assert fnv1a_32(b"foobar") == 0xBF9CF968


@pytest.mark.parametrize(
    ("source", "destination", "subject"),
    [
        ("a", "b.c", b"a"),
        ("foo.*.*", "bar.$2.{{Wildcard(1)}}", b"foo.x.y"),
        # With three wildcards the way back is not the way there.
        ("foo.*.*.*", "bar.$2.$3.$1", b"foo.x.y.z"),
        ("foo.*.>", "$1.bar.>", b"foo.x.y.z"),
        ("foo.>", ">", b"foo.x.y"),
        (">", ">", b"x"),
        ("$JS.*.>", "api.$1.>", b"$JS.x.y"),
    ],
)
def test_a_strict_transform_can_be_reversed(source: str, destination: str, subject: bytes) -> None:
    transform = SubjectTransform.parse(source, destination, strict=True)
    made = transform.apply(subject)
    assert made is not None
    assert made != subject or source == destination
    assert transform.reverse().apply(made) == subject
    assert transform.reverse().reverse().apply(subject) == made


def test_reverse_source_is_the_pattern_of_what_the_transform_makes() -> None:
    assert SubjectTransform.parse("a.*.*", "b.$2.c.$1").reverse().source == b"b.*.c.*"


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("a.*.*", "b.$1", "every wildcard"),
        ("a.*", "b.$foo", "every wildcard"),
        ("a.*", "b.$1.$1", "every wildcard"),
        ("a.*.*", "b.$1.$1", "every wildcard"),
        ("a.*", "b.$0", "every wildcard"),
        ("a.*", "b.{{partition(2,1)}}", "only use wildcards"),
        ("a.*", "b.$1.{{random(2)}}", "only use wildcards"),
        ("a", "b.{{partition(2)}}", "only use wildcards"),
        ("$1.*", "b.$1", "read as a function"),
    ],
)
def test_a_strict_transform_that_loses_something_is_refused(
    source: str, destination: str, message: str
) -> None:
    SubjectTransform.parse(source, destination)
    with pytest.raises(TransformError, match=message):
        SubjectTransform.parse(source, destination, strict=True)


def test_placeholders_keep_what_the_pattern_matches() -> None:
    assert with_placeholders(b"a.*.b.*.>") == b"a.$1.b.$2.>"
    assert SubjectTransform.parse(b"a.*.*", with_placeholders(b"a.*.*")).apply(b"a.x.y") == b"a.x.y"


TOKEN = st.binary(min_size=1, max_size=30).filter(
    lambda token: b"." not in token and token not in (b"*", b">")
)


@given(TOKEN, st.integers(-3, 40))
def test_cutting_a_token_loses_no_bytes(token: bytes, size: int) -> None:
    for name in ("splitfromleft", "splitfromright", "slicefromleft", "slicefromright"):
        made = SubjectTransform.parse("*", f"{{{{{name}(1,{size})}}}}").apply(token)
        assert made is not None
        pieces = made.split(b".")
        assert b"".join(pieces) == token
        assert b"" not in pieces
        if 0 < size < len(token) and name.startswith("slice"):
            short = pieces.pop(0 if name.endswith("right") else -1)
            assert len(short) <= size
            assert all(len(piece) == size for piece in pieces)


@given(TOKEN, st.integers(1, 1000))
def test_partition_is_below_its_bound_and_depends_on_the_token_only(token: bytes, partitions: int) -> None:
    transform = SubjectTransform.parse("*.*", f"{{{{partition({partitions},1)}}}}")
    first, second = transform.apply(token + b".a"), transform.apply(token + b".b")
    assert first == second
    assert first is not None
    assert int(first) == fnv1a_32(token) % partitions


def ragged(alphabet: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(alphabet), max_size=8).map("".join)


@given(
    ragged([".", "*", ">", "a", "$1", " ", "{{"]),
    ragged(
        [
            "{{",
            "}}",
            "(",
            ")",
            "split",
            "Wildcard",
            "partition",
            "random",
            "left",
            "$",
            "1",
            "-2",
            ",",
            ".",
            ">",
            " ",
        ]
    ),
    st.booleans(),
    st.binary(max_size=20),
)
def test_any_text_is_a_transform_or_a_transform_error(
    source: str, destination: str, strict: bool, subject: bytes
) -> None:
    try:
        transform = SubjectTransform.parse(source, destination, strict)
    except TransformError:
        return
    for candidate in (subject, b"a.a", b"a"):
        made = transform.apply_with_chance(candidate, lambda bound: 0)
        assert made is None or isinstance(made, bytes)


@given(
    st.binary(max_size=20) | st.text(max_size=20), st.binary(max_size=20) | st.text(max_size=20), st.binary()
)
def test_any_bytes_and_any_text_are_total(
    source: bytes | str, destination: bytes | str, subject: bytes
) -> None:
    try:
        transform = SubjectTransform.parse(source, destination)
    except TransformError:
        return
    transform.apply_with_chance(subject, lambda bound: 0)


def test_half_a_surrogate_pair_from_json_is_a_token_and_not_a_crash() -> None:
    assert SubjectTransform.parse("a", "\ud800").apply(b"a") == b"\xed\xa0\x80"


def test_ten_thousand_tokens_are_parsed_applied_and_reversed() -> None:
    source = ".".join(["*"] * 10_000)
    destination = ".".join(f"${index}" for index in range(10_000, 0, -1))
    transform = SubjectTransform.parse(source, destination, strict=True)
    subject = b".".join(b"%d" % index for index in range(10_000))
    made = transform.apply(subject)
    assert made == b".".join(reversed(subject.split(b".")))
    assert transform.reverse().apply(made) == subject
    with pytest.raises(TransformError):
        SubjectTransform.parse("*", "{{split(" * 20_000 + "}}")
    with pytest.raises(TransformError):
        SubjectTransform.parse("*", "{{split(1," + ") " * 50_000 + "x}}")
