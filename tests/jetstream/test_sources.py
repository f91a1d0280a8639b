"""Sources of edged: origins that come and go, restarts, room, work queues."""

from __future__ import annotations

import pytest

from tests.jetstream.origin_pair import Document, OriginServer, create, payloads, publish
from tests.jetstream.raw_client import block_of

pytestmark = pytest.mark.real


def test_an_origin_that_is_made_later_is_found_when_it_is_made(edged: OriginServer) -> None:
    create(edged, "S", sources=[{"name": "O"}])
    info = edged.wait("S", lambda info: "error" in info["sources"][0])
    assert info["sources"] == [
        {
            "name": "O",
            "lag": 0,
            "active": -1,
            "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
        }
    ]
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 3)
    assert "error" not in edged.wait_last("S", 3)["sources"][0]


def test_an_origin_that_is_made_anew_is_read_from_its_beginning(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "S", sources=[{"name": "O"}])
    publish(edged, "o", 3)
    edged.wait_last("S", 3)
    edged.client.api("STREAM.DELETE.O")
    edged.wait("S", lambda info: "error" in info["sources"][0])
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 2, start=100)
    edged.wait_last("S", 5)
    assert payloads(edged, "S") == [(1, 0), (2, 1), (3, 2), (4, 100), (5, 101)]


def test_a_source_goes_on_after_a_restart_though_the_stream_is_empty(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "S", sources=[{"name": "O", "opt_start_seq": 2}])
    publish(edged, "o", 3)
    edged.wait_last("S", 2)
    edged.client.api("STREAM.PURGE.S")
    edged.stop()
    edged.start()
    publish(edged, "o", 1, start=3)
    assert edged.wait_last("S", 3)["sources"][0]["seq"] == 4
    assert payloads(edged, "S") == [(3, 3)]


def test_a_full_stream_waits_for_room_and_takes_the_rest_in_order(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 12)
    create(edged, "S", sources=[{"name": "O"}], max_msgs=5, discard="new")
    edged.wait_last("S", 5)
    assert edged.wait("S", lambda info: info["sources"][0]["lag"] == 7)["sources"][0]["seq"] == 5
    for room in (1, 3, 1):
        last_seq = edged.info("S")["state"]["last_seq"]
        edged.client.api("STREAM.PURGE.S", {"keep": 5 - room})
        edged.wait_last("S", last_seq + room)
    assert payloads(edged, "S") == [(seq, seq - 1) for seq in range(6, 11)]
    edged.client.api("STREAM.UPDATE.S", {"name": "S", "sources": [{"name": "O"}]})
    edged.wait_last("S", 12)
    assert payloads(edged, "S") == [(seq, seq - 1) for seq in range(6, 13)]


def test_a_message_that_is_too_large_stops_its_source_and_no_other(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "P", subjects=["p"])
    edged.client.ask("o", b"", b"0" * 300)
    publish(edged, "o", 1)
    config: Document = {"name": "S", "sources": [{"name": "O"}, {"name": "P"}]}
    edged.client.api("STREAM.CREATE.S", {**config, "max_msg_size": 200})
    publish(edged, "p", 2, start=7)
    edged.wait_last("S", 2)
    assert payloads(edged, "S") == [(1, 7), (2, 8)]
    assert [source["lag"] for source in edged.info("S")["sources"]] == [2, 0]
    edged.client.api("STREAM.UPDATE.S", config)
    edged.wait_last("S", 4)
    assert payloads(edged, "S") == [(1, 7), (2, 8), (3, 0), (4, 0)]


def test_a_work_queue_lets_go_of_what_was_taken_over_and_of_nothing_else(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o.>"], retention="workqueue")
    publish(edged, "o.1", 3)
    publish(edged, "o.2", 2)
    create(edged, "S", sources=[{"name": "O", "filter_subject": "o.1"}])
    edged.wait_last("S", 3)
    edged.wait("O", lambda info: info["state"]["messages"] == 2)
    assert [subject for _, subject, _, _ in edged.messages("O")] == ["o.2", "o.2"]


def test_what_is_taken_over_is_republished_and_wakes_the_next_stream(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "S", sources=[{"name": "O"}], republish={"src": ">", "dest": "again.>"})
    create(edged, "NEXT", sources=[{"name": "S"}])
    edged.client.subscribe("again.>")
    publish(edged, "o", 1)
    assert edged.client.receive().subject == b"again.o"
    edged.wait_last("NEXT", 1)


def test_a_sealed_stream_takes_nothing_more(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "S", sources=[{"name": "O"}])
    create(edged, "FENCE", sources=[{"name": "O"}])
    publish(edged, "o", 1)
    edged.wait_last("S", 1)
    edged.client.api("STREAM.UPDATE.S", {"name": "S", "sources": [{"name": "O"}], "sealed": True})
    publish(edged, "o", 1)
    edged.wait_last("FENCE", 2)
    assert edged.info("S")["state"]["last_seq"] == 1


def test_counters_that_come_twice_or_were_missed_count_once(edged: OriginServer) -> None:
    """The origin keeps the last total only: what it does not say is in the difference."""
    create(edged, "C", subjects=["c.>"], allow_msg_counter=True, max_msgs_per_subject=1)
    for _ in range(10):
        edged.client.ask("c.a", block_of(Nats_Incr="2"))
    create(edged, "SUM", sources=[{"name": "C"}], allow_msg_counter=True)
    edged.wait_last("SUM", 1)
    edged.client.ask("c.a", block_of(Nats_Incr="1"))
    edged.wait_last("SUM", 2)
    assert [payload for _, _, _, payload in edged.messages("SUM")] == [b'{"val":"20"}', b'{"val":"21"}']
