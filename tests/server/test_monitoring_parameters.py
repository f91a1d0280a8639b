"""Options of monitoring requests, in both forms."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.server.monitoring.answers import BadRequest, Rows
from edged.server.monitoring.connz import ConnzOptions
from edged.server.monitoring.gojson import compact, indented, number, round_trip, uptime
from edged.server.monitoring.healthz import HealthzOptions
from edged.server.monitoring.jsz import JszOptions
from edged.server.monitoring.parameters import (
    QUERY_FIELDS_MAX,
    ConnectionState,
    from_json,
    from_query,
    parse_query,
)

SECOND = 1_000_000_000


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_go_spellings_of_true_are_true(text: str) -> None:
    assert from_query(ConnzOptions, {"auth": text}).auth is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", ""])
def test_go_spellings_of_false_and_nothing_are_false(text: str) -> None:
    assert from_query(ConnzOptions, {"auth": text}).auth is False


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (
            "auth",
            "maybe",
            "Error decoding boolean for 'auth': strconv.ParseBool: parsing \"maybe\": invalid syntax",
        ),
        ("auth", " ", "Error decoding boolean for 'auth': strconv.ParseBool: parsing \" \": invalid syntax"),
        ("offset", "x", "Error decoding int for 'offset': strconv.Atoi: parsing \"x\": invalid syntax"),
        ("offset", "1_0", "Error decoding int for 'offset': strconv.Atoi: parsing \"1_0\": invalid syntax"),
        (
            "offset",
            "\u0663",
            "Error decoding int for 'offset': strconv.Atoi: parsing \"\u0663\": invalid syntax",
        ),
        (
            "limit",
            str(2**63),
            "Error decoding int for 'limit': strconv.Atoi: "
            'parsing "9223372036854775808": value out of range',
        ),
        ("cid", "-1", "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"-1\": invalid syntax"),
        (
            "cid",
            str(2**64),
            "Error decoding uint64 for 'cid': strconv.ParseUint: "
            'parsing "18446744073709551616": value out of range',
        ),
        ("state", "shut", "Error decoding state for shut"),
    ],
)
def test_a_bad_value_is_refused_in_the_words_of_nats_server(name: str, text: str, error: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        from_query(ConnzOptions, {name: text})
    assert (refusal.value.status, refusal.value.text) == (400, error)


def test_a_number_of_a_million_digits_is_refused_without_being_converted() -> None:
    with pytest.raises(BadRequest, match="out of range"):
        from_query(ConnzOptions, {"limit": "9" * 1_000_000})
    assert from_query(ConnzOptions, {"limit": "0" * 1_000_000 + "7"}).limit == 7


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_number_is_read_as_itself(value: int) -> None:
    assert from_query(ConnzOptions, {"offset": str(value)}).offset == value
    assert from_json(ConnzOptions, {"offset": value}).offset == value


@given(
    st.dictionaries(st.sampled_from(["auth", "offset", "limit", "cid", "state", "subs", "acc"]), st.text())
)
def test_no_query_does_worse_than_be_refused(query: dict[str, str]) -> None:
    try:
        from_query(ConnzOptions, query)
    except BadRequest as refusal:
        assert refusal.status == 400


def test_states_have_names_in_queries_and_numbers_in_json() -> None:
    for text, state in (("open", 0), ("Closed", 1), ("ALL", 2), ("any", 2)):
        assert from_query(ConnzOptions, {"state": text}).state is ConnectionState(state)
        assert from_json(ConnzOptions, {"state": state}).state is ConnectionState(state)


def test_subs_is_a_flag_or_asks_for_detail() -> None:
    assert from_query(ConnzOptions, {"subs": "1"}).subscriptions
    detailed = from_query(ConnzOptions, {"subs": "Detail"})
    assert detailed.subscriptions_detail and not detailed.subscriptions
    assert not from_query(ConnzOptions, {"subs=detail": "1"}).subscriptions_detail


def test_json_names_differ_from_query_names_where_nats_server_s_do() -> None:
    assert from_json(ConnzOptions, {"subscriptions": True, "acc": "A"}) == ConnzOptions(
        subscriptions=True, account="A"
    )
    assert from_json(JszOptions, {"account": "A", "consumer": True, "LEADER_ONLY": True}) == JszOptions(
        account="A", consumers=True, leader_only=True
    )
    assert from_json(HealthzOptions, {"js-server-only": True}).js_server_only
    assert from_query(JszOptions, {"acc": "A", "direct-consumers": "1"}) == JszOptions(
        account="A", direct_consumers=True
    )


def test_filters_of_the_system_account_and_null_are_ignored() -> None:
    assert from_json(ConnzOptions, {"server_name": "x", "tags": ["a"], "limit": None}) == ConnzOptions()


@pytest.mark.parametrize(
    "document",
    [
        {"auth": 1},
        {"offset": "1"},
        {"offset": True},
        {"offset": 1.0},
        {"cid": -1},
        {"state": 3},
        {"limit": 2**63},
    ],
)
def test_json_of_a_wrong_type_or_size_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match=next(iter(document))):
        from_json(ConnzOptions, document)


def test_the_first_of_equal_parameters_counts_and_too_many_are_refused() -> None:
    assert parse_query("limit=1&limit=2&x=%zz&acc=a%26b+c") == {"limit": "1", "x": "%zz", "acc": "a&b c"}
    with pytest.raises(BadRequest):
        parse_query("&".join(f"a{i}=1" for i in range(QUERY_FIELDS_MAX + 1)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3600, "1h0m0s"),
        (86_400, "1d0h0m0s"),
        (365 * 86_400, "1y0d0h0m0s"),
        (400 * 86_400 + 3661, "1y35d1h1m1s"),
        (-5, "0s"),
    ],
)
def test_uptime_shows_seconds_and_the_larger_units_in_use(seconds: int, text: str) -> None:
    assert uptime(seconds * SECOND + SECOND // 2 if seconds >= 0 else seconds * SECOND) == text


def test_round_trips_below_a_millisecond_are_shown_in_whole_microseconds() -> None:
    assert [round_trip(ns) for ns in (0, 999, 1_500, 715_432, 1_234_567)] == [
        "0s",
        "999ns",
        "1µs",
        "715µs",
        "1.234567ms",
    ]


def test_floats_are_written_as_go_writes_them() -> None:
    assert json.dumps([number(2.0), number(0.5), number(0.0)]) == "[2, 0.5, 0]"


def test_documents_in_pieces_are_the_json_of_the_whole() -> None:
    document = {
        "a<&>": 1,
        "rows": Rows([1, 2], lambda item: {"item": item, "deep": {"x": []}}),
        "none": Rows([], dict),
    }
    written = "".join(indented(document))
    whole = {"a<&>": 1, "rows": [{"item": n, "deep": {"x": []}} for n in (1, 2)], "none": []}
    assert written == json.dumps(whole, indent=2).replace("a<&>", "a\\u003c\\u0026\\u003e")
    assert "".join(indented({})) == "{}"
    assert compact({"a": "<"}) == '{"a":"\\u003c"}'
