"""Header blocks: what is left of one when its status is taken out."""

from __future__ import annotations

import pytest

from edged.core import headers


@pytest.mark.parametrize(
    ("block", "left"),
    [
        (b"NATS/1.0 503\r\n\r\n", b""),
        (b"NATS/1.0 503 Text\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\nA: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n\r\n"),
        (b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\n\r\n"),
        (b"HTTP/1.1 200\r\n\r\n", b"HTTP/1.1 200\r\n\r\n"),
        (b"", b""),
    ],
)
def test_without_status_leaves_the_lines_and_nothing_where_there_are_none(block: bytes, left: bytes) -> None:
    assert headers.without_status(block) == left
