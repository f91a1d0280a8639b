"""Consumer configurations: read from requests, shown, stored. All words of errors are in tests/jetstream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig, ConsumerRequest
from tests.jetstream.consumer_requests import configurations, damaged_texts, misfit_requests

EVERYTHING: dict[str, Any] = {
    "durable_name": "x",
    "name": "y",
    "description": "d",
    "deliver_policy": "by_start_time",
    "opt_start_seq": 1,
    "opt_start_time": "2024-02-29T12:00:00.25+02:00",
    "ack_policy": "explicit",
    "ack_wait": 2,
    "max_deliver": 3,
    "backoff": [4, 5],
    "filter_subject": "f",
    "filter_subjects": ["g", "h"],
    "replay_policy": "original",
    "rate_limit_bps": 6,
    "sample_freq": "7%",
    "max_waiting": 8,
    "max_ack_pending": 9,
    "flow_control": True,
    "headers_only": True,
    "max_batch": 10,
    "max_expires": 11,
    "max_bytes": 12,
    "deliver_subject": "to",
    "deliver_group": "group",
    "idle_heartbeat": 13,
    "inactive_threshold": 14,
    "num_replicas": 15,
    "mem_storage": True,
    "direct": True,
    "sourcing": True,
    "metadata": {"a": "1", "b": "2"},
    "pause_until": "2099-01-01T00:00:00-01:30",
    "priority_groups": ["p"],
    "priority_policy": "pinned_client",
    "priority_timeout": 16,
}


def parse(config: dict[str, Any], **extras: Any) -> ConsumerRequest:
    request = {"stream_name": "L", "config": config, **extras}
    return ConsumerRequest.parse(json.dumps(request).encode(), strict=True)


def error_of(payload: bytes, strict: bool = True) -> str:
    with pytest.raises(ApiFailure) as raised:
        ConsumerRequest.parse(payload, strict)
    assert (raised.value.error.code, raised.value.error.err_code) == (400, 10025)
    return raised.value.error.description.removeprefix("invalid JSON: ")


def test_every_field_is_read_and_shown_in_the_same_order() -> None:
    config = parse(EVERYTHING).config

    assert json.dumps(config.document()) == json.dumps(EVERYTHING)
    assert all(getattr(config, name) != getattr(ConsumerConfig(), name) for name in EVERYTHING)


def test_fields_have_their_types() -> None:
    config = parse(EVERYTHING).config

    assert (config.opt_start_time, config.opt_start_zone_minutes) == (1_709_200_800_250_000_000, 120)
    assert (config.pause_until, config.pause_until_zone_minutes) == (4_070_914_200_000_000_000, -90)
    assert config.backoff == (4, 5)
    assert config.filter_subjects == ("g", "h")
    assert config.metadata == {"a": "1", "b": "2"}


def test_a_configuration_that_says_nothing_shows_what_nats_server_shows() -> None:
    assert ConsumerConfig().document() == {
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "num_replicas": 0,
    }


def test_a_text_with_the_word_of_a_default_is_shown() -> None:
    assert parse({"description": "none"}).config.document()["description"] == "none"


def test_metadata_is_shown_in_the_order_of_its_keys() -> None:
    shown = parse({"metadata": {"b": "2", "a": "1"}}).config.document()

    assert list(shown["metadata"]) == ["a", "b"]


def test_a_request_has_an_action_and_may_be_pedantic() -> None:
    assert parse({}) == ConsumerRequest("L", ConsumerConfig())
    assert parse({}, action="create", pedantic=True) == ConsumerRequest("L", action="create", pedantic=True)
    assert ConsumerRequest.parse(b"", strict=True) == ConsumerRequest()


def test_words_of_errors() -> None:
    assert error_of(b'{"action":"upsert"}') == 'unknown consumer action: "upsert"'
    assert error_of(b'{"action":null}') == "unknown consumer action: null"
    assert error_of(b'{"action":1.50}') == "unknown consumer action: 1.50"
    assert error_of(b'{"config":{"priority_policy":["x",1]}}') == 'unknown priority policy: ["x",1]'
    assert error_of(b'{"config":{"ack_policy":"some"}}') == r'can not unmarshal "\"some\""'
    assert error_of(b'{"config":{"max_deliver":"1"}}') == (
        "json: cannot unmarshal string into Go struct field CreateConsumerRequest.config.max_deliver"
        " of type int"
    )


def test_unknown_fields_are_refused_only_by_the_strict() -> None:
    payload = b'{"stream_name":"L","config":{"speed":1,"name":"x"}}'

    assert error_of(payload) == 'json: unknown field "speed"'
    assert ConsumerRequest.parse(payload, strict=False).config.name == "x"


def test_what_is_deep_is_refused_however_deep_it_is() -> None:
    for depth in (10, 300, 450, 600, 750, 900, 100_000):
        words = error_of(b'{"action":' + b"[" * depth + b"]" * depth + b"}")
        assert words.startswith(("unknown consumer action: [", "exceeded max depth"))


def test_a_stored_configuration_of_a_later_version_is_read() -> None:
    document = {**EVERYTHING, "invented_later": {"a": 1}}

    assert ConsumerConfig.stored(document) == parse(EVERYTHING).config


def test_filters_are_the_same_from_either_field() -> None:
    assert ConsumerConfig().filters == ()
    assert ConsumerConfig(filter_subject="a").filters == ("a",)
    assert ConsumerConfig(filter_subjects=("a", "b")).filters == ("a", "b")


def test_kinds_of_consumers() -> None:
    plain = ConsumerConfig()

    assert not (plain.is_durable or plain.is_push or plain.is_internal)
    assert replace(plain, durable_name="x").is_durable
    assert replace(plain, deliver_subject="to").is_push
    assert replace(plain, direct=True).is_internal
    assert replace(plain, sourcing=True).is_internal


@given(config=configurations())
def test_what_is_read_survives_the_store(config: dict[str, Any]) -> None:
    try:
        read = parse(config).config
    except ApiFailure:
        return
    assert ConsumerConfig.stored(json.loads(json.dumps(read.document()))) == read


@given(payload=st.one_of(damaged_texts(), misfit_requests.map(lambda request: json.dumps(request).encode())))
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    for strict in (True, False):
        try:
            ConsumerRequest.parse(payload, strict)
        except ApiFailure as failure:
            assert failure.error.err_code == 10025
