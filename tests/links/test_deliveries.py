"""What consumers deliver to clients of other nodes: it is for one subject, and shows another."""

from __future__ import annotations

from edged.core.message import Message
from edged.server.jetstream.consumers.target import Target
from edged.server.peers import delivery_address
from tests.links.clients import message, nothing_for, settled
from tests.links.nodes import three_nodes


def test_the_address_of_a_delivery_names_the_subject_before_the_queue_group() -> None:
    assert delivery_address(b"7", b"inbox.1") == b"7=inbox.1"
    assert delivery_address(b"7 workers", b"inbox.1") == b"7=inbox.1 workers"


async def test_a_delivery_reaches_who_listens_to_its_target_and_shows_its_own_subject() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        asking, other = await second.client(), await third.client()
        await asking.send(b"SUB inbox.1 1\r\n")
        await asking.barrier()
        await other.send(b"SUB orders.> 1\r\nSUB inbox.2 2\r\n")
        await other.barrier()
        await settled(*nodes)
        account = first.server.accounts["$G"]
        for subject in (b"inbox.1", b"inbox.2", b"inbox.1"):
            target = Target(account, subject)
            assert target.is_plain and not target.is_empty
            target.hand_out([Message(5, 1, b"orders.new", 0, b"five")], b"$JS.ACK.S.c.", 2, 0)
            assert target.send((b"orders.old", b"again", -1, b"six"))
            target.close()
        first.server.flush()
        account.publish(b"orders.new", None, b"plain")
        first.server.flush()
        expected = [(b"orders.new %b $JS.ACK.S.c.1.5.2.1.0 4", b"five"), (b"orders.old %b again 3", b"six")]
        for head, payload in expected * 2:
            assert await message(asking) == (head % b"1", payload)
        for head, payload in expected:
            assert await message(other) == (head % b"2", payload)
        assert await message(other) == (b"orders.new 1 5", b"plain")
        await settled(*nodes)
        await nothing_for(asking)


async def test_a_delivery_to_a_queue_group_reaches_its_member() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        member, bystander = await second.client(), await third.client()
        await member.send(b"SUB pushed workers 1\r\n")
        await member.barrier()
        await bystander.send(b"SUB orders.> workers 1\r\n")
        await bystander.barrier()
        await settled(*nodes)
        target = Target(first.server.accounts["$G"], b"pushed")
        for number in range(3):
            target.send((b"orders.new", b"ack", -1, b"%d" % number))
        target.close()
        first.server.flush()
        for number in range(3):
            assert await message(member) == (b"orders.new 1 ack 1", b"%d" % number)
        await settled(*nodes)
        await nothing_for(bystander)
