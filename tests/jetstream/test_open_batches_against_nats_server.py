"""How many batches may be open, and how long they may be, if nothing is configured: as with nats-server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.consumer_pair import connected, running_both
from tests.jetstream.jetstream_servers import new_name
from tests.jetstream.raw_client import RawClient, block_of, message_bytes

pytestmark = pytest.mark.real

ATOMIC_PER_STREAM = 50
ATOMIC_MEMBERS = 1000
FAST_PER_STREAM = 1000

Clients = list[RawClient]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    with running_both(tmp_path_factory.mktemp("open")) as servers, connected(servers) as both:
        yield both


def created(clients: Clients, **config: bool) -> str:
    name = new_name("open")
    for client in clients:
        client.api(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"], **config})
    return name


def answers(clients: Clients, messages: list[bytes]) -> list[bytes]:
    """The payloads that come back for these, one each, the same from both."""
    both = []
    for client in clients:
        client.send(b"".join(messages))
        both.append([client.receive().payload for _ in messages])
    assert both[0] == both[1]
    return both[0]


def test_so_many_atomic_batches_of_a_stream_are_open_and_not_more(clients: Clients) -> None:
    name = created(clients, allow_atomic=True)
    found = answers(
        clients,
        [
            message_bytes(
                f"{name}.a".encode(),
                block_of(Nats_Batch_Id=f"b{number}", Nats_Batch_Sequence="1"),
                b"",
                b"R.b",
            )
            for number in range(ATOMIC_PER_STREAM + 2)
        ],
    )
    assert found[:ATOMIC_PER_STREAM] == [b""] * ATOMIC_PER_STREAM
    assert all(b'"err_code":10210' in one for one in found[ATOMIC_PER_STREAM:])


@pytest.mark.parametrize("members", [ATOMIC_MEMBERS, ATOMIC_MEMBERS + 1])
def test_an_atomic_batch_has_so_many_members_and_not_more(clients: Clients, members: int) -> None:
    name = created(clients, allow_atomic=True)
    messages = []
    for number in range(1, members + 1):
        fields = {"Nats_Batch_Id": "long", "Nats_Batch_Sequence": str(number)}
        if number == members:
            fields["Nats_Batch_Commit"] = "1"
        messages.append(message_bytes(f"{name}.a".encode(), block_of(**fields), b"", b"R.b"))
    found = answers(clients, messages)
    assert (b'"err_code":10199' in found[-1]) == (members > ATOMIC_MEMBERS)
    assert (b'"count":1000' in found[-1]) == (members == ATOMIC_MEMBERS)


def test_so_many_fast_batches_of_a_stream_are_open_and_not_more(clients: Clients) -> None:
    name = created(clients, allow_batched=True)
    messages = [
        message_bytes(f"{name}.a".encode(), b"", b"", b"R.f.b%d.10.fail.1.0.$FI" % number)
        for number in range(FAST_PER_STREAM + 2)
    ]
    both = []
    for client in clients:
        client.send(b"".join(messages))
        arrived = client.until_fence(f"{name}.fence".encode())
        both.append([(one.subject, one.payload) for one in arrived])
    assert both[0] == both[1]
    refused = [subject for subject, payload in both[0] if b"10211" in payload]
    assert refused == [b"R.f.b%d.10.fail.1.0.$FI" % (FAST_PER_STREAM + number) for number in range(2)]
