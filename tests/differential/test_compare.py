"""Comparing transcripts and cutting frames."""

from __future__ import annotations

import pytest

from tests.differential.compare import Transcript, difference, difference_from_either
from tests.differential.connection import Frame, cut_frame

STREAM = (
    b"INFO {} \r\nMSG a 1 2\r\nhi\r\nHMSG a 1 r 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    b"+OK\r\nPONG\r\nMSG b 2 0\r\n\r\n"
)


def frames_of(chunks: list[bytes]) -> list[Frame]:
    found: list[Frame] = []
    data = b""
    for chunk in chunks:
        data += chunk
        while True:
            frame, data = cut_frame(data)
            if frame is None:
                break
            found.append(frame)
    assert data == b""
    return found


def test_every_cut_of_the_stream_gives_the_same_frames() -> None:
    whole = frames_of([STREAM])
    assert [frame.kind for frame in whole] == [b"INFO", b"MSG", b"HMSG", b"+OK", b"PONG", b"MSG"]
    for position in range(len(STREAM)):
        assert frames_of([STREAM[:position], STREAM[position:]]) == whole


def test_the_reply_of_a_message_is_found() -> None:
    assert [frame.reply for frame in frames_of([STREAM])] == [None, None, b"r", None, None, None]


def test_a_line_that_ends_without_a_carriage_return_is_not_hidden() -> None:
    assert frames_of([b"PONG\n"]) != frames_of([b"PONG\r\n"])


def test_equal_transcripts_have_no_difference() -> None:
    assert difference(Transcript("one", ["a", "b"]), Transcript("two", ["a", "b"])) is None


def test_a_difference_shows_both_sides() -> None:
    found = difference(Transcript("one", ["a", "left", "c"]), Transcript("two", ["a", "right", "c"]))
    assert found is not None
    marked = [line for line in found.splitlines() if line.startswith("!")]
    assert len(marked) == 1
    assert "left" in marked[0]
    assert "right" in marked[0]


@pytest.mark.parametrize(("left", "right"), [(["a"], ["a", "b"]), (["a", "b"], ["a"]), ([], ["a"])])
def test_a_missing_line_is_a_difference(left: list[str], right: list[str]) -> None:
    assert difference(Transcript("one", left), Transcript("two", right)) is not None


def test_a_case_that_does_not_show_its_fact_fails_even_when_both_agree() -> None:
    found = difference(Transcript("one", ["a"], missing=["fact"]), Transcript("two", ["a"]))
    assert found is not None
    assert "does not show" in found


def test_a_script_that_hangs_against_the_reference_fails_even_when_both_hang() -> None:
    stopped = Transcript("one", ["stopped: x"], stopped="x")
    assert difference(stopped, Transcript("two", ["stopped: x"], stopped="x")) is not None


IN_CLUSTER = [
    'A> request x = {"num_replicas":3,"name":"S"}',
    "A< MSG",
    "   {",
    '     "cluster": {',
    "     },",
    "   }",
]
ALONE = [
    'A> request x = {"name":"S"}',
    "A< MSG",
    "   {",
    '     "cluster": {',
    '       "leader"',
    "     },",
    "   }",
]


@pytest.mark.parametrize(
    ("clustered", "alone", "said", "is_alike"),
    [
        (["A> a", "1", "A> b", "2"], ["A> a", "x", "A> b", "y"], ["A> a", "1", "A> b", "y"], True),
        (["A> a", "1", "A> b", "2"], ["A> a", "x", "A> b", "y"], ["A> a", "1", "A> b", "z"], False),
        (["A> a", "1", "A> b", "2"], ["A> a", "1", "A> b", "2"], ["A> a", "1"], False),
        (["A> a", "1"], ALONE, IN_CLUSTER, True),
        (["A> a", "1"], [*ALONE[:-1], '     "more"', "   }"], IN_CLUSTER, False),
    ],
)
def test_each_step_is_answered_as_in_a_cluster_or_alone(
    clustered: list[str], alone: list[str], said: list[str], is_alike: bool
) -> None:
    found = difference_from_either(*(Transcript("s", lines) for lines in (clustered, alone, said)))
    assert (found is None) is is_alike
