"""Consumer configurations: what nats-server makes of a request, field by field, what it refuses and how."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core.api_errors import ApiFailure
from edged.core.consumer_defaults import ConsumerBounds, with_server
from edged.core.gojson_time import parse_instant
from edged.core.short_names import stream_identity
from tests.jetstream.config_twin import asked_server, generated
from tests.jetstream.consumer_cases import CREATED, UPDATED
from tests.jetstream.consumer_requests import (
    STREAM_NAMES,
    STREAMS,
    changes,
    configurations,
    damaged_texts,
    misfit_requests,
)
from tests.jetstream.consumer_twin import ConsumerTwin
from tests.jetstream.jetstream_servers import CONFIG
from tests.jetstream.raw_client import Arrived, block_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def shared_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsumerTwin]:
    with asked_server(CONFIG, tmp_path_factory.mktemp("consumer-config")) as (client, version):
        made = ConsumerTwin(client, ConsumerBounds(), version)
        for stream in STREAMS:
            made.add_stream(stream)
        yield made


@pytest.fixture
def twin(shared_twin: ConsumerTwin) -> ConsumerTwin:
    """The twin without consumers."""
    shared_twin.clear()
    return shared_twin


streams = st.sampled_from(STREAM_NAMES)


@generated(600)
@given(stream=streams, config=configurations(), pedantic=st.booleans())
def test_a_created_consumer_has_the_same_configuration_or_is_refused_alike(
    shared_twin: ConsumerTwin, stream: str, config: dict[str, Any], pedantic: bool
) -> None:
    shared_twin.clear()
    request = {"stream_name": stream, "config": config, "pedantic": pedantic}
    durable = config.get("durable_name", "")
    shared_twin.create(f"CREATE.{stream}.{durable}" if durable else f"CREATE.{stream}", request)


steps = st.tuples(st.sampled_from(["x", "y"]), changes(), st.sampled_from(["", "", "", "create", "update"]))


@generated(250)
@given(
    stream=streams,
    made=configurations(changes_max=2),
    changed=st.lists(steps, min_size=1, max_size=5),
    pedantic=st.booleans(),
)
def test_updates_change_the_same_and_are_refused_alike(
    shared_twin: ConsumerTwin,
    stream: str,
    made: dict[str, Any],
    changed: list[tuple[str, dict[str, Any], str]],
    pedantic: bool,
) -> None:
    shared_twin.clear()
    unnamed = {key: value for key, value in made.items() if key not in ("name", "durable_name")}
    for name, change, action in [("x", {}, ""), *changed]:
        # What clients do: take what is there and change some of it.
        there = shared_twin.consumers[stream].get(name)
        before = unnamed if there is None else there.document()
        request = {"stream_name": stream, "config": {**before, **change}, "action": action}
        shared_twin.create(f"CREATE.{stream}.{name}", {**request, "pedantic": pedantic})


@generated(300)
@given(request=misfit_requests)
def test_values_of_the_wrong_kind_are_refused_with_the_same_words(
    shared_twin: ConsumerTwin, request: dict[str, Any]
) -> None:
    shared_twin.clear()
    shared_twin.create("CREATE.L.x", request)


@generated(150)
@given(text=damaged_texts())
def test_damaged_json_is_refused_with_the_same_words(shared_twin: ConsumerTwin, text: bytes) -> None:
    shared_twin.clear()
    shared_twin.create("CREATE.L.x", text)


FORMS = (
    *("CREATE.L", "CREATE.L.x", "CREATE.L.x.a.b", "CREATE.L.x.b", "CREATE.Z.x", "CREATE.L.y/z"),
    *("DURABLE.CREATE.L.x", "DURABLE.CREATE.L.y\\z", "DURABLE.CREATE.Z.x"),
)
names_in_requests = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["", "x", "y", "y/z"]),
        "durable_name": st.sampled_from(["", "x", "y", "y/z"]),
        "filter_subject": st.sampled_from(["", "a.b", "b", "a b"]),
        "filter_subjects": st.sampled_from([["b"], ["a.b", "b"]]),
        "num_replicas": st.sampled_from([0, 1, 3]),
    },
)


@generated(300)
@given(
    form=st.sampled_from(FORMS), stream=st.sampled_from(["L", "L", "L", "Z", ""]), config=names_in_requests
)
def test_subject_and_request_are_held_against_each_other_alike(
    shared_twin: ConsumerTwin, form: str, stream: str, config: dict[str, Any]
) -> None:
    shared_twin.clear()
    shared_twin.create(form, {"stream_name": stream, "config": config})


filters = st.sampled_from(["", "w.a", "w.*", "w.b.>", "*.a", "w.*.c", "x"])


@generated(150)
@given(steps=st.lists(st.tuples(st.sampled_from("pqr"), st.lists(filters, max_size=2)), max_size=6))
def test_consumers_of_a_queue_share_it_alike(
    shared_twin: ConsumerTwin, steps: list[tuple[str, list[str]]]
) -> None:
    shared_twin.clear()
    for name, wanted in steps:
        config: dict[str, Any] = {"ack_policy": "explicit", "durable_name": name}
        if len(wanted) == 1:
            config["filter_subject"] = wanted[0]
        elif wanted:
            config["filter_subjects"] = wanted
        shared_twin.create(f"DURABLE.CREATE.W.{name}", {"stream_name": "W", "config": config})


@pytest.mark.parametrize(
    ("code", "stream", "config"), [pytest.param(*case[1:], id=case[0]) for case in CREATED]
)
def test_create_of_a_picked_configuration(
    twin: ConsumerTwin, code: int, stream: str, config: dict[str, Any]
) -> None:
    said = twin.create(*picked(stream, config))

    assert said.get("err_code", 0) == code


@pytest.mark.parametrize(
    ("code", "stream", "there", "change"), [pytest.param(*case[1:], id=case[0]) for case in UPDATED]
)
def test_update_with_a_picked_change(
    twin: ConsumerTwin, code: int, stream: str, there: dict[str, Any], change: dict[str, Any]
) -> None:
    twin.create(*picked(stream, {"name": "x", **there}))

    said = twin.create(*picked(stream, {**twin.consumers[stream]["x"].document(), **change}))

    assert said.get("err_code", 0) == code


def picked(stream: str, config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Subject and request of a picked case, which has everything in one place."""
    extras = {key: config[key] for key in ("action", "pedantic") if key in config}
    config = {key: value for key, value in config.items() if key not in extras}
    name = config.get("durable_name") or config.get("name")
    subject = f"CREATE.{stream}.{name}" if name and " " not in name else f"CREATE.{stream}"
    return subject, {"stream_name": stream, "config": config, **extras}


