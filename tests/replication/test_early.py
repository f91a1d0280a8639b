"""Messages for groups that a node does not know yet."""

from __future__ import annotations

from hub.limits import EARLY_BYTES_MAX, EARLY_MESSAGES_MAX
from hub.raft.messages import Append, Block, Heartbeat
from hub.replication.early import Early


def append(size: int) -> Append:
    frame = memoryview(bytes(2 * size))
    return Append(1, 1, 1, (Block(2, 1000, 1, size, None, frame[:size]),), 1)


def test_messages_are_given_to_their_group_in_their_order() -> None:
    early = Early()
    for sender, group in ((1, 5), (2, 6), (3, 5)):
        early.keep(sender, group, Heartbeat(1, 0, sender, False))
    assert [sender for sender, _ in early.take(5)] == [1, 3]
    assert [sender for sender, _ in early.take(5)] == []
    assert [sender for sender, _ in early.take(6)] == [2]


def test_large_messages_of_many_groups_the_oldest_are_dropped() -> None:
    early = Early()
    for group in range(100, 300):
        early.keep(1, group, append(1024 * 1024))
        assert early.bytes <= EARLY_BYTES_MAX
    assert not early.take(100)
    ((_, last),) = early.take(299)
    assert type(last) is Append and last.blocks[0].payload == bytes(1024 * 1024)


def test_many_small_messages_the_oldest_are_dropped() -> None:
    early = Early()
    for group in range(2 * EARLY_MESSAGES_MAX):
        early.keep(1, group, Heartbeat(1, 0, 1, False))
    assert len(early) == EARLY_MESSAGES_MAX
    assert not early.take(0)


def test_kept_message_does_not_keep_its_frame() -> None:
    early = Early()
    early.keep(1, 5, append(10))
    assert early.bytes == 10
    ((_, kept),) = early.take(5)
    assert type(kept) is Append and type(kept.blocks[0].payload) is bytes
    assert early.bytes == 0
