"""The alarm rings at the earliest of the times that it was told, on a virtual clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from edged.server.deadlines import Deadlines
from edged.server.jetstream.alarm import HORIZON_NS, Alarm

START_NS = 1_800_000_000_000_000_000


def now_ns() -> int:
    return START_NS + round(trio.current_time() * 1e9)


class Rung:
    """An alarm, and when it rang, in ms since it was made."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.at_ms: list[int] = []
        self.made_ns = now_ns()
        self.alarm = Alarm(deadlines, now_ns, self._note)

    def set(self, after_ms: int) -> None:
        self.alarm.set(self.made_ns + after_ms * 1_000_000)

    def _note(self) -> None:
        self.at_ms.append(round((now_ns() - self.made_ns) / 1e6))


@asynccontextmanager
async def rung() -> AsyncIterator[Rung]:
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines()
        nursery.start_soon(deadlines.run)
        yield Rung(deadlines)
        nursery.cancel_scope.cancel()


async def test_it_rings_once_at_the_earliest_time(autojump_clock: trio.testing.MockClock) -> None:
    async with rung() as found:
        for after_ms in (700, 300, 500):
            found.set(after_ms)
        found.alarm.set(None)
        await trio.sleep(2)
        assert found.at_ms == [300]


async def test_it_is_told_the_next_time_after_it_rang(autojump_clock: trio.testing.MockClock) -> None:
    async with rung() as found:
        found.set(300)
        await trio.sleep(0.4)
        found.set(700)
        await trio.sleep(2)
        assert found.at_ms == [300, 700]


async def test_what_is_over_rings_at_once(autojump_clock: trio.testing.MockClock) -> None:
    async with rung() as found:
        found.set(900)
        await trio.sleep(0.2)
        found.set(-5)
        await trio.sleep(2)
        assert found.at_ms == [200]


async def test_what_is_far_away_is_left_aside_until_it_is_near(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with rung() as found:
        far_ms = HORIZON_NS // 1_000_000 + 400
        found.set(far_ms)
        await trio.sleep(0.5)
        found.set(far_ms)
        await trio.sleep(5)
        assert found.at_ms == [far_ms]
        found.set(far_ms + 10 * HORIZON_NS // 1_000_000)
        await trio.sleep(60)
        assert found.at_ms == [far_ms]


async def test_a_cancelled_alarm_does_not_ring_and_can_be_set_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with rung() as found:
        found.set(300)
        found.alarm.cancel()
        found.alarm.cancel()
        await trio.sleep(0.4)
        found.set(600)
        await trio.sleep(2)
        assert found.at_ms == [600]
