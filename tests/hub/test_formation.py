"""A cluster is begun once, and is begun, whoever is interrupted meanwhile and whoever does not see whom."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from edged.config.options import LoggingOptions
from edged.server.log import Log
from hub.links.control import CallFailed
from hub.meta import BEGIN, PROMISE, PROMISE_S, MetaGroup
from hub.placement import NodeFacts
from hub.raft.members import Members

Body = dict[str, Any]


class World:
    """Nodes and their links. The lowest node leads that has a majority which knows the same members."""

    def __init__(self, *nodes: int) -> None:
        self.nodes = nodes
        self.cut: set[frozenset[int]] = set()
        self.members: dict[int, Members] = {}
        self.up: dict[int, MetaGroup] = {}
        self.scopes: dict[int, trio.CancelScope] = {}
        # The node that loses its power when somebody has taken its word to begin, before its disk has it.
        self.doomed = 0

    def is_connected(self, one: int, other: int) -> bool:
        return other in self.up and frozenset((one, other)) not in self.cut

    def leader(self) -> int:
        for node, members in sorted(self.members.items()):
            having = [one for one in members.voters if one in self.up and self.members.get(one) == members]
            if node in self.up and len(having) > len(members.voters) // 2:
                return node
        return 0

    def node(self, node: int) -> MetaGroup:
        return MetaGroup(
            node,
            Nodes(self, node),
            Groups(self, node),
            lambda: NodeFacts(node, f"n{node}", "c"),
            lambda: (True, all(one in self.up for one in self.nodes)),
            lambda: None,
            Log(LoggingOptions(), StringIO()),
        )

    async def run(self, node: int) -> None:
        with trio.CancelScope() as scope:
            self.scopes[node] = scope
            self.up[node] = self.node(node)
            await self.up[node].run()

    def cut_power(self, node: int) -> None:
        del self.up[node]
        self.members.pop(node, None)
        self.scopes[node].cancel()


class Nodes:
    def __init__(self, world: World, node: int) -> None:
        self.world, self.node = world, node

    @property
    def peers(self) -> dict[int, Any]:
        world = self.world
        return {
            node: SimpleNamespace(is_up=world.is_connected(self.node, node))
            for node in world.nodes
            if node != self.node
        }

    async def call(self, node: int, method: str, body: Body, timeout_s: float) -> Body:
        await trio.sleep(0.01)
        world = self.world
        if not world.is_connected(self.node, node):
            raise CallFailed("down")
        answer: Body = await world.up[node].methods[method](self.node, body)
        if method == BEGIN and world.doomed == self.node:
            world.doomed = 0
            world.cut_power(self.node)
            await trio.sleep_forever()
        return answer


class Groups:
    def __init__(self, world: World, node: int) -> None:
        self.world, self.node = world, node

    def has(self, group: int) -> bool:
        return self.node in self.world.members

    def leads(self, group: int) -> bool:
        return self.world.leader() == self.node

    def begin(self, group: int, members: Members) -> None:
        self.world.members[self.node] = members

    def status(self, group: int) -> Any:
        leader = self.world.leader()
        members = self.world.members[self.node]
        return SimpleNamespace(members=members, leader=leader, last=int(leader > 0), followers={}, commit=1)

    def change(self, group: int, voters: frozenset[int], learners: frozenset[int]) -> bool:
        return False


def run(main: Any) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("doomed", [0, 1])
def test_founder_that_loses_its_power_between_two_words_the_others_tell_each_other(doomed: int) -> None:
    async def main() -> None:
        world = World(1, 2, 3)
        world.doomed = doomed
        async with trio.open_nursery() as nursery:
            for node in world.nodes:
                nursery.start_soon(world.run, node)
            await trio.sleep(5)
            if doomed:
                assert 1 not in world.up
                nursery.start_soon(world.run, 1)
            await trio.sleep(2 * PROMISE_S)
            nursery.cancel_scope.cancel()
        assert world.leader()
        assert sorted(world.members) == [1, 2, 3]

    run(main)


def test_two_founders_that_do_not_see_each_other_begin_one_cluster() -> None:
    async def main() -> None:
        world = World(1, 2, 3)
        world.cut.add(frozenset((1, 2)))
        async with trio.open_nursery() as nursery:
            for node in world.nodes:
                nursery.start_soon(world.run, node)
            await trio.sleep(10 * PROMISE_S)
            nursery.cancel_scope.cancel()
        assert len({members.voters for members in world.members.values()}) == 1
        assert world.leader() == min(world.members[3].voters)

    run(main)


def test_word_of_a_stranger_while_a_promise_holds_is_not_taken() -> None:
    async def main() -> None:
        world = World(1, 2, 3)
        node = world.up[3] = world.node(3)
        promise, begin = node.methods[PROMISE], node.methods[BEGIN]
        assert await promise(1, {}) == {"is_given": True}
        assert await promise(2, {}) == {"is_given": False}
        assert await begin(2, {"voters": [2, 3]}) == {"is_taken": False}
        await trio.sleep(PROMISE_S)
        assert await begin(2, {"voters": [2, 3]}) == {"is_taken": True}
        assert await begin(1, {"voters": [1, 3]}) == {"is_taken": False}
        assert world.members == {3: Members(frozenset((2, 3)))}

    run(main)


def test_node_that_sees_a_cluster_promises_nothing() -> None:
    async def main() -> None:
        world = World(1, 2, 3)
        world.members[1] = Members(frozenset((1, 4)))
        async with trio.open_nursery() as nursery:
            for node in (1, 3):
                nursery.start_soon(world.run, node)
            await trio.sleep(5)
            assert await world.up[3].methods[PROMISE](2, {}) == {"is_given": False}
            nursery.cancel_scope.cancel()

    run(main)
