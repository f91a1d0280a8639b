"""Routes: interest and messages between nodes, as clients of three nodes see them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

import trio

from edged.config.options import (
    AccountOptions,
    Options,
    PermissionsOptions,
    ServiceExport,
    ServiceImport,
    StreamExport,
    StreamImport,
    SubjectRules,
)
from edged.core.nkeys import KeyKind
from edged.core.twins import Subscription
from tests import tokens
from tests.links.clients import accounts, login, message, nothing_for, settled
from tests.links.nodes import CLUSTER, Node, node, three_nodes, until
from tests.server.live import CONNECT, LiveClient


async def test_messages_reach_subscribers_of_other_nodes_once_each() -> None:
    async with three_nodes() as nodes:
        first, second, _ = nodes
        listener = await second.client()
        await listener.send(b"SUB orders.* 1\r\nSUB orders.> 2\r\nSUB orders.new 3\r\nSUB other 4\r\n")
        await listener.barrier()
        await settled(*nodes)
        for publisher_node in nodes:
            publisher = await publisher_node.client()
            await publisher.send(
                b"PUB orders.new 5\r\nhello\r\nHPUB orders.new answers 12 15\r\nNATS/1.0\r\n\r\nbye\r\n"
            )
            await publisher.barrier()
            found = [await message(listener) for _ in range(6)]
            assert Counter(found) == Counter(
                [(b"orders.new %d 5" % sid, b"hello") for sid in (1, 2, 3)]
                + [(b"orders.new %d answers 12 15" % sid, b"NATS/1.0\r\n\r\nbye") for sid in (1, 2, 3)]
            )
        await settled(*nodes)
        await nothing_for(listener)
        # One message for the node, however many listen there.
        assert [route.out_messages for route in first.router.routes() if route.remote_name == "n2"] == [2]
        assert [route.out_messages for route in first.router.routes() if route.remote_name == "n3"] == [0]


async def test_interest_ends_with_the_last_subscription() -> None:
    async with three_nodes() as nodes:
        first, second, _ = nodes
        listener = await second.client()
        await listener.send(b"SUB a.b 1\r\nSUB a.b 2\r\nUNSUB 1\r\n")
        await listener.barrier()
        await settled(*nodes)
        assert first.server.default_account.has_interest(b"a.b")
        await listener.send(b"UNSUB 2\r\n")
        await listener.barrier()
        await settled(*nodes)
        assert not first.server.default_account.has_interest(b"a.b")
        # A client that goes away takes its interest along.
        await listener.send(b"SUB gone.* 3\r\n")
        await listener.barrier()
        await settled(*nodes)
        assert first.server.default_account.has_interest(b"gone.1")
        await trio.aclose_forcefully(listener.stream)
        await until(lambda: not first.server.default_account.has_interest(b"gone.1"), "it is gone")


async def test_a_node_that_joins_later_learns_all_interest() -> None:
    async with node(1) as first:
        listener = await first.client()
        await listener.send(b"SUB early.> 1\r\nSUB jobs workers 2\r\n")
        await listener.barrier()
        async with node(2, first.address) as second:
            await second.hears(b"early.bird")
            publisher = await second.client()
            await publisher.send(b"PUB early.bird 1\r\nx\r\nPUB jobs 1\r\ny\r\n")
            await publisher.barrier()
            assert [await message(listener) for _ in range(2)] == [
                (b"early.bird 1 1", b"x"),
                (b"jobs 2 1", b"y"),
            ]


async def test_a_queue_group_gets_each_message_once_and_members_nearby_are_preferred() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        near, far, further = await first.client(), await second.client(), await third.client()
        for member in (near, far, further):
            await member.send(b"SUB jobs.* workers 1\r\n")
            await member.barrier()
        await settled(*nodes)
        publisher = await first.client()
        await publisher.send(b"PUB jobs.1 1\r\nx\r\n" * 50)
        await publisher.barrier()
        for _ in range(50):
            assert await message(near) == (b"jobs.1 1 1", b"x")
        await settled(*nodes)
        for member in (near, far, further):
            await nothing_for(member)


async def test_without_members_nearby_nodes_get_messages_by_how_many_members_they_have() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        one, many = await second.client(), await third.client()
        await one.send(b"SUB jobs workers 1\r\n")
        await many.send(b"".join(b"SUB jobs workers %d\r\n" % sid for sid in range(3)))
        await one.barrier()
        await many.barrier()
        await settled(*nodes)
        publisher = await first.client()
        await publisher.send(b"PUB jobs 1\r\nx\r\n" * 2000)
        await publisher.barrier()
        await settled(*nodes)
        got_one = len(await one.barrier()) // 2
        got_many = len(await many.barrier()) // 2
        assert got_one + got_many == 2000
        assert 380 < got_one < 620, got_one
        # Fewer members there, and the shares change.
        await many.send(b"UNSUB 1\r\nUNSUB 2\r\n")
        await many.barrier()
        await settled(*nodes)
        await publisher.send(b"PUB jobs 1\r\nx\r\n" * 2000)
        await publisher.barrier()
        await settled(*nodes)
        got_one = len(await one.barrier()) // 2
        assert got_one + len(await many.barrier()) // 2 == 2000
        assert 850 < got_one < 1150, got_one


async def test_listeners_and_queue_groups_of_a_node_get_what_is_theirs() -> None:
    async with three_nodes() as nodes:
        first, second, third = nodes
        plain, queued, other = await second.client(), await second.client(), await third.client()
        await plain.send(b"SUB jobs 1\r\nSUB * 2\r\n")
        await queued.send(b"SUB jobs a 3\r\nSUB > b 4\r\n")
        await other.send(b"SUB jobs a 5\r\n")
        for client in (plain, queued, other):
            await client.barrier()
        await settled(*nodes)
        publisher = await first.client()
        await publisher.send(b"PUB jobs 1\r\nx\r\n" * 100)
        await publisher.barrier()
        await settled(*nodes)
        lines = [await client.barrier() for client in (plain, queued, other)]
        counts = Counter(chain.from_iterable(lines))
        assert (counts[b"MSG jobs 1 1"], counts[b"MSG jobs 2 1"], counts[b"MSG jobs 4 1"]) == (100, 100, 100)
        assert counts[b"MSG jobs 3 1"] + counts[b"MSG jobs 5 1"] == 100
        assert counts[b"MSG jobs 3 1"] and counts[b"MSG jobs 5 1"]


async def test_requests_are_answered_across_nodes_and_nobody_there_is_said_at_once() -> None:
    async with three_nodes() as nodes:
        first, _, third = nodes
        service, requester = await third.client(), await first.client()
        await service.send(b"SUB echo.* workers 1\r\n")
        await service.barrier()
        await settled(*nodes)
        await requester.send(b"SUB _INBOX.me.* 9\r\nPUB echo.a _INBOX.me.1 2\r\nhi\r\n")
        line, data = await message(service)
        assert (line, data) == (b"echo.a 1 _INBOX.me.1 2", b"hi")
        await service.send(b"PUB _INBOX.me.1 6\r\nhi too\r\n")
        assert await message(requester) == (b"_INBOX.me.1 9 6", b"hi too")
        await requester.send(b"PUB nobody.there _INBOX.me.2 0\r\n\r\n")
        line, data = await message(requester)
        assert line.startswith(b"_INBOX.me.2 9 ") and data.startswith(b"NATS/1.0 503")
        await service.send(b"UNSUB 1\r\n")
        await service.barrier()
        await settled(*nodes)
        await requester.send(b"PUB echo.a _INBOX.me.3 0\r\n\r\n")
        assert (await message(requester))[1].startswith(b"NATS/1.0 503")


async def test_accounts_are_apart_on_all_nodes() -> None:
    options = accounts(AccountOptions("A"), AccountOptions("B"))
    async with three_nodes(options) as nodes:
        first, second, _ = nodes
        in_a, in_b = await login(second, "a"), await login(second, "b")
        await in_a.send(b"SUB > 1\r\n")
        await in_b.send(b"SUB > 1\r\n")
        await in_a.barrier()
        await in_b.barrier()
        await settled(*nodes)
        publishers = [await login(first, "a"), await login(first, "b")]
        # Taking turns, so that each message is for another account than the one before.
        for _ in range(10):
            for publisher, text in zip(publishers, (b"for a", b"for b"), strict=True):
                await publisher.send(b"PUB subject 5\r\n%s\r\n" % text)
                await publisher.barrier()
        for client, text in ((in_a, b"for a"), (in_b, b"for b")):
            assert [await message(client) for _ in range(10)] == [(b"subject 1 5", text)] * 10
        await settled(*nodes)
        await nothing_for(in_a)
        await nothing_for(in_b)


SHARING = accounts(
    AccountOptions(
        "EXPORTER",
        stream_exports=(StreamExport("news.>"),),
        service_exports=(ServiceExport("ask.*"),),
    ),
    AccountOptions(
        "IMPORTER",
        stream_imports=(StreamImport("EXPORTER", "news.>", prefix="from"),),
        service_imports=(ServiceImport("EXPORTER", "ask.*", "please.*"),),
    ),
)


async def test_imported_messages_reach_other_nodes_under_their_local_name_once() -> None:
    async with three_nodes(SHARING) as nodes:
        _, second, third = nodes
        listeners = [await login(second, "importer"), await login(third, "importer")]
        own = await login(third, "exporter")
        for listener in listeners:
            await listener.send(b"SUB from.news.* 1\r\n")
            await listener.barrier()
        await own.send(b"SUB news.* 1\r\n")
        await own.barrier()
        await settled(*nodes)
        for at in nodes:
            publisher = await login(at, "exporter")
            await publisher.send(b"PUB news.today 3\r\nsun\r\n")
            await publisher.barrier()
            for listener in listeners:
                assert await message(listener) == (b"from.news.today 1 3", b"sun")
            assert await message(own) == (b"news.today 1 3", b"sun")
        await settled(*nodes)
        for client in (*listeners, own):
            await nothing_for(client)


async def test_a_service_of_another_account_on_another_node_answers() -> None:
    async with three_nodes(SHARING) as nodes:
        first = nodes[0]
        for at in nodes:
            service = await login(at, "exporter")
            await service.send(b"SUB ask.* workers 1\r\n")
            await service.barrier()
            await settled(*nodes)
            for requesting in nodes:
                requester = await login(requesting, "importer")
                await requester.send(b"SUB _INBOX.x.* 9\r\nPUB please.tell _INBOX.x.1 1\r\n?\r\n")
                line, data = await message(service)
                subject, _, reply, *_ = line.split()
                assert subject == b"ask.tell" and reply.startswith(b"_R_.") and data.endswith(b"?")
                await service.send(b"PUB %s 1\r\n!\r\n" % reply)
                assert await message(requester) == (b"_INBOX.x.1 9 1", b"!")
                # It was answered: a second answer reaches nobody.
                await service.send(b"PUB %s 1\r\n!\r\n" % reply)
                await service.barrier()
                await settled(*nodes)
                await nothing_for(requester)
                await trio.aclose_forcefully(requester.stream)
            await trio.aclose_forcefully(service.stream)
            await until(
                lambda: not any(one.server.accounts["EXPORTER"].has_interest(b"ask.tell") for one in nodes),
                "the service is gone",
            )
        requester = await login(first, "importer")
        await requester.send(b"SUB _INBOX.x.* 9\r\nPUB please.tell _INBOX.x.1 1\r\n?\r\n")
        assert (await message(requester))[1].startswith(b"NATS/1.0 503")


async def test_an_account_that_appears_later_is_reached_where_it_was_heard_of_before() -> None:
    known = accounts(AccountOptions("A"))
    later = accounts(AccountOptions("A"), AccountOptions("LATE"))
    async with node(1, options=known) as first, node(2, first.address, options=later) as second:
        await first.linked(second)
        await second.linked(first)
        listener = await login(second, "late")
        await listener.send(b"SUB x 1\r\n")
        await listener.barrier()
        await settled(first, second)
        first.server.configure(replace(later, host="127.0.0.1", cluster=first.server.options.cluster))
        publisher = await login(first, "late")
        await first.hears(b"x", "LATE")
        await publisher.send(b"SUB y 2\r\nPUB x 1\r\nx\r\n")
        assert await message(listener) == (b"x 1 1", b"x")
        await second.hears(b"y", "LATE")
        await listener.send(b"PUB y 1\r\ny\r\n")
        assert await message(publisher) == (b"y 2 1", b"y")


async def test_handlers_that_are_not_announced_hear_only_their_own_node_and_what_is_forwarded() -> None:
    async with three_nodes() as nodes:
        first, second, _ = nodes
        heard: dict[int, list[bytes]] = {one.number: [] for one in nodes}
        for one in nodes:
            inbox = heard[one.number]

            def handle(_subscription: object, messages: list[object], _origin: object, inbox=inbox) -> None:  # type: ignore[no-untyped-def]
                inbox.extend(data for _, _, _, data in messages)

            hidden = Subscription(b"$JS.API.>", None, b"1", None, handle)
            one.server.default_account.subscribe(hidden, is_announced=False)
        # Somebody who watches must not make a message arrive at handlers of other nodes.
        watcher = await second.client()
        await watcher.send(b"SUB > 1\r\n")
        await watcher.barrier()
        await settled(*nodes)
        client = await first.client()
        await client.send(b"PUB $JS.API.INFO 3\r\none\r\n")
        await client.barrier()
        assert await message(watcher) == (b"$JS.API.INFO 1 3", b"one")
        assert heard == {1: [b"one"], 2: [], 3: []}
        for target in nodes:
            assert first.links.forward(target.number, "$G", (b"$JS.API.INFO", b"reply", -1, b"two"))
        assert not first.links.forward(77, "$G", (b"$JS.API.INFO", None, -1, b"lost"))
        assert not first.links.forward(2, "UNHEARD", (b"$JS.API.INFO", None, -1, b"lost"))
        first.server.flush()
        await settled(*nodes)
        assert heard == {1: [b"one", b"two"], 2: [b"two"], 3: [b"two"]}
        await nothing_for(watcher)


async def test_what_the_cluster_block_does_not_permit_stays_here() -> None:
    rules = PermissionsOptions(
        publish=SubjectRules(deny=("secret.in.>",)), subscribe=SubjectRules(deny=("secret.out.>",))
    )
    guarded = replace(CLUSTER, permissions=rules)
    async with node(1, cluster=guarded) as first, node(2, first.address) as second:
        await first.linked(second)
        await second.linked(first)
        here, there = await first.client(), await second.client()
        subscriptions = b"SUB secret.in.x 1\r\nSUB secret.out.x 2\r\nSUB open 3\r\n"
        await here.send(subscriptions)
        await there.send(subscriptions)
        await here.barrier()
        await there.barrier()
        await settled(first, second)
        messages = b"PUB secret.in.x 0\r\n\r\nPUB secret.out.x 0\r\n\r\nPUB open 0\r\n\r\n"
        await here.send(messages)
        await here.barrier()
        await settled(first, second)
        assert [line for line in await there.barrier() if line] == [b"MSG secret.in.x 1 0", b"MSG open 3 0"]
        await there.send(messages)
        await there.barrier()
        await settled(first, second)
        assert [line for line in await here.barrier() if line] == [b"MSG secret.out.x 2 0", b"MSG open 3 0"]


async def login_with_token(at: Node, user: str, account: str) -> LiveClient:
    """A client that shows a JWT, and signs the nonce of the server."""
    client = await at.client(connect=False)
    nonce = json.loads(client.info[5:])["nonce"].encode()
    token = tokens.user_token(user, account)
    fields = b',"jwt":"%s","sig":"%s"' % (token.encode(), tokens.sign_nonce(user, nonce).encode())
    await client.send(CONNECT % fields + b"PING\r\n")
    assert await client.line() == b"PONG"
    assert (await client.line()).startswith(b"INFO ")
    return client


async def test_accounts_of_an_operator_are_looked_up_when_another_node_has_listeners_in_them() -> None:
    exporter, importer = (tokens.public(KeyKind.ACCOUNT, name) for name in ("E", "I"))
    exports = [{"subject": "news.>", "type": "stream"}]
    imports = [{"subject": "news.>", "type": "stream", "account": exporter, "to": "from"}]
    options = Options(
        operators=(tokens.operator_token(),),
        resolver_preload=(
            (exporter, tokens.account_token("E", exports=exports)),
            (importer, tokens.account_token("I", imports=imports)),
        ),
    )
    async with node(1, options=options) as first, node(2, first.address, options=options) as second:
        await first.linked(second)
        await second.linked(first)
        assert importer not in first.server.accounts
        listener = await login_with_token(second, "reader", "I")
        await listener.send(b"SUB from.news.* 1\r\n")
        await listener.barrier()
        await until(lambda: importer in first.server.accounts, "the account is looked up")
        await first.hears(b"news.today", exporter)
        publisher = await login_with_token(first, "writer", "E")
        await publisher.send(b"PUB news.today 3\r\nsun\r\n")
        assert await message(listener) == (b"from.news.today 1 3", b"sun")
