"""Stream configurations: what nats-server makes of a request, field by field, and what it refuses and how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edged.core.stream_bounds import StreamBounds
from edged.core.stream_update_rules import ConsumerUse
from tests.jetstream.config_twin import asked_server, generated
from tests.jetstream.stream_cases import CREATED, SECOND, UPDATED
from tests.jetstream.stream_requests import (
    NAMES,
    configurations,
    damaged_texts,
    misfits,
    related,
    transforms,
)
from tests.jetstream.stream_twin import StreamTwin

pytestmark = pytest.mark.real

FILE_BYTES_MAX, MEMORY_BYTES_MAX = 2**41, 2**20
LIMITS = f"max_file: {FILE_BYTES_MAX}, max_mem: {MEMORY_BYTES_MAX}"
CONFIG = f'jetstream: {{store_dir: "${{directory}}/store", {LIMITS}}}'
BOUNDS = StreamBounds(server_file_bytes_max=FILE_BYTES_MAX, server_memory_bytes_max=MEMORY_BYTES_MAX)


@pytest.fixture(scope="module")
def shared_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamTwin]:
    with asked_server(CONFIG, tmp_path_factory.mktemp("stream-config")) as (client, version):
        yield StreamTwin(client, BOUNDS, version)


@pytest.fixture
def twin(shared_twin: StreamTwin) -> StreamTwin:
    """The twin without streams."""
    shared_twin.clear()
    return shared_twin


@generated(400)
@given(config=configurations())
def test_a_created_stream_has_the_same_configuration_or_is_refused_alike(
    shared_twin: StreamTwin, config: dict[str, Any]
) -> None:
    shared_twin.clear()
    shared_twin.create("A", {"name": "A", **config})


steps = st.tuples(st.sampled_from(NAMES), configurations(changes_max=3))


@generated(200)
@given(
    made=st.lists(configurations(changes_max=4), max_size=2), changes=st.lists(steps, min_size=1, max_size=5)
)
def test_updates_change_the_same_and_are_refused_alike(
    shared_twin: StreamTwin, made: list[dict[str, Any]], changes: list[tuple[str, dict[str, Any]]]
) -> None:
    shared_twin.clear()
    for name, config in zip(NAMES, made, strict=False):
        shared_twin.create(name, {"name": name, **config})
    for name, config in changes:
        if name in shared_twin.streams:
            # What clients do: take what is there and change some of it.
            before = shared_twin.streams[name].document()
            shared_twin.update(name, {**before, **config})
        else:
            shared_twin.create(name, {"name": name, **config})


@generated(250)
@given(configs=st.lists(related, min_size=1, max_size=4))
def test_mirrors_and_sources_are_taken_and_refused_alike(
    shared_twin: StreamTwin, configs: list[dict[str, Any]]
) -> None:
    shared_twin.clear()
    for position, config in enumerate(configs):
        name = NAMES[position % len(NAMES)]
        if name in shared_twin.streams:
            shared_twin.update(name, {"name": name, **config})
        else:
            shared_twin.create(name, {"name": name, **config})


@generated(250)
@given(transform=transforms, place=st.sampled_from(["subject_transform", "mirror", "sources", "republish"]))
def test_transforms_are_taken_and_refused_alike(
    shared_twin: StreamTwin, transform: dict[str, Any], place: str
) -> None:
    shared_twin.clear()
    # nats-server would publish again on a subject with a blank, which no client can read; we refuse that.
    assume(place != "republish" or " " not in transform.get("src", "") + transform.get("dest", ""))
    origin = {"name": "B", "subject_transforms": [transform]}
    value = {"mirror": origin, "sources": [origin]}.get(place, transform)
    shared_twin.create("A", {"name": "A", place: value})


@generated(400)
@given(config=misfits)
def test_values_of_the_wrong_kind_are_refused_with_the_same_words(
    shared_twin: StreamTwin, config: dict[str, Any]
) -> None:
    shared_twin.clear()
    shared_twin.create("A", {"name": "A", **config})


@generated(300)
@given(text=damaged_texts())
def test_damaged_json_is_refused_with_the_same_words(shared_twin: StreamTwin, text: bytes) -> None:
    shared_twin.clear()
    shared_twin.create("A", text)


@pytest.mark.parametrize(("code", "config"), [pytest.param(*case[1:], id=case[0]) for case in CREATED])
def test_create_of_a_picked_configuration(twin: StreamTwin, code: int, config: dict[str, Any]) -> None:
    said = twin.create("A", {"name": "A", **config})

    assert said.get("err_code", 0) == code


@pytest.mark.parametrize(
    ("code", "there", "changes"), [pytest.param(*case[1:], id=case[0]) for case in UPDATED]
)
def test_update_with_a_picked_change(
    twin: StreamTwin, code: int, there: dict[str, Any], changes: dict[str, Any]
) -> None:
    sealed = there.get("sealed", False)
    twin.create("A", {"name": "A", **there, "sealed": False})
    if sealed:
        twin.update("A", {**twin.streams["A"].document(), "sealed": True})

    said = twin.update("A", {**twin.streams["A"].document(), **changes})

    assert said.get("err_code", 0) == code


def test_create_with_another_name_than_the_subject_says_is_refused(twin: StreamTwin) -> None:
    assert twin.create("B", {"name": "A"})["err_code"] == 10056
    assert twin.create("B", b"")["err_code"] == 10056
    assert twin.create("B", b"null")["err_code"] == 10056


def test_names_that_cannot_be_are_refused(twin: StreamTwin) -> None:
    assert twin.create("a/b", {"name": "a/b"})["err_code"] == 10128
    assert twin.create("a\\b", {"name": "a\\b"})["err_code"] == 10128
    assert twin.create("n" * 256, {"name": "n" * 256})["err_code"] == 10052
    assert "err_code" not in twin.create("n" * 200, {"name": "n" * 200})


def test_update_of_a_stream_that_is_not_there_or_called_otherwise_is_refused(twin: StreamTwin) -> None:
    assert twin.update("A", {"name": "A"})["err_code"] == 10059
    assert twin.update("A", {"name": "B"})["err_code"] == 10056
    assert twin.update("A", {"name": "A", "max_age": -1})["err_code"] == 10052


def test_create_again_succeeds_when_it_says_the_same(twin: StreamTwin) -> None:
    config = {"name": "A", "subjects": ["x"], "metadata": {"a": "1"}, "allow_msg_ttl": True}
    first = twin.create("A", config)

    assert twin.create("A", config) == first
    assert twin.create("A", {**config, "metadata": first["metadata"]}) == first
    assert twin.create("A", {**config, "metadata": {"a": "2"}})["err_code"] == 10058
    assert twin.create("A", {**config, "max_msgs": 5})["err_code"] == 10058
    assert twin.create("A", {**config, "max_msgs": 0}) == first


def test_subjects_of_another_stream_are_refused(twin: StreamTwin) -> None:
    twin.create("A", {"name": "A", "subjects": ["x.>", "y"]})
    twin.create("B", {"name": "B", "subjects": ["z"]})

    assert twin.create("C", {"name": "C", "subjects": ["x.*"]})["err_code"] == 10065
    assert twin.update("B", {"name": "B", "subjects": ["z", "y"]})["err_code"] == 10065
    assert "err_code" not in twin.update("A", {"name": "A", "subjects": ["x.a", "y"]})
    assert "err_code" not in twin.create("C", {"name": "C", "subjects": ["x.b"]})


def test_origins_that_can_be_seen_are_looked_at(twin: StreamTwin) -> None:
    twin.create("A", {"name": "A", "subjects": ["a.>"], "max_msg_size": 100, "allow_direct": True})

    assert twin.create("B", {"name": "B", "mirror": {"name": "A"}, "max_msg_size": 99})["err_code"] == 10030
    assert (
        twin.create("B", {"name": "B", "sources": [{"name": "A"}], "max_msg_size": 99})["err_code"] == 10046
    )
    assert twin.create("B", {"name": "B", "mirror": {"name": "A"}, "pedantic": True})["err_code"] == 10157
    assert twin.create("B", {"name": "B", "mirror": {"name": "A"}})["mirror_direct"] is True
    overlapping = {"sources": [{"name": "A"}, {"name": "Z", "external": {"api": "x", "deliver": "a"}}]}
    assert twin.create("C", {"name": "C", **overlapping})["err_code"] == 10022


def test_cycles_are_refused_where_subjects_take_them(twin: StreamTwin) -> None:
    twin.create("A", {"name": "A", "subjects": ["a.>"], "sources": [{"name": "B"}]})

    assert twin.create("B", {"name": "B", "subjects": ["b"], "sources": [{"name": "A"}]})["err_code"] == 10052
    assert twin.create("B", {"name": "B", "mirror": {"name": "A"}})["err_code"] == 10052
    narrow = {"name": "B", "subjects": ["b"], "sources": [{"name": "A", "filter_subject": "a.x"}]}
    assert twin.create("B", narrow)["err_code"] == 10052
    twin.update("A", {"name": "A", "subjects": ["a.>"], "sources": [{"name": "B", "filter_subject": "b"}]})
    assert "err_code" not in twin.create("B", narrow)


def test_consumers_that_are_there_keep_a_limit_from_being_set_below_them(twin: StreamTwin) -> None:
    twin.create("A", {"name": "A"})
    consumer = {
        "ack_policy": "explicit",
        "inactive_threshold": 60 * SECOND,
        "max_ack_pending": 100,
        "name": "c",
    }
    twin.client.api("CONSUMER.CREATE.A.c", {"stream_name": "A", "config": consumer})
    use = [ConsumerUse("c", inactive_threshold=60 * SECOND, max_ack_pending=100)]

    def limited(**limits: int) -> int:
        said = twin.update("A", {"name": "A", "consumer_limits": limits}, use)
        return int(said.get("err_code", 0))

    assert limited(max_ack_pending=99) == 10069
    assert limited(inactive_threshold=59 * SECOND) == 10069
    assert limited(max_ack_pending=100, inactive_threshold=60 * SECOND) == 0


BOUNDED = """
jetstream: {store_dir: "${directory}/store", strict: false, limits: {duplicate_window: 30s}}
accounts: {
  A: {
    jetstream: {max_mem: 2000, max_file: 5000, max_streams: 2, max_consumers: 3, max_bytes_required: true,
                mem_max_stream_bytes: 1500, disk_max_stream_bytes: 3000}
    users: [{user: a, password: a}]
  }
}
no_auth_user: a
"""


def test_limits_of_server_and_account_are_kept_alike(tmp_path: Path) -> None:
    bounds = StreamBounds(
        duplicate_window_max_ns=30 * SECOND,
        streams_max=2,
        consumers_max=3,
        file_bytes_max=5000,
        memory_bytes_max=2000,
        file_stream_bytes_max=3000,
        memory_stream_bytes_max=1500,
        max_bytes_required=True,
    )
    with asked_server(BOUNDED, tmp_path) as (client, version):
        twin = StreamTwin(client, bounds, version, strict=False)

        def create(**config: Any) -> int:
            return int(twin.create("A", {"name": "A", **config}).get("err_code", 0))

        assert create() == 10113
        assert create(max_bytes=3001) == 10122
        assert create(max_bytes=1501, storage="memory") == 10122
        assert create(max_bytes=5001, storage="file") == 10047
        assert create(max_bytes=2001, storage="memory") == 10028
        assert create(max_bytes=100, max_consumers=4) == 10026
        assert create(max_bytes=100, duplicate_window=31 * SECOND) == 10052
        assert create(max_bytes=100, pedantic=True) == 10157
        assert create(max_bytes=3000, unknown="ignored") == 0
        assert twin.create("B", {"name": "B", "max_bytes": 2001})["err_code"] == 10047
        assert "err_code" not in twin.create("B", {"name": "B", "max_bytes": 1000})
        assert twin.create("C", {"name": "C", "max_bytes": 10})["err_code"] == 10027
        assert "err_code" not in twin.update("B", {"name": "B", "max_bytes": 2000})
        assert twin.update("B", {"name": "B", "max_bytes": 2001})["err_code"] == 10047
        assert twin.update("B", {"name": "B", "max_bytes": 2000, "max_consumers": 4})["err_code"] == 10026
        assert "err_code" not in twin.update("B", {"name": "B", "max_bytes": 500})
