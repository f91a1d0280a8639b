"""Deadlines: fired in order and on time, by one task, on a virtual clock."""

from __future__ import annotations

import trio
import trio.testing

from edged.server.deadlines import Deadlines


async def test_deadlines_fire_in_order_whatever_the_order_they_were_set(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fired: list[tuple[str, float]] = []
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines()
        nursery.start_soon(deadlines.run)
        start = trio.current_time()

        def note(name: str) -> None:
            fired.append((name, round(trio.current_time() - start, 3)))

        deadlines.after(3, lambda: note("third"))
        deadlines.after(1, lambda: note("first"))
        await trio.sleep(0.5)
        deadlines.after(1.5, lambda: note("second"))
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert fired == [("first", 1.0), ("second", 2.0), ("third", 3.0)]


async def test_a_cancelled_deadline_never_fires_and_one_may_set_the_next(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fired: list[int] = []
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines()
        nursery.start_soon(deadlines.run)

        def again() -> None:
            fired.append(len(fired))
            if len(fired) < 3:
                deadlines.after(1, again)

        deadlines.after(1, again)
        deadlines.after(2, lambda: fired.append(99)).cancel()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert fired == [0, 1, 2]
