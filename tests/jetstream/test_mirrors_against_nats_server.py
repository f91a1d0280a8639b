"""Mirrors of edged and of nats-server hold the same, and say the same about themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.jetstream.origin_pair import Document, OriginPair, OriginServer
from tests.jetstream.raw_client import block_of

pytestmark = pytest.mark.real

MESSAGES = 12
LATER = 6
# What is mirrored how, and the last seq that the mirror has then.
MIRRORS: dict[str, tuple[Document, int]] = {
    "ALL": ({"mirror": {"name": "O"}}, MESSAGES),
    "FILTERED": ({"mirror": {"name": "O", "filter_subject": "o.1.*"}}, 11),
    "FROM_SEQ": ({"mirror": {"name": "O", "opt_start_seq": 5}}, MESSAGES),
    "BEFORE_FIRST": ({"mirror": {"name": "O", "opt_start_seq": 1}}, MESSAGES),
    "TRANSFORMED": (
        {
            "mirror": {
                "name": "O",
                "subject_transforms": [
                    {"src": "o.0.*", "dest": "zero.{{wildcard(1)}}"},
                    {"src": "o.2.*", "dest": ""},
                ],
            }
        },
        MESSAGES,
    ),
    "TWICE": (
        {
            "mirror": {"name": "O", "subject_transforms": [{"src": "o.>", "dest": "m.>"}]},
            "subject_transform": {"src": "m.0.*", "dest": "n.$1"},
        },
        MESSAGES,
    ),
    "SHORT": ({"mirror": {"name": "O"}, "max_msgs": 3}, MESSAGES),
    "LAST_OF_SUBJECT": ({"mirror": {"name": "O"}, "max_msgs_per_subject": 1}, MESSAGES),
    "MEMORY": ({"mirror": {"name": "O"}, "storage": "memory"}, MESSAGES),
    "BOUNDED": ({"mirror": {"name": "O"}, "max_msg_size": 10_000}, MESSAGES),
    "REFUSING": ({"mirror": {"name": "O"}, "max_msgs": 1000, "discard": "new"}, MESSAGES),
    "OF_FILTERED": ({"mirror": {"name": "FILTERED"}}, 11),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OriginPair]:
    """Two servers with an origin and all the mirrors."""
    pair = OriginPair(tmp_path_factory.mktemp("mirrors"))
    pair.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"], "allow_direct": True})
    pair.fill_origin(MESSAGES, _block)
    pair.create(MIRRORS)
    yield pair
    pair.stop()


def _block(number: int) -> bytes:
    """All kinds of headers: those that are taken over, and those that are between publisher and origin."""
    if number % 4 == 0:
        return b""
    fields: dict[str, Any] = {"Nats_Msg_Id": f"id-{number}"}
    if number % 4 == 2:
        fields = {"Nats_Expected_Last_Sequence": str(number), "Mine": "yes"}
    if number % 4 == 3:
        fields = {"Nats_Expected_Stream": "O"}
    return block_of(**fields)


@pytest.mark.parametrize("name", MIRRORS)
def test_a_mirror_holds_and_says_what_nats_server_has(pair: OriginPair, name: str) -> None:
    pair.assert_same(name, MIRRORS[name][1])


def test_times_are_those_of_the_origin(pair: OriginPair) -> None:
    ours = pair.ours
    ours.wait_last("ALL", MESSAGES)
    for seq in (2, 5, MESSAGES):
        origin, mirror = ours.message("O", seq), ours.message("ALL", seq)
        assert origin is not None and mirror is not None
        assert mirror["time"] == origin["time"]


def test_a_start_beyond_the_end_leaves_the_seqs_before_it_out(pair: OriginPair) -> None:
    pair.api("STREAM.CREATE.BEYOND", {"name": "BEYOND", "mirror": {"name": "O", "opt_start_seq": 40}})
    states = [one.wait_last("BEYOND", 39)["state"] for one in pair.both]
    assert states[0]["first_seq"] == states[1]["first_seq"] == 40


def test_a_start_by_time_takes_what_is_not_older(pair: OriginPair) -> None:
    for one in pair.both:
        origin = one.message("O", 6)
        assert origin is not None
        mirror = {"name": "O", "opt_start_time": origin["time"]}
        one.client.api("STREAM.CREATE.BY_TIME", {"name": "BY_TIME", "mirror": mirror})
    pair.assert_same("BY_TIME", MESSAGES)
    assert pair.ours.messages("BY_TIME")[0][0] == 6


def test_what_the_origin_loses_before_it_is_mirrored_is_a_gap(pair: OriginPair) -> None:
    """Runs last of those that change the origin: mirrors keep what they have, a new one has the rest."""
    names = ("ALL", "SHORT", "MEMORY", "REFUSING", "BOUNDED")
    for name in names:
        pair.assert_same(name, MESSAGES)
    pair.api("STREAM.PURGE.O", {"keep": 1})
    for number in range(LATER):
        pair.publish("o.1.later", b"", b"%d" % number)
    for name in names:
        # Else it would depend on their haste whether they got what goes now.
        pair.assert_same(name, MESSAGES + LATER)
    pair.api("STREAM.PURGE.O", {"seq": MESSAGES + 3})
    for name in names:
        pair.assert_same(name, MESSAGES + LATER)
    pair.api("STREAM.CREATE.LATE", {"name": "LATE", "mirror": {"name": "O"}})
    pair.assert_same("LATE", MESSAGES + LATER)
    assert pair.ours.messages("LATE")[0][0] == MESSAGES + 3


def test_the_api_refuses_to_publish_to_a_mirror_by_subjects_of_its_own(pair: OriginPair) -> None:
    request = {"name": "BAD", "subjects": ["bad.>"], "mirror": {"name": "O"}}
    answers = [_asked(one, "STREAM.CREATE.BAD", request)["error"] for one in pair.both]
    assert answers[0] == answers[1]


def _asked(one: OriginServer, name: str, request: Document) -> Document:
    answer: Document = one.client.ask(f"$JS.API.{name}", b"", json.dumps(request).encode()).document
    return answer


def test_a_promoted_mirror_takes_what_is_published_and_goes_on_with_its_seqs(pair: OriginPair) -> None:
    pair.api("STREAM.CREATE.P", {"name": "P", "mirror": {"name": "O", "filter_subject": "o.1.*"}})
    caught_up = pair.ours.wait("P", lambda info: info["state"]["messages"] and not info["mirror"]["lag"])
    last_seq = caught_up["state"]["last_seq"]
    pair.theirs.wait_last("P", last_seq)
    pair.api("STREAM.UPDATE.P", {"name": "P", "subjects": ["p.>"]})
    pair.publish("p.1", b"", b"own")
    pair.publish("o.1.x", b"", b"not for it")
    infos = [one.info("P") for one in pair.both]
    assert all("mirror" not in info for info in infos)
    assert infos[0]["state"]["last_seq"] == infos[1]["state"]["last_seq"] == last_seq + 1
    assert pair.ours.messages("P") == pair.theirs.messages("P")
