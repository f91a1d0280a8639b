"""Sources of edged: origins that come and go, restarts, room, work queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.origin_pair import Document, OriginServer, create, payloads, publish
from tests.jetstream.raw_client import block_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OriginServer]:
    """An edged for all tests."""
    server = OriginServer("edged", tmp_path_factory.mktemp("edged"))
    yield server
    server.stop()


@pytest.fixture
def server(running: OriginServer) -> Iterator[OriginServer]:
    """An edged without streams."""
    yield running
    running.forget()


def test_an_origin_that_is_made_later_is_found_when_it_is_made(server: OriginServer) -> None:
    create(server, "S", sources=[{"name": "O"}])
    info = server.wait("S", lambda info: "error" in info["sources"][0])
    assert info["sources"] == [
        {
            "name": "O",
            "lag": 0,
            "active": -1,
            "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
        }
    ]
    create(server, "O", subjects=["o"])
    publish(server, "o", 3)
    assert "error" not in server.wait_last("S", 3)["sources"][0]


def test_an_origin_that_is_made_anew_is_read_from_its_beginning(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "S", sources=[{"name": "O"}])
    publish(server, "o", 3)
    server.wait_last("S", 3)
    server.client.api("STREAM.DELETE.O")
    server.wait("S", lambda info: "error" in info["sources"][0])
    create(server, "O", subjects=["o"])
    publish(server, "o", 2, start=100)
    server.wait_last("S", 5)
    assert payloads(server, "S") == [(1, 0), (2, 1), (3, 2), (4, 100), (5, 101)]


def test_a_source_goes_on_after_a_restart_though_the_stream_is_empty(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "S", sources=[{"name": "O", "opt_start_seq": 2}])
    publish(server, "o", 3)
    server.wait_last("S", 2)
    server.client.api("STREAM.PURGE.S")
    server.stop()
    server.start()
    publish(server, "o", 1, start=3)
    assert server.wait_last("S", 3)["sources"][0]["seq"] == 4
    assert payloads(server, "S") == [(3, 3)]


def test_a_full_stream_waits_for_room_and_takes_the_rest_in_order(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    publish(server, "o", 12)
    create(server, "S", sources=[{"name": "O"}], max_msgs=5, discard="new")
    server.wait_last("S", 5)
    assert server.wait("S", lambda info: info["sources"][0]["lag"] == 7)["sources"][0]["seq"] == 5
    for room in (1, 3, 1):
        last_seq = server.info("S")["state"]["last_seq"]
        server.client.api("STREAM.PURGE.S", {"keep": 5 - room})
        server.wait_last("S", last_seq + room)
    assert payloads(server, "S") == [(seq, seq - 1) for seq in range(6, 11)]
    server.client.api("STREAM.UPDATE.S", {"name": "S", "sources": [{"name": "O"}]})
    server.wait_last("S", 12)
    assert payloads(server, "S") == [(seq, seq - 1) for seq in range(6, 13)]


def test_a_message_that_is_too_large_stops_its_source_and_no_other(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "P", subjects=["p"])
    server.client.ask("o", b"", b"0" * 300)
    publish(server, "o", 1)
    config: Document = {"name": "S", "sources": [{"name": "O"}, {"name": "P"}]}
    server.client.api("STREAM.CREATE.S", {**config, "max_msg_size": 200})
    publish(server, "p", 2, start=7)
    server.wait_last("S", 2)
    assert payloads(server, "S") == [(1, 7), (2, 8)]
    assert [source["lag"] for source in server.info("S")["sources"]] == [2, 0]
    server.client.api("STREAM.UPDATE.S", config)
    server.wait_last("S", 4)
    assert payloads(server, "S") == [(1, 7), (2, 8), (3, 0), (4, 0)]


def test_a_work_queue_lets_go_of_what_was_taken_over_and_of_nothing_else(server: OriginServer) -> None:
    create(server, "O", subjects=["o.>"], retention="workqueue")
    publish(server, "o.1", 3)
    publish(server, "o.2", 2)
    create(server, "S", sources=[{"name": "O", "filter_subject": "o.1"}])
    server.wait_last("S", 3)
    server.wait("O", lambda info: info["state"]["messages"] == 2)
    assert [subject for _, subject, _, _ in server.messages("O")] == ["o.2", "o.2"]


def test_what_is_taken_over_is_republished_and_wakes_the_next_stream(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "S", sources=[{"name": "O"}], republish={"src": ">", "dest": "again.>"})
    create(server, "NEXT", sources=[{"name": "S"}])
    server.client.subscribe("again.>")
    publish(server, "o", 1)
    assert server.client.receive().subject == b"again.o"
    server.wait_last("NEXT", 1)


def test_a_sealed_stream_takes_nothing_more(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "S", sources=[{"name": "O"}])
    create(server, "FENCE", sources=[{"name": "O"}])
    publish(server, "o", 1)
    server.wait_last("S", 1)
    server.client.api("STREAM.UPDATE.S", {"name": "S", "sources": [{"name": "O"}], "sealed": True})
    publish(server, "o", 1)
    server.wait_last("FENCE", 2)
    assert server.info("S")["state"]["last_seq"] == 1


def test_counters_that_come_twice_or_were_missed_count_once(server: OriginServer) -> None:
    """The origin keeps the last total only: what it does not say is in the difference."""
    create(server, "C", subjects=["c.>"], allow_msg_counter=True, max_msgs_per_subject=1)
    for _ in range(10):
        server.client.ask("c.a", block_of(Nats_Incr="2"))
    create(server, "SUM", sources=[{"name": "C"}], allow_msg_counter=True)
    server.wait_last("SUM", 1)
    server.client.ask("c.a", block_of(Nats_Incr="1"))
    server.wait_last("SUM", 2)
    assert [payload for _, _, _, payload in server.messages("SUM")] == [b'{"val":"20"}', b'{"val":"21"}']