def code_of(said: dict[str, Any]) -> int:
    return int(said.get("err_code", 0))


def test_a_request_that_says_nothing_names_no_stream(twin: ConsumerTwin) -> None:
    assert twin.create("CREATE.L", b"")["err_code"] == 10056
    assert twin.create("CREATE.L", b"null")["err_code"] == 10056
    assert twin.create("CREATE.Z", {"stream_name": "Z"})["err_code"] == 10059
    assert twin.create("CREATE.L", b'{"stream_name":"L"}')["ack_policy"] == "none"


def test_names_and_subjects_that_contradict_each_other(twin: ConsumerTwin) -> None:
    def create(subject: str, **config: Any) -> int:
        return code_of(twin.create(subject, {"stream_name": "L", "config": config}))

    assert create("DURABLE.CREATE.L.x") == 10018
    assert create("DURABLE.CREATE.L.x", durable_name="y") == 10017
    assert create("CREATE.L.x", durable_name="y") == 10017
    assert create("CREATE.L", durable_name="y") == 10020
    assert create("CREATE.L.x.a.b", filter_subject="b") == 10131
    assert create("CREATE.L.x.a.b", filter_subjects=["a.b"]) == 10137
    assert create("CREATE.L.x.a.b", filter_subject="a.b") == 0
    assert create("CREATE.L.x", name="other") == 0
    assert create("DURABLE.CREATE.L.z", durable_name="z", name="other") == 0


