"""Consumers that are used from another account: the same from edged and nats-server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jetstream.consumer_pair import Seen, seen
from tests.jetstream.jetstream_servers import SERVERS, running
from tests.jetstream.raw_client import RawClient

pytestmark = pytest.mark.real

CONFIG = """
jetstream: {store_dir: "${directory}/store"}
accounts {
  OWNER {
    jetstream: enabled
    users: [{user: owner, password: p}]
    exports: [
      {service: "$JS.API.>", response_type: stream}
      {service: "$JS.ACK.>"}
      {stream: "deliver.>"}
    ]
  }
  GUEST {
    users: [{user: guest, password: p}]
    imports: [
      {service: {account: OWNER, subject: "$JS.API.>"}}
      {service: {account: OWNER, subject: "$JS.ACK.>"}}
      {stream: {account: OWNER, subject: "deliver.>"}}
    ]
  }
}
"""

DELIVERED = {"ack_policy": "none", "deliver_subject": "deliver.x"}


def used_by_a_guest(kind: str, directory: Path) -> tuple[list[Seen], dict[str, Any]]:
    """What a guest gets, asked for and pushed, and what is known of it after an acknowledgement."""
    with running(kind, directory, CONFIG) as server:
        owner = RawClient(server.host, server.port, user="owner", **{"pass": "p"})
        guest = RawClient(server.host, server.port, user="guest", pedantic=False, **{"pass": "p"})
        owner.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        for number in range(3):
            owner.ask(f"s.{number}", b"", b"%d" % number)
        pulled = {"durable_name": "c", "ack_policy": "explicit"}
        owner.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": pulled})
        guest.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"", b'{"batch":2}', b"R.guest")
        arrived = [guest.receive() for _ in range(2)]
        assert guest.ask(arrived[0].reply, b"", b"+ACK").payload == b""
        info = owner.api("CONSUMER.INFO.S.c")
        guest.subscribe("deliver.x")
        guest.ask("$JS.API.INFO")
        pushed = {"durable_name": "p", **DELIVERED}
        owner.api("CONSUMER.DURABLE.CREATE.S.p", {"stream_name": "S", "config": pushed})
        arrived += [guest.receive() for _ in range(3)]
        # The subject of such a request ends with a filter, whose wildcards are nothing special there.
        chosen = {
            "name": "f",
            "filter_subject": "s.>",
            "deliver_policy": "last",
            "deliver_subject": "deliver.x",
        }
        guest.api("CONSUMER.CREATE.S.f.s.>", {"stream_name": "S", "config": chosen})
        arrived.append(guest.receive())
        owner.close()
        guest.close()
        known = {key: info[key] for key in ("num_ack_pending", "num_pending", "num_waiting")}
        return [seen(one) for one in arrived], known


def test_a_guest_sees_what_the_owner_would_see(tmp_path: Path) -> None:
    one, other = (used_by_a_guest(kind, tmp_path / kind) for kind in SERVERS)
    assert one == other
    assert [message.subject for message in one[0]] == [b"s.0", b"s.1", b"s.0", b"s.1", b"s.2", b"s.2"]
    assert one[1] == {"num_ack_pending": 1, "num_pending": 1, "num_waiting": 0}
