"""Sources of edged and of nats-server: the same messages, headers included, and the same said about them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jetstream.origin_pair import Document, OriginPair
from tests.jetstream.raw_client import block_of

pytestmark = pytest.mark.real

MESSAGES = 12
# What is sourced how, and the last seq that the stream has then.
SOURCES: dict[str, tuple[Document, int]] = {
    "ALL": ({"sources": [{"name": "O"}]}, 9),
    "FILTERED": ({"sources": [{"name": "O", "filter_subject": "o.1.*"}]}, 4),
    "FROM_SEQ": ({"sources": [{"name": "O", "opt_start_seq": 8}]}, 5),
    "TRANSFORMED": (
        {
            "sources": [
                {
                    "name": "O",
                    "subject_transforms": [
                        {"src": "o.0.*", "dest": "zero.{{wildcard(1)}}"},
                        {"src": "o.2.*", "dest": ""},
                    ],
                }
            ]
        },
        5,
    ),
    "TWICE": (
        {
            "sources": [{"name": "O", "subject_transforms": [{"src": "o.>", "dest": "m.>"}]}],
            "subject_transform": {"src": "m.0.*", "dest": "n.$1"},
        },
        9,
    ),
    "SHORT": ({"sources": [{"name": "O"}], "max_msgs": 3}, 9),
    "MEMORY": ({"sources": [{"name": "O"}], "storage": "memory"}, 9),
    "REFUSING": ({"sources": [{"name": "O"}], "max_msgs": 1000, "discard": "new"}, 9),
    "KEEPING_TTL": ({"sources": [{"name": "T"}]}, 2),
    "OF_SOURCED": ({"sources": [{"name": "ALL"}]}, 9),
}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OriginPair]:
    """Two servers with an origin and all the streams that take from it."""
    pair = OriginPair(tmp_path_factory.mktemp("sources"))
    pair.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.>"]})
    pair.api("STREAM.CREATE.T", {"name": "T", "subjects": ["t.>"], "allow_msg_ttl": True})
    pair.publish("t.1", block_of(Nats_TTL="1h"), b"ttl")
    pair.publish("t.2", block_of(Nats_TTL="never", A="b"), b"ttl")
    pair.fill_origin(MESSAGES, _block)
    pair.create(SOURCES)
    yield pair
    pair.stop()


def _block(number: int) -> bytes:
    """All kinds of headers: those that are taken over, and those that are between publisher and origin."""
    blocks = (
        b"",
        block_of(Nats_Msg_Id=f"id-{number}", Mine="yes"),
        block_of(Nats_Expected_Last_Sequence=str(number)),
        block_of(Nats_Expected_Stream="O", Nats_Expected_Last_Sequence=str(number), Mine="no"),
    )
    return blocks[number % len(blocks)]


@pytest.mark.parametrize("name", SOURCES)
def test_a_sourcing_stream_holds_and_says_what_nats_server_has(pair: OriginPair, name: str) -> None:
    pair.assert_same(name, SOURCES[name][1], ("O", "T", "ALL"))


def test_a_start_by_time_takes_what_is_not_older(pair: OriginPair) -> None:
    for one in pair.both:
        origin = one.message("O", 9)
        assert origin is not None
        source = {"name": "O", "opt_start_time": origin["time"]}
        one.client.api("STREAM.CREATE.BY_TIME", {"name": "BY_TIME", "sources": [source]})
    pair.assert_same("BY_TIME", 4)


def test_own_messages_and_those_of_sources_share_the_seqs(pair: OriginPair) -> None:
    pair.api("STREAM.CREATE.OWN", {"name": "OWN", "subjects": ["own.>"], "sources": [{"name": "O"}]})
    for one in pair.both:
        one.wait_last("OWN", 9)
    pair.publish("own.1", b"", b"own")
    pair.assert_same("OWN", 10)


def test_a_source_that_is_added_begins_and_one_that_is_removed_ends(pair: OriginPair) -> None:
    first: Document = {"name": "O", "filter_subject": "o.0.*"}
    second: Document = {"name": "O", "filter_subject": "o.1.*"}
    pair.api("STREAM.CREATE.CHANGED", {"name": "CHANGED", "sources": [first]})
    for one in pair.both:
        one.wait_last("CHANGED", 1)
    pair.api("STREAM.UPDATE.CHANGED", {"name": "CHANGED", "sources": [first, second]})
    pair.assert_same("CHANGED", 5)
    pair.api("STREAM.UPDATE.CHANGED", {"name": "CHANGED", "sources": [second]})
    pair.api(
        "STREAM.CREATE.FENCE", {"name": "FENCE", "sources": [{"name": "O", "filter_subject": "o.*.new"}]}
    )
    pair.publish("o.0.new")
    pair.publish("o.1.new")
    pair.assert_same("FENCE", 2)
    pair.assert_same("CHANGED", 6)


def test_a_source_that_is_removed_and_added_again_brings_nothing_twice(pair: OriginPair) -> None:
    source: Document = {"name": "O", "filter_subject": "o.0.*"}
    config: Document = {"name": "AGAIN", "subjects": ["again"]}
    pair.api("STREAM.CREATE.AGAIN", {**config, "sources": [source]})
    for one in pair.both:
        one.wait_last("AGAIN", 2)
    pair.api("STREAM.UPDATE.AGAIN", config)
    pair.publish("o.0.between")
    pair.publish("again", b"", b"own")
    pair.api("STREAM.UPDATE.AGAIN", {**config, "sources": [source]})
    pair.assert_same("AGAIN", 4)


def test_a_message_that_is_there_by_its_id_is_not_taken_again(pair: OriginPair) -> None:
    config: Document = {"name": "DEDUPE", "subjects": ["dedupe.>"], "duplicate_window": 60_000_000_000}
    pair.api("STREAM.CREATE.DEDUPE", config)
    pair.publish("dedupe.1", block_of(Nats_Msg_Id="id-5"), b"first")
    pair.publish("dedupe.2", block_of(Nats_Msg_Id="id-9"), b"second")
    pair.api("STREAM.CREATE.D", {"name": "D", "subjects": ["d.>"]})
    for number in (5, 6, 9):
        pair.publish("d.1", block_of(Nats_Msg_Id=f"id-{number}"), b"%d" % number)
    pair.api("STREAM.UPDATE.DEDUPE", {**config, "sources": [{"name": "D"}]})
    pair.publish("d.1", block_of(Nats_Msg_Id="id-7"), b"7")
    pair.assert_same("DEDUPE", 4, ("D",))


def test_counters_add_up_over_their_sources(pair: OriginPair) -> None:
    counter: Document = {"allow_msg_counter": True}
    pair.api("STREAM.CREATE.C1", {"name": "C1", "subjects": ["c1.>"], **counter})
    for increment in ("1", "5", "-2", "10000000000000000000000"):
        pair.publish("c1.a", block_of(Nats_Incr=increment))
    pair.publish("c1.b", block_of(Nats_Incr="7"))
    transforms = [{"src": "c1.>", "dest": "sum.>"}]
    sum_config: Document = {"name": "SUM", "subjects": ["sum.>"], **counter}
    pair.api("STREAM.CREATE.SUM", sum_config)
    pair.publish("sum.a", block_of(Nats_Incr="100"))
    sources: Document = {"sources": [{"name": "C1", "subject_transforms": transforms}]}
    pair.api("STREAM.UPDATE.SUM", {**sum_config, **sources})
    pair.assert_same("SUM", 6, ("C1",))
    pair.publish("sum.a", block_of(Nats_Incr="3"))
    pair.assert_same("SUM", 7, ("C1",))
    # A stream that does not count takes counters as they are.
    pair.api("STREAM.CREATE.VERBATIM", {"name": "VERBATIM", "sources": [{"name": "SUM"}]})
    pair.assert_same("VERBATIM", 7, ("C1", "SUM"))
