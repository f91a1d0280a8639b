"""Schedules fire, and messages expire, at their time and not at the next look at all streams.

The server runs inside the test, on a clock that goes on by a step whenever nothing is left to be done. Times
are in steps, of which a second has a power of two, so that they are exact.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.lowlevel
import trio.testing

from edged.config.load import load_text
from edged.core.gotime import format_rfc3339
from edged.core.twins import Subscription
from edged.ports import LocalRouter
from edged.server.account import Account
from edged.server.jetstream.jetstream import JetStream
from edged.server.jetstream.stream import Stream
from edged.server.log import Log
from edged.server.server import Server
from tests.server.live import LogLines

START_NS = 1_800_000_000_000_000_000
STEPS_PER_S = 512
TURNS = 8


class ClockedJetStream(JetStream):
    """JetStream by the clock of the test."""

    def now_ns(self) -> int:
        return START_NS + round(trio.current_time() * 1e9)


class Edge:
    """A server without sockets, a client of it, and the clock."""

    def __init__(self, server: Server, jetstream: JetStream, clock: trio.testing.MockClock) -> None:
        self.jetstream = jetstream
        self._clock = clock
        self.account: Account = server.default_account
        self._server = server
        self._answers: list[bytes] = []
        inbox = Subscription(b"inbox", None, b"1", None, self._answered)
        self.account.subscribe(inbox)

    async def create(self, **config: Any) -> Stream:
        """A stream S with the subjects s.>."""
        request = json.dumps({"name": "S", "subjects": ["s.>"], **config}).encode()
        answer = await self.ask(b"$JS.API.STREAM.CREATE.S", request)
        assert "error" not in answer, answer
        return self.jetstream.accounts[self.account.name].streams["S"]

    async def ask(self, subject: bytes, data: bytes, header_bytes: int = -1) -> dict[str, Any]:
        """Publish, and wait for the answer."""
        self.account.publish(subject, b"inbox", data, header_bytes)
        self._server.flush()
        while not self._answers:
            await trio.lowlevel.checkpoint()
        return dict(json.loads(self._answers.pop()))

    async def settle(self) -> None:
        """Wait until the disk has done its work and every task has had its turns."""
        turns = 0
        while turns < TURNS:
            turns = turns + 1 if self.jetstream.committer.is_idle else 0
            await trio.lowlevel.checkpoint()

    async def until(self, steps: int) -> None:
        """Let the time come, step by step."""
        while trio.current_time() < steps / STEPS_PER_S:
            self._clock.jump(1 / STEPS_PER_S)
            await self.settle()

    async def schedule(self, name: str, steps: int) -> None:
        """Have s.fired.<name> published after so many steps."""
        at = format_rfc3339(START_NS + steps * 10**9 // STEPS_PER_S)
        fields = f"NATS/1.0\r\nNats-Schedule: @at {at}\r\nNats-Schedule-Target: s.fired.{name}\r\n\r\n"
        answer = await self.ask(f"s.plan.{name}".encode(), fields.encode(), len(fields))
        assert "error" not in answer, answer

    def _answered(self, subscription: Subscription, messages: list[Any], origin: object) -> None:
        self._answers += [data for _, _, _, data in messages]


@asynccontextmanager
async def edge(tmp_path: Path, clock: trio.testing.MockClock) -> AsyncIterator[Edge]:
    options = load_text(f'jetstream {{ store_dir: "{tmp_path}", sync: os }}', {}, "f").options
    async with trio.open_nursery() as nursery:
        server = Server(options, Log(options.logging, LogLines()), LocalRouter(), nursery)  # type: ignore[arg-type]
        jetstream = server.jetstream = await ClockedJetStream.open(server)
        nursery.start_soon(server.deadlines.run)
        nursery.start_soon(server.reactor.run)
        nursery.start_soon(jetstream.run)
        try:
            yield Edge(server, jetstream, clock)
        finally:
            nursery.cancel_scope.cancel()
    jetstream.close()


async def test_schedules_fire_one_by_one_at_their_times_whatever_the_order_they_came_in(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(allow_msg_schedules=True)
        for name, steps in (("c", 374), ("b", 334), ("d", 380), ("a", 313)):
            await edged.schedule(name, steps)
        fired: list[tuple[bytes, int]] = []

        def look() -> None:
            message = stream.log.get(stream.log.last_seq)
            assert message is not None
            fired.append((message.subject, round(trio.current_time() * STEPS_PER_S)))

        stream.listeners.append(look)
        await edged.until(600)
        assert fired == [
            (b"s.fired.a", 313),
            (b"s.fired.b", 334),
            (b"s.fired.c", 374),
            (b"s.fired.d", 380),
        ]


async def test_a_schedule_far_away_fires_at_its_time(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(allow_msg_schedules=True)
        await edged.schedule("a", 3600 * STEPS_PER_S + 100)
        last_seq = stream.log.last_seq
        mock_clock.jump(3599)
        await edged.until(3600 * STEPS_PER_S + 99)
        assert stream.log.last_seq == last_seq
        await edged.until(3600 * STEPS_PER_S + 100)
        assert stream.log.last_seq == last_seq + 1


async def test_a_message_goes_when_max_age_is_over(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(max_age=1_000_000_000)
        await edged.until(50)
        await edged.ask(b"s.a", b"")
        await edged.until(STEPS_PER_S + 49)
        assert stream.log.message_count == 1
        await edged.until(STEPS_PER_S + 50)
        assert stream.log.message_count == 0


async def test_a_message_goes_when_its_ttl_is_over_and_its_marker_comes_at_once(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(
            allow_msg_ttl=True, subject_delete_marker_ttl=10**9, allow_rollup_hdrs=True
        )
        await edged.until(50)
        fields = b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n"
        assert (await edged.ask(b"s.a", fields, len(fields)))["seq"] == 1
        await edged.until(STEPS_PER_S + 49)
        assert stream.log.has(1)
        await edged.until(STEPS_PER_S + 50)
        assert not stream.log.has(1)
        assert stream.log.last_seq == 2


async def test_many_that_expire_one_after_the_other_go_with_few_commands(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(max_age=1_000_000_000)
        for number in range(50):
            await edged.until(50 + 5 * number)
            await edged.ask(b"s.a", b"")
        index = stream.entry.group.applied
        await edged.until(2 * STEPS_PER_S)
        assert stream.log.message_count == 0
        assert stream.entry.group.applied - index <= 4


async def test_a_schedule_that_cannot_be_read_any_more_does_not_fire_and_others_do(
    mock_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    async with edge(tmp_path, mock_clock) as edged:
        stream = await edged.create(allow_msg_schedules=True)
        for name, steps in (("lost", 300), ("kept", 310)):
            await edged.schedule(name, steps)
        path = tmp_path / "jetstream/journal/00000000000000000001.log"
        with path.open("r+b") as file:
            file.seek(file.read().index(b"s.fired.lost"))
            file.write(b"S")
        # What was written last is in memory, too: let other messages take its place.
        for _ in range(10):
            await edged.ask(b"s.other", bytes(1_000_000))
        assert stream.log.peek(1) is None
        await edged.until(400)
        assert stream.log.count_of(b"s.fired.lost") == 0
        assert stream.log.count_of(b"s.fired.kept") == 1
