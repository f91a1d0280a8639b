"""Mirrors of edged: origins that come and go, restarts, room, and who answers for an origin."""

from __future__ import annotations

import pytest

from tests.jetstream.origin_pair import OriginServer, create, payloads, publish

pytestmark = pytest.mark.real


def test_an_origin_that_is_made_later_is_found_when_it_is_made(edged: OriginServer) -> None:
    create(edged, "M", mirror={"name": "O"})
    info = edged.wait("M", lambda info: "error" in info["mirror"])
    assert info["mirror"] == {
        "name": "O",
        "lag": 0,
        "active": -1,
        "error": {"code": 404, "err_code": 10059, "description": "stream not found"},
    }
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 3)
    assert "error" not in edged.wait_last("M", 3)["mirror"]


def test_a_mirror_goes_on_behind_its_last_seq_when_the_origin_is_made_anew(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "M", mirror={"name": "O"})
    publish(edged, "o", 3)
    edged.wait_last("M", 3)
    edged.client.api("STREAM.DELETE.O")
    edged.wait("M", lambda info: "error" in info["mirror"])
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 5, start=100)
    edged.wait_last("M", 5)
    assert payloads(edged, "M") == [(1, 0), (2, 1), (3, 2), (4, 103), (5, 104)]


def test_a_mirror_goes_on_after_a_restart(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "M", mirror={"name": "O"})
    publish(edged, "o", 3)
    edged.wait_last("M", 3)
    edged.client.api("STREAM.DELETE.M")
    create(edged, "M", mirror={"name": "O", "opt_start_seq": 3})
    edged.wait_last("M", 3)
    edged.stop()
    edged.start()
    publish(edged, "o", 2, start=3)
    edged.wait_last("M", 5)
    assert payloads(edged, "M") == [(3, 2), (4, 3), (5, 4)]


def test_a_full_mirror_waits_for_room_and_no_message_gets_the_seq_of_another(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 10)
    for seq in (3, 8):
        edged.client.api("STREAM.MSG.DELETE.O", {"seq": seq})
    create(edged, "M", mirror={"name": "O"}, max_msgs=4, discard="new")
    edged.wait_last("M", 5)
    create(edged, "FENCE", mirror={"name": "O"})
    edged.wait_last("FENCE", 10)
    assert payloads(edged, "M") == [(1, 0), (2, 1), (4, 3), (5, 4)]
    assert edged.info("M")["mirror"]["lag"] == 4
    edged.client.api("STREAM.PURGE.M", {"keep": 1})
    edged.wait_last("M", 9)
    assert payloads(edged, "M") == [(5, 4), (6, 5), (7, 6), (9, 8)]
    edged.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}})
    edged.wait_last("M", 10)
    assert payloads(edged, "M") == [(5, 4), (6, 5), (7, 6), (9, 8), (10, 9)]


def test_a_message_that_is_too_large_stops_a_mirror_until_it_may_be_larger(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    create(edged, "M", mirror={"name": "O"})
    publish(edged, "o", 1)
    edged.wait_last("M", 1)
    edged.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}, "max_msg_size": 20})
    edged.client.ask("o", b"", b"0" * 30 + b"1")
    publish(edged, "o", 1, start=2)
    edged.wait("M", lambda info: info["mirror"]["lag"] == 2)
    assert payloads(edged, "M") == [(1, 0)]
    edged.client.api("STREAM.UPDATE.M", {"name": "M", "mirror": {"name": "O"}})
    edged.wait_last("M", 3)
    assert payloads(edged, "M") == [(1, 0), (2, 1), (3, 2)]


def test_what_a_mirror_stores_is_republished(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"])
    publish(edged, "o", 2)
    edged.client.subscribe("again.>")
    create(edged, "M", mirror={"name": "O"}, republish={"src": ">", "dest": "again.>"})
    arrived = [edged.client.receive() for _ in range(2)]
    assert [(one.subject, one.payload) for one in arrived] == [(b"again.o", b"0"), (b"again.o", b"1")]
    assert (b"Nats-Stream", b"M") in arrived[0].fields


def test_a_mirror_answers_direct_gets_for_an_origin_that_is_gone(edged: OriginServer) -> None:
    create(edged, "O", subjects=["o"], allow_direct=True)
    publish(edged, "o", 2)
    create(edged, "M", mirror={"name": "O"})
    edged.wait_last("M", 2)
    by_origin = edged.client.ask("$JS.API.DIRECT.GET.O.o")
    edged.client.api("STREAM.DELETE.O")
    by_mirror = edged.client.ask("$JS.API.DIRECT.GET.O.o")
    assert (by_origin.payload, by_mirror.payload) == (b"1", b"1")
    assert (b"Nats-Stream", b"O") in by_origin.fields
    assert (b"Nats-Stream", b"M") in by_mirror.fields
