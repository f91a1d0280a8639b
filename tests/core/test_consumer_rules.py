"""Which consumers a stream may have. All of it is proven against nats-server in tests/jetstream; here are the
cases that need no server, and what holds for every request.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.api_errors import ApiFailure
from edged.core.consumer_config import ConsumerConfig, ConsumerRequest
from edged.core.consumer_defaults import ConsumerBounds, with_server
from edged.core.consumer_rules import CheckedConsumer, ConsumerSubject, check_consumer_create
from edged.core.consumer_update_rules import with_pause
from edged.core.short_names import generated_name, short_hash, stream_identity
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig
from edged.core.stream_rules import check_create
from tests.jetstream.consumer_cases import CREATED, UPDATED
from tests.jetstream.consumer_requests import SECOND, STREAM_NAMES, STREAMS, changes, configurations

STREAM_CONFIGS = {
    stream["name"]: check_create(StreamConfig.stored(stream), StreamBounds(), {}) for stream in STREAMS
}
REPLICATED = StreamConfig(name="L", subjects=("a",), num_replicas=3)
UNBOUNDED = ConsumerBounds()
CLUSTERED = ConsumerBounds(is_clustered=True)

Consumers = dict[str, ConsumerConfig]


def ask(
    request: dict[str, Any],
    subject: ConsumerSubject,
    existing: Consumers,
    stream: StreamConfig | None,
    bounds: ConsumerBounds = UNBOUNDED,
) -> CheckedConsumer:
    parsed = ConsumerRequest.parse(json.dumps(request).encode(), strict=True)
    return check_consumer_create(
        parsed, subject, stream, bounds, existing, chance=b"chance", has_interest=lambda subject: False
    )


def picked(stream: str, config: dict[str, Any], existing: Consumers) -> CheckedConsumer:
    """Ask with everything in one place."""
    extras = {key: config[key] for key in ("action", "pedantic") if key in config}
    config = {key: value for key, value in config.items() if key not in extras}
    name = config.get("durable_name") or config.get("name")
    subject = ConsumerSubject.create([stream, name] if name else [stream])
    request = {"stream_name": stream, "config": config, **extras}
    return ask(request, subject, existing, STREAM_CONFIGS[stream])


def code_of(failure: pytest.ExceptionInfo[ApiFailure]) -> int:
    return failure.value.error.err_code


@pytest.mark.parametrize(
    ("code", "stream", "config"), [pytest.param(*case[1:], id=case[0]) for case in CREATED]
)
def test_create_of_a_picked_configuration(code: int, stream: str, config: dict[str, Any]) -> None:
    if code == 0:
        assert picked(stream, config, {}).is_new
        return
    with pytest.raises(ApiFailure) as failure:
        picked(stream, config, {})
    assert code_of(failure) == code


@pytest.mark.parametrize(
    ("code", "stream", "there", "change"), [pytest.param(*case[1:], id=case[0]) for case in UPDATED]
)
def test_update_with_a_picked_change(
    code: int, stream: str, there: dict[str, Any], change: dict[str, Any]
) -> None:
    made = picked(stream, {"name": "x", **there}, {})
    request = {**made.config.document(), **change}
    if code == 0:
        assert not picked(stream, request, {"x": made.config}).is_new
        return
    with pytest.raises(ApiFailure) as failure:
        picked(stream, request, {"x": made.config})
    assert code_of(failure) == code


def test_defaults_of_a_pull_consumer_that_says_nothing() -> None:
    made = picked("L", {"durable_name": "x", "ack_policy": "explicit"}, {})

    assert made == CheckedConsumer(
        "x",
        ConsumerConfig(
            durable_name="x",
            name="x",
            ack_policy="explicit",
            ack_wait=30 * SECOND,
            max_deliver=-1,
            max_waiting=512,
            max_ack_pending=1000,
            metadata={"_nats.req.level": "0"},
        ),
        is_new=True,
    )


def test_defaults_of_a_push_consumer_that_says_nothing() -> None:
    config = picked("L", {"name": "x", "deliver_subject": "to"}, {}).config

    assert (config.max_waiting, config.ack_wait, config.max_ack_pending) == (0, 0, 0)
    assert (config.max_deliver, config.inactive_threshold) == (-1, 5 * SECOND)


def test_subjects_have_four_forms() -> None:
    assert ConsumerSubject.create(["S"]) == ConsumerSubject("S")
    assert ConsumerSubject.create(["S", "c"]) == ConsumerSubject("S", "c")
    assert ConsumerSubject.create(["S", "c", "a", "*", ">"]) == ConsumerSubject("S", "c", "a.*.>")
    durable = ConsumerSubject.durable_create(["S", "c"])
    assert durable == ConsumerSubject("S", "c", is_durable_form=True)


def test_a_stream_that_is_not_there() -> None:
    with pytest.raises(ApiFailure) as failure:
        ask({"stream_name": "Z"}, ConsumerSubject("Z"), {}, None)
    assert code_of(failure) == 10059


def test_an_account_without_limits_for_the_replicas_has_no_consumers() -> None:
    with pytest.raises(ApiFailure) as failure:
        ask({"stream_name": "L"}, ConsumerSubject("L"), {}, REPLICATED, ConsumerBounds(is_forbidden=True))
    assert code_of(failure) == 10120


def test_replicas_of_a_cluster_are_held_against_those_of_the_stream() -> None:
    def code(replicas: int, stream: StreamConfig) -> int:
        request = {"stream_name": "L", "config": {"num_replicas": replicas, "ack_policy": "explicit"}}
        try:
            ask(request, ConsumerSubject("L"), {}, stream, CLUSTERED)
        except ApiFailure as failure:
            return failure.error.err_code
        return 0

    interest = StreamConfig(name="L", subjects=("a",), num_replicas=3, retention="interest")
    assert [code(replicas, REPLICATED) for replicas in (0, 1, 3, 5)] == [0, 0, 0, 10126]
    assert [code(replicas, interest) for replicas in (0, 1, 3, 5)] == [0, 10134, 0, 10126]


@pytest.mark.parametrize("bounds", [ConsumerBounds(), CLUSTERED])
def test_a_stream_has_no_more_consumers_than_it_may_in_a_cluster_either(bounds: ConsumerBounds) -> None:
    stream = StreamConfig(name="L", subjects=("a",), num_replicas=1, max_consumers=1)

    assert ask({"stream_name": "L"}, ConsumerSubject("L", "y"), {}, stream, bounds).is_new
    with pytest.raises(ApiFailure) as failure:
        ask({"stream_name": "L"}, ConsumerSubject("L", "y"), {"x": ConsumerConfig(name="x")}, stream, bounds)
    assert code_of(failure) == 10026


def test_answers_show_version_and_level() -> None:
    shown = with_server(picked("L", {"metadata": {"a": "1"}}, {}).config, "1.2.3").metadata

    assert shown == {"a": "1", "_nats.req.level": "0", "_nats.ver": "1.2.3", "_nats.level": "5"}


def test_a_pause_needs_a_level_and_its_end_takes_it_back() -> None:
    config = picked("L", {"name": "x"}, {}).config
    paused = with_pause(config, 5 * SECOND)

    assert (paused.pause_until, paused.metadata["_nats.req.level"]) == (5 * SECOND, "1")
    assert with_pause(paused, None) == config
    assert with_pause(paused, -62_135_596_800 * SECOND) == config


def test_hashes_are_those_of_nats_server() -> None:
    assert short_hash(b"$G") == "szMpdrwD"
    assert stream_identity(0) == short_hash(b"1970-01-01T00:00:00Z")
    assert stream_identity(1_709_200_800_250_000_000) == short_hash(b"2024-02-29T10:00:00.25Z")


def test_generated_names_differ_by_chance_and_are_not_taken() -> None:
    first = generated_name(b"chance", ())

    assert len(first) == 8 and first.isalnum()
    assert generated_name(b"chance", ()) == first
    assert generated_name(b"other chance", ()) != first
    assert generated_name(b"chance", {first}) not in (first, "")


def test_a_consumer_without_a_name_gets_one_that_is_not_taken() -> None:
    first = picked("L", {}, {})
    second = picked("L", {}, {first.name: first.config})

    assert first.name == generated_name(b"chance", ())
    assert second.name != first.name
    assert (first.config.name, first.is_new, second.is_new) == ("", True, True)


@given(
    stream=st.sampled_from(STREAM_NAMES),
    config=configurations(changes_max=3),
    change=changes(),
    pedantic=st.booleans(),
)
def test_what_is_accepted_is_accepted_again_and_does_not_change(
    stream: str, config: dict[str, Any], change: dict[str, Any], pedantic: bool
) -> None:
    config = {**config, **change, "pedantic": pedantic}
    if config.get("direct") and config.get("sourcing"):
        return
    try:
        made = picked(stream, {**config, "name": "x", "durable_name": ""}, {})
    except ApiFailure:
        return
    assert ConsumerConfig.stored(json.loads(json.dumps(made.config.document()))) == made.config
    again = picked(stream, {**made.config.document(), "pedantic": pedantic}, {"x": made.config})
    once_more = picked(stream, {**made.config.document(), "action": "create"}, {"x": again.config})
    assert again.config.document() == once_more.config.document()
    assert _compared(again.config) == _compared(made.config)


def _compared(config: ConsumerConfig) -> ConsumerConfig:
    """Without what may differ: a pause is shown in UTC once anything was asked again, and the level follows
    from what was asked, which may have been adjusted.
    """
    return replace(config, pause_until_zone_minutes=0, metadata={**config.metadata, "_nats.req.level": "0"})
