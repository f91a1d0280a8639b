"""Copies that move: what is said late, or by somebody who missed something, takes no copy away."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from edged.core.commands import MOVE, PEERS, TARGET, PutStream
from hub.moves import MOVED, Moves
from hub.raft.members import Members

GROUP = 7
HERE, THERE = [1, 2, 3], [4, 5, 6]


class World:
    """Node 1, which leads the catalog and a stream; its cluster and its replicas as well."""

    def __init__(self) -> None:
        self.node = 1
        self.catalog = {GROUP: self.entry({"name": "S", PEERS: HERE})}
        self.members = Members(frozenset(HERE))
        self.is_catalog_known = True
        self.changes: list[frozenset[int]] = []
        self.called: list[dict[str, Any]] = []
        self.leader_of_catalog = 1
        self.jetstream = SimpleNamespace(
            store=SimpleNamespace(catalog=SimpleNamespace(streams=self.catalog)),
            commit=self.commit,
            catalog_lock=trio.Lock(),
            server=SimpleNamespace(flush=lambda: None),
        )
        self.moves = Moves(self, self)  # type: ignore[arg-type]

    def entry(self, config: dict[str, Any]) -> Any:
        return SimpleNamespace(stream_id=bytes(16), account="A", name="S", config=config)

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.catalog[GROUP].config
        return config

    async def commit(self, group: int, command: PutStream) -> None:
        await trio.sleep(0.01)
        self.catalog[GROUP] = self.entry(command.config)

    def all_streams(self) -> dict[int, Any]:
        return self.catalog

    def leader(self, group: int) -> int:
        return self.leader_of_catalog

    async def call(self, node: int, method: str, body: dict[str, Any]) -> dict[str, Any]:
        assert method == MOVED
        self.called.append(body)
        return {}

    def make_sure(self, group: int, done: Callable[[bool], None]) -> None:
        done(self.is_catalog_known)

    def forget_removed(self) -> None: ...

    # --- as the replicas ---

    def leads(self, group: int) -> bool:
        return True

    def status(self, group: int) -> Any:
        followers = dict.fromkeys((1, 2, 3, 4, 5, 6), (10, True))
        return SimpleNamespace(members=self.members, followers=followers, commit=10, is_agreed=True)

    def change(self, group: int, voters: frozenset[int], learners: frozenset[int]) -> bool:
        self.changes.append(voters)
        self.members = Members(voters, learners=learners)
        return True

    async def settle(self) -> None:
        """Let the members follow the catalog."""
        with trio.move_on_after(30):
            await self.moves.run()


def run(main: Any) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_stream_moves_to_where_it_is_told() -> None:
    async def main() -> None:
        world = World()
        await world.moves.begin(GROUP, THERE)
        await world.settle()
        assert world.members == Members(frozenset(THERE))
        assert world.config[PEERS] == THERE and TARGET not in world.config

    run(main)


def test_word_of_an_earlier_move_says_nothing_of_one_with_the_same_target() -> None:
    async def main() -> None:
        world = World()
        await world.moves.begin(GROUP, THERE)
        world.leader_of_catalog = 2
        await world.settle()
        late = world.called[-1]
        assert late["peers"] == THERE
        world.leader_of_catalog = 1
        await world.moves.cancel(GROUP)
        await world.settle()
        assert world.config[PEERS] == HERE and TARGET not in world.config
        await world.moves.begin(GROUP, THERE)
        await world.moves.methods[MOVED](2, late)
        assert world.members == Members(frozenset(HERE))
        assert set(HERE) <= set(world.config[PEERS])

    run(main)


def test_members_stay_while_it_is_unknown_what_the_catalog_says_by_now() -> None:
    async def main() -> None:
        world = World()
        await world.moves.begin(GROUP, THERE)
        world.is_catalog_known = False
        await world.settle()
        assert not world.changes
        world.is_catalog_known = True
        await world.settle()
        assert world.config[PEERS] == THERE

    run(main)


def test_configuration_that_is_being_changed_when_a_stream_has_moved_stays_changed() -> None:
    async def main() -> None:
        world = World()
        await world.moves.begin(GROUP, THERE)
        word = {"group": GROUP, "move": world.config[MOVE], "peers": THERE}
        async with trio.open_nursery() as nursery, world.jetstream.catalog_lock:
            changed = {**world.config, "max_msgs": 5}
            nursery.start_soon(world.moves.methods[MOVED], 2, word)
            await wait_all_tasks_blocked()
            await world.commit(0, PutStream(GROUP, bytes(16), "A", "S", changed))
        assert world.config["max_msgs"] == 5
        assert world.config[PEERS] == THERE

    run(main)
