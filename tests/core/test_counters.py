"""Counters: numbers of any size, and totals of other streams that count once however often they come.

What is refused and what is stored is compared with a real server in tests/jetstream.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import counters, headers
from edged.core.api_errors import (
    MESSAGE_COUNTER_BROKEN,
    MESSAGE_INCREMENT_DISABLED,
    MESSAGE_INCREMENT_INVALID,
    MESSAGE_INCREMENT_MISSING,
    MESSAGE_INCREMENT_PAYLOAD,
)
from edged.core.counters import Counted

Stored = tuple[bytes, bytes]


def block(increment: str, *fields: tuple[str, str]) -> bytes:
    return headers.encode(
        (key.encode(), value.encode()) for key, value in (("Nats-Incr", increment), *fields)
    )


def add(
    increment: str, last: Stored | None = None, *fields: tuple[str, str], payload: bytes = b""
) -> Counted:
    found = counters.counted(b"here", block(increment, *fields), payload, last)
    assert isinstance(found, Counted), found
    return found


def stored(counted: Counted) -> Stored:
    return counted.block, counted.payload


def sourced(total: int, origin: str, last: Stored | None = None) -> Counted:
    return add("1", last, ("Nats-Stream-Source", origin), payload=b'{"val":"%d"}' % total)


@given(st.lists(st.integers(-(10**400), 10**400), min_size=1, max_size=8))
def test_the_total_is_the_sum_of_the_increments(increments: list[int]) -> None:
    last = None
    for increment in increments:
        found = add(str(increment), last)
        last = stored(found)
    assert found.value == str(sum(increments))
    assert json.loads(found.payload) == {"val": found.value}
    assert counters.value_of(found.payload) == found.value


def test_numbers_longer_than_python_converts_by_itself_are_exact() -> None:
    nines = "9" * 20_000
    found = add("1", stored(add(nines)))
    assert found.value == "1" + "0" * 20_000
    assert add("-1", stored(found)).value == nines
    assert add("-" + nines, stored(add("0"))).value == "-" + nines
    assert add("-" + nines, stored(add("+00" + nines))).value == "0"


def test_a_number_that_no_header_could_hold_is_refused() -> None:
    longest = "1" * counters.DIGITS_MAX
    assert counters.refusal(block(longest), 0, allowed=True, sourced=False) is None
    assert counters.refusal(block(longest + "1"), 0, True, False) == MESSAGE_INCREMENT_INVALID
    enormous = (b"", b'{"val":"%b"}' % (b"1" * 200_000))
    assert counters.counted(b"here", block("1"), b"", enormous) == MESSAGE_COUNTER_BROKEN


def test_a_message_from_elsewhere_is_only_asked_whether_its_number_is_one() -> None:
    assert counters.refusal(block("5"), 12, allowed=False, sourced=True) is None
    assert counters.refusal(block("x"), 12, allowed=False, sourced=True) == MESSAGE_INCREMENT_INVALID
    assert counters.refusal(block("5"), 12, allowed=False, sourced=False) == MESSAGE_INCREMENT_DISABLED
    assert counters.refusal(block("5"), 12, allowed=True, sourced=False) == MESSAGE_INCREMENT_PAYLOAD
    assert counters.refusal(b"", 12, allowed=True, sourced=False) is None
    assert counters.counted(b"here", b"", b"", None) == MESSAGE_INCREMENT_MISSING


def test_totals_of_other_streams_count_once_whatever_was_missed_or_comes_again() -> None:
    first = sourced(5, "one 1 > > a")
    assert first.value == "5"
    again = sourced(5, "one 1 > > a", stored(first))
    assert again.value == "5" and headers.value(again.block, b"Nats-Incr") == b"0"
    later = sourced(50, "one 9 > > a", stored(again))
    assert later.value == "50" and headers.value(later.block, b"Nats-Incr") == b"45"
    other = sourced(7, "two 1 > > a", stored(later))
    own = add("100", stored(other))
    assert own.value == "157"
    assert json.loads(headers.value(own.block, b"Nats-Counter-Sources") or b"") == {
        "one": {"a": "50"},
        "two": {"a": "7"},
    }


def test_an_origin_without_a_subject_counts_for_the_subject_here() -> None:
    found = sourced(5, "one 1")
    assert headers.value(found.block, b"Nats-Counter-Sources") == b'{"one":{"here":"5"}}'


def test_the_noted_totals_are_written_as_go_writes_json() -> None:
    found = sourced(1, "o<&> 1 > > s\u2028\u00e4", stored(sourced(2, "a 1 > > z")))
    text = headers.value(found.block, b"Nats-Counter-Sources")
    assert text == '{"a":{"z":"2"},"o\\u003c\\u0026\\u003e":{"s\\u2028\u00e4":"1"}}'.encode()


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (b'{"val":"12abc"}', "13"),
        (b'{"val":"abc"}', "1"),
        (b'{"val":""}', "1"),
        (b"{}", "1"),
        (b"null", "1"),
        (b'{"VAL":"4","x":[1]}', "5"),
        (b'{"val":null}', "1"),
    ],
)
def test_a_total_counts_as_far_as_it_is_one(payload: bytes, expected: str) -> None:
    assert add("1", (b"", payload)).value == expected


@pytest.mark.parametrize(
    "payload", [b"", b"5", b"[]", b'"5"', b'{"val":5}', b'{"val"', b"\xff\xfe", b"[" * 100_000, b'{"x":NaN}']
)
def test_what_is_no_counter_breaks_it(payload: bytes) -> None:
    assert counters.counted(b"here", block("1"), b"", (b"", payload)) == MESSAGE_COUNTER_BROKEN
    origin = block("1", ("Nats-Stream-Source", "o 1"))
    assert counters.counted(b"here", origin, payload, None) == MESSAGE_COUNTER_BROKEN
