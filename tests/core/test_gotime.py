"""Go's durations and instants: tables of what Go prints and accepts, and round trips."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.gotime import (
    DURATION_MAX_NS,
    DURATION_MIN_NS,
    format_duration,
    format_rfc3339,
    parse_duration_ns,
    parse_rfc3339,
)

FORMATTED = [
    (0, "0s"),
    (1, "1ns"),
    (1100, "1.1\u00b5s"),
    (2_200_000, "2.2ms"),
    (250_000_000, "250ms"),
    (3_300_000_000, "3.3s"),
    (120_000_000_000, "2m0s"),
    (4 * 60_000_000_000 + 5_001_000_000, "4m5.001s"),
    (3_600_000_000_000, "1h0m0s"),
    (5 * 3_600_000_000_000 + 6 * 60_000_000_000 + 7_001_000_000, "5h6m7.001s"),
    (8 * 60_000_000_000 + 1, "8m0.000000001s"),
    (-1_500_000_000, "-1.5s"),
    (DURATION_MAX_NS, "2562047h47m16.854775807s"),
    (DURATION_MIN_NS, "-2562047h47m16.854775808s"),
]


@pytest.mark.parametrize(("ns", "text"), FORMATTED)
def test_duration_is_printed_as_go_prints_it(ns: int, text: str) -> None:
    assert format_duration(ns) == text
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("1m30s", 90_000_000_000),
        ("1.5h", 5_400_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("+5s", 5_000_000_000),
        ("30s1m", 90_000_000_000),
        ("1us", 1000),
        ("1\u03bcs", 1000),
        ("0.3333333333333333333h", 1_199_999_999_999),
    ],
)
def test_every_duration_form_of_go_is_understood(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        "3",
        "s",
        ".",
        "-.",
        ".s",
        "1d",
        "1.2.3s",
        "1 s",
        " 1s",
        "1s ",
        "--1s",
        "1S",
        "٣s",
        "3000000h",
        "9223372036854775.808ms",
        "1" * 10000 + "s",
    ],
)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ns(text)


@given(st.integers(DURATION_MIN_NS, DURATION_MAX_NS))
def test_duration_survives_the_round_trip(ns: int) -> None:
    assert parse_duration_ns(format_duration(ns)) == ns


@given(st.text(alphabet="0123456789.hmsnu\u00b5+- ", max_size=20))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        ns = parse_duration_ns(text)
    except ValueError:
        return
    assert DURATION_MIN_NS <= ns <= DURATION_MAX_NS


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000_000, "1970-01-01T00:00:01.5Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (1_767_225_600_000_000_000, "2026-01-01T00:00:00Z"),
        (1_767_225_600_120_000_000, "2026-01-01T00:00:00.12Z"),
    ],
)
def test_instant_is_printed_in_utc_with_the_shortest_fraction(ns: int | None, text: str) -> None:
    assert format_rfc3339(ns) == text
    if ns is not None:
        assert parse_rfc3339(text) == ns


def test_instant_with_a_zone_is_moved_to_utc() -> None:
    assert parse_rfc3339("2026-01-01T02:30:00+02:30") == 1_767_225_600_000_000_000
    assert parse_rfc3339("2025-12-31T19:00:00.5-05:00") == 1_767_225_600_500_000_000


def test_digits_after_the_ninth_of_a_fraction_are_cut() -> None:
    assert parse_rfc3339("1970-01-01T00:00:00.1234567899Z") == 123_456_789


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-13-01T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "2026-01-01T00:00:00",
        "2026-02-30T00:00:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00+99:00",
        "2026-01-01 00:00:00Z",
        "0000-01-01T00:00:00Z",
    ],
)
def test_text_that_is_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_rfc3339(text)


@given(st.integers(-62_135_596_800 * 10**9, 253_402_300_799 * 10**9))
def test_instant_survives_the_round_trip(ns: int) -> None:
    assert parse_rfc3339(format_rfc3339(ns)) == ns
