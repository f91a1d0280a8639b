"""What happens to publishers and consumers when another node begins to lead."""

from __future__ import annotations

import json
from typing import Any

import trio
import trio.testing

from tests.cluster_api.client import Client
from tests.cluster_api.fake_cluster import ACCOUNT, FakeHub

R3 = {"name": "S", "subjects": ["s.>"], "num_replicas": 3}
LEADERSHIP_CHANGE = b"NATS/1.0 409 Leadership Change\r\n\r\n"


async def _stream(hub: FakeHub, leader: int = 2, **fields: Any) -> Client:
    """A stream that a node leads, and a client of another one."""
    hub.placement = [leader, *(node for node in hub.nodes if node != leader)]
    client = Client(hub, leader % 3 + 1)
    await client.api("STREAM.CREATE.S", {**R3, **fields})
    return client


async def _consumer(client: Client, **config: Any) -> None:
    config = {"durable_name": "c", "ack_policy": "explicit", **config}
    name = config.get("durable_name") or config["name"]
    await client.api(f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config})


def _pull(client: Client, batch: int = 1, expires_s: int = 60) -> None:
    body = json.dumps({"batch": batch, "expires": expires_s * 10**9}).encode()
    client.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", body, "pulled.1")


async def test_publishes_through_any_node_reach_the_leader_and_all_members(hub: FakeHub) -> None:
    await _stream(hub)
    for node in hub.nodes:
        answer = await Client(hub, node).ask("s.a", b"from %d" % node)
        assert json.loads(answer[3]) == {"stream": "S", "seq": node}
    hub.elect(hub.group("S"), 3)
    assert json.loads((await Client(hub, 1).ask("s.a"))[3]) == {"stream": "S", "seq": 4}
    hub.assert_alike("S")


async def test_only_the_leader_listens(hub: FakeHub) -> None:
    await _stream(hub, leader=2)

    def listeners() -> list[int]:
        return [node.node for node in hub.nodes.values() if (ACCOUNT, b"s.>") in node.router.announced]

    assert listeners() == [2]
    hub.elect(hub.group("S"), 1)
    assert listeners() == [1]
    hub.elect(hub.group("S"), 0)
    assert listeners() == []


async def test_a_publish_that_the_leader_cannot_commit_has_no_answer(hub: FakeHub) -> None:
    client = await _stream(hub)
    group = hub.group("S")
    hub.stuck.add(group)
    client.subscribe("answers")
    client.publish("s.a", b"lost", "answers")
    hub.stuck.clear()
    hub.elect(group, 3)
    assert json.loads((await client.ask("s.a", b"kept"))[3])["seq"] == 1
    assert client.taken() == []
    hub.assert_alike("S")


async def test_who_waits_for_messages_is_told_and_served_by_the_next_leader(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2)
    await _consumer(client)
    client.subscribe("pulled.>")
    _pull(client)
    assert hub.forwarded[-1] == (3, 2, b"$JS.API.CONSUMER.MSG.NEXT.S.c")
    hub.elect(hub.group("S"), 1)
    assert (await client.receive())[3] == LEADERSHIP_CHANGE
    _pull(client)
    await client.ask("s.a", b"one")
    subject, reply, _, data = await client.receive()
    assert (subject, data) == (b"s.a", b"one") and reply is not None
    assert (await client.ask(reply.decode(), b"+ACK"))[3] == b""
    assert (await client.api("CONSUMER.INFO.S.c"))["ack_floor"]["stream_seq"] == 1
    hub.assert_alike("S")


async def test_what_was_not_acknowledged_comes_again_from_the_next_leader(hub: FakeHub) -> None:
    client = await _stream(hub)
    await _consumer(client, ack_wait=2 * 10**9)
    client.subscribe("pulled.>")
    await client.ask("s.a", b"one")
    await client.ask("s.a", b"two")
    _pull(client, batch=2)
    first = [await client.receive() for _ in range(2)]
    assert [message[3] for message in first] == [b"one", b"two"]
    assert first[0][1] is not None
    # The acknowledgement is committed, and with it that both were delivered.
    await client.ask(first[0][1].decode())
    hub.elect(hub.group("S"), 3)
    info = await client.api("CONSUMER.INFO.S.c")
    assert (info["delivered"]["consumer_seq"], info["num_ack_pending"]) == (2, 1)
    _pull(client, batch=1)
    _, reply, _, data = await client.receive()
    assert data == b"two" and reply is not None and reply.split(b".")[4] == b"2"
    hub.assert_alike("S")


