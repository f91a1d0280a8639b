"""A small stream with something of everything in it, and what an archive of it must hold.

The archives in `tests/data/archives` were made by nats-server of the version in their name, with `fill` and
then `SnapshotClient.snapshot`. The tests take the same steps against the real server of today.
"""

from __future__ import annotations

from edged.core.archive_parts import SeqPair
from tests.jetstream.snapshot_client import SnapshotClient

STREAM = "GOLD"
CONFIG = {"name": STREAM, "subjects": ["gold.>"], "storage": "file", "max_msgs": 12}
CONSUMER = "PULL"
CONSUMER_CONFIG = {"durable_name": CONSUMER, "name": CONSUMER, "ack_policy": "explicit"}

MESSAGES = 16
# The limit takes the first four, two are deleted, one of them so that its bytes are overwritten.
LIVE_SEQS = [5, 6, 8, 10, 11, 12, 13, 14, 15, 16]
DELIVERED = SeqPair(consumer_seq=5, stream_seq=10)
ACK_FLOOR = SeqPair(consumer_seq=1, stream_seq=5)
PENDING_SEQS = {6, 8, 10}
REDELIVERED = {6: 1}


def message(seq: int) -> tuple[bytes, bytes, bytes]:
    """Subject, header block and payload of the message with this seq."""
    block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % seq if seq % 4 == 0 else b""
    return b"gold.%d" % (seq % 3), block, b"message %d;" % seq * (seq - 1)


def fill(client: SnapshotClient) -> None:
    """Make the stream and bring it into its state."""
    client.api(f"STREAM.CREATE.{STREAM}", CONFIG)
    for seq in range(1, MESSAGES + 1):
        client.ask(*message(seq))
    client.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 7})
    client.api(f"STREAM.MSG.DELETE.{STREAM}", {"seq": 9, "no_erase": True})
    request = {"stream_name": STREAM, "config": CONSUMER_CONFIG}
    client.api(f"CONSUMER.CREATE.{STREAM}.{CONSUMER}", request)
    replies = client.pull(STREAM, CONSUMER, 4)
    client.ask(replies[0], b"", b"+ACK")
    client.ask(replies[1], b"", b"-NAK")
    client.pull(STREAM, CONSUMER, 1)
