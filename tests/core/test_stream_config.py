"""Stream configurations: read from requests, shown, stored. All words of errors are in tests/jetstream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.api_errors import ApiFailure
from edged.core.source_config import (
    ExternalStream,
    Republish,
    SourceConsumer,
    StreamSource,
    SubjectTransformConfig,
)
from edged.core.stream_config import ConsumerLimits, Placement, StreamConfig, StreamRequest
from tests.jetstream.stream_requests import configurations, misfits

EVERYTHING: dict[str, Any] = {
    "name": "A",
    "description": "d",
    "subjects": ["a", "b.>"],
    "retention": "interest",
    "max_consumers": 1,
    "max_msgs": 2,
    "max_bytes": 3,
    "max_age": 4,
    "max_msgs_per_subject": 5,
    "max_msg_size": 6,
    "discard": "new",
    "storage": "memory",
    "num_replicas": 3,
    "no_ack": True,
    "duplicate_window": 7,
    "placement": {"cluster": "c", "tags": ["t"], "preferred": "p"},
    "mirror": {
        "name": "M",
        "opt_start_seq": 8,
        "opt_start_time": "2024-02-29T12:00:00.25+02:00",
        "filter_subject": "f",
        "external": {"api": "x", "deliver": "y"},
        "consumer": {"name": "n", "deliver_subject": "s"},
    },
    "sources": [{"name": "S", "subject_transforms": [{"src": "a", "dest": "b"}]}],
    "compression": "s2",
    "first_seq": 9,
    "subject_transform": {"src": "a", "dest": "b"},
    "republish": {"src": "a", "dest": "b", "headers_only": True},
    "allow_direct": True,
    "mirror_direct": True,
    "discard_new_per_subject": True,
    "sealed": True,
    "deny_delete": True,
    "deny_purge": True,
    "allow_rollup_hdrs": True,
    "consumer_limits": {"inactive_threshold": 10, "max_ack_pending": 11},
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": 12,
    "allow_msg_counter": True,
    "allow_atomic": True,
    "allow_msg_schedules": True,
    "persist_mode": "async",
    "allow_batched": True,
    "metadata": {"a": "1", "b": "2"},
}

# What is shown also when it says nothing, in order.
ALWAYS_SHOWN = [
    *(
        "name",
        "retention",
        "max_consumers",
        "max_msgs",
        "max_bytes",
        "max_age",
        "max_msgs_per_subject",
        "discard",
    ),
    *("storage", "num_replicas", "compression", "allow_direct", "mirror_direct", "sealed", "deny_delete"),
    *("deny_purge", "allow_rollup_hdrs", "consumer_limits", "allow_msg_ttl"),
]


def error_of(payload: bytes, strict: bool = True) -> str:
    with pytest.raises(ApiFailure) as raised:
        StreamRequest.parse(payload, strict)
    assert (raised.value.error.code, raised.value.error.err_code) == (400, 10025)
    return raised.value.error.description.removeprefix("invalid JSON: ")


def read(document: dict[str, Any]) -> StreamConfig:
    """The configuration in a request."""
    return StreamRequest.parse(json.dumps(document).encode(), strict=True).config


def test_every_field_is_read_and_shown_in_the_same_order() -> None:
    config = read(EVERYTHING)

    assert json.dumps(config.document()) == json.dumps(EVERYTHING)
    assert all(getattr(config, name) != getattr(StreamConfig(), name) for name in EVERYTHING)


def test_fields_have_their_types() -> None:
    config = read(EVERYTHING)

    assert config.subjects == ("a", "b.>")
    assert config.placement == Placement("c", ("t",), "p")
    assert config.consumer_limits == ConsumerLimits(10, 11)
    assert config.republish == Republish("a", "b", True)
    assert config.subject_transform == SubjectTransformConfig("a", "b")
    assert config.sources == (StreamSource("S", subject_transforms=(SubjectTransformConfig("a", "b"),)),)
    assert config.mirror == StreamSource(
        "M", 8, 1_709_200_800_250_000_000, "f", (), ExternalStream("x", "y"), SourceConsumer("n", "s"), 120
    )


def test_a_configuration_that_says_nothing_shows_what_nats_server_shows() -> None:
    assert list(StreamConfig().document()) == ALWAYS_SHOWN


def test_a_description_with_the_word_of_a_default_is_shown() -> None:
    assert StreamConfig(description="default").document()["description"] == "default"


def test_metadata_is_shown_in_order() -> None:
    assert list(StreamConfig(metadata={"b": "1", "a": "2"}).document()["metadata"]) == ["a", "b"]


def test_null_says_nothing() -> None:
    nothing = {
        name: None for name in EVERYTHING if name not in ("retention", "discard", "storage", "compression")
    }
    del nothing["persist_mode"]

    assert read(nothing) == StreamConfig()


def test_names_of_fields_are_found_in_any_case() -> None:
    assert read({"NAME": "A", "Max_Msgs": 3}) == StreamConfig(name="A", max_msgs=3)


def test_unknown_fields_are_refused_only_when_strict() -> None:
    payload = b'{"name":"A","rollup_hdrs":true,"mirror":{"name":"B","x":1}}'

    assert error_of(payload) == 'json: unknown field "rollup_hdrs"'
    config = StreamRequest.parse(payload, strict=False).config
    assert config == StreamConfig(name="A", mirror=StreamSource("B"))


def test_the_first_thing_that_is_wrong_is_named() -> None:
    assert error_of(b'{"max_msgs":"x","y":1}').endswith("StreamConfigRequest.max_msgs of type int64")
    assert error_of(b'{"y":1,"max_msgs":"x"}') == 'json: unknown field "y"'
    assert error_of(b'{"y":1,"max_msgs":}').startswith("invalid character '}'")


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"[]", "json: cannot unmarshal array into Go value of type server.StreamConfigRequest"),
        (
            b'{"max_age":1.5}',
            "json: cannot unmarshal number 1.5 into Go struct field StreamConfigRequest.max_age "
            "of type time.Duration",
        ),
        (
            b'{"subjects":[1]}',
            "json: cannot unmarshal number into StreamConfigRequest.subjects.0 of type string",
        ),
        (
            b'{"sources":{}}',
            "json: cannot unmarshal object into Go struct field StreamConfigRequest.sources "
            "of type []*server.StreamSource",
        ),
        (b'{"retention":"x"}', r'can not unmarshal "\"x\""'),
        (b'{"retention":"\xff\\ud800"}', 'can not unmarshal "\\"\\xff\ufffd\\""'),
        (b'{"compression":"x"}', "unknown compression algorithm"),
    ],
)
def test_the_words_for_a_value_of_the_wrong_kind(payload: bytes, words: str) -> None:
    assert error_of(payload) == words


def test_pedantic_belongs_to_the_request_and_not_to_the_configuration() -> None:
    request = StreamRequest.parse(b'{"name":"A","pedantic":true}', strict=True)

    assert request.pedantic
    assert "pedantic" not in request.config.document()
    assert not StreamRequest.parse(b"", strict=True).pedantic


@given(configurations(changes_max=10))
def test_what_can_be_read_is_read_again_from_what_it_shows(config: dict[str, Any]) -> None:
    try:
        parsed = read(config)
    except ApiFailure:
        return
    assert StreamConfig.stored(json.loads(json.dumps(parsed.document()))) == parsed


@given(misfits, st.booleans())
def test_whatever_json_is_sent_it_is_read_or_refused(config: dict[str, Any], strict: bool) -> None:
    try:
        StreamRequest.parse(json.dumps(config).encode(), strict)
    except ApiFailure as failure:
        assert failure.error.err_code == 10025


def test_halves_of_surrogate_pairs_do_not_get_in() -> None:
    config = StreamRequest.parse(rb'{"name":"\ud800","metadata":{"\udc00":"\ud800x"}}', strict=True).config

    assert config == StreamConfig(name="\ufffd", metadata={"\ufffd": "\ufffdx"})
    json.dumps(config.document(), ensure_ascii=False).encode()