async def test_deliveries_that_were_not_committed_are_forgotten_by_who_made_them(hub: FakeHub) -> None:
    client = await _stream(hub)
    group = hub.group("S")
    await _consumer(client)
    client.subscribe("pulled.>")
    await client.ask("s.a", b"one")
    hub.stuck.add(group)
    _pull(client)
    assert (await client.receive())[3] == b"one"
    hub.elect(group, 3)
    hub.stuck.clear()
    hub.assert_alike("S")
    info = await client.api("CONSUMER.INFO.S.c")
    assert (info["delivered"]["consumer_seq"], info["num_pending"]) == (0, 1)
    _pull(client)
    _, reply, _, data = await client.receive()
    assert data == b"one" and reply is not None and reply.split(b".")[4] == b"1"
    hub.elect(group, 2)
    hub.assert_alike("S")


async def test_consumers_of_all_kinds_are_alike_on_all_nodes(hub: FakeHub) -> None:
    client = await _stream(hub, retention="interest")
    await _consumer(client)
    await _consumer(client, durable_name="none", ack_policy="none", deliver_subject="pushed")
    await _consumer(client, durable_name="all", ack_policy="all", filter_subject="s.b")
    client.subscribe("pulled.>")
    client.subscribe("pushed")
    for number in range(6):
        await client.ask("s.b" if number % 2 else "s.a", b"%d" % number)
    _pull(client, batch=6)
    delivered = [await client.receive() for _ in range(12)]
    for message in delivered:
        if message[1] is not None and b".c." in message[1]:
            await client.ask(message[1].decode(), b"+TERM" if message[3] == b"3" else b"+ACK")
    await client.api("CONSUMER.RESET.S.all")
    await client.api("CONSUMER.DELETE.S.all")
    await client.api("CONSUMER.DELETE.S.none")
    hub.elect(hub.group("S"), 1)
    hub.assert_alike("S")
    assert (await client.api("STREAM.INFO.S"))["state"]["messages"] == 0


async def test_a_consumer_in_memory_is_found_at_the_next_leader(hub: FakeHub) -> None:
    client = await _stream(hub)
    await _consumer(client, durable_name="", name="m", mem_storage=True, inactive_threshold=10**12)
    hub.elect(hub.group("S"), 3)
    assert (await client.api("CONSUMER.NAMES.S"))["consumers"] == ["m"]
    hub.assert_alike("S")


async def test_a_consumer_in_memory_of_one_node_goes_when_that_leads_no_more(hub: FakeHub) -> None:
    client = await _stream(hub, num_replicas=1)
    await _consumer(client, durable_name="", name="m", mem_storage=True, inactive_threshold=10**12)
    await _consumer(client)
    assert (await client.api("CONSUMER.NAMES.S"))["consumers"] == ["c", "m"]
    group = hub.group("S")
    hub.elect(group, 0)
    hub.elect(group, 2)
    assert (await client.api("CONSUMER.NAMES.S"))["consumers"] == ["c"]


async def test_a_configuration_counts_from_the_same_message_on_everywhere(hub: FakeHub) -> None:
    client = await _stream(hub, leader=3)
    await client.ask("s.a", b"x" * 100)
    await client.api("STREAM.UPDATE.S", {**R3, "max_msg_size": 50})
    assert "error" in json.loads((await client.ask("s.a", b"x" * 100))[3])
    hub.assert_alike("S")
    group = hub.group("S")
    for node in hub.nodes.values():
        assert node.store.catalog.streams[group].group.machine.config["max_msg_size"] == 50


async def test_the_next_leader_configures_a_stream_whose_last_one_could_not(hub: FakeHub) -> None:
    client = await _stream(hub, leader=3)
    group = hub.group("S")
    hub.stuck.add(group)
    assert (await client.refused("STREAM.UPDATE.S", {**R3, "max_msgs": 1}))[0] == 10008
    hub.stuck.clear()
    hub.elect(group, 2)
    changed = await client.api("STREAM.UPDATE.S", {**R3, "max_msgs": 1})
    assert changed["config"]["max_msgs"] == 1
    hub.assert_alike("S")


async def test_push_consumers_go_on_at_the_next_leader(hub: FakeHub) -> None:
    client = await _stream(hub)
    client.subscribe("pushed")
    await _consumer(client, deliver_subject="pushed")
    await client.ask("s.a", b"one")
    _, reply, _, data = await client.receive()
    assert data == b"one" and reply is not None
    await client.ask(reply.decode())
    hub.elect(hub.group("S"), 1)
    await client.ask("s.a", b"two")
    assert (await client.receive())[3] == b"two"
    hub.assert_alike("S")


