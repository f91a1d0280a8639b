"""Acknowledgements that are read many at a time; over both twins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.core import _acks, acks

ACK = b"$JS.ACK.S.C."


@pytest.mark.parametrize("twin", [acks.plain_acks, _acks.plain_acks], ids=["reference", "native"])
def test_plain_acknowledgements_are_read_up_to_the_first_that_is_not(twin: Any) -> None:
    plain = [
        (ACK + b"1.%d.3.4.0" % seq, None, -1, data) for seq, data in ((7, b""), (9, b"+ACK"), (8, b"+OK"))
    ]
    for odd in (
        (ACK + b"1.5.3.4.0", b"r", -1, b""),
        (ACK + b"1.5.3.4.0", None, -1, b"-NAK"),
        (ACK + b"1.5.3.4.0", None, -1, b"+ACK "),
        (ACK + b"1.5.3.4.0", None, 12, b"NATS/1.0\r\n\r\n"),
        (b"$JS.ACK.S.D.1.5.3.4.0", None, -1, b""),
        (ACK + b"1.5.3.4", None, -1, b""),
        (ACK + b"1.5.3.4.0.1", None, -1, b""),
        (ACK + b"1..3.4.0", None, -1, b""),
        (ACK + b"1.5.3.4.", None, -1, b""),
        (ACK + b"1.+5.3.4.0", None, -1, b""),
        (ACK + b"1.0.3.4.0", None, -1, b""),
        (ACK + b"1.%d.3.4.0" % 10**19, None, -1, b""),
        (ACK, None, -1, b""),
    ):
        assert list(twin([*plain, odd, *plain], 0, ACK)) == [7, 9, 8], odd
    assert list(twin(plain, 1, ACK)) == [9, 8]
    assert list(twin(plain, 3, ACK)) == []


@given(st.binary(max_size=12), st.sampled_from((b"", b"1.2.", b"1.2.3.4.")))
def test_the_twins_read_the_same_acknowledgements(tail: bytes, head: bytes) -> None:
    messages = [(ACK + head + tail, None, -1, b"")]
    assert _acks.plain_acks(messages, 0, ACK) == acks.plain_acks(messages, 0, ACK)
