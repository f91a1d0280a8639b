"""Headers, names and subjects of messages that a stream takes over from another."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import headers
from edged.core.gojson_shapes import read_request
from edged.core.publish_headers import STREAM_SOURCE
from edged.core.short_names import short_hash, stream_identity
from edged.core.source_config import SOURCE, StreamSource
from edged.core.source_header import (
    OriginSubjects,
    SourceHeader,
    index_of,
    mirrored_block,
)
from edged.core.source_positions import SourcePosition, read_position
from edged.core.transform import no_chance


def source(**fields: Any) -> StreamSource:
    return StreamSource.of(read_request(json.dumps({"name": "O", **fields}).encode(), SOURCE, True))


def test_hashes_are_those_of_nats_server() -> None:
    assert short_hash(b"A.API") == "4trl36Z3"


def test_an_identity_is_the_hash_of_the_time_in_the_form_of_go() -> None:
    assert stream_identity(1_700_000_000_120_000_000) == short_hash(b"2023-11-14T22:13:20.12Z")


@pytest.mark.parametrize(
    ("fields", "index"),
    [
        ({}, "O > >"),
        ({"filter_subject": "o.*"}, "O o.* >"),
        ({"subject_transforms": [{"src": "a.>", "dest": "b.>"}]}, "O a.> b.>"),
        ({"subject_transforms": [{"src": "a"}, {"src": "", "dest": "x.>"}]}, "O a\f> >\fx.>"),
        ({"external": {"api": "A.API", "deliver": ""}}, "O:4trl36Z3 > >"),
        (
            {"external": {"api": "A.API", "deliver": ""}, "consumer": {"name": "C", "deliver_subject": "d"}},
            f"O:4trl36Z3:C={short_hash(b'C')} > >",
        ),
    ],
)
def test_a_source_is_known_by_stream_api_consumer_filters_and_transforms(
    fields: dict[str, Any], index: str
) -> None:
    assert index_of(source(**fields)) == index


def test_the_header_is_written_last_and_only_once() -> None:
    before = b"NATS/1.0\r\nNats-Stream-Source: OTHER 7 > > x ID\r\nMine: yes\r\n\r\n"
    after = SourceHeader(source(filter_subject="o.*")).block(before, 12, b"o.1", b"ID")
    assert after == b"NATS/1.0\r\nMine: yes\r\nNats-Stream-Source: O 12 o.* > o.1 ID\r\n\r\n"


def test_an_origin_without_an_identity_leaves_it_out() -> None:
    block = SourceHeader(source()).block(b"", 1, b"o.1", b"")
    assert block == b"NATS/1.0\r\nNats-Stream-Source: O 1 > > o.1\r\n\r\n"


def test_expectations_and_batches_are_not_taken_over() -> None:
    kept = b"NATS/1.0\r\nNats-Msg-Id: 1\r\nMine: yes\r\n\r\n"
    extra = b"Nats-Expected-Stream: O\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\n"
    assert mirrored_block(kept.replace(b"Mine", extra + b"Mine")) == kept
    assert mirrored_block(b"NATS/1.0\r\n" + extra + b"\r\n") == b""
    assert mirrored_block(b"") == b""


@given(
    st.integers(1, 2**63),
    st.sampled_from(["", "o.*", "o.>"]),
    st.sampled_from([b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
)
def test_what_is_written_says_the_position_that_the_machine_keeps(
    seq: int, wanted: str, block: bytes
) -> None:
    header = SourceHeader(source(filter_subject=wanted))
    text = headers.value(header.block(block, seq, b"o.1", b"IDENTITY"), STREAM_SOURCE)
    assert text is not None
    assert read_position(text) == {header.index: SourcePosition(seq, "IDENTITY")}


def test_the_first_transform_that_fits_gives_the_subject() -> None:
    transforms = [{"src": "a.*", "dest": "first.$1"}, {"src": "b", "dest": ""}, {"src": "a.>", "dest": "x.>"}]
    subjects = OriginSubjects(source(subject_transforms=transforms))
    assert subjects.filters == (b"a.*", b"b", b"a.>")
    found = [subjects.apply(subject, no_chance) for subject in (b"a.1", b"b", b"a.1.2", b"c")]
    assert found == [b"first.1", b"b", b"x.1.2", b"c"]


@pytest.mark.parametrize(
    "fields",
    [{}, {"filter_subject": ">"}, {"subject_transforms": [{"src": "", "dest": "x.>"}, {"src": "a"}]}],
)
def test_a_source_of_everything_has_no_filters(fields: dict[str, Any]) -> None:
    assert OriginSubjects(source(**fields)).filters == ()
