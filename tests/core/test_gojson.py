"""JSON requests and times as Go reads them, and its words for what is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.gojson import JsonError, Number, document, documents
from edged.core.gojson_time import Instant, format_instant, parse_instant
from edged.core.gotime import SECOND, format_rfc3339


def complaint(payload: bytes) -> str:
    with pytest.raises(JsonError) as raised:
        list(documents(payload))
    return str(raised.value)


def test_a_payload_may_have_no_value_or_several() -> None:
    assert list(documents(b" \n")) == []
    assert list(documents(b'{"a":1} [2]\tnull')) == [{"a": 1}, [2], None]


def test_values_before_the_damage_are_given() -> None:
    found = documents(b'{"a":1} x')

    assert next(found) == {"a": 1}
    with pytest.raises(JsonError, match="'x' looking for beginning of value at offset 9"):
        next(found)


def test_numbers_that_are_no_integers_of_64_bits_stay_as_written() -> None:
    (found,) = documents(b"[1, -1, 18446744073709551615, 1.50, 1e3, -0, 18446744073709551616]")

    assert found == [1, -1, 2**64 - 1, "1.50", "1e3", "-0", "18446744073709551616"]
    assert [type(number) for number in found] == [int] * 3 + [Number] * 4


def test_a_number_of_any_length_is_read_in_no_time() -> None:
    (found,) = documents(b"9" * 100_000)

    assert len(found) == 100_000


def test_what_is_no_utf8_becomes_replacement_characters_only_where_it_is_read_as_text() -> None:
    (found,) = documents(b'"\xff"')

    assert found == "\udcff"
    assert (
        complaint(b'{"\xff": \xff}') == r"invalid character '\xff' looking for beginning of value at offset 7"
    )


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"a":1', "unexpected EOF"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string at offset 2"),
        (b'{"a" 1}', "invalid character '1' after object key at offset 6"),
        (b'{"a":1 2}', "invalid character '2' after object key:value pair at offset 8"),
        (b"[1 2]", "invalid character '2' after array element at offset 4"),
        (b"[1,]", "invalid character ']' looking for beginning of value at offset 4"),
        (b"[01]", "invalid character '1' after array element at offset 3"),
        (b"[1.]", "invalid character ']' in numeric literal at offset 4"),
        (b"1.x", "invalid character 'x' in numeric literal at offset 3"),
        (b"trie", "invalid character 'i' in literal true (expecting 'u') at offset 3"),
        (b"NaN", "invalid character 'N' looking for beginning of value at offset 1"),
        (b'"a\nb"', r"invalid character '\n' in string at offset 3"),
        (rb'"\x"', r"invalid escape sequence `\x` in string at offset 3"),
        (rb'"\u12', "unexpected EOF"),
        (rb'"\u12G4"', r"invalid escape sequence `\u12G4` in string at offset 7"),
        (b"'a'", r"invalid character '\'' looking for beginning of value at offset 1"),
        (b"[" * 500 + b"x", "invalid character 'x' looking for beginning of value at offset 501"),
        (b"[" * 100_000, "exceeded max depth at offset 10001"),
    ],
)
def test_the_words_for_what_is_no_json(payload: bytes, words: str) -> None:
    assert complaint(payload) == words


@given(st.binary(max_size=40) | st.text('{}[]",:0-1e.truefalsn \\u', max_size=40).map(str.encode))
def test_any_bytes_give_the_values_of_the_json_module_or_a_complaint(payload: bytes) -> None:
    try:
        found = list(documents(payload))
    except JsonError:
        with pytest.raises(ValueError):
            json.loads(payload.decode("utf-8", "replace"), parse_constant=int)
    else:
        for document in found:
            json.dumps(document)


@given(st.integers(-(10**4), 10**4), st.integers(0, 10**9 - 1), st.integers(-1439, 1439))
def test_an_instant_that_is_shown_is_read_again(days: int, fraction_ns: int, zone_minutes: int) -> None:
    instant = Instant(days * 86_400 * SECOND + fraction_ns, zone_minutes)

    assert parse_instant(format_instant(instant)) == instant


@given(st.integers(-62_135_596_800 * SECOND, 253_402_300_799 * SECOND))
def test_an_instant_in_utc_is_shown_like_any_other_time(ns: int) -> None:
    assert format_instant(Instant(ns)) == format_rfc3339(ns)


def test_the_year_zero_is_a_year() -> None:
    assert format_instant(parse_instant("0000-02-29T00:00:00Z")) == "0000-02-29T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("2020-1-01", 'parsing time "2020-1-01" as "2006-01-02T15:04:05Z07:00": cannot parse "1-01" as "01"'),
        ("2020-13-01T00:00:00Z", 'parsing time "2020-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2020-01-00T00:00:00Z", 'parsing time "2020-01-00T00:00:00Z": day out of range'),
        ("2020-01-01T24:00:00Z", 'parsing time "2020-01-01T24:00:00Z": hour out of range'),
        ("2020-01-01T00:00:00Z ", 'parsing time "2020-01-01T00:00:00Z ": extra text: " "'),
        (
            "2020-01-01T00:00:00+25:00",
            'parsing time "2020-01-01T00:00:00+25:00": time zone offset hour out of range',
        ),
    ],
)
def test_the_words_for_what_is_no_time(text: str, words: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_instant(text)
    assert str(raised.value) == words


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a":', "unexpected end of JSON input"),
        (b'{"a":1} {"b":2}', "invalid character '{' after top-level value"),
        (b"no", "invalid character 'o' in literal null (expecting 'u')"),
    ],
)
def test_a_payload_that_must_be_one_document_is_refused_without_an_offset(payload: bytes, words: str) -> None:
    with pytest.raises(JsonError) as refused:
        document(payload)
    assert str(refused.value) == words


def test_one_document_may_have_blanks_around_it() -> None:
    assert document(b' \r\n{"a": [1]}\t') == {"a": [1]}
