"""TTLs of messages, where they are changed before they are stored."""

from __future__ import annotations

import pytest

from edged.core import headers
from edged.core.message_ttl import with_ttl_min


@pytest.mark.parametrize(
    ("ttl", "stored"),
    [
        (b"5", b"10"),
        (b"9s", b"10"),
        (b"10", b"10"),
        (b"1m", b"1m"),
        (b"never", b"never"),
        (b"rubbish", b"rubbish"),
    ],
)
def test_a_ttl_is_raised_to_that_of_the_marker(ttl: bytes, stored: bytes) -> None:
    block = headers.encode(((b"A", b"b"), (b"Nats-TTL", ttl), (b"C", b"d")))
    raised = with_ttl_min(block, 10)
    assert headers.value(raised, b"Nats-TTL") == stored
    assert (headers.value(raised, b"A"), headers.value(raised, b"C")) == (b"b", b"d")


def test_a_message_without_a_ttl_stays_as_it_is() -> None:
    block = headers.encode(((b"A", b"b"),))
    assert with_ttl_min(block, 10) == block
