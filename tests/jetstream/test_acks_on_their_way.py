"""A message whose acknowledgement has arrived and waits for the disk is not delivered again, nor given up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jetstream.virtual_server import SECOND_NS, Inbox, VirtualServer


def served(**config: Any) -> tuple[VirtualServer, Inbox, bytes]:
    """A server, a client with a request that waits, and how it acknowledges what it was sent."""
    server = VirtualServer()
    server.api("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
    wanted = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": SECOND_NS, **config}
    server.api("CONSUMER.DURABLE.CREATE.S.c", {"stream_name": "S", "config": wanted})
    client = server.subscribe("to.client")
    server.publish("s.one", b"x")
    server.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":9}', reply="to.client")
    ((_, reply, _, _),) = client.take()
    assert reply is not None
    return server, client, reply


@pytest.mark.parametrize("config", [{}, {"max_deliver": 1}, {"backoff": [SECOND_NS, SECOND_NS]}])
@pytest.mark.parametrize("confirmed", ["", "done"])
def test_its_time_may_end_while_the_disk_is_busy(config: dict[str, Any], confirmed: str) -> None:
    server, client, reply = served(**config)
    given_up = server.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>")
    server.is_disk_busy = True
    server.publish(reply, b"+ACK", confirmed)
    server.advance(3 * SECOND_NS)
    server.is_disk_busy = False
    server.advance(3 * SECOND_NS)
    assert not client.take()
    assert not given_up.take()
    info = server.info("S", "c")
    assert (info["num_ack_pending"], info["num_redelivered"], info["ack_floor"]["stream_seq"]) == (0, 0, 1)


def test_it_may_have_been_sent_back_before() -> None:
    server, client, reply = served()
    server.publish(reply, b'-NAK {"delay": 1000}')
    server.publish(reply, b"")
    server.advance(SECOND_NS)
    assert not client.take()
    assert server.info("S", "c")["num_ack_pending"] == 0


def test_it_comes_again_when_the_acknowledgement_is_lost() -> None:
    server, client, reply = served()
    server.is_disk_busy = True
    server.publish(reply, b"+ACK", "done")
    server.crash()
    server.publish("$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"batch":9}', reply="to.client")
    server.advance(2 * SECOND_NS)
    assert [data for _, _, _, data in client.take()][:1] == [b"x"]