async def test_direct_gets_are_answered_by_the_leader(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2, allow_direct=True)
    await client.ask("s.a", b"one")
    _, _, header_bytes, data = await client.ask("$JS.API.DIRECT.GET.S.s.a")
    assert data[header_bytes:] == b"one" and b"Nats-Sequence: 1" in data
    assert hub.forwarded[-1] == (3, 2, b"$JS.API.DIRECT.GET.S.s.a")


async def test_a_direct_get_that_nobody_answers_is_not_passed_on(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2)
    client.publish("$JS.API.DIRECT.GET.S.s.a", reply="inbox")
    assert not hub.forwarded


async def test_a_mirror_on_another_node_answers_direct_gets_for_its_origin(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2, allow_direct=True)
    await client.ask("s.a", b"one")
    mirror = {"name": "M", "mirror": {"name": "S"}, "mirror_direct": True, "num_replicas": 3}
    hub.placement = [1, 2, 3]
    await client.api("STREAM.CREATE.M", mirror)
    await hub.until(lambda: hub.leading("M").log.message_count == 1)
    await client.api("STREAM.UPDATE.S", R3)
    _, _, header_bytes, data = await client.ask("$JS.API.DIRECT.GET.S.s.a")
    assert data[header_bytes:] == b"one" and b"Nats-Stream: M" in data
    assert hub.forwarded[-1] == (3, 1, b"$JS.API.DIRECT.GET.S.s.a")


async def test_followers_hear_of_deliveries_with_the_next_tick(hub: FakeHub) -> None:
    client = await _stream(hub)
    await _consumer(client)
    client.subscribe("pulled.>")
    await client.ask("s.a", b"one")
    _pull(client)
    await client.receive()
    stream = hub.nodes[2].jetstream.by_group[hub.group("S")]
    stream.tick(hub.nodes[2].jetstream.now_ns())
    hub.flush()
    hub.assert_alike("S")
    follower = hub.nodes[3].jetstream.by_group[hub.group("S")]
    (machine,) = follower.machine.consumers.values()
    assert list(machine.pending) == [1]


# --- a leader that does not know whether it still leads ---


async def _pulled_from_who_is_unsure(hub: FakeHub) -> tuple[Client, int]:
    """A client that asks node 2 for the one message there is, and the group of the stream."""
    client = await _stream(hub, leader=2)
    await _consumer(client)
    await client.ask("s.a", b"x")
    group = hub.group("S")
    hub.unsure.add(group)
    client.subscribe("pulled.1")
    _pull(client)
    return client, group


async def test_who_may_be_deposed_delivers_nothing_until_a_majority_says_otherwise(
    hub: FakeHub,
) -> None:
    client, group = await _pulled_from_who_is_unsure(hub)
    assert client.taken() == []
    ((node, asked, done),) = hub.asked
    assert (node, asked) == (2, group)
    # Many requests are one question.
    _pull(client)
    assert len(hub.asked) == 1
    hub.unsure.clear()
    done(True)
    hub.nodes[2].server.flush()
    assert (await client.receive())[3] == b"x"


async def test_a_deposed_leader_that_asks_delivers_nothing_of_what_it_had(
    hub: FakeHub,
) -> None:
    client, group = await _pulled_from_who_is_unsure(hub)
    ((_, _, done),) = hub.asked
    hub.elect(group, 0)
    done(False)
    hub.nodes[2].server.flush()
    assert [message[3] for message in client.taken()] == [LEADERSHIP_CHANGE]


async def test_a_consumer_without_anything_to_deliver_asks_nobody(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2)
    await _consumer(client)
    hub.unsure.add(hub.group("S"))
    client.subscribe("pulled.1")
    _pull(client)
    assert hub.asked == []


async def test_a_direct_get_is_answered_when_it_is_certain_who_leads(hub: FakeHub) -> None:
    client = await _stream(hub, leader=2, allow_direct=True)
    await client.ask("s.a", b"x")
    group = hub.group("S")
    hub.unsure.add(group)
    client.subscribe("got")
    client.publish("$JS.API.DIRECT.GET.S.s.a", b"", "got")
    assert client.taken() == []
    ((_, _, done),) = hub.asked
    hub.unsure.clear()
    done(True)
    hub.nodes[2].server.flush()
    message = await client.receive()
    assert message[3][message[2] :] == b"x"


async def test_a_request_is_answered_by_who_leads_when_the_first_one_is_deposed(
    hub: FakeHub,
) -> None:
    client = await _stream(hub, leader=2)
    group = hub.group("S")
    hub.unsure.add(group)
    infos: list[Any] = []

    async def ask() -> None:
        infos.append(await client.api("STREAM.INFO.S"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        ((_, _, done),) = hub.asked
        assert infos == []
        hub.unsure.clear()
        hub.elect(group, 3)
        done(False)
    assert infos[0]["cluster"]["leader"] == "n3"
