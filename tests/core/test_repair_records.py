"""What a node writes down of lost messages that came back."""

from __future__ import annotations

import msgpack
import pytest

from edged.core.message import Message
from edged.core.repair_records import GivenUp, Settled, checksum_of, decode_repaired, encode_repaired

MESSAGE = Message(7, 1_700_000_000_000_000_000, b"a.b", 3, b"abcdata")


@pytest.mark.parametrize(
    "record", [MESSAGE, Settled(3, 9, True), Settled(3, 3, False), GivenUp((1, 2**63 - 1)), GivenUp(())]
)
def test_what_is_written_is_read(record: Message | Settled | GivenUp) -> None:
    assert decode_repaired(encode_repaired(record)) == record


@pytest.mark.parametrize(
    "values",
    [
        {},
        7,
        [],
        [1, 2],
        [1, 2, 3],
        [["a"]],
        [0, 1, b"a", 0, b""],
        [1, -1, b"a", 0, b""],
        [1, 1, "a", 0, b""],
        [1, 1, b"a", 4, b"abc"],
        [1, 1, b"a", -1, b"abc"],
        [True, 1, b"a", 0, b"abc"],
    ],
)
def test_other_values_are_refused(values: object) -> None:
    with pytest.raises(ValueError, match="not"):
        decode_repaired(msgpack.packb(values))


def test_a_checksum_tells_every_part_of_a_message() -> None:
    others = [
        MESSAGE._replace(seq=8),
        MESSAGE._replace(ts_ns=1),
        MESSAGE._replace(header_bytes=2),
        MESSAGE._replace(data=b"abcdatb"),
        MESSAGE._replace(subject=b"a.c"),
        # The same bytes, divided otherwise.
        MESSAGE._replace(subject=b"a.ba", data=b"bcdata"),
    ]
    assert len({checksum_of(message) for message in (MESSAGE, *others)}) == len(others) + 1
