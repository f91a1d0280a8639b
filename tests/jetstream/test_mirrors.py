"""Mirrors of edged: origins that come and go, restarts, room, and who answers for an origin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.origin_pair import OriginServer, create, payloads, publish

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
    create(server, "M", mirror={"name": "O"})
    info = server.wait("M", lambda info: "error" in info["mirror"])
    assert info["mirror"] == {
        "name": "O",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }
    create(server, "O", subjects=["o"])
    publish(server, "o", 3)
    assert "error" not in server.wait_last("M", 3)["mirror"]


def test_a_mirror_goes_on_behind_its_last_seq_when_the_origin_is_made_anew(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "M", mirror={"name": "O"})
    publish(server, "o", 3)
    server.wait_last("M", 3)
    server.client.api("STREAM.DELETE.O")
    server.wait("M", lambda info: "error" in info["mirror"])
    create(server, "O", subjects=["o"])
    publish(server, "o", 5, start=100)
    server.wait_last("M", 5)
    assert payloads(server, "M") == [(1, 0), (2, 1), (3, 2), (4, 103), (5, 104)]


def test_a_mirror_goes_on_after_a_restart(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "M", mirror={"name": "O"})
    publish(server, "o", 3)
    server.wait_last("M", 3)
    server.client.api("STREAM.DELETE.M")
    create(server, "M", mirror={"name": "O", "opt_start_seq": 3})
    server.wait_last("M", 3)
    server.stop()
    server.start()
    publish(server, "o", 2, start=3)
    server.wait_last("M", 5)
    assert payloads(server, "M") == [(3, 2), (4, 3), (5, 4)]


def test_a_full_mirror_waits_for_room_and_no_message_gets_the_seq_of_another(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    publish(server, "o", 10)
    for seq in (3, 8):
        server.client.api("STREAM.MSG.DELETE.O", {"seq": seq})
    create(server, "M", mirror={"name": "O"}, max_msgs=4, discard="new")
    server.wait_last("M", 5)
    create(server, "FENCE", mirror={"name": "O"})
    server.wait_last("FENCE", 10)
    assert payloads(server, "M") == [(1, 0), (2, 1), (4, 3), (5, 4)]
    assert server.info("M")["mirror"]["lag"] == 4
    server.client.api("STREAM.PURGE.M", {"keep": 1})
    server.wait_last("M", 9)
    assert payloads(server, "M") == [(5, 4), (6, 5), (7, 6), (9, 8)]
    server.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}})
    server.wait_last("M", 10)
    assert payloads(server, "M") == [(5, 4), (6, 5), (7, 6), (9, 8), (10, 9)]


def test_a_message_that_is_too_large_stops_a_mirror_until_it_may_be_larger(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    create(server, "M", mirror={"name": "O"})
    publish(server, "o", 1)
    server.wait_last("M", 1)
    server.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}, "max_msg_size": 20})
    server.client.ask("o", b"", b"0" * 30 + b"1")
    publish(server, "o", 1, start=2)
    server.wait("M", lambda info: info["mirror"]["lag"] == 2)
    assert payloads(server, "M") == [(1, 0)]
    server.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}})
    server.wait_last("M", 3)
    assert payloads(server, "M") == [(1, 0), (2, 1), (3, 2)]


def test_what_a_mirror_stores_is_republished(server: OriginServer) -> None:
    create(server, "O", subjects=["o"])
    publish(server, "o", 2)
    server.client.subscribe("again.>")
    create(server, "M", mirror={"name": "O"}, republish={"src": ">", "dest": "again.>"})
    arrived = [server.client.receive() for _ in range(2)]
    assert [(one.subject, one.payload) for one in arrived] == [(b"again.o", b"0"), (b"again.o", b"1")]
    assert (b"Nats-Stream", b"M") in arrived[0].fields


def test_a_mirror_answers_direct_gets_for_an_origin_that_is_gone(server: OriginServer) -> None:
    create(server, "O", subjects=["o"], allow_direct=True)
    publish(server, "o", 2)
    create(server, "M", mirror={"name": "O"})
    server.wait_last("M", 2)
    by_origin = server.client.ask("$JS.API.DIRECT.GET.O.o")
    server.client.api("STREAM.DELETE.O")
    by_mirror = server.client.ask("$JS.API.DIRECT.GET.O.o")
    assert (by_origin.payload, by_mirror.payload) == (b"1", b"1")
    assert (b"Nats-Stream", b"O") in by_origin.fields
    assert (b"Nats-Stream", b"M") in by_mirror.fields
