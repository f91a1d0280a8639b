"""Increments that wait for the disk: they are bounded, none is lost, and none outlives its stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from edged import committer as committer_module
from edged.config.jetstream_options import JetStreamOptions
from edged.core import headers
from edged.core.commands import PutStream
from edged.core.limits import COMMIT_QUEUE_BYTES_MAX, COUNTER_QUEUE_BYTES_MAX
from edged.core.stream_bounds import StreamBounds
from edged.core.stream_config import StreamConfig
from edged.core.stream_rules import check_create
from edged.core.wire import Publish
from edged.server.jetstream.counter_intake import BATCH_MAX
from edged.server.jetstream.jetstream import JetStream
from edged.server.jetstream.stream import Stream
from edged.store.group import CATALOG
from edged.store.options import StoreOptions
from edged.store.store import Store
from tests.lab.slow_disk import DEADLINE_S, SlowDisk
from tests.server.live import live_server

GROUP = 1
BLOCK = headers.encode([(b"Nats-Incr", b"1")])
INCREMENT: Publish = (b"c.a", None, len(BLOCK), BLOCK)
# Far more than may wait, yet little for the journal.
MANY = 16 * 1024


@pytest.fixture(autouse=True)
def always_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop must not wait for a disk that stands still."""
    monkeypatch.setattr(committer_module, "INLINE_S", 0.0)


@asynccontextmanager
async def counting(disk: SlowDisk) -> AsyncIterator[Stream]:
    """A stream with counters, in a server on this disk."""
    store = Store.open(disk, StoreOptions())
    config = check_create(
        StreamConfig(name="C", subjects=("c.>",), allow_msg_counter=True), StreamBounds(), {}
    )
    store.commit([(CATALOG, PutStream(GROUP, b"c" * 16, "$G", "C", config.document()))])
    options = JetStreamOptions()
    async with live_server(jetstream=options) as live:
        jetstream = live.server.jetstream = JetStream(live.server, store, options, "")
        try:
            with trio.fail_after(DEADLINE_S):
                yield next(jetstream.streams())
        finally:
            disk.gate.set()
            jetstream.close()


def publish(stream: Stream, count: int) -> None:
    """What a turn of the loop does that has read so many increments."""
    stream.ingest.take([INCREMENT] * count)
    stream.jetstream.server.flush()


async def settled(stream: Stream, message_count: int) -> None:
    """Wait until so many are stored."""
    arrival = trio.Event()
    stream.listeners.append(lambda: arrival.set())
    while stream.log.message_count < message_count:
        arrival = trio.Event()
        await arrival.wait()


async def test_publishers_wait_while_too_many_increments_do_and_go_on_when_the_disk_does() -> None:
    disk = SlowDisk()
    async with counting(disk) as stream:
        jetstream = stream.jetstream
        disk.gate.clear()
        publish(stream, BATCH_MAX)
        assert not jetstream.is_crowded
        publish(stream, MANY)
        assert MANY * len(BLOCK) < COUNTER_QUEUE_BYTES_MAX < COMMIT_QUEUE_BYTES_MAX
        assert jetstream.is_crowded
        disk.gate.set()
        await jetstream.room()
        assert stream.log.message_count < BATCH_MAX + MANY
        await settled(stream, BATCH_MAX + MANY)
        message = stream.log.get(stream.log.last_seq)
        assert message is not None
        assert message.data.endswith(b'{"val":"%d"}' % (BATCH_MAX + MANY))
        assert not jetstream.is_crowded


async def test_publishers_wait_again_when_the_disk_stands_still_once_more() -> None:
    disk = SlowDisk()
    async with counting(disk) as stream:
        for round_number in range(1, 3):
            disk.gate.clear()
            publish(stream, MANY)
            assert stream.jetstream.is_crowded
            disk.gate.set()
            await settled(stream, round_number * MANY)
            await stream.jetstream.room()


async def test_increments_that_wait_for_a_stream_that_goes_keep_nobody_waiting() -> None:
    disk = SlowDisk()
    async with counting(disk) as stream:
        jetstream = stream.jetstream
        disk.gate.clear()
        publish(stream, MANY)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.account.remove, stream)
            await trio.testing.wait_all_tasks_blocked()
            assert jetstream.is_crowded
            disk.gate.set()
        await jetstream.room()
        assert GROUP not in jetstream.store.groups
