"""Generated streams and consumers on a running edged and a running nats-server: every answer is the same.

What the rules decide is compared at length in the tests of configurations; here are the servers around them:
what is said after changes that were made and changes that were refused, field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jetstream import consumer_requests, stream_requests
from tests.jetstream.config_twin import ask, generated, payload_of
from tests.jetstream.consumer_pair import connected, running_both
from tests.jetstream.raw_client import RawClient

pytestmark = pytest.mark.real

Clients = list[RawClient]
# Moments, how long until one, and where the stream is.
UNLIKE = ("created", "ts", "first_ts", "last_ts", "cluster", "last_active", "pause_remaining")
# Configurations that make streams take from others, which happens when it happens.
TAKING = ("mirror", "sources")
NAMES = ("A", "B")
FIRST_SEQ_MAX = 2**62


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with running_both(tmp_path_factory.mktemp("generated")) as servers, connected(servers) as both:
        for client in both:
            # nats-server removes its directory of streams with the last of them.
            client.api("STREAM.CREATE.stays", {"name": "stays", "subjects": ["stays"]})
        yield both


def same(clients: Clients, subject: str, request: Any) -> dict[str, Any]:
    """What both answer."""
    answers: list[dict[str, Any]] = [
        comparable(ask(client, subject, payload_of(request))) for client in clients
    ]
    assert answers[0] == answers[1], (subject, request)
    return answers[0]


def comparable(value: Any) -> Any:
    """A document without what two servers cannot agree on; its configuration is whole."""
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one if key == "config" else comparable(one) for key, one in value.items() if key not in UNLIKE
    }


def forget(clients: Clients, names: tuple[str, ...] = NAMES) -> None:
    for client in clients:
        for name in names:
            client.ask(f"$JS.API.STREAM.DELETE.{name}")


def without_taking(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in TAKING}


stream_steps = st.lists(
    st.tuples(st.sampled_from(NAMES), stream_requests.configurations(changes_max=4)), min_size=1, max_size=5
)


@generated(120)
@given(steps=stream_steps)
def test_streams_are_made_and_changed_alike(
    clients: Clients, steps: list[tuple[str, dict[str, Any]]]
) -> None:
    forget(clients)
    there: dict[str, dict[str, Any]] = {}
    for name, config in steps:
        changed = without_taking(config)
        if name in there or changed.get("first_seq", 0) > FIRST_SEQ_MAX:
            # What an empty stream then begins with is on the page on compatibility.
            changed.pop("first_seq", None)
        wanted = {**there.get(name, {"name": name}), **changed}
        endpoint = "UPDATE" if name in there else "CREATE"
        answer = same(clients, f"STREAM.{endpoint}.{name}", wanted)
        if "error" not in answer:
            there[name] = answer["config"]
        same(clients, f"STREAM.INFO.{name}", {})
    same(clients, "STREAM.LIST", {})


consumer_steps = st.lists(
    st.tuples(
        st.sampled_from(["x", "y"]),
        consumer_requests.changes(),
        st.sampled_from(["", "", "create", "update"]),
    ),
    min_size=1,
    max_size=5,
)


@generated(150)
@given(
    stream=st.sampled_from(consumer_requests.STREAMS),
    made=consumer_requests.configurations(changes_max=2),
    steps=consumer_steps,
)
def test_consumers_are_made_and_changed_alike(
    clients: Clients,
    stream: dict[str, Any],
    made: dict[str, Any],
    steps: list[tuple[str, dict[str, Any], str]],
) -> None:
    name = stream["name"]
    forget(clients, (name,))
    same(clients, f"STREAM.CREATE.{name}", stream)
    unnamed = {key: value for key, value in made.items() if key not in ("name", "durable_name")}
    there: dict[str, dict[str, Any]] = {}
    for consumer, change, action in [("x", {}, ""), *steps]:
        config = {**there.get(consumer, unnamed), **change}
        request = {"stream_name": name, "config": config, "action": action}
        answer = same(clients, f"CONSUMER.CREATE.{name}.{consumer}", request)
        if "error" not in answer:
            there[consumer] = answer["config"]
        same(clients, f"CONSUMER.INFO.{name}.{consumer}", {})
    same(clients, f"CONSUMER.LIST.{name}", {})
    same(clients, f"STREAM.INFO.{name}", {})