def test_names_that_are_too_long(twin: ConsumerTwin) -> None:
    def create(name: str, **config: Any) -> int:
        return code_of(twin.create(f"CREATE.L.{name}", {"stream_name": "L", "config": config}))

    assert create("n" * 256, durable_name="n" * 256) == 10102
    assert create("n" * 256) == 10012
    assert create("n" * 255) == 0


def test_a_consumer_without_a_name_gets_one_that_its_configuration_does_not_show(twin: ConsumerTwin) -> None:
    said = twin.create("CREATE.L", {"stream_name": "L", "config": {}})

    (name,) = twin.consumers["L"]
    assert "name" not in said
    assert len(name) == 8
    assert said["inactive_threshold"] == 5_000_000_000


def test_the_number_of_consumers_is_kept(twin: ConsumerTwin) -> None:
    def create(name: str, **config: Any) -> int:
        return code_of(twin.create(f"CREATE.M.{name}", {"stream_name": "M", "config": config}))

    assert [create("x"), create("y"), create("z")] == [0, 0, 10026]
    assert create("y", description="is there") == 0
    assert create("z", deliver_subject="to", direct=True) == 0
    assert create("w", deliver_subject="to", sourcing=True) == 0
    assert create("v") == 10026


def test_internal_consumers_do_not_count(twin: ConsumerTwin) -> None:
    for name in ("x", "y"):
        config = {"deliver_subject": "to", "direct": True}
        assert code_of(twin.create(f"CREATE.M.{name}", {"stream_name": "M", "config": config})) == 0

    assert code_of(twin.create("CREATE.M.z", {"stream_name": "M", "config": {}})) == 0


def test_update_of_a_consumer_that_is_not_there(twin: ConsumerTwin) -> None:
    request = {"stream_name": "L", "config": {}, "action": "update"}

    assert twin.create("CREATE.L.x", request)["err_code"] == 10149
    assert twin.create("CREATE.L", request)["err_code"] == 10149
    assert code_of(twin.create("CREATE.L.x", {**request, "action": "create"})) == 0
    assert twin.create("CREATE.L.x", {**request, "action": "upsert"})["err_code"] == 10025


def test_a_deliver_subject_that_someone_listens_to_is_not_changed(
    twin: ConsumerTwin,
) -> None:
    def create(subject: str) -> int:
        request = {"stream_name": "L", "config": {"deliver_subject": subject}}
        return code_of(twin.create("CREATE.L.x", request))

    twin.client.subscribe("heard.by.someone")
    twin.has_interest = lambda subject: subject == "heard.by.someone"

    assert create("heard.by.nobody") == 0
    assert create("heard.by.someone") == 0
    assert create("heard.by.nobody") == 10013


def test_a_consumer_of_a_queue_that_wants_all_is_alone(twin: ConsumerTwin) -> None:
    def create(name: str, **config: Any) -> int:
        config["ack_policy"] = "explicit"
        return code_of(twin.create(f"CREATE.W.{name}", {"stream_name": "W", "config": config}))

    assert create("x") == 0
    assert create("y") == 10099
    assert create("y", filter_subject="w.a") == 10100
    assert create("x", filter_subject="w.b") == 0
    assert create("y", filter_subject="w.a") == 0
    assert create("x", filter_subject="w.*") == 10100
    # A consumer that is there may even want all beside others.
    assert create("x") == 0


