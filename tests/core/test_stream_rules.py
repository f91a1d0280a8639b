"""Which stream configurations are allowed. All of it is proven against nats-server in tests/jetstream; here
are the cases that need no server, and what holds for every configuration.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.api_errors import ApiFailure
from edged.core.source_config import StreamSource
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import ConsumerLimits, StreamConfig, StreamRequest
from edged.core.stream_rules import check_create, with_server
from edged.core.stream_subject_rules import collide, is_subset
from edged.core.stream_update_rules import ConsumerUse, check_update
from edged.core.subjects import is_subset as is_subset_of_valid
from edged.core.subjects import overlaps
from tests.jetstream.stream_cases import CREATED, UPDATED
from tests.jetstream.stream_requests import configurations, related

BOUNDS = StreamBounds(server_file_bytes_max=2**41, server_memory_bytes_max=2**20)
CLUSTERED = StreamBounds(is_clustered=True)


def create(request: dict[str, Any], others: dict[str, StreamConfig] | None = None) -> StreamConfig:
    asked = read(request)
    return check_create(asked.config, BOUNDS, others or {}, pedantic=asked.pedantic)


def read(request: dict[str, Any]) -> StreamRequest:
    return StreamRequest.parse(json.dumps(request).encode(), strict=True)


def code_of(failure: pytest.ExceptionInfo[ApiFailure]) -> int:
    return failure.value.error.err_code


@pytest.mark.parametrize(("code", "config"), [pytest.param(*case[1:], id=case[0]) for case in CREATED])
def test_create_of_a_picked_configuration(code: int, config: dict[str, Any]) -> None:
    if code == 0:
        create({"name": "A", **config})
        return
    with pytest.raises(ApiFailure) as failure:
        create({"name": "A", **config})
    assert code_of(failure) == code


@pytest.mark.parametrize(
    ("code", "there", "changes"), [pytest.param(*case[1:], id=case[0]) for case in UPDATED]
)
def test_update_with_a_picked_change(code: int, there: dict[str, Any], changes: dict[str, Any]) -> None:
    old = replace(create({"name": "A", **there, "sealed": False}), sealed=there.get("sealed", False))
    new = read({**old.document(), **changes})
    if code == 0:
        check_update(old, new.config, BOUNDS, {"A": old}, pedantic=new.pedantic)
        return
    with pytest.raises(ApiFailure) as failure:
        check_update(old, new.config, BOUNDS, {"A": old}, pedantic=new.pedantic)
    assert code_of(failure) == code


def test_defaults_of_a_stream_that_only_has_a_name() -> None:
    config = create({"name": "A"})

    assert config == StreamConfig(
        name="A",
        subjects=("A",),
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=-1,
        max_msg_size=-1,
        num_replicas=1,
        duplicate_window=120_000_000_000,
        metadata={"_nats.req.level": "0"},
    )


def test_sealing_stops_whatever_could_still_change_the_stream() -> None:
    old = create({"name": "A", "allow_rollup_hdrs": True, "max_age": 10**9})
    config = check_update(old, replace(old, sealed=True), BOUNDS, {"A": old})

    assert (config.max_age, config.discard, config.allow_rollup_hdrs) == (0, "new", False)
    assert config.deny_delete
    assert config.deny_purge


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, "0"),
        ({"allow_msg_ttl": True}, "1"),
        ({"subject_delete_marker_ttl": 10**9}, "1"),
        ({"allow_msg_counter": True}, "2"),
        ({"allow_atomic": True}, "2"),
        ({"allow_msg_schedules": True, "allow_msg_ttl": True}, "2"),
        ({"persist_mode": "async"}, "2"),
        ({"allow_batched": True, "allow_atomic": True}, "4"),
    ],
)
def test_the_api_level_that_is_needed_follows_from_the_features(fields: dict[str, Any], level: str) -> None:
    config = create({"name": "A", "metadata": {"_nats.req.level": "9", "_nats.ver": "1"}, **fields})

    assert config.metadata == {"_nats.req.level": level}
    shown = with_server(config, "2.15.1").metadata
    assert shown == {"_nats.req.level": level, "_nats.ver": "2.15.1", "_nats.level": "5"}


def test_a_promoted_mirror_keeps_what_it_has() -> None:
    old = create({"name": "A", "mirror": {"name": "Z"}})
    new = check_update(old, replace(old, mirror=None, subjects=("x",)), BOUNDS, {"A": old})

    assert (new.mirror, new.subjects) == (None, ("x",))


def test_replicas_are_allowed_in_a_cluster_and_count_against_the_account() -> None:
    bounds = replace(CLUSTERED, file_bytes_max=299)
    wanted = StreamConfig(name="A", num_replicas=3, max_bytes=100)

    assert check_create(wanted, replace(bounds, file_bytes_max=300), {}).num_replicas == 3
    with pytest.raises(ApiFailure) as failure:
        check_create(wanted, bounds, {})
    assert code_of(failure) == 10047
    # In a tier the replicas are in the limit already.
    assert check_create(wanted, replace(bounds, tiered=True), {}).num_replicas == 3


def test_consumers_are_only_asked_about_limits_that_change() -> None:
    limits = ConsumerLimits(max_ack_pending=10)
    old = check_create(StreamConfig(name="A", consumer_limits=limits), BOUNDS, {})
    above = [ConsumerUse("c", max_ack_pending=100), ConsumerUse("d", max_ack_pending=5)]

    assert check_update(old, old, BOUNDS, {"A": old}, consumers=above) == old
    lower = replace(old, consumer_limits=ConsumerLimits(max_ack_pending=9))
    with pytest.raises(ApiFailure) as failure:
        check_update(old, lower, BOUNDS, {"A": old}, consumers=above)
    assert failure.value.error.description == "change to limits violates consumers: c"


def test_a_dense_net_of_sources_is_walked_in_little_time() -> None:
    others: dict[str, StreamConfig] = {}
    for layer in range(12):
        above = tuple(StreamSource(f"L{layer - 1}-{place}") for place in range(10)) if layer else ()
        for place in range(10):
            name = f"L{layer}-{place}"
            others[name] = StreamConfig(name=name, subjects=(name,), sources=above)
    request = StreamConfig(name="A", sources=(StreamSource("L11-0"), StreamSource("L11-1")))

    assert check_create(request, BOUNDS, others).sources == request.sources


@given(configurations())
def test_what_was_created_may_be_created_again_and_updated_to_itself(request: dict[str, Any]) -> None:
    try:
        config = create({"name": "A", **request})
    except ApiFailure:
        return
    if config.allow_msg_counter and config.allow_msg_ttl:
        # As with nats-server: delete markers bring TTLs along, which a counter may not ask for by itself.
        with pytest.raises(ApiFailure):
            check_create(config, BOUNDS, {"A": config})
        return
    assert check_create(config, BOUNDS, {"A": config}) == config
    if config.republish is None or config.republish.dest:
        assert check_update(config, config, BOUNDS, {"A": config}) == config


@given(st.lists(related, min_size=2, max_size=4))
def test_any_streams_that_take_from_each_other_are_accepted_or_refused(
    requests: list[dict[str, Any]],
) -> None:
    others: dict[str, StreamConfig] = {}
    for name, request in zip("ABCD", requests, strict=False):
        try:
            others[name] = create({"name": name, **request}, others)
        except ApiFailure as failure:
            assert failure.error.err_code >= 10002


tokens = st.sampled_from(["a", "b", "*", ">", "foo"])


@given(st.lists(tokens, min_size=1, max_size=4), st.lists(tokens, min_size=1, max_size=4))
def test_collisions_of_valid_subjects_are_overlaps(first: list[str], second: list[str]) -> None:
    one, other = ".".join(first), ".".join(second)
    if ">" in first[:-1] or ">" in second[:-1]:
        return
    assert collide(one, other) == overlaps(one.encode(), other.encode())
    assert is_subset(one, other) == is_subset_of_valid(one.encode(), other.encode())