def test_a_consumer_that_feeds_a_stream_is_made_to_fit_the_retention(twin: ConsumerTwin) -> None:
    config = {"deliver_subject": "to", "direct": True, "sourcing": True, "deliver_policy": "new"}

    for stream in ("I", "W"):
        request = {"stream_name": stream, "config": config}
        said = twin.create(f"CREATE.{stream}.x", request)
        assert (said["durable_name"], said["ack_policy"], "direct" in said) == ("x", "flow_control", False)
        # Where it began is not asked again.
        again = {"stream_name": stream, "config": {**config, "deliver_policy": "all"}}
        assert twin.create(f"CREATE.{stream}.x", again) == said


def test_a_consumer_that_feeds_a_stream_gets_a_name_of_its_own_where_messages_stay(
    twin: ConsumerTwin,
) -> None:
    config = {"deliver_subject": "to", "direct": True, "sourcing": True}
    request = {"stream_name": "L", "config": config}
    answers = [twin.client.api("CONSUMER.CREATE.L.x", request) for _ in range(2)]

    for answer in answers:
        ours = twin.decide("CREATE.L.x", json.dumps(request).encode())
        shown = with_server(ours.config, twin.version).document()
        assert (ours.name, ours.is_new) == (ours.config.name, True)
        assert re.fullmatch("x-[0-9A-Za-z]{8}", ours.name)
        assert re.fullmatch("x-[0-9A-Za-z]{8}", answer["name"])
        assert {**shown, "name": answer["name"]} == answer["config"]
        twin.client.api(f"CONSUMER.DELETE.L.{answer['name']}")


def test_a_consumer_that_feeds_a_stream_may_expect_the_stream_to_be_the_one_it_knows(
    twin: ConsumerTwin,
) -> None:
    created = twin.client.api("STREAM.INFO.L")["created"]
    identity = stream_identity(parse_instant(created).ns)
    request = {"stream_name": "L", "config": {"deliver_subject": "to", "sourcing": True}}
    payload = json.dumps(request).encode()

    def answered(expected: str) -> Arrived:
        block = block_of(Nats_Stream_Identity=expected)
        return twin.client.ask("$JS.API.CONSUMER.CREATE.L.x", block, payload)

    with pytest.raises(ApiFailure) as failure:
        twin.decide("CREATE.L.x", payload, identity=identity, expected_identity="unknown")
    assert answered("unknown").document["error"] == failure.value.error.document()
    assert twin.decide("CREATE.L.x", payload, identity=identity, expected_identity=identity).is_new
    made = answered(identity)
    assert (b"Nats-Stream-Identity", identity.encode()) in made.fields
    assert made.document["name"] == "x"
    twin.client.api("CONSUMER.DELETE.L.x")


BOUNDED = """
jetstream: {store_dir: "${directory}/store", strict: false,
            limits: {max_ack_pending: 500, max_request_batch: 50}}
accounts: {
  A: {
    jetstream: {max_mem: 2000, max_file: 5000, max_consumers: 2, max_ack_pending: 300}
    users: [{user: a, password: a}]
  }
}
no_auth_user: a
"""


def test_limits_of_server_and_account_are_kept_alike(tmp_path: Path) -> None:
    bounds = ConsumerBounds(
        ack_pending_max=500, request_batch_max=50, account_ack_pending_max=300, account_consumers_max=2
    )
    with asked_server(BOUNDED, tmp_path) as (client, version):
        twin = ConsumerTwin(client, bounds, version, strict=False)
        twin.add_stream({"name": "L", "subjects": ["a"]})

        def create(name: str, pedantic: bool = False, **config: Any) -> int:
            request = {"stream_name": "L", "config": config, "pedantic": pedantic, "ignored": 1}
            return code_of(twin.create(f"CREATE.L.{name}", request))

        assert create("x", pedantic=True) == 10157
        assert create("x", max_batch=51) == 10125
        assert create("x", ack_policy="explicit", max_ack_pending=501) == 10121
        assert create("x", ack_policy="explicit", max_ack_pending=301) == 10121
        assert create("x", ack_policy="explicit") == 0
        assert create("y", deliver_subject="to") == 0
        assert create("z") == 10026
